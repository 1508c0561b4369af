"""What the first finding says of programs whose cause is known, and what it predicts against what mending them brought.

    python -m pytest tests/diagnosis/test_findings.py -s         # prints what docs/benchmarks.md sums up

Most recordings are older than the handler's notes of unrecorded steps: what it would have noted, the length that was
measured without a profiler, is put in.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pytest

from profiles import spans_in
from recordings import Recording
from tb_torchcompile_plugin.analysis.causes.findings import findings
from tb_torchcompile_plugin.analysis.finding import Finding, Predicted
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary

pytestmark = pytest.mark.slow

# The rules that name a cause, by what measured.json calls it or its family.
RULES_OF: dict[str, tuple[str, ...]] = {
    "allocator": ("allocation",),
    "autograd:repeated_backward": ("repeated_backward",),
    "autograd:unused_gradients": (),  # no rule knows it
    "casts": ("casts",),
    "copy": ("copies",),
    "cuda_graphs": ("launch_bound",),
    "cuda_graphs:rerecord": ("graph_capture",),
    "cuda_graphs:skipped": ("cudagraphs_skipped",),
    "cudnn_benchmark": ("operator", "synchronise"),
    "debug:anomaly_mode": ("anomaly_mode",),
    "eager": ("eager_remainder",),
    "float64": ("double_precision",),
    "gc": ("garbage_collection",),
    "graph_breaks": ("graph_breaks", "frame_given_up"),
    "growing_cat": ("joined",),
    "guards": ("guards",),
    "host:python": ("python",),
    "host:unrecorded": ("nothing",),
    "host_operator": ("operator",),
    "input": ("data_loading",),
    "layout": ("layout",),
    "nothing_compiled": ("nothing_compiled", "eager_remainder"),
    "optimizer": ("fused_optimizer",),
    "plan_per_shape": ("operator",),
    "recompile_limit": ("frame_given_up",),
    "recompiles": ("recompiles", "compile_in_steps"),
    "skipped_frame": ("frame_given_up",),
    "slow_kernel": ("kernel_low_bandwidth", "dominant_kernel"),
    "sync": ("synchronise",),
    "tf32": ("fp32_matmul",),
    "tiny_batch": ("batch", "launch_bound"),
}
MISSES: dict[str, str] = {
    "averaging_each_parameter": "CUDA graphs bring more than the loop over parameters does",
    "casts_back_and_forth": "the GPU sets the pace: how much of the host's time is recording, nothing tells",
    "predictions_to_the_host": "recording doubled the host's time: what is left of it hides the waiting",
    "teacher_with_gradients": "nothing in a trace tells that a forward keeps what no backward asks for",
}
REAL = {  # programs that others wrote: nothing is planted, so somebody read what runs and named its cause
    "lightning_module": "data_loading",  # 256 samples fetched one by one, no workers
    "lightning_with_its_profiler": "profiler_hooks",
    "timm_vit_inference": "copies",  # 38 MB a step that are not pinned
    "geometric_gcn": "graph_breaks",
}


class Answer(NamedTuple):
    """What was planted, what was said, and the step after mending in percent of before: measured, and predicted."""

    name: str
    cause: str
    healthy: bool
    blind: bool  # whoever wrote it knew none of the rules
    findings: list[Finding]
    named: bool  # whether the first finding is of a rule that names the cause, or one that is as true
    measured: float | None
    predicted: float | None


@pytest.fixture(scope="module")
def exam(recording: Recording) -> Path:
    return recording("exam")


@pytest.fixture(scope="module")
def answers(exam: Path) -> list[Answer]:
    rows = json.loads((exam / "measured.json").read_text())["programs"]
    return [answer(exam / row["name"], row) for row in rows]


def answer(folder: Path, row: dict[str, Any]) -> Answer:
    rows = list(findings_of(folder, None if row["recorded"]["stock"] else row["planted_us"]))
    rules = rules_of(row)
    predicted = next((share(one.predicted) for one in rows if one.rule in rules and one.predicted), None)
    measured = row.get("mended_us") and 100 * row["mended_us"] / row["planted_us"]
    named = bool(rows) and rows[0].rule in rules
    blind = row.get("blind", False)
    return Answer(row["name"], row["cause"], row["healthy"], blind, rows, named, measured, predicted)


def findings_of(folder: Path, unrecorded_us: float | None = None) -> Iterator[Finding]:
    profile = spans_in(folder)[0]
    if unrecorded_us is not None and profile.data is not None:
        # A session may have answered questions about the recorded notes already: of a copy nothing is answered.
        summary = CompileSummary.FromString(profile.data.summary.SerializeToString())
        summary.steps.unrecorded_ns[:] = [round(unrecorded_us * 1000)] * 2
        profile = replace(profile, data=replace(profile.data, summary=summary))
    yield from profile.of(findings).findings


def rules_of(row: dict[str, Any]) -> tuple[str, ...]:
    """Those that name what was planted, or what is as true of the program."""
    causes = [row["cause"], *row["also"]]
    known = (RULES_OF.get(cause, RULES_OF.get(cause.partition(":")[0], ())) for cause in causes)
    return tuple(rule for rules in known for rule in rules)


def share(predicted: Predicted) -> float:
    return 100 * predicted.after_us / predicted.step_us


def test_the_first_finding_names_the_planted_cause(answers: list[Answer]) -> None:
    planted = [one for one in answers if not one.healthy]
    assert {one.name for one in planted if not one.named} == set(MISSES)
    assert len([one for one in planted if one.blind]) >= 16


def test_what_runs_well_has_no_critical_finding(answers: list[Answer]) -> None:
    healthy = [one for one in answers if one.healthy]
    assert len(healthy) >= 7
    assert {one.name for one in healthy if any(row.severity == "critical" for row in one.findings)} == set()


def test_predictions_hold(answers: list[Answer]) -> None:
    """In points of the step before mending."""
    known = [one for one in answers if one.measured is not None and one.predicted is not None]
    errors = [abs(one.predicted - one.measured) for one in known if one.predicted and one.measured]
    near = sum(error <= 15 for error in errors)
    print(
        f"{table(answers)}\n{median(errors):.1f} points in the median, at most 15 in {near} of {len(errors)}"
    )
    assert len(known) >= 65 and median(errors) <= 8
    assert near >= 0.75 * len(errors)


@pytest.mark.parametrize("name", REAL)
def test_programs_that_others_wrote(exam: Path, name: str) -> None:
    assert next(findings_of(exam / name)).rule == REAL[name]


def table(answers: list[Answer]) -> str:
    return "\n".join(
        f"| `{one.name}` | {one.cause or 'healthy'} | {f'`{one.findings[0].rule}`' if one.findings else 'none'} "
        f"| {percent(one.predicted)} | {percent(one.measured)} |"
        for one in sorted(answers)
    )


def percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f} %"


# Programs of somebody who knew none of the rules, around other people's models (tests/data/2.11.0/README.md): the rule
# that names the cause, and how many points of a step its prediction is off at most.
STRANGERS = {
    "gin_pooling": ("frame_given_up", 5),
    "gpt2_empty_cache": ("allocation", 25),  # what it does to the caching allocator is in no call
    "vit_latency": ("launch_bound", 5),
    "whisper_eager": ("nothing_compiled", 45),  # more of its kernels stay apart than the model has it
}


@pytest.mark.parametrize("name", STRANGERS)
def test_programs_of_strangers(recording: Recording, name: str) -> None:
    folder = recording("strangers")
    rows = {row["name"]: row for row in json.loads((folder / "measured.json").read_text())["programs"]}
    assert rows.keys() == STRANGERS.keys()
    first = next(findings_of(folder / name))
    rule, points = STRANGERS[name]
    assert first.rule == rule and first.predicted is not None
    measured = 100 * rows[name]["mended_us"] / rows[name]["planted_us"]
    assert share(first.predicted) == pytest.approx(measured, abs=points)
