"""compare.py and step_breakdown.py: two spans side by side, and every part of the difference named."""

import json
import shutil

import pytest

from profiles import data_of, ns, profile_in, profile_of, profile_with, spans_in
from tb_torchcompile_plugin.analysis.compare.compare import compare
from tb_torchcompile_plugin.analysis.compare.pairs import Pair
from tb_torchcompile_plugin.analysis.compare.sides import Side, Sides, make_side
from tb_torchcompile_plugin.api.catalog import newest_span
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.cli.command import main
from tb_torchcompile_plugin.compile_log.summary_pb2 import FORWARD, CompileSummary, Environment
from tb_torchcompile_plugin.profile.steps import profiled_steps
from traces import kernel, launch, memory_event, slice_, write_trace

pytestmark = pytest.mark.slow

SIDES = ("baseline", "candidate")


def opened(folder):
    """The only span of a folder with its compile data, as the command reads it."""
    session = Session([("", str(folder))])
    return session.side(*newest_span(session.runs(), str(folder)))


@pytest.fixture(scope="module")
def profiles(recording):
    return profile_in(recording("resnet18_eager")), profile_in(recording("resnet18"))


@pytest.fixture(scope="module")
def comparison(profiles):
    return compare(Sides(*map(make_side, profiles)))


def figures(comparison):
    return {figure.name: figure.value for figure in comparison.figures}


def change(times):
    return times.candidate.mean_us - times.baseline.mean_us


def test_the_difference_is_accounted_for(comparison, profiles):
    """To the nanosecond: the mean of three steps is a third of a whole number of them."""
    assert comparison.step_time is not None
    for side, of in zip(SIDES, profiles):
        parts = [getattr(part.time_us, side) * len(of.of(profiled_steps)) for part in comparison.parts]
        assert sum(map(ns, parts)) == sum(ns(step.wall_us) for step in of.of(profiled_steps))
    delta = sum(ns(3 * part.time_us.candidate) - ns(3 * part.time_us.baseline) for part in comparison.parts)
    assert delta == ns(3 * change(comparison.step_time)) == -1_649_381


def test_what_compilation_fused_away_per_category(comparison):
    """Batch norm of cuDNN is gone, and half of the convolution kernels, which moved data between layouts."""
    launches = {
        row.category: (row.launches.baseline, row.launches.candidate) for row in comparison.kernel_categories
    }
    assert (launches["normalization"], launches["convolution"]) == ((40, 0), (219, 92))
    assert launches["triton_pointwise"] == (0, 77)
    gpu = figures(comparison)["gpu_time_us"]
    for side in SIDES:
        categories = sum(ns(3 * getattr(row.time_us, side)) for row in comparison.kernel_categories)
        kernels = sum(ns(3 * getattr(row.time_us, side)) for row in comparison.kernels)
        assert categories == kernels == ns(3 * getattr(gpu, side))


def test_rows_with_names_explain_what_gpu_time_changed(comparison):
    """Named: on each side that has work in the row it is known which operators it is of. Also with rises and falls
    added up instead of set off against one another it is more than nine tenths."""
    deltas = [row.time_us.delta or 0 for row in comparison.kernels]
    named = [
        delta
        for row, delta in zip(comparison.kernels, deltas)
        if all(side.operators or not side.kernels for side in (row.baseline, row.candidate))
    ]
    assert sum(map(abs, named)) > 0.95 * sum(map(abs, deltas))
    assert sum(named) < 0.9 * sum(deltas) < 0


def test_operators_of_an_average_step(comparison):
    rows = {row.name: row for row in comparison.operators}
    norm = rows["aten::cudnn_batch_norm"]  # resnet18 has 20
    assert (norm.calls.baseline, norm.calls.candidate, norm.self_host_us.candidate) == (20, 0, 0)
    assert rows["## Call CompiledFxGraph"].calls.candidate == 2  # forward and backward, whatever their hashes
    gpu = figures(comparison)["gpu_time_us"]
    for side in SIDES:  # all GPU work of both is launched by some operator or label
        device_us = sum(getattr(row.self_device_us, side) for row in comparison.operators)
        assert device_us == pytest.approx(getattr(gpu, side))


def test_three_noisy_steps_prove_nothing(comparison):
    """13.6 and 13.0 ms: the eager steps alone differ by 5 ms."""
    time = comparison.step_time
    assert time is not None and time.within_noise
    assert time.noise_us is not None and time.noise_us > 6000


