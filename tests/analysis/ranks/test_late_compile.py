"""late_compile.py: the sentence about a rank that compiles while the others wait names the guard and the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs import BASE, Does, host, training
from profiles import data_of
from tb_torchcompile_plugin.analysis.findings.rule import Finding
from tb_torchcompile_plugin.analysis.ranks.job_findings import job_findings
from tb_torchcompile_plugin.analysis.ranks.late_compile import late_compile
from tb_torchcompile_plugin.compile_log.summary_pb2 import FORWARD, CompileSummary
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.late import late
from tb_torchcompile_plugin.profile.profile import Profile

MS = 1_000_000
SIZE = "0/0: tensor 'x' size mismatch at index 0. expected 8, actual 9"


def compiler(begin: int) -> list[dict[str, object]]:
    return [host("_compile.compile_inner (dynamo_timed)", begin, 30 * MS)]


def job(folder: Path) -> Job:
    """Rank 2 compiles in step 3."""
    return training(
        folder, 3, 5, lambda rank, step: Does(30 * MS, compiler) if (rank, step) == (2, 3) else Does()
    )


def compiled(
    start_ns: int, *, compile_id: str = "0/1", reason: str = SIZE, cache: str = ""
) -> CompileSummary:
    summary = CompileSummary()
    row = summary.compilations.add(
        direction=FORWARD,
        function="forward",
        file="/home/user/model.py",
        line=7,
        start_ns=start_ns,
        duration_ns=29 * MS,
    )
    row.key.compile_id = compile_id
    if cache:
        row.cache.add(cache="fx_graph", result=cache)
    if reason:
        again = summary.recompiles.add(reasons=[reason], file="/home/user/model.py", line=7)
        again.key.compile_id = compile_id
    return summary


def with_logs(made: Job, logs: dict[int, CompileSummary]) -> Job:
    return Job(
        tuple(
            one._replace(
                profile=Profile(
                    one.profile.trace, data_of(logs[one.rank]) if one.rank in logs else None, one.profile.span
                )
            )
            for one in made.ranks
        )
    )


def begin_of(made: Job) -> int:
    """When the late rank begins to compile, in Unix time."""
    (one, *_) = [one for one in made.of(late) if one.lateness > 20 * MS]
    return one.begin + BASE + MS


def first(made: Job) -> Finding:
    return made.of(job_findings)[0]


def test_a_lone_recompile_names_guard_and_line_and_price(tmp_path: Path) -> None:
    made = job(tmp_path)
    at = begin_of(made)
    made = with_logs(made, {0: compiled(at - 10**9, compile_id="0/0", reason=""), 2: compiled(at)})
    said = first(made)
    assert said.rule == "late_rank"
    assert "compiles for 6.00 ms a step (forward at model.py:7, on this rank alone; " in said.title
    assert "the guard that failed: tensor 'x' size mismatch at index 0. expected 8, actual 9)" in said.title
    assert "the others wait 6.00 ms a step for it" in said.title and "mark_dynamic(x, 0)" in said.next_step
    assert said.where == ["rank 2", "model.py:7"]
    assert said.evidence["compilations"] == 1 and said.evidence["compile_s"] == pytest.approx(0.029)


def test_what_others_compiled_too_is_not_alone(tmp_path: Path) -> None:
    made = job(tmp_path)
    at = begin_of(made)
    made = with_logs(made, {0: compiled(at, cache="hit"), 2: compiled(at, cache="miss")})
    row = made.of(late_compile, 2)
    assert row is not None and row.alone is False and row.missed == 1
    assert "its cache lookup missed, and another rank's did not" in first(made).title


def test_a_first_compilation_has_no_guard(tmp_path: Path) -> None:
    made = job(tmp_path)
    made = with_logs(made, {2: compiled(begin_of(made), reason="")})
    row = made.of(late_compile, 2)
    assert row is not None and row.guard is None and row.alone is None
    assert "(forward at model.py:7);" in first(made).title and "Recompiles names" in first(made).next_step


@pytest.mark.parametrize("after", [-10 * 10**9, 10 * 10**9])
def test_what_was_compiled_at_another_time_is_not_the_cause(tmp_path: Path, after: int) -> None:
    made = job(tmp_path)
    made = with_logs(made, {2: compiled(begin_of(made) + after)})
    assert made.of(late_compile, 2) is None
    assert "compiles for 6.00 ms a step; as early" in first(made).title


def test_without_a_log_it_only_compiles(tmp_path: Path) -> None:
    assert "compiles for 6.00 ms a step; as early" in first(job(tmp_path)).title
