"""payback.py: which runs are compared, what compiling cost, what a step gains, and when the two are even."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from profiles import data_of, profile_of, profile_with
from recordings import Recording
from tb_torchcompile_plugin.analysis.causes.findings import span_findings
from tb_torchcompile_plugin.analysis.causes.payback import (
    RunFacts,
    break_even,
    measured_gain,
    payback,
    predicted_gain,
    run_facts,
    steady_steps,
    uncompiled,
    why_not_comparable,
)
from tb_torchcompile_plugin.analysis.causes.payback import answer as answered
from tb_torchcompile_plugin.analysis.compile.compile_time import CompileCost, compile_cost
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.runtime.program import ProgramFacts
from tb_torchcompile_plugin.analysis.statistics import PAYBACK, StepTimes, step_time_difference, step_times
from tb_torchcompile_plugin.api.report import SpanReport, read_report
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.profile.profile import BaselineRun, Profile
from tb_torchcompile_plugin.profile.steps import step_time
from traces import Event, in_steps, launch, slice_

S = 1_000_000_000
COST = CompileCost(10.0, 10.0, None, 0, 2, True)


def times(*us: float) -> StepTimes:
    known = step_times(us)
    assert known
    return known


def chance_us(a: StepTimes, b: StepTimes) -> float:
    compared = step_time_difference(a, b, PAYBACK)
    return compared.noise_us or 0.0 if compared else 0.0


def facts(step_us: float, *, compiled: bool, **more: Any) -> RunFacts:
    noted = times(step_us - 1, step_us, step_us + 1)
    known = RunFacts(
        "", compiled, compiled, noted, None, COST if compiled else None, ProgramFacts(devices=["H100"])
    )
    return known._replace(**more)


def looped(
    folder: Path,
    step_us: float,
    *,
    compiled: bool = False,
    noted_us: float | None = None,
    tried: bool = False,
    more: Sequence[Event] = (),
) -> Profile:
    """Three steps with a kernel each, launched from a compiled region or not."""
    folder.mkdir(exist_ok=True)
    make = launch("triton_poi_fused_add_0" if compiled else "vectorized_elementwise_kernel", 20, 30, 9)
    if compiled:
        make.append(slice_("Torch-Compiled Region: 0/0", 5, 60))
        make.append(slice_("## Call CompiledFxGraph abc ##", 10, 40))
    made = [compilation("0/0", 0, 3)] if compiled or tried else []
    summary = pb.CompileSummary(compilations=made)
    summary.steps.unrecorded_ns.extend([round(1000 * (noted_us or step_us))] * 40)
    return profile_with(folder, [*more, *in_steps(*make, every=step_us)], data_of(summary))


def compilation(
    name: str, start_s: float, seconds: float, *results: tuple[str, str, float], thread: int = 1
) -> pb.Compilation:
    """results: of lookups in the caches: (key, what came of it, seconds saved)."""
    cache = [
        pb.CacheResult(cache="fx_graph", key=key, result=result, time_saved_ns=round(saved * S))
        for key, result, saved in results
    ]
    return pb.Compilation(
        key=pb.CompileKey(compile_id=name),
        function="f",
        file="/home/me/train.py",
        line=7,
        start_ns=round(start_s * S),
        duration_ns=round(seconds * S),
        thread=thread,
        cache=cache,
    )


def cost_of(*rows: pb.Compilation, spans: list[pb.PhaseSpan] | None = None) -> CompileCost:
    known = compile_cost(data_of(pb.CompileSummary(compilations=rows, spans=spans or [])))
    assert known
    return known


def test_what_else_is_known_of_two_runs_may_forbid_to_compare_them() -> None:
    mine, other = facts(5, compiled=True), facts(9, compiled=False, run="eager")
    assert why_not_comparable(mine, other) == why_not_comparable(other, mine) == ""
    assert why_not_comparable(mine, mine._replace(run="b")) == "Both this run and run b ran compiled code."
    assert why_not_comparable(other, other) == "Both this run and run eager are eager."
    tried = mine._replace(compiled=False)  # and nothing of it ran
    assert why_not_comparable(tried, other) == ""
    before, after = (other._replace(program=ProgramFacts(script=name)) for name in ("/a/a.py", "/a/b.py"))
    assert "`b.py`, run eager `a.py`" in why_not_comparable(mine._replace(program=after.program), before)
    assert "H100" in why_not_comparable(mine, other._replace(program=ProgramFacts(devices=["A100"])))
    assert why_not_comparable(mine, other._replace(program=ProgramFacts(torch="2.14"))) == ""


def test_what_compiling_cost_is_the_compile_time_of_the_process() -> None:
    """What is compiled by two threads counts twice, and neither a benchmark outside nor a worker process counts."""
    rows = compilation("0/0", 0, 4), compilation("1/0", 2, 4, thread=2)
    benchmark = pb.PhaseSpan(name="benchmark", start_ns=7 * S, duration_ns=S)
    worker = pb.PhaseSpan(name="compile", start_ns=0, duration_ns=90 * S, worker_process=True)
    cost = cost_of(*rows, spans=[benchmark, worker])
    assert (cost.blocked_s, cost.cold_s, cost.warm_s, cost.whole) == (8.0, 8.0, None, True)
    untimed = pb.Compilation(key=pb.CompileKey(compile_id="2/0"))
    assert cost_of(*rows, untimed).cold_s is None and not cost_of(*rows, untimed).whole


def test_what_a_process_stored_itself_is_no_warm_start() -> None:
    miss, hit = ("k", "miss", 0), ("k", "hit", 3)
    again = cost_of(compilation("0/0", 0, 4, miss), compilation("1/0", 5, 1, hit))
    assert (again.cold_s, again.warm_s, again.hits, again.lookups) == (5.0, None, 0, 1)
    warm = cost_of(compilation("0/0", 0, 1, hit))
    assert (warm.cold_s, warm.warm_s, warm.hits) == (4.0, 1.0, 1)


def test_even_is_what_compiling_cost_over_what_a_step_gains() -> None:
    gain = measured_gain(facts(9_000, compiled=False), facts(4_000, compiled=True))
    assert gain.verdict == "worth_it" and gain.gain_us == 5_000
    (even,) = break_even(gain, COST)
    assert even.steps == 2_000 and even.after_s == pytest.approx(18.0)
    assert even.low_steps < 2_000 < (even.high_steps or 0)
    warm = break_even(gain, COST._replace(blocked_s=1.0, warm_s=1.0))
    assert [(row.name, row.steps) for row in warm] == [("recorded", 200), ("cold", 2_000)]


def test_what_may_be_chance_is_no_gain() -> None:
    slow, fast = facts(1_000, compiled=True), facts(998, compiled=False)
    assert measured_gain(fast, slow).verdict == measured_gain(slow, fast).verdict == "not_worth_it"
    assert break_even(measured_gain(fast, slow), COST) == ()
    vague = facts(1_000, compiled=True, unprofiled=times(500, 1_500))
    assert measured_gain(fast, vague).verdict == "unknown"
    assert chance_us(times(1_000, 1_000), times(1_000, 1_000)) == 10.0
    # a single time does not hide how the others vary
    assert chance_us(times(1_000), times(500, 1_500)) > 1_000


def test_recorded_steps_are_held_against_recorded_ones() -> None:
    recorded = {"unprofiled": None, "profiled": times(1_990, 2_000, 2_010)}
    eager = facts(9_000, compiled=False)
    assert measured_gain(eager, facts(0, compiled=True, **recorded)).determined_by == "unknown"
    both = eager._replace(profiled=times(8_000, 8_010))
    assert measured_gain(both, facts(0, compiled=True, **recorded)).eager_us == 8_005


def test_where_bounds_hold_both_nobody_knows() -> None:
    eager = (150, 110, 190), (120, 90, 190), (80, 70, 90)
    verdicts = [predicted_gain(times, 100.0).verdict for times in eager]
    assert verdicts == ["worth_it", "unknown", "not_worth_it"]
    guessed = answered(predicted_gain((80, 70, 90), 100.0), [], None)
    assert "100 µs compiled and about 80 µs eager (predicted)" in guessed


def beside(profile: Profile, other: Profile, run: str) -> Profile:
    profile.baseline_run = BaselineRun(run, (), lambda: other)
    return profile


def test_of_a_slower_compiled_run_a_finding_says_so_with_its_place(tmp_path: Path) -> None:
    eager = looped(tmp_path / "a", 100, noted_us=100)
    mine = beside(looped(tmp_path / "b", 150, compiled=True, noted_us=150), eager, "eager")
    answer = mine.of(payback)
    assert answer.gain[0].verdict == "not_worth_it"
    assert "150 µs compiled and 100 µs eager" in answer.sentences[0]
    (row,) = (row for row in span_findings(mine) if row.rule == "compile_does_not_pay")
    assert row.predicted and (row.predicted.step_us, row.predicted.after_us) == (150, 100)
    assert row.predicted.low_us < 100 < row.predicted.high_us
    assert row.where == ["train.py:7"] and row.severity == "critical"
    other = beside(looped(tmp_path / "c", 100), looped(tmp_path / "d", 150, compiled=True), "compiled")
    assert other.of(payback).sentences[0] == answer.sentences[0]
    # nothing to take away
    assert not [row for row in span_findings(other) if row.rule == "compile_does_not_pay"]


def test_steps_that_compile_do_not_tell_how_long_one_takes_eager(tmp_path: Path) -> None:
    compiles = slice_("entire_frame_compile (dynamo_timed)", 10, 50)
    profile = looped(tmp_path, 100, compiled=True, more=[compiles])
    known = profile.of(steady_steps)[1]
    assert known and known.steps == step_time(profile).steps == 2
    assert profile.of(payback).gain[0].verdict == "unknown"


@pytest.mark.parametrize("name", ["recompiles", "resnet18_compile"])
def test_nor_does_a_span_that_compiles_and_has_no_marked_steps(recording: Recording, name: str) -> None:
    """Of one the first call tuned a kernel: 28.7 ms eager were predicted. The other is 20 s of compiling and two calls:
    a step was said to take 14.1 s, and 13.8 s eager."""
    profile = profile_of(next(recording(name).glob("*.pt.trace.json")))
    assert profile.of(payback).gain[0].verdict == "unknown"


def test_no_finding_where_compiling_pays_or_nobody_measured(tmp_path: Path) -> None:
    alone = looped(tmp_path / "a", 150, compiled=True)
    faster = beside(looped(tmp_path / "b", 80, compiled=True), looped(tmp_path / "c", 100), "eager")
    for profile in (alone, faster):
        assert not [row for row in span_findings(profile) if row.rule == "compile_does_not_pay"]
    assert faster.of(payback).break_even[0].steps == 150_000


def test_nothing_of_what_was_compiled_ran(tmp_path: Path) -> None:
    answer = looped(tmp_path, 100, tried=True).of(payback)
    assert (answer.gain[0].verdict, answer.gain[0].determined_by) == ("not_worth_it", "nothing_ran")


def test_a_run_beside_that_cannot_be_read_costs_the_comparison_alone(tmp_path: Path) -> None:
    def fails() -> Profile:
        raise UserError("it is cut off")

    mine = looped(tmp_path, 100, compiled=True)
    mine.baseline_run = BaselineRun("eager", (), fails)
    assert "Run eager cannot be read: it is cut off." in mine.of(payback).sentences


def test_pauses_are_no_steps(tmp_path: Path) -> None:
    profile = looped(tmp_path, 110, noted_us=100)
    assert profile.data
    profile.data.summary.steps.unrecorded_ns.append(10 * S)
    noted = profile.of(steady_steps)[0]
    assert noted and noted.mean_us == 100 and noted.steps == 8


def test_the_run_beside_is_read_with_the_one_that_is_asked_for(recording: Recording, tmp_path: Path) -> None:
    """Each side says the same of both, in the tab and in a report; and an eager step is predicted near the other's."""
    for name in ("resnet18", "resnet18_eager"):
        shutil.copytree(recording(name), tmp_path / name)
    session = Session([("", str(tmp_path))], ahead=False)
    sides = []
    for run in session.runs().runs:
        (worker,) = (worker for worker in run.workers if worker.spans)
        sides.append(session.profile(run.run, worker.worker, worker.spans[0].span))
    compiled, eager = sides
    assert compiled.of(run_facts).compiled and not eager.of(run_facts).compiled
    assert compiled.of(payback).sentences[0] == eager.of(payback).sentences[0]
    assert compiled.of(payback).gain[0].determined_by == "measured"
    report = read_report(str(tmp_path))
    spans = [span for run in report.runs for worker in run.workers for span in worker.spans]
    first = {span.payback.sentences[0] for span in spans if isinstance(span, SpanReport)}
    assert first == {compiled.of(payback).sentences[0]} and len(spans) == 2
    step_us, low_us, high_us = compiled.of(uncompiled) or (0.0, 0.0, 0.0)
    assert low_us < step_us < high_us


def finding(folder: Path, run: str) -> tuple[Finding | None, float | None]:
    """What it says of nothing being compiled, and the compiled step of the run that it is compared with."""
    session = Session([("", str(folder))], ahead=False)
    (worker,) = next(one.workers for one in session.runs().runs if one.run == run)
    profile = session.profile(run, worker.worker, worker.spans[0].span)
    rows = [row for row in profile.of(span_findings) if row.rule == "nothing_compiled"]
    return (rows[0] if rows else None), profile.of(payback).gain[0].compiled_us


def test_where_compiling_pays_its_step_is_the_measured_one(recording: Recording) -> None:
    row, compiled_us = finding(recording("pays"), "pointwise_chain/eager")
    assert row and row.predicted and row.predicted.after_us == compiled_us
    assert row.severity == "critical" and row.fix is None


@pytest.mark.parametrize("program", ["recurrent_cell", "tiny_linear_training"])
def test_where_it_does_not_nobody_is_told_to_compile(recording: Recording, program: str) -> None:
    row, compiled_us = finding(recording("pays"), f"{program}/eager")
    assert row is None and compiled_us
