"""Texts of TORCH_LOGS of ten launchers contain what the summary of the same run contains, and claim nothing else."""

import contextlib
import gzip
import io
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from served import ROOT, make_client, make_plugin, wait_for
from tb_torchcompile_plugin.analysis.compile.compilations import compilations, problems
from tb_torchcompile_plugin.analysis.compile.graph_breaks import count_sites
from tb_torchcompile_plugin.analysis.compile.recompiles import count_recompiles
from tb_torchcompile_plugin.api.report import read_report
from tb_torchcompile_plugin.api.session import open_logdir
from tb_torchcompile_plugin.cli.command import main
from tb_torchcompile_plugin.compile_log.counts import counted_rows
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.logdir import discovery
from tb_torchcompile_plugin.logdir.log_text import parts
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_compile_data
from tb_torchcompile_plugin.reader.torch_trace.log_text import read_log_text

LOGS = Path(__file__).parents[2] / "data" / "torch_logs"
EXPECTED: dict[str, list[dict[str, Any]]] = json.loads((LOGS / "expected.json").read_text())
WITHOUT = {"kubectl": "graph_breaks", "dynamo_2_15": "graph_breaks", "relayed": "recompiles"}
Capture = pytest.CaptureFixture[str]


def file_of(name: str) -> Path:
    (file,) = LOGS.glob(f"{name}.log*")
    return file


def text_of(name: str) -> bytes:
    data = file_of(name).read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def data_of(path: Path) -> list[CompileData]:
    """Return what each worker compiled, by rank."""
    (run,) = open_logdir(str(path)).catalog.look().runs
    workers = sorted(run[1], key=lambda worker: worker.rank or 0)
    return [data for worker in workers if (data := read_compile_data(worker)[0])]


def rows_of(summary: CompileSummary) -> dict[str, Any]:
    return {
        "compilations": sorted(row.key.compile_id for row in summary.compilations),
        "graph_breaks": sorted(
            [row.key.compile_id, row.reason, row.line, row.count] for row in summary.graph_breaks
        ),
        "recompiles": {row.key.compile_id: [row.line, *row.reasons] for row in summary.recompiles},
    }


@pytest.mark.parametrize("name", EXPECTED)
def test_a_text_contains_what_the_summary_of_the_run_contains(name: str) -> None:
    found = data_of(file_of(name))
    lacks = WITHOUT.get(name, "")
    for data, expected in zip(found, EXPECTED[name], strict=True):
        rows = rows_of(data.summary)
        assert {kind for kind in rows if not rows[kind]} == {lacks} - {""}
        assert {kind: rows[kind] for kind in rows if kind != lacks} == {
            kind: expected[kind] for kind in expected if kind != lacks
        }
        assert not data.summary.records.unreadable and {
            row.key.epoch for row in data.summary.compilations
        } == {0}
        sites = {tuple(row[1:3]) for row in expected["graph_breaks"]}
        assert data.of(count_sites) == (None if lacks == "graph_breaks" else len(sites))
        assert data.of(count_recompiles) == (None if lacks == "recompiles" else 5)
        assert (counted_rows(data.summary, "breaks") is None) == (lacks == "graph_breaks")


@pytest.mark.parametrize("name", ["torchrun", "accelerate", "srun"])
def test_ranks_are_workers(name: str) -> None:
    assert [data.summary.environment.rank for data in data_of(file_of(name))] == [0, 1]


def test_graphs_guards_and_symbols_of_a_text_are_read() -> None:
    (data,) = data_of(file_of("inductor"))
    assert {row.key.compile_id for row in data.summary.graphs} >= {"0/0", "3/1"}
    assert all(graph.kernels for graph in data.summary.graphs)
    names = {row.name for row in data.summary.artifacts}
    assert names >= {"inductor_output_code", "dynamo_cpp_guards_str", "perf_hints"}
    symbols = [
        (row.symbol, row.value, row.source)
        for row in data.summary.shape_events
        if row.key.compile_id == "1/1"
    ]
    assert ("s17", "5", "L['y'].size()[0]") in symbols


