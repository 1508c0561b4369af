"""What the first finding says of jobs whose cause is known, and what it predicts against what mending them brought.

python -m pytest tests/diagnosis/test_job_findings.py -s         # prints what docs/benchmarks.md sums up
"""

import json
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from recordings import Recording
from tb_torchcompile_plugin.api.report import Run, RunFinding, whole_report
from tb_torchcompile_plugin.api.session import Session

pytestmark = pytest.mark.slow

SAYS = {  # of what the title says
    "communication:every_micro_batch": "Gradients are reduced across ranks 8 times per step",
    "communication:exposed": "Communication that is not overlapped",
    "communication:many_small": "small collectives per step",
    "input:host": "The loop waits for the next batch",
    "late:not_compiled": "No compiled code runs in the profiled steps",
    "late:validation": "computes for an extra",
    "late:python": "unaccounted for",
    "late:input": "waits for its next batch",
    "late:recompile": "compiles for",
    "late:rotating": "Ranks take turns",
    "late:slow_gpu": "the same kernels, which take",
    "late:sync": "The host waits for the GPU 144 times per step, in aten::item",
    "late:work": "computes for an extra",
}
WITHIN_POINTS = 20.0  # of a step, of every job; all but one are within 15


class JobSeen(NamedTuple):
    """measured: what was noted of the job. first: the first finding."""

    measured: dict[str, Any]
    run: Run
    first: RunFinding | None


@pytest.fixture(scope="module")
def jobs(recording: Recording) -> dict[str, JobSeen]:
    folder = recording("jobs")
    rows = json.loads((folder / "measured.json").read_text())["programs"]
    return {row["name"]: seen(folder / row["name"], row) for row in rows}


def seen(folder: Path, measured: dict[str, Any]) -> JobSeen:
    with closing(Session([("", str(folder))])) as session:
        report = whole_report(session)
    return JobSeen(measured, report.runs[0], next(iter(report.findings), None))


def is_planted(measured: dict[str, Any]) -> bool:
    """Whether something was, and mending it brought anything: more micro-batches did nothing for the pipeline."""
    return bool(measured["cause"]) and measured["mended_us"] < measured["planted_us"]


def test_the_first_finding_names_the_cause_and_the_rank(jobs: dict[str, JobSeen]) -> None:
    planted = {name: job for name, job in jobs.items() if is_planted(job.measured)}
    assert len(planted) >= 15
    for name, (measured, _, first) in planted.items():
        assert first and SAYS[measured["cause"]] in first.title, (name, first)
        if measured["late_rank"] is not None:
            of_rank = first.where[:1] or [(first.worker or "").replace("rank", "rank ")]
            assert of_rank == [f"rank {measured['late_rank']}"], (name, first.title)


def test_predictions_are_near_what_mending_brought(jobs: dict[str, JobSeen]) -> None:
    off = []
    for name, (measured, _, first) in jobs.items():
        if not is_planted(measured) or first is None or first.predicted is None:
            continue
        predicted = 100 * first.predicted.after_us / first.predicted.step_us
        real = 100 * measured["mended_us"] / measured["planted_us"]
        print(f"| `{name}` | {measured['cause']} | {predicted:.0f} % | {real:.0f} % |")
        off.append(abs(predicted - real))
    assert max(off) <= WITHIN_POINTS


def test_nobody_is_blamed_in_a_healthy_job(jobs: dict[str, JobSeen]) -> None:
    for name in ("healthy_ddp", "healthy_fsdp2", "healthy_tp", "shards_of_nearly_one_size"):
        _, run, first = jobs[name]
        assert run.job and run.job.findings == [], name
        assert first is None or first.rule not in ("late_rank", "ranks_take_turns", "communication"), first


def test_bus_bandwidth_is_what_events_measured(jobs: dict[str, JobSeen]) -> None:
    measured, run, _ = jobs["nccl_loop"]
    assert run.job
    (row,) = run.job.collectives
    assert row.busbw_gb_s == pytest.approx(measured["busbw_gb_s"], rel=0.05)
