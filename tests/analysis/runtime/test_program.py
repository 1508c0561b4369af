"""runtime/program.py: what a run executed, whether it is what another one did, and which run is its baseline."""

from pathlib import Path

from profiles import profile_of, profile_with
from recordings import Recording
from tb_torchcompile_plugin.analysis.runtime.program import (
    ProgramFacts,
    baseline_of,
    differences,
    is_other_program,
    program,
)
from traces import in_steps, slice_

LINEAR = [[8, 64, 256], [8, 256, 1024]]
OTHER = [[3, 7, 32], [5, 512]]


def kinds(a: ProgramFacts, b: ProgramFacts) -> list[str]:
    return [kind for kind, _ in differences(a, b)]


def test_eager_and_compiled_are_one_program_and_another_model_is_not(recording: Recording) -> None:
    """Their kernels differ (96 and 229), what they call does not: 43 calls in a step, of the same sizes."""
    eager, compiled = (
        profile_of(next(recording(name).glob("*.pt.trace.json"))).of(program)
        for name in ("resnet18_eager", "resnet18")
    )
    assert eager.calls == compiled.calls == {"convolution": 40, "gemm": 3} and sorted(eager.sizes) == sorted(
        compiled.sizes
    )
    assert (eager.compiled, compiled.compiled) == (False, True)
    assert not is_other_program(eager, compiled)
    vit = profile_of(next((recording("pays") / "timm_vit_inference" / "eager").glob("*.pt.trace.json*")))
    assert kinds(eager, vit.of(program))[0] == "program"


def test_calls_are_the_innermost_in_the_steps(tmp_path: Path) -> None:
    """A `linear` that calls `addmm` is one call, and what runs before the steps is none."""
    linear = [slice_("aten::linear", 2, 20), slice_("aten::addmm", 4, 10, input_dims=[[3], [5, 7], [7, 3]])]
    profile = profile_with(tmp_path, [slice_("aten::mm", -40, 5), *in_steps(*linear, every=100)])
    assert profile.of(program).calls == {"gemm": 1}


def test_what_ran_decides_then_the_script() -> None:
    train, other = (
        ProgramFacts(script="/a/train.py", sizes=LINEAR),
        ProgramFacts(script="/b/run.py", sizes=LINEAR),
    )
    assert kinds(train, other) == [], "the same sizes, by whatever script"
    assert list(differences(ProgramFacts(script="/a/train.py"), other)) == [
        ("program", "The baseline ran `train.py`, the candidate `run.py`.")
    ]
    assert kinds(ProgramFacts(script="/a/train.py"), ProgramFacts(script="/b/train.py")) == []
    assert kinds(train, ProgramFacts(sizes=OTHER)) == ["program"]
    assert kinds(train, ProgramFacts(script="/a/train.py", sizes=OTHER)) == ["work"], (
        "another batch, or model"
    )
    assert kinds(ProgramFacts(), ProgramFacts(sizes=OTHER, script="a", calls={"gemm": 3.0})) == [], (
        "unknown is no difference"
    )


def test_a_length_that_varies_is_no_other_program_and_more_work_is() -> None:
    short, long = (
        ProgramFacts(sizes=[[24, 64, 256]], tflop=1.0),
        ProgramFacts(sizes=[[31, 64, 256]], tflop=1.2),
    )
    assert kinds(short, long) == []
    assert kinds(short, ProgramFacts(sizes=[[48, 64, 256]], tflop=2.1)) == ["program"]


def test_calls_are_compared_by_kind() -> None:
    """A template of max-autotune stands for any; an attention that is written out becomes one call of four."""
    resnet, densenet = (
        ProgramFacts(calls={"convolution": 40.0, "gemm": 3.0}),
        ProgramFacts(calls={"convolution": 240.0}),
    )
    (row,) = differences(resnet, densenet)
    assert row == (
        "program",
        "A step of the baseline calls 40 convolution and 3 gemm operators, a step of the candidate 240 convolution "
        "operators.",
    )
    assert kinds(resnet, ProgramFacts(calls={"gemm": 40.0})) == ["program"]
    assert kinds(resnet, ProgramFacts(calls={"template": 35.0, "gemm": 3.0})) == []
    assert kinds(ProgramFacts(calls={"gemm": 6.0}), ProgramFacts(calls={"gemm": 4.0, "attention": 1.0})) == []


def test_where_runs_ran_is_a_difference_of_its_own() -> None:
    h100, a100 = ProgramFacts(devices=["H100"], torch="2.13"), ProgramFacts(devices=["A100"], torch="2.14")
    assert [*differences(h100, a100, ("the baseline", "the candidate"))] == [
        ("torch", "The baseline ran on torch 2.13, the candidate on torch 2.14."),
        ("gpu", "The baseline ran on H100, the candidate on A100: different devices."),
    ]
    assert not is_other_program(h100, a100)


def test_runs_belong_together_that_are_named_alike() -> None:
    names = [
        *("bert/eager", "bert/compiled", "gpt/eager", "gpt/warm", "gpt/compiled", "resnet18"),
        "resnet18_eager",
    ]
    runs: dict[str, ProgramFacts | None] = dict.fromkeys([*names, "other"])
    assert {run: found for run in runs if (found := baseline_of(run, runs))} == {
        "bert/eager": "bert/compiled",
        "bert/compiled": "bert/eager",
        "gpt/eager": "gpt/compiled",  # the other one was warm
        "gpt/warm": "gpt/eager",
        "gpt/compiled": "gpt/eager",
        "resnet18": "resnet18_eager",
        "resnet18_eager": "resnet18",
    }
    assert baseline_of("a/eager", dict.fromkeys(["a/eager", "a/cold", "a/compiled"])) is None
    assert baseline_of(".", dict.fromkeys([".", "eager"])) == "eager"
    assert baseline_of("a", dict.fromkeys(["a", "a_eager", "a.baseline"])) is None, "which one is unknown"


def test_a_mode_is_compared_with_the_eager_run_or_the_plain_compiled_one() -> None:
    runs: dict[str, ProgramFacts | None] = dict.fromkeys(["a/compiled", "a/max-autotune", "a/cudagraphs"])
    assert baseline_of("a/max-autotune", runs) == baseline_of("a/cudagraphs", runs) == "a/compiled"
    assert baseline_of("a/compiled", runs) is None
    assert baseline_of("a/cudagraphs", {**runs, "a/eager": None}) == "a/eager"


def test_what_ran_finds_a_baseline_of_any_name_and_forbids_one_of_the_same() -> None:
    eager, compiled = ProgramFacts(compiled=False, sizes=LINEAR), ProgramFacts(compiled=True, sizes=LINEAR)
    runs = {"monday": eager, "tuesday": compiled, "wednesday": ProgramFacts(compiled=False, sizes=OTHER)}
    assert baseline_of("tuesday", runs) == "monday" and baseline_of("monday", runs) == "tuesday"
    named = {"a/eager": ProgramFacts(compiled=False, sizes=OTHER), "a/compiled": compiled}
    assert baseline_of("a/compiled", named) is None
    assert baseline_of("a/compiled", {**named, "b": eager}) == "b"
    by_script = {
        "x": ProgramFacts(compiled=False, script="/t.py"),
        "y": ProgramFacts(compiled=True, script="/t.py"),
    }
    assert baseline_of("y", by_script) == "x"
