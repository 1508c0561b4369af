"""What a session answers about real programs, recorded by our own recorder under a real torch."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tb_torchcompile_plugin
from live import needs_torch, run, torch_before
from tb_torchcompile_plugin.analysis.compile.compilation_details import (
    CompilationDetails,
    compilation,
    guard_checks,
)
from tb_torchcompile_plugin.analysis.compile.compilations import (
    Compilation,
    Problem,
    compilations,
    other_artifacts,
    problems,
)
from tb_torchcompile_plugin.analysis.compile.startup import StartUp, startup
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.api.starts import starts_of
from tb_torchcompile_plugin.errors import NotFound
from tb_torchcompile_plugin.reader.compile_data import read_payload

pytestmark = [*needs_torch, pytest.mark.usefixtures("torch")]
HOSTILE = "<script>alert(1)</script> \x1b[31m\"'"


class Answers(NamedTuple):
    session: Session
    ids: tuple[str, str]

    @property
    def problems(self) -> list[Problem]:
        return self.session.compile_data(*self.ids).of(problems)

    @property
    def rows(self) -> list[Compilation]:
        return self.session.compile_data(*self.ids).of(compilations)

    @property
    def startup(self) -> StartUp:
        return starts_of(self.session, *self.ids).of(startup)

    def details(self, compile_id: str, epoch: int = 0) -> CompilationDetails:
        return compilation(self.session.compile_data(*self.ids), epoch, compile_id)

    def text(self, compile_id: str, name: str) -> str:
        (artifact,) = [row for row in self.details(compile_id).artifacts if row.name == name]
        return read_payload(self.session.compile_data(*self.ids), artifact.id)

    def statuses(self) -> dict[str, str]:
        return {row.compile_id: row.status for row in self.rows if row.direction == "forward"}


def answers(folder: Path) -> Answers:
    session = Session([("", str(folder))])
    (known,) = session.runs().runs
    (worker,) = known.workers
    return Answers(session, (known.run, worker.worker))


def recorded(program: Callable[[], object], folder: Path, **options: Any) -> Answers:
    with tb_torchcompile_plugin.CompileRecorder(folder, **options):
        program()
    return answers(folder)


def test_four_kinds_of_break_are_four_frames_and_the_one_after(torch: Any, tmp_path: Path) -> None:
    def model(x: Any) -> Any:
        y = x.sin()
        print("a print")
        y = y + 1
        if y.sum().item() > 0:
            y = y * 2
        torch._dynamo.graph_break()
        y = y.cos()
        if y.sum() > 100:
            y = y - 1
        return y.tan()

    run = recorded(lambda: torch.compile(model, backend="eager")(torch.ones(3)), tmp_path)
    flat = run.rows
    assert [row.status for row in flat] == ["graph_break"] * 4 + ["compiled"]
    assert [row.breaks for row in flat] == [1, 1, 1, 1, 0]
    assert not run.problems
    first = model.__code__.co_firstlineno
    broken = [run.details(row.compile_id).graph_breaks for row in flat[:4]]
    assert [(row.line or 0) - first for (row,) in broken] == [2, 4, 6, 8]
    assert [row.source for (row,) in broken] == [
        'print("a print")',
        "if y.sum().item() > 0:",
        "torch._dynamo.graph_break()",
        "if y.sum() > 100:",
    ]
    details = run.details("0/0")
    assert details.rows[0].stack[-1].function == "model"
    assert details.rows[0].attempts == len(details.rows[0].restart_reasons) + 1 == 2
    assert [row.name for row in details.artifacts][:2] == ["dynamo_graph_break_reason", "dynamo_output_graph"]
    assert "def forward(self" in run.text("0/0", "dynamo_output_graph")


def test_a_frame_that_reaches_the_recompile_limit(torch: Any, tmp_path: Path) -> None:
    from torch._dynamo import config

    def model(x: Any) -> Any:
        return x + 1

    compiled = torch.compile(model, backend="eager", dynamic=False)
    name = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"
    with config.patch({name: 2}):
        run = recorded(lambda: [compiled(torch.ones(size)) for size in range(2, 7)], tmp_path)
    assert run.statuses() == {"0/0": "compiled", "0/1": "compiled", "0/2": "recompile_limit"}
    (problem,) = run.problems
    assert (problem.kind, problem.compile_id, problem.function) == ("limit", "0/2", "model")
    assert (problem.file, problem.ran_eager) == (__file__, True)
    last = run.details("0/2")
    assert last.recompile is not None
    assert len(last.recompile.reasons) == 2
    assert last.rows[0].failure == problem


def test_a_failing_backend_whose_error_is_suppressed(torch: Any, tmp_path: Path) -> None:
    def broken(graph: Any, inputs: Any) -> Any:
        raise ValueError(HOSTILE)

    compiled = torch.compile(lambda x: x + 1, backend=broken)
    with torch._dynamo.config.patch(suppress_errors=True):
        run = recorded(lambda: compiled(torch.ones(3)), tmp_path)
    (problem,) = run.problems
    assert (problem.kind, problem.type, problem.ran_eager) == ("failed", "BackendCompilerFailed", True)
    details = run.details("0/0")
    assert details.rows[0].failure == problem and HOSTILE in problem.reason
    assert details.traceback is not None and "in broken" in details.traceback


def test_an_unsuppressed_failure_did_not_run_eager(torch: Any, tmp_path: Path) -> None:
    def program() -> None:
        def model(x: Any) -> Any:
            torch._dynamo.graph_break()
            return x

        with pytest.raises(Exception, match="graph_break"):
            torch.compile(model, backend="eager", fullgraph=True)(torch.ones(3))

    run = recorded(program, tmp_path)
    (problem,) = run.problems
    assert (problem.kind, problem.type, problem.ran_eager) == ("failed", "Unsupported", False)


@pytest.mark.skipif(torch_before("2.11"), reason="torch 2.8 writes no record of it")
def test_a_frame_that_torch_cannot_resume_is_skipped(torch: Any, tmp_path: Path) -> None:
    def model(x: Any) -> Any:
        for _ in range(2):
            with open("/dev/null"):
                torch._dynamo.graph_break()
        return x

    run = recorded(lambda: torch.compile(model, backend="eager")(torch.ones(3)), tmp_path)
    skipped = [row for row in run.problems if row.function == "model"]
    assert [(row.kind, row.ran_eager) for row in skipped] == [("skipped", True)]


def test_dynamic_shapes(torch: Any, tmp_path: Path) -> None:
    def model(x: Any) -> Any:
        if x.shape[0] == 7:
            return x * 2
        return x.sin() + x.shape[0]

    compiled = torch.compile(model, backend="eager")
    run = recorded(lambda: [compiled(torch.ones(size)) for size in (4, 5, 6, 7)], tmp_path)
    assert run.statuses() == {"0/0": "compiled", "0/1": "compiled", "0/2": "compiled"}
    assert run.details("0/0").shapes.symbols == []
    dynamic = run.details("0/1")
    (shape,) = dynamic.shapes.symbols
    assert (shape.value, shape.source, shape.origin) == ("5", "L['x'].size()[0]", "changed")
    assert dynamic.recompile
    (change,) = dynamic.recompile.dynamic
    assert (change.source, change.before, change.now) == ("L['x']", "4", "5")
    (fixed,) = run.details("0/2").shapes.symbols
    assert (fixed.symbol, fixed.fixed, fixed.source) == (shape.symbol, "7", "L['x'].size()[0]")
    checks = guard_checks(run.session.compile_data(*run.ids), 0, "0/1").guards
    assert len(checks) == dynamic.guard_checks
    assert any(guard.source and "L['x']" in guard.source for guard in checks)
    assert any("size mismatch at index 0" in reason for reason in dynamic.recompile.reasons)


@pytest.mark.skipif(torch_before("2.8"), reason="torch 2.6 gives it no compile id of its own")
def test_compiled_autograd_shows_its_own_graph(tmp_path: Path) -> None:
    program = """
        import torch
        from tb_torchcompile_plugin import CompileRecorder
        torch._dynamo.config.compiled_autograd = True
        linear = torch.nn.Linear(4, 4)
        with CompileRecorder("out"):
            torch.compile(lambda x: linear(x).sum().backward(), backend="eager")(torch.ones(2, 4))
    """
    run(program, tmp_path)
    compiled = answers(tmp_path / "out")
    (inside,) = [row.compile_id for row in compiled.rows if row.compile_id.startswith("!")]
    assert re.fullmatch(r"!0/\d/0", inside) and all(row.duration_s for row in compiled.rows)
    assert "class CompiledAutograd0" in compiled.text(inside, "compiled_autograd_graph")
    assert not compiled.session.compile_data(*compiled.ids).of(other_artifacts)


def test_without_source_a_text_says_why_there_is_none(torch: Any, tmp_path: Path) -> None:
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    run = recorded(lambda: compiled(torch.ones(3)), tmp_path, capture="summary")
    details = run.details("0/0")
    assert (details.artifacts, details.guard_checks) == ([], None)
    assert guard_checks(run.session.compile_data(*run.ids), 0, "0/0").guards == []
    assert details.rows[0].graph_ops == 1
    with pytest.raises(NotFound, match='capture="summary"') as error:
        read_payload(run.session.compile_data(*run.ids), 0)
    assert 'capture="full"' in error.value.notice.next_step


def test_epochs_are_asked_for_apart(torch: Any, tmp_path: Path) -> None:
    def program() -> None:
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
        torch._dynamo.reset()
        torch.compile(lambda y: y.sin().cos(), backend="eager")(torch.ones(3))

    run = recorded(program, tmp_path)
    assert [run.details("0/0", epoch).rows[0].graph_ops for epoch in (0, 1)] == [1, 2]
    with pytest.raises(NotFound, match="epoch 2"):
        run.details("0/0", 2)


TRAINING = """
    import torch
    from tb_torchcompile_plugin import CompileRecorder
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    with CompileRecorder("out"):
        torch.compile(model)(torch.randn(4, 8)).sum().backward()
