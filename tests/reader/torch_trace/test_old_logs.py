"""Logs of older torch: 2.4 tells neither breaks nor recompiles, 2.6 and 2.8 have names and ids of their own."""

import pytest

from recordings import Recording
from tb_torchcompile_plugin.compile_log.summary_pb2 import BACKWARD, CompileSummary
from tb_torchcompile_plugin.reader.torch_trace.structured_log import read_log

VERSIONS = ["2.4.1", "2.6.0", "2.8.0"]
BREAKS = [("1/0", 24), ("2/0", 26), ("3/0", 28), ("4/0", 30)]  # print, branch, item, graph_break


def read(recording: Recording, version: str, case: str) -> list[CompileSummary]:
    logs = sorted((recording("old_logs") / version / case).glob("*.log"))
    return [read_log(str(log)) for log in logs]


def ids(summary: CompileSummary, epoch: int) -> list[str]:
    return [
        row.key.compile_id + (" backward" if row.direction == BACKWARD else "")
        for row in summary.compilations
        if row.key.epoch == epoch
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_one_program_of_three_versions(recording: Recording, version: str) -> None:
    (summary,) = read(recording, version, "basic")
    assert not summary.records.unreadable and not summary.records.unknown
    assert [(row.key.compile_id, row.line) for row in summary.graph_breaks] == BREAKS
    assert {row.file for row in summary.graph_breaks} == {"/home/user/train/program.py"}
    (failed,) = [row for row in summary.compilations if row.failure.type == "BackendCompilerFailed"]
    assert "own</b> error" in failed.failure.reason and failed.function == "failing"
    assert (failed.key.epoch, ids(summary, 1)[0]) == (0, "0/0")  # torch was reset after it
    assert len(summary.graphs) == 9 and all(graph.kernels for graph in summary.graphs)


@pytest.mark.parametrize(("version", "again"), [("2.4.1", 16), ("2.6.0", 4), ("2.8.0", 4)])
def test_recompiles_and_why(recording: Recording, version: str, again: int) -> None:
    """torch 2.4 recompiles for each number and tells no reason; later ones make it dynamic, and hit no limit."""
    (summary,) = read(recording, version, "basic")
    assert len(summary.recompiles) == again
    assert all(bool(row.reasons) == (version != "2.4.1") for row in summary.recompiles)
    assert {row.key.compile_id for row in summary.recompiles} == {
        name for name in ids(summary, 0) if name[-2:] not in ("/0", "rd")
    }


@pytest.mark.parametrize(
    ("version", "compile_ids"),
    [("2.4.1", ["0/0", "1/0"]), ("2.6.0", ["0/0", "1/0"]), ("2.8.0", ["0/0", "!0/1/0"])],
)
def test_compiled_autograd(recording: Recording, version: str, compile_ids: list[str]) -> None:
    (summary,) = read(recording, version, "autograd")
    assert ids(summary, 0) == compile_ids and not summary.records.unreadable


@pytest.mark.parametrize("version", VERSIONS)
def test_ranks(recording: Recording, version: str) -> None:
    both = read(recording, version, "ddp")
    assert [summary.environment.rank for summary in both] == [0, 1]
    more = [row.key.compile_id for row in both[1].recompiles]
    assert more == (["0/1"] if version == "2.8.0" else [])  # rank 1 alone is given another size