def test_figures_are_told_with_the_deviation_of_steps(comparison):
    step = next(figure for figure in comparison.figures if figure.name == "step_us")
    assert (step.baseline, step.candidate) == ("13.6 ms ± 2.58 ms", "13.0 ms ± 522 µs")
    assert step.change == "−550 µs (−4.04 %)"
    assert "compile_s" not in figures(comparison), "unknown on both sides"


def stepping(folder, *lengths):
    """A span of steps, each with one kernel that takes half of it."""
    events, at = [], 0
    for number, length in enumerate(lengths):
        events.append(slice_(f"ProfilerStep#{number}", at, length, "user_annotation"))
        events += launch("k", at, at + 1, length / 2)
        at += length
    return make_side(profile_with(folder, events))


@pytest.mark.parametrize(("swap", "word", "change"), [(False, "faster", "−50.0"), (True, "slower", "+100")])
def test_more_than_the_noise_in_either_direction(tmp_path, swap, word, change):
    sides = stepping(tmp_path / "a", 200, 202, 198), stepping(tmp_path / "b", 100, 101, 99)
    if swap:
        sides = sides[::-1]
    report = compare(Sides(*sides))
    assert report.step_time is not None and report.step_time.within_noise is False
    assert report.verdict.startswith(f"The candidate is {word}") and f"({change} %)" in report.verdict


def test_where_the_host_runs_ahead_the_gpu_tells_how_long_a_step_is(tmp_path):
    """Both hosts take 10 µs a step; the GPU of one needs 40 µs for what each launches, that of the other 80."""
    sides = []
    for number, length in enumerate((40, 80)):
        events = []
        for at in range(3):
            events.append(slice_(f"ProfilerStep#{at}", 10 * at, 10, "user_annotation"))
            events += launch("nvjet_gemm", 10 * at + 1, 2 + (length + 5) * at, length)
        sides.append(make_side(profile_with(tmp_path / str(number), events)))
    report = compare(Sides(*sides))
    times, busy = report.step_time, figures(report)["gpu_busy_us"]
    assert times is not None and (busy.baseline, busy.candidate) == (40, 80)
    assert (times.baseline.min_us, times.baseline.max_us) == (45, 45)
    assert (times.candidate.min_us, times.candidate.max_us) == (85, 85)
    assert {(row.kind, row.part): row.time_us.delta for row in report.parts}["gpu", "gemm"] == 40
    assert sum(row.time_us.delta or 0 for row in report.parts) == pytest.approx(change(times))
    assert len([note for note in report.notes if "is GPU-bound" in note]) == 2


def test_what_is_unknown_stays_unknown(comparison):
    """Neither modules nor memory were recorded."""
    assert comparison.modules == [] and not any("peak" in name for name in figures(comparison))


def test_only_launches_of_a_step_count(tmp_path):
    events = [
        slice_("ProfilerStep#1", 0, 100, "user_annotation"),
        *launch("in", 10, 20, 5),
        *launch("out", 150, 160, 7),
    ]
    side = make_side(profile_with(tmp_path, events))
    (category,) = compare(Sides(side, side)).kernel_categories
    assert (category.time_us.baseline, category.launches.candidate) == (5, 1)
    assert [row.baseline.kernels for row in compare(Sides(side, side)).kernels] == [["in"]]
    assert {row.name for row in compare(Sides(side, side)).operators} == {"ProfilerStep*", "cuLaunchKernelEx"}


def test_ranks_of_one_job(recording):
    sides = [make_side(profile) for profile in spans_in(recording("ddp"))]
    comparison = compare(Sides(*sides))
    reduce = comparison.kernels[0]
    assert {row.change for row in comparison.kernels} == {"same"} and reduce.category == "communication"
    # the GPU of rank 1 waits for that of rank 0
    assert reduce.time_us.delta == pytest.approx(495.677, abs=1e-3)
    assert sum(row.time_us.delta or 0 for row in comparison.kernels) == pytest.approx(496.518, abs=1e-3)
    ids = [
        (row.baseline and row.baseline.compile_id, row.candidate and row.candidate.compile_id)
        for row in comparison.compilations
    ]
    assert [a for a, b in ids if b is None] == ["0/1", "4/1"]  # only rank 0 recompiled
    assert all(a == b for a, b in ids if b) and len(ids) == 9