"""


@pytest.mark.slow
@pytest.mark.skipif(torch_before("2.8"), reason="torch 2.6 tells no reason of a cache miss")
def test_training_with_inductor_cold_and_warm(tmp_path: Path) -> None:
    runs = []
    for name in ("cold", "warm"):
        (tmp_path / name).mkdir()
        run(TRAINING, tmp_path / name, TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache"))
        runs.append(answers(tmp_path / name / "out"))
    cold, warm = runs
    _check_texts(cold)
    _check_texts(warm)
    lookups = {(row.direction, row.result) for row in cold.startup.start_lookups}
    assert lookups == {("forward", "miss"), ("backward", "miss")}
    assert {row.result for row in warm.startup.start_lookups} == {"hit"}
    whole = [row.time_saved_s for row in warm.startup.start_lookups if row.cache == "AOTAutograd cache"]
    assert sum(time or 0 for time in whole) > 0


def _check_texts(run: Answers) -> None:
    """Forward code with the forward graph, backward code with the backward's, also where all came from the cache."""
    rows = run.details("0/0").artifacts
    codes = [row for row in rows if row.name == "inductor_output_code"]
    assert [(row.direction, row.graph) for row in codes] == [("forward", 0), ("backward", 1)]
    for row, end in zip(codes, ("_forward", "_backward"), strict=True):
        assert f"{end}']" in read_payload(run.session.compile_data(*run.ids), row.id)
    assert {row.name for row in rows} >= {"dynamo_output_graph", "aot_joint_graph", "fx_graph_runnable"}
