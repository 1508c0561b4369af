"""What a run's one table of failures and reasons holds, of programs that a real torch could not compile."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from live import needs_torch, torch_before
from tb_torchcompile_plugin.analysis.causes.doctor import Diagnosis
from tb_torchcompile_plugin.analysis.causes.eager import EAGER_REASONS, in_words
from tb_torchcompile_plugin.analysis.formatting import at_line
from tb_torchcompile_plugin.api.report import read_report
from tb_torchcompile_plugin.cli.command import main
from tb_torchcompile_plugin.writer import compiler_calls
from tb_torchcompile_plugin.writer.recorded_block import CompileRecorder
from traces import slice_, write_trace

pytestmark = [*needs_torch, pytest.mark.usefixtures("torch")]
LOGS = Path(__file__).parents[2] / "data" / "torch_logs"
DIFFERS = "Accuracy failed for the AOT Autograd graph %s"


def double(x: Any) -> Any:
    return x * 2


def prints(x: Any) -> Any:
    y = x.sin()
    print("between")
    return y.cos()


PRINTS_AT = prints.__code__.co_firstlineno + 2


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


def stance_for_some_calls(torch: Any) -> None:
    torch.compile(double, backend="eager")(torch.ones(3))
    stance(torch)


def uncalled(torch: Any) -> None:
    torch.compiler.disable(prints)
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
    ("program", "expected", "command"),
    [
        (backend_raises, ["failed BackendCompilerFailed double"], "REPRO_AFTER=dynamo"),
        (suppressed, ["failed BackendCompilerFailed double"], "REPRO_AFTER=dynamo"),
        (fullgraph, ["failed Unsupported prints"], "DYNAMO_VERBOSE=1"),
        (breaks, ["graph_break prints", f"compiled prints after line {PRINTS_AT}", "unknown"], ""),
        (reaches_the_limit, ["eager times", "compiled times", "unknown"], "=recompiles"),
        (stance, ["eager stance force_eager"], ""),
        (stance_for_some_calls, ["compiled double", "unknown"], ""),
        (uncalled, ["eager unused double", "eager disable prints"], ""),
        (differs, ["inaccurate", "compiled double"], ""),
        (nothing, ["eager never"], ""),
    ],
)
def test_all_rows(recorded: Any, program: Any, expected: list[str], command: str) -> None:
    """Of programs with a graph, whether results are the same is unknown, unless torch compared them."""
    rows = recorded(program)
    assert [" ".join(filter(None, (row.outcome, reason_of(row), row.function))) for row in rows] == expected
    assert command in rows[0].command
    assert all(row.workers == "w" and (row.outcome == "compiled" or row.next_step) for row in rows)
    assert all(row.file == __file__ for row in rows if row.function)


def reason_of(row: Diagnosis) -> str:
    """Return the key of EAGER_REASONS, or the type of an exception."""
    if row.outcome == "failed":
        return row.why.partition(":")[0]
    keys = (
        key
        for key in EAGER_REASONS
        if in_words(key, row.function, "", at_line(row.file, row.line)).why == row.why
    )
    return next(keys, "")


def test_ranks_with_the_same_reason_are_one_row() -> None:
    """A guard of torch contains the address of a class, which differs in each process."""
    rows = read_report(str(LOGS / "torchrun.log.gz")).runs[0].doctor
    (eager,) = (row for row in rows if row.outcome == "eager")
    assert eager.workers == "rank_0, rank_1"
    assert "unknown" in {row.outcome for row in rows} and "compiled" not in {row.outcome for row in rows}


def test_without_compile_data_nothing_is_claimed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_trace(tmp_path, [slice_("aten::mm", 1, 2)])
    eager, unknown = read_report(str(tmp_path)).runs[0].doctor
    assert (eager.outcome, unknown.outcome) == ("eager", "unknown") and "unknown" in eager.why
    assert "tensorboard_trace_handler" in unknown.next_step
    assert main(["doctor", str(tmp_path)]) == 0
    assert "unknown" in capsys.readouterr().out
    assert main(["doctor", str(tmp_path / "none")]) == 1
