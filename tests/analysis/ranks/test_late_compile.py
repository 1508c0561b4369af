"""late_compile.py: the sentence about a rank that compiles while the others wait names the guard and the line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from jobs import BASE, Does, doing, host, job_in, launched, training
from profiles import data_of
from recordings import Recording
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.ranks.job_findings import is_symptom, job_findings
from tb_torchcompile_plugin.analysis.ranks.job_rows import late_ranks
from tb_torchcompile_plugin.analysis.ranks.why_late import compiled_before
from tb_torchcompile_plugin.compile_log.summary_pb2 import FORWARD, CompileSummary
from tb_torchcompile_plugin.job.job import TracedJob
from tb_torchcompile_plugin.job.late import late
from tb_torchcompile_plugin.profile.profile import Profile

MS = 1_000_000
SIZE = "0/0: tensor 'x' size mismatch at index 0. expected 8, actual 9"


def compiler(begin: int) -> list[dict[str, object]]:
    return [host("_compile.compile_inner (dynamo_timed)", begin, 30 * MS)]


def tuning(begin: int) -> list[dict[str, object]]:
    """20 ms of the 30 are tuning, with launches of what is tried and waits for it."""
    return [
        *compiler(begin),
        host("AlgorithmSelectorCache.__call__ (dynamo_timed)", begin + 4 * MS, 21 * MS),
        host("mm_template_autotuning (dynamo_timed)", begin + 5 * MS, 19 * MS),
        *launched("triton_tem_fused_mm_0", begin + 6 * MS, begin + 7 * MS, MS),
        host("cudaDeviceSynchronize", begin + 7 * MS, MS, "cuda_runtime"),
    ]


def job(folder: Path, does: Callable[[int], list[dict[str, object]]] = compiler) -> TracedJob:
    """Rank 2 compiles in step 3."""
    return training(
        folder, 3, 5, lambda rank, step: Does(30 * MS, does) if (rank, step) == (2, 3) else Does()
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


def with_logs(made: TracedJob, logs: dict[int, CompileSummary]) -> TracedJob:
    return TracedJob(
        tuple(
            one._replace(
                profile=Profile(
                    one.profile.trace, data_of(logs[one.rank]) if one.rank in logs else None, one.profile.span
                )
            )
            for one in made.ranks
        )
    )


def begin_of(made: TracedJob) -> int:
    """When the late rank begins to compile, in Unix time."""
    (one, *_) = [one for one in made.of(late) if one.lateness > 20 * MS]
    return one.begin + BASE + MS


def first(made: TracedJob) -> Finding:
    return made.of(job_findings)[0]


def test_a_lone_recompile_names_guard_and_line_and_price(tmp_path: Path) -> None:
    made = job(tmp_path)
    at = begin_of(made)
    made = with_logs(made, {0: compiled(at - 10**9, compile_id="0/0", reason=""), 2: compiled(at)})
    said = first(made)
    assert said.rule == "late_rank"
    assert "compiles for 6.00 ms per step (forward at model.py:7, on this rank alone; " in said.title
    assert "the guard that failed: tensor 'x' size mismatch at index 0. expected 8, actual 9)" in said.title
    assert "the others wait 6.00 ms per step for it" in said.title and "mark_dynamic(x, 0)" in said.next_step
    assert said.where == ["rank 2", "model.py:7"]
    assert said.evidence["compilations"] == 1 and said.evidence["compile_s"] == pytest.approx(0.029)


def test_what_others_compiled_too_is_not_alone(tmp_path: Path) -> None:
    made = job(tmp_path)
    at = begin_of(made)
    made = with_logs(made, {0: compiled(at, cache="hit"), 2: compiled(at, cache="miss")})
    row = compiled_before(made, 2, made.of(late))
    assert row is not None and row.alone is False and row.missed == ("fx_graph", [0])
    assert "rank 2 missed the FX graph cache that rank 0 hit" in first(made).title


def test_a_cache_that_misses_on_all_ranks_is_not_said(tmp_path: Path) -> None:
    made = job(tmp_path)
    at = begin_of(made)
    made = with_logs(made, {0: compiled(at, cache="miss"), 2: compiled(at, cache="miss")})
    assert "missed" not in first(made).title


def test_a_first_compilation_has_no_guard(tmp_path: Path) -> None:
    made = job(tmp_path)
    made = with_logs(made, {2: compiled(begin_of(made), reason="")})
    row = compiled_before(made, 2, made.of(late))
    assert row is not None and row.guard is None and row.alone is None
    assert "(forward at model.py:7). Without the delay" in first(made).title
    assert "The Recompiles panel shows" in first(made).next_step


@pytest.mark.parametrize("after", [-10 * 10**9, 10 * 10**9])
def test_what_was_compiled_at_another_time_is_not_the_cause(tmp_path: Path, after: int) -> None:
    made = job(tmp_path)
    made = with_logs(made, {2: compiled(begin_of(made) + after)})
    assert compiled_before(made, 2, made.of(late)) is None
    assert "compiles for 6.00 ms per step. Without the delay" in first(made).title


def test_without_a_log_it_only_compiles(tmp_path: Path) -> None:
    assert "compiles for 6.00 ms per step. Without the delay" in first(job(tmp_path)).title


def test_autotuning_is_told_apart_from_the_compilation_that_it_is_a_part_of(tmp_path: Path) -> None:
    made = job(tmp_path, tuning)
    (row,) = made.of(late_ranks)
    by_cause = {cause.cause: cause for cause in row.causes}
    assert by_cause["autotuning"].excess_us == 21_000 and by_cause["compile"].excess_us == 9_000
    assert row.excess_us == sum(cause.excess_us for cause in row.causes)
    made = with_logs(made, {2: compiled(begin_of(made))})
    said = first(made)
    assert "autotunes Triton kernels for 4.20 ms per step and compiles for 1.80 ms" in said.title
    assert said.where == ["rank 2", "model.py:7"] and "mark_dynamic(x, 0)" in said.next_step


def test_autotuning_alone_names_the_operator_and_what_to_do(tmp_path: Path) -> None:
    made = job(tmp_path, doing("mm_template_autotuning (dynamo_timed)", 30 * MS).events)
    said = first(made)
    assert "It autotunes mm for 6.00 ms per step. Without the delay" in said.title
    assert "TORCHINDUCTOR_CACHE_DIR" in said.next_step
    symptom = Finding("autotune_in_steps", "info", "", {}, None, "overview", None, "")
    assert is_symptom(made, 2, symptom) and not is_symptom(made, 0, symptom)


def test_a_recorded_recompile_tells_what_its_kernels_took_to_tune(recording: Recording) -> None:
    made = job_in(recording("jobs") / "lone_recompile")
    (row,) = made.of(late_ranks)
    tuned = [cause for cause in row.causes if cause.cause == "autotuning"]
    assert [(one.name, one.excess_us) for one in tuned] == [
        ("CachingAutotuner.benchmark_all_configs", 365515.636)
    ]
    assert row.excess_us == pytest.approx(sum(cause.excess_us for cause in row.causes))
