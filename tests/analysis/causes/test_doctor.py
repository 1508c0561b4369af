"""What a run's one table of failures and reasons holds, of programs that a real torch could not compile."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from live import needs_torch, torch_before
from tb_torchcompile_plugin.analysis.causes.doctor import Diagnosis
from tb_torchcompile_plugin.api.report import read_report
from tb_torchcompile_plugin.cli.command import main
from tb_torchcompile_plugin.writer import compiler_calls
from tb_torchcompile_plugin.writer.recorded_block import CompileRecorder

pytestmark = [*needs_torch, pytest.mark.usefixtures("torch")]
DIFFERS = "Accuracy failed for the AOT Autograd graph %s"


def double(x: Any) -> Any:
    return x * 2


def prints(x: Any) -> Any:
    y = x.sin()
    print("between")
    return y.cos()


def times(x: Any, text: str) -> Any:
    return x * len(text) if text != "q" else x


def backend_raises(torch: Any) -> None:
    def bad(graph: Any, inputs: Any) -> Any:
        raise ValueError("cannot do this")

    torch.compile(double, backend=bad)(torch.ones(3))


def suppressed(torch: Any) -> None:
    with torch._dynamo.config.patch(suppress_errors=True):
        backend_raises(torch)


def fullgraph(torch: Any) -> None:
    torch.compile(prints, backend="eager", fullgraph=True)(torch.ones(3))


def breaks(torch: Any) -> None:
    torch.compile(prints, backend="eager")(torch.ones(3))


def reaches_the_limit(torch: Any) -> None:
    compiled = torch.compile(times, backend="eager")
    with torch._dynamo.config.patch(recompile_limit=2):
        for number in range(3):
            compiled(torch.ones(3), "x" * number)


def stance(torch: Any) -> None:
    compiled = torch.compile(double, backend="eager")
    with torch.compiler.set_stance("force_eager"):
        compiled(torch.ones(3))


def uncalled(torch: Any) -> None:
    torch.compile(double)


def differs(torch: Any) -> None:
    import logging

    torch.compile(double, backend="eager")(torch.ones(3))
    logging.getLogger("torch._dynamo.repro.after_aot").warning(DIFFERS, "model__0_inference_0")


def nothing(torch: Any) -> None:
    torch.ones(3)


@pytest.fixture
def recorded(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[Any], None]], list[Diagnosis]]:
    monkeypatch.setattr(compiler_calls, "_calls", {})
    monkeypatch.setattr(compiler_calls, "_called_before", False)

    def record(program: Callable[[Any], None]) -> list[Diagnosis]:
        with CompileRecorder(tmp_path, worker_name="w"), suppress(Exception):  # of torch, into the program
            program(torch)
        return read_report(str(tmp_path)).runs[0].doctor

    return record


@pytest.mark.skipif(torch_before("2.11"), reason="older torch says less")
@pytest.mark.parametrize(
    ("program", "outcome", "why", "command"),
    [
        (backend_raises, "failed", "BackendCompilerFailed: ValueError: cannot do this", "REPRO_AFTER=dynamo"),
        (suppressed, "failed", "was suppressed", "REPRO_AFTER=dynamo"),
        (fullgraph, "failed", "`print`", "DYNAMO_VERBOSE=1"),
        (breaks, "graph_break", "builtin", ""),
        (reaches_the_limit, "eager", "recompile limit", "TORCH_LOGS=recompiles"),
        (stance, "eager", 'set_stance("force_eager")', ""),
        (uncalled, "eager", "is not called", ""),
        (differs, "inaccurate", "model__0_inference_0", "REPRO_LEVEL=4"),
        (nothing, "eager", "torch.compile was not called", ""),
    ],
)
def test_the_first_row(recorded: Any, program: Any, outcome: str, why: str, command: str) -> None:
    first, *rest = recorded(program)
    assert (first.outcome, first.workers) == (outcome, "w")
    assert why in first.why and command in first.command and (first.next_step or first.command)
    assert program is nothing or first.file == __file__ or program is uncalled
    # Results were compared in one program alone: of the others with a graph this is unknown.
    checked = [row for row in rest if "computes the same" in row.why]
    assert bool(checked) == (program in (breaks, reaches_the_limit))


def test_without_compile_data_nothing_is_claimed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.pt.trace.json").write_text(
        '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}'
    )
    eager, unknown = read_report(str(tmp_path)).runs[0].doctor
    assert (eager.outcome, unknown.outcome) == ("eager", "unknown") and "unknown" in eager.why
    assert "tensorboard_trace_handler" in unknown.next_step
    assert main(["doctor", str(tmp_path)]) == 0
    assert "unknown" in capsys.readouterr().out
    assert main(["doctor", str(tmp_path / "none")]) == 1