def test_one_side_with_steps_is_compared_as_a_whole(recording):
    """A step of one against all of the other would tell nothing."""
    sides = opened(recording("resnet18")), opened(recording("resnet18_compile"))
    comparison = compare(Sides(*sides))
    steps = next(row for row in comparison.operators if row.name == "ProfilerStep*")
    assert (steps.calls.baseline, steps.calls.candidate) == (3, 0)
    known = figures(comparison)
    assert comparison.step_time is None and "step_us" not in known and known["launches"].baseline == 1050
    for side in SIDES:
        launches = sum(getattr(row.launches, side) or 0 for row in comparison.kernel_categories)
        assert launches == getattr(known["launches"], side) > 0
        parts = sum(ns(getattr(part.time_us, side)) for part in comparison.parts)
        assert parts == ns(getattr(known["span_us"], side)) > 0
    assert any(note.startswith("The candidate has no profiled steps") for note in comparison.notes)
    values = [(r.both_ids, r.outcome) for r in comparison.compilations]
    assert values == [("0/0 → 1/0", "faster"), ("0/0 → 1/0", "slower"), *(("– → 0/0", "appeared"),) * 2]


def test_without_a_trace_what_was_compiled_is_compared(recording, profiles):
    compiled = Side(None, opened(recording("resnet18")).data)
    comparison = compare(Sides(compiled, opened(recording("breaks"))))
    known = figures(comparison)
    assert not comparison.kernel_categories and not comparison.parts and comparison.step_time is None
    assert compare(Sides(compiled, Side(profiles[0], None))).operators == []
    assert (known["graph_breaks"].baseline, known["graph_breaks"].candidate) == (0, 4)
    compilations = known["compilations"]  # 5 forward, 4 backward rows
    assert (compilations.baseline, compilations.candidate) == (1, 5)
    assert known["compile_s"].delta is not None and known["span_us"].baseline is None
    assert comparison.notes == ["The baseline has no trace: only what was compiled is compared."]


def test_notes_tell_what_else_differs(tmp_path):
    """Another GPU, another torch, one step, no GPU."""
    sides = []
    for name, torch, device, events in (
        ("a", "2.11.0", "NVIDIA H200", [kernel("k", 10, 5)]),
        ("b", "2.13.0", "NVIDIA H100", [kernel("k", 10, 5)]),
        ("c", "2.13.0", "", []),
    ):
        step = slice_("ProfilerStep#1", 0, 100, "user_annotation")
        properties = [{"id": 0, "name": device}] if device else []
        data = data_of(CompileSummary(environment=Environment(torch_version=torch)))
        profile = profile_with(tmp_path / name, [step, *events], data, deviceProperties=properties)
        sides.append(Side(profile, data))
    a, b, c = sides
    assert compare(Sides(a, b)).notes == [
        "The baseline has one profiled step, so the noise is unknown.",
        "The candidate has one profiled step, so the noise is unknown.",
        "The baseline ran on torch 2.11.0, the candidate on torch 2.13.0.",
        "The baseline ran on NVIDIA H200, the candidate on NVIDIA H100: different devices.",
    ]
    comparison = compare(Sides(b, c))
    assert "The candidate has no GPU events: GPU time and kernels are not compared." in comparison.notes
    assert comparison.kernels == [] and all(row.self_device_us.delta is None for row in comparison.operators)
    assert comparison.step_time is not None and comparison.step_time.within_noise is None


@pytest.mark.parametrize(("noted", "is_told"), [((40, 80), False), ((99, 98), False), ((40, None), True)])
def test_what_recording_slowed_differently_is_told(tmp_path, noted, is_told):
    """By the handler's notes of steps that nobody recorded: recorded ones take 100 µs on both sides."""
    sides = []
    for name, unrecorded_us in zip("ab", noted):
        steps = [slice_(f"ProfilerStep#{n}", 100 * n, 100, "user_annotation") for n in range(3)]
        summary = CompileSummary()
        if unrecorded_us:
            summary.steps.unrecorded_ns.extend([1000 * unrecorded_us] * 3)
            summary.steps.recorded_ns.extend([100_000] * 3)
        data = data_of(summary)
        sides.append(Side(profile_with(tmp_path / name, steps, data), data))
    comparison = compare(Sides(*sides))
    assert any("baseline are unprofiled" in note for note in comparison.notes) == is_told
    times = comparison.step_time
    assert times is not None
    assert (times.baseline.mean_us, times.candidate.mean_us) == (noted[0], noted[1] or 100)


def test_peaks_of_memory(tmp_path):
    sides = []
    for size in (512, 2048):
        events = [slice_("aten::mm", 0, 50), memory_event(10, size, size)]
        sides.append(make_side(profile_with(tmp_path / str(size), events)))
    comparison = compare(Sides(*sides))
    peak, reserved = comparison.figures[-2:]
    assert (peak.name, peak.value) == ("0_peak_bytes", Pair(512, 2048, 1536))
    assert (peak.change, reserved.value.candidate) == ("+1.54 kB (+300 %)", 4096)


