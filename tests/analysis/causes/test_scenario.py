"""what_if/: the picture sums to the step, fixes are told apart, and several of them bring no more than there is."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles import data_of, key_of, profile_of, profile_with
from recordings import Recording
from tb_torchcompile_plugin.analysis.causes import registry
from tb_torchcompile_plugin.analysis.causes.findings import span_findings
from tb_torchcompile_plugin.analysis.causes.registry import PRICED, fixes
from tb_torchcompile_plugin.analysis.causes.scenario import Scenario, predicted_fixes, scenario
from tb_torchcompile_plugin.analysis.causes.what_if import replay_error_percent, step_cost
from tb_torchcompile_plugin.analysis.runtime.step_picture import HostCause, HostPart, Picture
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.memo import answers_of
from traces import Event, in_steps, kernel, launch, slice_

RECORDINGS = ("breaks", "resnet18", "resnet18_eager", "handler_breaks", "kernels", "ddp", "recompiles")


def sums_up(answer: Picture | None) -> None:
    assert answer
    assert sum(part.time_us for part in answer.host) == pytest.approx(answer.step_us, rel=1e-9)
    assert min(part.time_us for part in answer.host) > 0
    for gpu in answer.gpus:
        assert gpu.busy_us + gpu.idle_us == pytest.approx(answer.step_us, rel=1e-9)


def looped(folder: Path, *, unrecorded_us: float | None = None) -> Profile:
    """Three steps of 200 µs on the host: 60 of garbage collection, 90 of Python, and a kernel that is waited for."""
    make = [
        slice_("train.py(3): log", 10, 150, "python_function"),
        slice_("gc.collect", 20, 60, "python_function"),
        slice_("Python GC", 20, 60, "user_annotation"),
        *launch("k", 165, 170, 20),
        slice_("cudaDeviceSynchronize", 180, 12, "cuda_runtime"),
    ]
    summary = CompileSummary()
    if unrecorded_us is not None:
        summary.steps.unrecorded_ns.extend([int(1000 * unrecorded_us)] * 3)
    return profile_with(folder, in_steps(*make, every=200), data_of(summary))


def part(answer: Picture | None, cause: HostCause) -> float:
    assert answer
    return sum(one.time_us for one in answer.host if one.cause == cause)


@pytest.mark.parametrize("name", RECORDINGS)
def test_parts_of_every_picture_sum_to_the_step(recording: Recording, name: str) -> None:
    for path in sorted(recording(name).rglob("*.trace.json")):
        profile = profile_of(path)
        answer = profile.of(scenario)
        if answer.now is None:
            assert answer.why_nothing and not answer.fixes
            continue
        sums_up(answer.now)
        every = [row.id for row in profile.of(predicted_fixes)]
        assert len(set(every)) == len(every)
        if not every:
            continue
        together = scenario(profile, every)
        sums_up(together.after)
        assert together.combined and together.after
        assert together.combined.after_us == together.after.step_us
        least = min(row.predicted.after_us for row in together.fixes)
        assert together.combined.after_us <= least + 1e-6


@pytest.mark.parametrize("name", ["breaks", "resnet18"])
def test_one_fix_together_is_that_fix_alone(recording: Recording, name: str) -> None:
    for path in sorted(recording(name).rglob("*.trace.json")):
        profile = profile_of(path)
        for row in profile.of(predicted_fixes):
            alone = scenario(profile, [row.id])
            assert alone.combined and alone.combined.after_us == pytest.approx(
                row.predicted.after_us, abs=0.01
            )
            assert alone.combined.low_us == pytest.approx(row.predicted.low_us, abs=0.01)
            assert alone.combined.high_us == pytest.approx(row.predicted.high_us, abs=0.01)


def events_of(draw: st.DrawFn) -> list[Event]:
    events: list[Event] = []
    for step in range(draw(st.integers(1, 3))):
        begin = 1000 * step
        events.append(slice_(f"ProfilerStep#{step}", begin, 1000, "user_annotation"))
        for at in draw(st.lists(st.integers(0, 900), max_size=5)):
            name = draw(st.sampled_from(["aten::mm", "aten::item", "enumerate(DataLoader)#x", "gc.collect"]))
            events.append(slice_(name, begin + at, draw(st.integers(1, 95))))
        for at in draw(st.lists(st.integers(0, 900), min_size=1, max_size=5)):
            events += launch(
                "k", begin + at, begin + at + draw(st.integers(1, 300)), draw(st.integers(1, 80))
            )
        for at in draw(st.lists(st.integers(0, 900), max_size=2)):
            events.append(
                slice_("cudaStreamSynchronize", begin + at, draw(st.integers(1, 90)), "cuda_runtime")
            )
    return events


@given(st.composite(events_of)(), st.data())
def test_several_fixes_bring_no_less_than_the_best_and_never_count_twice(
    tmp_path_factory: pytest.TempPathFactory, events: list[Event], data: st.DataObject
) -> None:
    profile = profile_with(tmp_path_factory.mktemp("scenario"), events)
    rows = profile.of(predicted_fixes)
    if not rows:
        return
    selected = data.draw(st.lists(st.sampled_from([row.id for row in rows]), min_size=1))
    answer = scenario(profile, selected)
    assert answer.combined and answer.selected == list(dict.fromkeys(selected)) and not answer.unknown
    best = min(row.predicted.after_us for row in rows if row.id in selected)
    assert 0 <= answer.combined.low_us <= answer.combined.after_us <= answer.combined.high_us
    assert answer.combined.after_us <= best + 0.001
    assert scenario(profile, selected[::-1] * 2).combined == answer.combined
    sums_up(answer.now)
    sums_up(answer.after)


def test_the_step_is_told_with_its_clock_and_what_it_consists_of(tmp_path: Path) -> None:
    answer = scenario(looped(tmp_path))
    assert answer.now
    assert (answer.step.step_us, answer.step.clock, answer.step.steps) == (200, "host", 3)
    assert (answer.step.profiled_us, answer.step.source, answer.replay_error_percent) == (200, "profiler", 0)
    assert part(answer.now, "garbage") == 60
    assert answer.now.gpus[0].busy_us == 20
    assert answer.after is None and answer.combined is None


def test_what_a_fix_takes_out_is_gone_from_the_picture_and_nothing_else_is(tmp_path: Path) -> None:
    answer = scenario(looped(tmp_path), ["garbage"])
    assert answer.combined and answer.combined.after_us == 140
    assert part(answer.after, "garbage") == 0
    for cause in ("python", "launch", "nothing"):
        assert part(answer.after, cause) == part(answer.now, cause)  # type: ignore[arg-type]


def test_a_fix_inside_of_another_one_brings_nothing_more(tmp_path: Path) -> None:
    profile = looped(tmp_path)
    both = fixes(profile)
    garbage = next(fix for fix in both if fix.id == "garbage")
    answers_of(profile).get(key_of(fixes), lambda: [garbage, replace(garbage, id="again")])
    answer = scenario(profile, ["garbage", "again"])
    assert answer.combined and answer.combined.after_us == 140
    assert ["nothing more" in row.note for row in answer.fixes] == [row.id == "again" for row in answer.fixes]


def test_a_step_is_predicted_as_it_is_unrecorded_where_that_is_known(tmp_path: Path) -> None:
    answer = scenario(looped(tmp_path, unrecorded_us=196), ["garbage"])
    assert answer.now
    assert (answer.step.profiled_us, answer.step.step_us) == (200, 196)
    assert answer.combined and answer.combined.step_us == pytest.approx(answer.now.step_us) == 196
    sums_up(answer.now)
    sums_up(answer.after)


def test_the_sentence_says_on_whose_clock_and_what_recording_cost(tmp_path: Path) -> None:
    recorded, noted = looped(tmp_path), looped(tmp_path, unrecorded_us=150)
    assert scenario(recorded).headline.startswith("A step takes 200 µs on the host’s clock.")
    assert scenario(noted).headline.startswith("A step takes 150 µs on the host’s clock.")
    assert scenario(looped(tmp_path, unrecorded_us=210)).headline == scenario(recorded).headline
    garbage = next(row for row in scenario(recorded).fixes if row.kind == "garbage")
    assert garbage.code == "gc.freeze()\ngc.disable()", "what of the next step can be pasted"
    after = scenario(recorded, [garbage.id]).headline
    assert after == "With 1 fix, a step takes about 140 µs (120–150) instead of 200 µs."


def test_ids_that_are_none_are_told(tmp_path: Path) -> None:
    answer = scenario(looped(tmp_path), ["garbage", "no such fix"])
    assert (answer.selected, answer.unknown) == (["garbage"], ["no such fix"])


def test_fixes_of_one_id_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = looped(tmp_path)
    (fix, *_) = fixes(profile)
    odd = replace(fix, id="two\nlines")
    cause = SimpleNamespace(fixes=lambda _: iter([fix, odd, fix, fix]))
    monkeypatch.setattr(registry, "PRICED", {fix.kind: cause})
    assert [one.id for one in fixes(profile)] == [fix.id, "two lines", f"{fix.id}#2", f"{fix.id}#3"]


def test_findings_and_what_if_price_the_fixes_once(tmp_path: Path) -> None:
    profile = looped(tmp_path, unrecorded_us=196)
    span_findings(profile)
    asked = key_of(predicted_fixes)
    assert asked in answers_of(profile)._answers
    rows = profile.of(predicted_fixes)
    assert {row.predicted.step_us for row in rows} == {profile.of(step_cost).step / 1000}
    ids = {row.fix for row in span_findings(profile)} - {None}
    assert ids and ids <= {row.id for row in rows}


def nothing(answer: Scenario) -> str:
    assert (answer.now, answer.after, answer.combined, answer.fixes) == (None, None, None, [])
    assert answer.why_nothing and answer.why_nothing.endswith(".")
    return answer.why_nothing


def test_without_work_of_a_gpu_nothing_is_predicted(tmp_path: Path) -> None:
    assert "no GPU work" in nothing(scenario(profile_with(tmp_path, [slice_("aten::mm", 0, 5)]), ["x"]))


def test_without_the_calls_that_launched_nothing_is_predicted(tmp_path: Path) -> None:
    profile = profile_with(tmp_path, [slice_("aten::mm", 0, 5), kernel("k", 3, 9)])
    assert "were not recorded" in nothing(scenario(profile))


def test_where_the_replay_misses_nothing_is_predicted(tmp_path: Path) -> None:
    profile = looped(tmp_path)
    answers_of(profile).get(key_of(replay_error_percent), lambda: 50.0)
    assert "differs from the recorded one" in nothing(scenario(profile))
    assert not [row for row in span_findings(profile) if row.predicted]


def test_a_span_without_steps_is_one(tmp_path: Path) -> None:
    events = [
        slice_("aten::mm", 0, 4),
        *launch("k", 1, 5, 20),
        slice_("gc.collect", 10, 60, "python_function"),
        *launch("k", 100, 105, 20),
    ]
    answer = scenario(profile_with(tmp_path, events))
    assert (answer.step.steps, answer.step.source) == (0, "span")
    sums_up(answer.now)


def test_every_kind_of_fix_that_has_a_rule_has_its_words() -> None:
    assert all(cause.panel for cause in PRICED.values())


def test_parts_are_named_where_one_culprit_is_much_of_the_step(tmp_path: Path) -> None:
    answer = scenario(looped(tmp_path)).now
    assert answer
    assert HostPart("python", "train.py(3): log", "train.py", 3, 90) in answer.host