def test_a_message_without_its_beginning_is_counted(tmp_path: Path) -> None:
    lines = text_of("plain").splitlines(keepends=True)
    first = next(at for at, line in enumerate(lines) if b"Hint: " in line)
    last = max(at for at, line in enumerate(lines) if b"- 0/0: " in line)
    (tmp_path / "cut.txt").write_bytes(b"".join(lines[first : last + 1]))
    (data,) = data_of(tmp_path / "cut.txt")
    assert sum(data.summary.records.unreadable.values()) == 1 and len(data.summary.recompiles) == 5
    assert len(data.summary.graph_breaks) == 5  # of 7: one is cut, one is after the end


# Of the second copy, a compilation is lost that ends before the first message that torch prints once, and is not named
# by one.
@pytest.mark.parametrize(("name", "count"), [("dynamo_2_15", 20), ("plain", 19), ("inductor", 19)])
def test_a_reset_begins_an_epoch(name: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "twice.log").write_bytes(text_of(name) * 2)
    (data,) = data_of(tmp_path / "twice.log")
    rows = data.summary.compilations
    assert len(rows) == count and {row.key.epoch for row in rows} == {0, 1}
    assert len(data.summary.recompiles) == 10


@pytest.mark.parametrize("folder", [b".venv/lib/python3.11/site-packages/", b"/opt/torch/", b"Lib\\"])
def test_torch_may_be_in_a_folder(folder: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(text_of("plain").replace(b" torch/", b" " + folder + b"torch/"))
    (data,) = data_of(tmp_path / "x.log")
    assert rows_of(data.summary) == EXPECTED["plain"][0]


@pytest.mark.parametrize(
    "prefix", [b"[pod/trainer-%d/main] ", b"trainer-%d  | ", b"%d: ", b"(W pid=9, ip=10.0.0.%d) "]
)
def test_machines_with_one_process_id_are_told_apart(prefix: bytes, tmp_path: Path) -> None:
    """Their lines alternate, and none has a rank."""
    lines = text_of("plain").splitlines(keepends=True)
    (tmp_path / "x.log").write_bytes(b"".join(prefix % n + line for line in lines for n in (1, 2)))
    assert [rows_of(data.summary) for data in data_of(tmp_path / "x.log")] == EXPECTED["plain"] * 2


# The second one is without the line that torch prints when it begins to compile f.
@pytest.mark.parametrize(("first", "compile_id"), [(0, "0/0"), (1, "?0/0")])
def test_a_suppressed_error_is_a_failure(first: int, compile_id: str, tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(b"".join(text_of("failed").splitlines(keepends=True)[first:]))
    (data,) = data_of(tmp_path / "x.log")
    (row,) = data.of(compilations)
    assert (row.compile_id, row.function, row.line, row.status) == (compile_id, "f", 3, "failed")
    (failure,) = data.of(problems)
    assert (failure.type, failure.ran_eager) == ("BackendCompilerFailed", True)
    assert failure.reason == "backend='bad' raised:\nRuntimeError: backend says no"


def test_a_frame_that_is_skipped_has_not_failed() -> None:
    (data,) = data_of(file_of("dynamo_2_15"))
    assert [row.kind for row in data.of(problems)] == ["limit"]


def test_a_text_that_grows_is_read_from_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, file = text_of("srun") * 5, tmp_path / "train.log"
    unranked = text.replace(b"[rank1]:", b"")
    start = (
        unranked.rindex(b" V1128", 0, -(65 << 10)) + 1
    )  # where it is read again: after the name of a machine
    file.write_bytes(unranked[: start + (64 << 10)])
    first = discovery.discover(str(tmp_path))[0][0].logs
    starts: list[int] = []
    blocks = discovery._blocks

    def noted(path: str, start: int = 0) -> Iterator[bytes]:
        starts.append(start)
        return blocks(path, start)

    monkeypatch.setattr(discovery, "_blocks", noted)
    file.write_bytes(unranked + text)
    grown = discovery.discover(str(tmp_path))[0][0].logs
    assert [log.part.rank for log in first + grown if log.part] == [-1, 0, 0, 1]
    assert starts == [start]
    file.write_bytes(b"another\n" + text_of("plain"))
    (log,) = discovery.discover(str(tmp_path))[0][0].logs
    assert log.part and log.part.label == "9775"


def test_containers_with_one_process_id_are_told_apart_by_rank() -> None:
    line = b"%sV1128 10:00:00.000000 7 torch/_dynamo/guards.py:1] [0/%d] [__recompiles] x\n"
    text = line % (b"", 0) + line % (b"[rank1]:", 1) + line % (b"[rank0]:", 2)
    assert [(part.label, part.rank) for part in parts([text])] == [("7", 1), ("7", 0)]


def test_in_a_logdir_texts_of_torch_count_unless_there_is_a_summary(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "train.log").write_bytes(text_of("plain"))
    (tmp_path / "other.log").write_bytes(b"V1128 10:00:00.000000 1 server.cpp:1] [0/0] [__x] y\n" * 9)
    assert len(data_of(tmp_path)) == 1
    summary = CompileSummary(format_version=1)
    (tmp_path / "w.1.pt.compile.pb").write_bytes(summary.SerializeToString())
    assert [data.source for data in data_of(tmp_path)] == ["summary"]
    assert main(["report", str(tmp_path / "other.log")]) == 1
    assert "TORCH_LOGS=" in capsys.readouterr().err


def test_a_text_joins_the_trace_of_its_process(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 11574, "tid": 1, "ts": 1, "dur": 5}
    (tmp_path / "h_11574.1.pt.trace.json").write_text(json.dumps({"traceEvents": [event]}))
    (tmp_path / "train.err").write_bytes(text_of("kubectl"))
    (run,) = read_report(str(tmp_path)).all_runs
    assert (run.compilations, run.recompiles, run.compile_s) == (10, 5, None)


def test_stdin_export_show_and_the_tab(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text_of("kubectl"))))
    assert main(["report", "-"]) == 0
    out = capsys.readouterr().out
    assert "tb-torchcompile" not in out
    first = " ".join(out.split("\n\n")[0].split())
    assert "10 compilations" in first and "Graph breaks are unknown" in first and "5 recompiles" in first
    file = str(file_of("srun"))
    assert main(["export", file, str(tmp_path / "out.html")]) == 0
    assert main(["report", file, "--json", "--section", "recompiles", "--top", "1"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"][:1]
    assert main(["show", table["rows"][0]["id"], "--logdir", file]) == 0
    (tmp_path / "train.out").write_bytes(text_of("srun"))
    plugin = make_plugin(tmp_path)
    wait_for(plugin.is_active)
    runs = make_client(plugin).get(f"{ROOT}/runs").get_json()["runs"]
    assert [(row["rank"], row["has_compile"]) for row in runs[0]["workers"]] == [(0, True), (1, True)]


_HEAD = b"V1128 10:00:00.000000 7 torch/_dynamo/guards.py:1] [0/1_2] [__graph_breaks] "
PIECES = [
    *(b"", b"\n", b"\r", b"\x1b[31m", b"\xff", b"> ", b"[rank1]:", b"!", b"{", b"["),
    b" " * 300,
    _HEAD,
    _HEAD * 40,
]


@given(st.lists(st.tuples(st.integers(0, 40_000), st.integers(0, 60), st.sampled_from(PIECES)), max_size=60))
def test_damaged_text_is_read_or_refused(damages: list[tuple[int, int, bytes]]) -> None:
    text = bytearray(text_of("quoted"))
    for start, length, piece in damages:
        text[start : start + length] = piece
    with tempfile.NamedTemporaryFile(suffix=".log") as file:
        file.write(text)
        file.flush()
        with contextlib.suppress(UserError):
            assert all(data.summary.compilations for data in data_of(Path(file.name)))


@pytest.mark.parametrize(
    "piece",
    [
        b"V1128 10:00:00.0 1 torch/",
        b"V1128 10:00:00.0 1 " + b"torch/_dynamo/convert_frame.py:" * 9,
        b"[rank1]:V1128 ",
        b"torch" + b" " * 99,
        b"\n" + _HEAD + b"WON'T CONVERT f g" + b" line 1" * 999,
        b"\n" + _HEAD + b"WON'T CONVERT f g line 1\n" + (_HEAD + b"a.b: c\n") * 99,
        _HEAD,
        b"\r\x1b[",
    ],
)
def test_time_is_linear(piece: bytes, tmp_path: Path) -> None:
    """Megabytes of the same beginning of a head on one line, which a careless pattern takes hours for."""
    (tmp_path / "x.log").write_bytes(piece * (3_000_000 // len(piece)) + b"\n" + _HEAD + b"Graph break: x\n")
    assert len(read_log_text(str(tmp_path / "x.log"))) >= 1