def module(name, ts, dur):
    return slice_(f"nn.Module: {name}", ts, dur, "python_function")


def test_modules_stand_beside_one_another_without_what_compile_wraps_them_in(tmp_path):
    eager = [module("Net_0", 0, 100), module("Linear_0", 10, 20)]
    compiled = [module("OptimizedModule_0", 0, 90), module("Net_0", 10, 70)]
    sides = profile_with(tmp_path / "a", eager), profile_with(tmp_path / "b", compiled)
    rows = compare(Sides(*map(make_side, sides))).modules
    values = [(row.path, row.host_us.baseline, row.host_us.candidate) for row in rows]
    assert values == [("Net_0", 100, 70), ("Net_0/Linear_0", 20, None)]


def test_a_module_called_with_and_without_compile_is_one_row(tmp_path):
    """Trained compiled, evaluated eager."""
    compiled = [module("OptimizedModule_0", 0, 90), module("Net_0", 10, 70)]
    side = make_side(profile_with(tmp_path, [*compiled, module("Net_0", 100, 5)]))
    (row,) = compare(Sides(side, side)).modules
    assert (row.path, row.calls.baseline) == ("Net_0", 2)
    assert (row.host_us.baseline, row.device_us.baseline) == (75, None)


def test_only_breaks_in_steps_count_for_a_step(recording, tmp_path):
    """The first step of three is none any more: its breaks happened, but in no step."""
    (log,) = recording("breaks").glob("*.log")
    (trace,) = recording("breaks").glob("*.trace.json")
    document = json.loads(trace.read_text())
    events = document["traceEvents"]
    first = min(event["name"] for event in events if event["name"].startswith("ProfilerStep#"))
    document["traceEvents"] = [event for event in events if event["name"] != first]
    (tmp_path / trace.name).write_text(json.dumps(document))
    shutil.copy(log, tmp_path)
    side = opened(tmp_path)
    direct = figures(compare(Sides(side, side)))["graph_break_direct_us"]
    assert direct.baseline == pytest.approx((523.9 + 505.2) / 2, abs=0.1)
    whole = figures(compare(Sides(side, opened(recording("resnet18_compile")))))["graph_break_direct_us"]
    assert whole.baseline == pytest.approx(636.7 + 523.9 + 505.2, abs=0.2)


def compiled(*functions):
    """Compile data of (function, file), as compiled one after the other."""
    summary = CompileSummary()
    for number, (function, file) in enumerate(functions):
        row = summary.compilations.add(direction=FORWARD, function=function, file=file)
        row.key.compile_id = f"{number}/0"
    return data_of(summary)


def test_compilations_of_one_name_are_told_apart_by_their_file():
    """Every model has a `forward`; the same program may lie in another folder."""
    a = compiled(("forward", "/a/one.py"), ("forward", "/a/two.py"), ("forward", "/a/two.py"))
    b = compiled(("forward", "C:\\b\\two.py"), ("backward", "/a/one.py"))
    rows = compare(Sides(Side(None, a), Side(None, b))).compilations
    assert [
        (row.baseline and row.baseline.compile_id, row.candidate and row.candidate.compile_id) for row in rows
    ] == [("0/0", None), ("1/0", "0/0"), ("2/0", None), (None, "1/0")]


def test_a_program_under_another_name_is_compared_by_its_functions():
    a = compiled(("forward", "/a/before.py"), ("forward", "/a/lib.py"))
    b = compiled(("forward", "/b/lib.py"), ("forward", "/b/after.py"))
    rows = compare(Sides(Side(None, a), Side(None, b))).compilations
    values = [(row.file, row.baseline is None, row.candidate is None) for row in rows]
    assert values == [("/b/after.py", False, False), ("/b/lib.py", False, False)]


