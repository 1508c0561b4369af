"""Programs that configure logging, and so disable all other loggers: torch's records are received all the same."""

import logging
from pathlib import Path
from typing import Any

import pytest

from live import TRACE_LOGGER, needs_torch, run_all, summaries
from tb_torchcompile_plugin.writer import recorder as recorder_module
from tb_torchcompile_plugin.writer.recorded_block import CompileRecorder

pytestmark = [*needs_torch]

PROGRAM = """
    import io, logging.config, sys, torch
    from tb_torchcompile_plugin import CompileRecorder

    trace = logging.getLogger("torch.__trace")
    SILENCED = {
        "dictConfig": lambda: logging.config.dictConfig({"version": 1}),
        "fileConfig": lambda: logging.config.fileConfig(io.StringIO(
            "[loggers]\\nkeys=root\\n[handlers]\\nkeys=\\n[formatters]\\nkeys=\\n[logger_root]\\nhandlers=\\n"
        )),
        "cleared": trace.handlers.clear,
        "replaced": lambda: setattr(trace, "handlers", []),
        "removed": lambda: [trace.removeHandler(each) for each in list(trace.handlers)],
        "level": lambda: trace.setLevel("ERROR"),
        "levels of handlers": lambda: [each.setLevel("ERROR") for each in trace.handlers],
        "disabled": lambda: logging.disable(logging.CRITICAL),
        "before": lambda: None,
    }
    if sys.argv[1] == "before":
        SILENCED["dictConfig"]()
        trace.setLevel("ERROR")
    with CompileRecorder("out", sys.argv[1]):
        SILENCED[sys.argv[1]]()
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
"""
WAYS = (
    *("dictConfig", "fileConfig", "cleared", "replaced", "removed"),
    *("level", "levels of handlers", "disabled", "before"),
)


def test_records_are_received_all_the_same(tmp_path: Path) -> None:
    statuses, printed = run_all(PROGRAM, tmp_path, [[way] for way in WAYS])
    assert set(statuses) == {0}, printed
    heard = {row.environment.worker: row for row in summaries(tmp_path / "out")}
    assert heard.keys() == set(WAYS)
    for way, summary in heard.items():
        assert [(row.recovered, bool(row.phases)) for row in summary.compilations] == [(False, True)], way
        assert not summary.warnings, way


def test_the_logger_is_left_as_the_program_set_it(torch: Any, tmp_path: Path) -> None:
    logger: Any = TRACE_LOGGER  # whose attributes do not keep what they are given
    kind, handlers = type(logger), list(logger.handlers)
    with CompileRecorder(tmp_path):
        logger.disabled, level = True, logger.__dict__["level"]
        logger.setLevel("ERROR")
        assert not logger.disabled and logger.level == logging.DEBUG
    assert type(logger) is kind and logger.handlers == handlers
    assert logger.disabled and logger.level == logging.ERROR
    logger.disabled = False
    logger.setLevel(level)


@pytest.mark.usefixtures("torch")
def test_compilations_without_records_are_recovered_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    monkeypatch.setattr(recorder_module.logger, "disabled", True)
    with CompileRecorder(tmp_path) as recorder:
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        recorder.write()
        monkeypatch.setattr(torch._logging._internal, "trace_log", logging.Logger("nobody hears"))
        torch.compile(lambda x: x + 2, backend="eager")(torch.ones(2))
        recorder.write()
    last = summaries(tmp_path)[-1]
    assert [row.recovered for row in last.compilations] == [False, True]
    assert [text[:28] for text in last.warnings] == ["torch compiled 1 function bu"]
    assert capsys.readouterr().err.count("torch compiled 1 function") == 1
