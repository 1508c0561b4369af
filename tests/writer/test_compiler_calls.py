"""Calls that decide what runs compiled, under a real torch: which are noted, and that torch notices nothing of it."""

from pathlib import Path
from typing import Any

import pytest

from live import fresh_recorder, needs_torch, run_all, run_alone, summaries, torch_before
from profiles import data_of
from tb_torchcompile_plugin.analysis.compile.compilations import compilations
from tb_torchcompile_plugin.analysis.compile.compile_time import count_compilations
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.writer import compiler_calls
from tb_torchcompile_plugin.writer.recorded_block import CompileRecorder

pytestmark = [*needs_torch, pytest.mark.usefixtures("torch")]


@pytest.fixture
def nothing_noted(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(compiler_calls, "_calls", {})
    monkeypatch.setattr(compiler_calls, "_methods", {})
    monkeypatch.setattr(compiler_calls, "_called_before", False)
    with fresh_recorder():
        yield torch


def noted(summary: CompileSummary) -> list[tuple[str, str, str]]:
    assert all(row.file == __file__ for row in summary.compiler_calls)
    return [(row.kind, row.subject.rpartition(".")[2], row.reason) for row in summary.compiler_calls]


notes_skips = pytest.mark.skipif(torch_before("2.13"), reason="torch 2.8 has no function for skipped frames")


def double(x: Any) -> Any:
    return x * 2


def test_calls_of_torch_compile(nothing_noted: Any, tmp_path: Path) -> None:
    torch = nothing_noted
    with CompileRecorder(tmp_path) as recorder:
        assert recorder.summary().environment.compile_called is False
        torch.compile(double, backend="eager")
        torch.compile(backend="eager")(double)
        torch.nn.Linear(2, 2).compile(backend="eager")
    (summary,) = summaries(tmp_path)
    values = [row[:2] for row in noted(summary)]
    assert values == [("compile", "double"), ("compile", "double"), ("compile", "_call_impl")]
    assert summary.environment.compile_called
    assert all(row.duration_ns > 0 for row in summary.compiler_calls)


def test_stances_and_what_is_disabled(nothing_noted: Any, tmp_path: Path) -> None:
    torch = nothing_noted
    with CompileRecorder(tmp_path) as recorder:
        compiled = torch.compile(double, backend="eager")
        with torch.compiler.set_stance("force_eager"):
            compiled(torch.ones(2))
        torch.compiler.disable(compiled)
        rows = noted(recorder.summary())
    assert ("stance", "force_eager", "") in rows and rows[-1] == ("disable", "double", "")
    assert [row[1] for row in rows if row[0] == "stance"][-1] == "default"


@notes_skips
def test_a_function_that_a_dispatch_mode_keeps_from_being_compiled(
    nothing_noted: Any, tmp_path: Path
) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    torch = nothing_noted
    with CompileRecorder(tmp_path, capture="summary") as recorder:
        compiled = torch.compile(lambda x: x @ x, backend="eager")
        with FlopCounterMode(display=False):
            compiled(torch.ones(2, 2))
        rows = [row for row in noted(recorder.summary()) if row[0] == "dispatch_mode"]
    assert ("dispatch_mode", "<lambda>", "FlopCounterMode") in rows


def test_an_older_torch_is_asked_for_modes(nothing_noted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """There Dynamo hands what it skips to no function of its own."""
    from torch._dynamo import convert_frame
    from torch.utils.flop_counter import FlopCounterMode

    torch = nothing_noted
    for name in compiler_calls._MODE_CHECKS:
        if check := getattr(convert_frame, name, None):
            monkeypatch.setattr(convert_frame, name, compiler_calls._noting(check, compiler_calls._note_mode))
    monkeypatch.setattr(compiler_calls, "_note_skip", lambda *what: skipped.append(what))
    skipped: list[tuple[str, str]] = []
    compiled = torch.compile(lambda x: x @ x - 1, backend="eager")
    with FlopCounterMode(display=False):
        compiled(torch.ones(2, 2))
    assert ("", "") in skipped


def model(torch: Any) -> Any:
    """A module with a method that calls it."""

    class Model(torch.nn.Module):  # type: ignore[misc]  # torch is not typed here
        rate = 2

        def forward(self, x: Any) -> Any:
            return x * 2

        def generate(self, x: Any) -> Any:
            return self(self(x))

    return Model()


def test_methods_of_a_compiled_module_until_something_is_compiled(nothing_noted: Any, tmp_path: Path) -> None:
    torch = nothing_noted
    with CompileRecorder(tmp_path) as recorder:
        compiled = torch.compile(model(torch), backend="eager")
        for _ in range(2):
            assert torch.equal(compiled.generate(torch.ones(2)), torch.full((2,), 4.0))
        assert compiled.rate == 2 and not hasattr(compiled, "absent")
        (row,) = (row for row in recorder.summary().compiler_calls if row.kind == "method")
        assert row.subject.endswith("Model.generate") and row.duration_ns > 0
        torch.compile(lambda x: compiled(x) * compiled.rate, backend="eager", fullgraph=True)(torch.ones(2))
        torch.compile(model(torch), backend="eager")
        original = torch._dynamo.eval_frame.OptimizedModule.__getattr__
        summary = recorder.summary()
    assert not hasattr(original, compiler_calls.MARK)  # or Dynamo would trace it
    assert not any(row.attempts > 1 for row in summary.compilations)


def test_methods_are_left_alone_while_nothing_records(nothing_noted: Any, tmp_path: Path) -> None:
    with CompileRecorder(tmp_path):
        nothing_noted.compile(model(nothing_noted), backend="eager")
        assert hasattr(nothing_noted._dynamo.eval_frame.OptimizedModule.__getattr__, compiler_calls.MARK)
    nothing_noted.compile(model(nothing_noted), backend="eager")
    assert not hasattr(nothing_noted._dynamo.eval_frame.OptimizedModule.__getattr__, compiler_calls.MARK)


def test_dynamo_can_trace_the_noting_of_methods(nothing_noted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch's log is silent nothing shows that it compiles."""
    torch = nothing_noted
    module = torch._dynamo.eval_frame.OptimizedModule
    monkeypatch.setattr(module, "__getattr__", module.__getattr__)
    compiled = torch.compile(model(torch), backend="eager")
    compiler_calls._note_methods()
    function = torch.compile(lambda x: compiled.generate(x) * compiled.rate, backend="eager", fullgraph=True)
    assert torch.equal(function(torch.ones(2)), torch.full((2,), 8.0))


def test_a_backend_that_a_stance_forces(nothing_noted: Any, tmp_path: Path) -> None:
    torch = nothing_noted
    with CompileRecorder(tmp_path) as recorder:
        torch.compile(double)
        torch.compiler.set_stance(force_backend="eager")
        rows = noted(recorder.summary())
        torch.compiler.set_stance("default")
    assert rows[-1] == ("stance", "default", "eager")


@notes_skips
def test_a_config_that_switches_dynamo_off(nothing_noted: Any, tmp_path: Path) -> None:
    torch = nothing_noted
    with CompileRecorder(tmp_path) as recorder, torch._dynamo.config.patch(disable=True):
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        rows = noted(recorder.summary())
    assert ("disabled", "<lambda>", "") in rows


def test_dynamo_sees_torchs_own_functions(nothing_noted: Any, tmp_path: Path) -> None:
    """A stack in its log has no frame of the wrapper, and a graph breaks at torch.compile where it did before."""
    torch = nothing_noted

    def nested(x: Any) -> Any:
        return torch.compile(double, backend="eager")(x) + 1

    with CompileRecorder(tmp_path) as recorder:
        torch.compile(nested, backend="eager")(torch.ones(2))
        summary = recorder.summary()
    stacks = [frame.file for row in summary.compilations for frame in row.stack]
    assert __file__ in stacks and compiler_calls.__file__ not in stacks
    assert not any(file.endswith("convert_frame.py") for file in stacks)
    assert compiler_calls.__file__ not in {row.file for row in (*summary.compilations, *summary.graph_breaks)}


@pytest.mark.skipif(torch_before("2.15"), reason="older ones have no torch.compiler.precompile")
def test_a_function_that_precompile_loaded(nothing_noted: Any, tmp_path: Path) -> None:
    """It was compiled by another process, and whether it runs is unknown: torch does not label its calls."""
    precompile, paths = nothing_noted.compiler.precompile, (tmp_path / "m.py", tmp_path / "m.cache")
    with precompile.capture(double, artifact_path=paths[0], cache_path=paths[1], backend="eager") as capture:
        capture(nothing_noted.ones(2))
    with CompileRecorder(tmp_path) as recorder:
        assert precompile.load(*paths)(nothing_noted.ones(2)).tolist() == [2, 2]
        summary = recorder.summary()
    assert [(row.kind, row.subject) for row in summary.compiler_calls] == [("load", "m.py")]
    data = data_of(summary)
    (row,) = data.of(compilations)
    assert (row.compile_id, row.status, row.function) == ("loaded/0", "compiled_elsewhere", "m.py")
    assert (row.file, data.of(count_compilations)) == (__file__, 0)


PROGRAM = """
    import sys, torch
    from tb_torchcompile_plugin import tensorboard_trace_handler
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=1, repeat=1)
    handler = tensorboard_trace_handler(".")
    for steps in map(int, sys.argv[1:]):
        with torch.profiler.profile(schedule=schedule, on_trace_ready=handler) as prof:
            for _ in range(steps):
                prof.step()
"""


@pytest.mark.parametrize(
    ("loops", "unused"), [(["0"], 0), (["1"], 1), (["4", "1"], None), (["1", "4"], None)]
)
def test_a_profiler_that_never_recorded(tmp_path: Path, loops: list[str], unused: int | None) -> None:
    """It is written though nothing was compiled, as nothing else would show why there is no trace."""
    statuses, printed = run_all(PROGRAM, tmp_path, [loops])
    assert statuses == [0], printed
    steps = summaries(tmp_path)[-1].steps
    assert (steps.unused.steps if steps.HasField("unused") else None) == unused


def test_noting_never_loads_dynamo(tmp_path: Path) -> None:
    program = """
        import sys, torch
        from tb_torchcompile_plugin.writer.recorder import recorder
        recorder().start("full")
        assert recorder().summary("full").environment.compile_called is False
        print("torch._dynamo" in sys.modules)
    """
    assert run_alone(program, tmp_path).strip() == "False"


def test_disabling_a_function_compiles_none(nothing_noted: Any, tmp_path: Path) -> None:
    with CompileRecorder(tmp_path) as recorder:
        nothing_noted.compiler.disable(double)
        assert recorder.summary().environment.compile_called is False