def test_the_command(recording, capsys, tmp_path):
    a, b = str(recording("resnet18_eager")), str(recording("resnet18"))
    assert main(["compare", a, b, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["baseline"]["worker"] == "vm_1119" and document["candidate"]["worker"] == "vm_424"
    assert "within the noise of 3 and 3 steps" in document["verdict"]
    assert main(["compare", a, b]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert document["verdict"] in out and "operators per step: 25 of" in out
    assert main(["compare", a, str(tmp_path)]) == 1
    assert "it contains no trace" in capsys.readouterr().err


def test_without_steps_whole_spans_are_compared(tmp_path, capsys):
    for name, dur in (("a", 5), ("b", 9)):
        write_trace(tmp_path / name, [kernel("k", 0, dur)])
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["step_time"] is None
    assert document["parts"] == [
        {"kind": "gpu", "part": "other", "time_us": {"baseline": 5, "candidate": 9, "delta": 4}}
    ]
    assert document["verdict"].startswith("The whole span takes 9.00 µs instead of 5.00 µs (+80.0 %)")
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    out = capsys.readouterr().out
    assert "time of the span by part" in out and "kernels of the span" in out and "per step" not in out


def test_a_log_alone_can_be_compared(recording, capsys, tmp_path):
    (log,) = recording("breaks").glob("*.log")
    (tmp_path / "log").mkdir()
    shutil.copy(log, tmp_path / "log")
    assert main(["compare", str(tmp_path / "log"), str(recording("resnet18"))]) == 0
    out = capsys.readouterr().out
    assert "Compiling takes 17.5 s instead of 4.56 s" in out and "The baseline has no trace" in out


def test_steps_that_compile_are_told_and_the_others_compared(tmp_path):
    """One step of B compiles: by the mean of all its steps nothing would be clear."""

    def steps(name, compiles):
        events, at = [], 0
        for number in range(4):
            length = 7_000_000 if (number in compiles) else 100 + number
            events.append(slice_(f"ProfilerStep#{number}", at, length, "user_annotation"))
            events.append(slice_("aten::mm", at + 1, 50))
            if number in compiles:
                events.append(slice_("_compile.compile_inner (dynamo_timed)", at + 60, length - 100))
            at += length
        return make_side(profile_with(tmp_path / name, events))

    plain, once, always = steps("plain", ()), steps("once", (2,)), steps("always", range(4))
    report = compare(Sides(plain, once))
    assert "within the noise" in report.verdict
    assert "the mean step takes 101 µs instead of 102 µs" in report.verdict
    assert "1 step of the candidate compiles (7.00 s). It is excluded." in report.notes
    both = compare(Sides(once, always)).notes
    assert both[:2] == [
        "1 step of the baseline compiles (7.00 s). It is excluded.",
        "4 steps of the candidate compile (28.0 s). No other step was profiled.",
    ]
    assert "compiles (" not in " ".join(compare(Sides(plain, plain)).notes)


def test_one_run_of_several_is_compared(recording, tmp_path, capsys):
    for name in ("resnet18_eager", "resnet18"):
        shutil.copytree(recording(name), tmp_path / name)
    runs = ["--run", "resnet18_eager", "--run", "resnet18"]
    assert main(["compare", str(tmp_path), str(tmp_path), *runs, "--json"]) == 0
    out = capsys.readouterr().out
    assert main(["compare", str(tmp_path / "resnet18_eager"), str(tmp_path / "resnet18"), "--json"]) == 0
    apart = json.loads(capsys.readouterr().out)
    assert json.loads(out)["step_time"] == apart["step_time"]
    assert main(["compare", str(tmp_path), str(tmp_path), "--run", "resnet18", "--json"]) == 0
    same = json.loads(capsys.readouterr().out)
    assert same["baseline"]["run"] == same["candidate"]["run"] == "resnet18"
    for wrong in (["--run", "nosuch"], ["--run", "a", "--run", "b", "--run", "c"]):
        assert main(["compare", str(tmp_path), str(tmp_path), *wrong]) == 2
    assert "there is no run 'nosuch'" in capsys.readouterr().err


def test_two_programs_get_no_verdict(recording):
    """A ResNet was called 86.2 % faster than a DenseNet, "more than the noise"."""
    paths = (recording("resnet18"), recording("pays") / "timm_vit_inference" / "eager")
    profiles = [profile_of(next(path.glob("*.pt.trace.json*"))) for path in paths]
    report = compare(Sides(*(make_side(profile) for profile in profiles)))
    assert report.verdict.startswith("Not comparable: ")
    assert report.figures and not report.break_even, "the tables are there"


def test_an_eager_and_a_compiled_run_show_when_compiling_breaks_even(profiles):
    eager, compiled = map(make_side, profiles)
    report = compare(Sides(eager, compiled))
    assert report.break_even == compare(Sides(compiled, eager)).break_even != ""
    assert compare(Sides(eager, eager)).break_even == ""


def test_launching_is_one_cause_in_eager_and_in_compiled_code(comparison):
    """It moved from "break or eager op", -8.1 ms, to "launch call", +6.9 ms. Nothing breaks here."""
    parts = {row.part: row.time_us for row in comparison.parts if row.kind == "idle"}
    launches = parts["kernel_launches"]
    assert launches.baseline == pytest.approx(7381, abs=1)
    assert launches.candidate == pytest.approx(7539, abs=1)
    assert parts["eager_operators"].delta == pytest.approx(-1364, abs=1)
    assert "graph_breaks" not in parts
