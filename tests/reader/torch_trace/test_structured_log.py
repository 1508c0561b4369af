"""TORCH_TRACE logs, good and bad. Nothing that is wrong with one may hide the rest of it."""

import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compile_records import a_compilation, artifact, envelope, line, mark
from recordings import Recording
from tb_torchcompile_plugin.compile_log.record import Record
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.reader.torch_trace import structured_log
from tb_torchcompile_plugin.reader.torch_trace.structured_log import log_identity, read_log

NAME = "dedicated_log_torch_trace_abc.log"
ONE, TWO = a_compilation("0/0"), a_compilation("1/0", 5000)


def written(folder: Path, data: bytes, name: str = NAME) -> str:
    path = folder / name
    path.write_bytes(data)
    return str(path)


def lines(records: list[Record]) -> bytes:
    return b"".join(line(record) for record in records)


def ids(summary: CompileSummary) -> list[str]:
    return [row.key.compile_id for row in summary.compilations]


@pytest.mark.parametrize("program", ["breaks", "resnet18", "recompiles", "ddp", "resnet18_compile"])
def test_records_of_each_kind_are_those_of_the_reference(
    recording: Recording, expected: Callable[[str], dict[str, Any]], program: str
) -> None:
    for name, numbers in expected(program)["logs"].items():
        summary = read_log(str(recording(program) / name))
        assert dict(summary.records.by_kind) == numbers["records"]
        assert not summary.records.unknown
        assert not summary.records.unreadable
        assert not summary.warnings
        assert len({row.key.compile_id for row in summary.compilations}) == numbers["compile_ids"]
        assert len(summary.graph_breaks) == len(numbers["graph_breaks"])
        recompiles = [f"{frame}/{version}" for frame, version, _ in numbers["recompiles"]]
        assert [row.key.compile_id for row in summary.recompiles] == recompiles


def test_the_environment_is_what_the_log_tells(recording: Recording) -> None:
    (path,) = recording("breaks").glob("*.log")
    environment = read_log(str(path)).environment
    assert environment.torch_version == "2.11.0+cu130"
    assert environment.python_version.startswith("3.12.3")
    assert (environment.cuda_version, environment.triton_version) == ("13.0", "3.6.0")
    assert environment.pid == 1027
    assert not environment.HasField("rank")
    assert environment.recording_start_ns == 1_795_230_247_471_630_750


@pytest.mark.parametrize("size", [2000, 10**9], ids=["many members", "one member"])
def test_gz_and_plain_read_alike(recording: Recording, tmp_path: Path, size: int) -> None:
    (path,) = recording("breaks").glob("*.log")
    data = path.read_bytes()
    members = [gzip.compress(data[at : at + size], 1) for at in range(0, len(data), size)]
    assert read_log(written(tmp_path, b"".join(members), NAME + ".gz")) == read_log(str(path))


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
def test_the_size_of_chunks_makes_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    path = written(tmp_path, lines([*ONE, artifact("x", "V not a record\n\nV0\n"), *TWO]))
    whole = read_log(path)
    monkeypatch.setattr(structured_log, "CHUNK_BYTES", chunk)
    assert read_log(path) == whole


# -- bad input ----------------------------------------------------------------------------------------------------


def test_a_last_line_that_is_cut_off(tmp_path: Path) -> None:
    summary = read_log(written(tmp_path, lines([*ONE, *TWO])[:-30]))
    assert ids(summary) == ["0/0", "1/0"]
    assert sum(summary.records.unreadable.values()) == 1
    cut = {"line": line(TWO[0])[:70], "payload": line(artifact("x", "one\ntwo\nthree"))[:-3]}
    for what, end in cut.items():
        summary = read_log(written(tmp_path, lines(ONE) + end))
        assert dict(summary.records.unreadable) == {f"the last {what} is cut off": 1}


def test_carriage_returns_are_tolerated_and_told(tmp_path: Path) -> None:
    summary = read_log(written(tmp_path, lines(ONE).replace(b"\n", b"\r\n")))
    assert ids(summary) == ["0/0"]
    assert not summary.records.unreadable
    assert list(summary.warnings) == ["6 payloads had lines ending in CR LF; they were read as LF"]


def test_invalid_utf8_in_a_payload_and_in_an_envelope(tmp_path: Path) -> None:
    broken = line(artifact("recompile_reasons", "0/0: AAAA", "1/0")).replace(b"AAAA", b"A\xff\xfeA")
    named = line(Record(envelope("dynamo_start", {"stack": [{"name": "BBBB", "filename": 0}]}, "1/0")))
    summary = read_log(written(tmp_path, broken + named.replace(b"BBBB", b"B\xffBB") + lines(ONE)))
    assert summary.recompiles[0].reasons[0] == "0/0: A\ufffd\ufffdA"
    assert dict(summary.records.unreadable) == {"invalid UTF-8": 2, "a payload does not match its md5": 1}
    assert "0/0" in ids(summary)


def test_a_payload_that_does_not_match_its_md5_is_used_and_counted(tmp_path: Path) -> None:
    bad = line(artifact("recompile_reasons", "0/0: size 5", "0/1")).replace(b"size 5", b"size 6")
    summary = read_log(written(tmp_path, lines(ONE) + bad + lines(TWO)))
    assert summary.recompiles[0].reasons[0] == "0/0: size 6"
    assert dict(summary.records.unreadable) == {"a payload does not match its md5": 1}


def test_garbage_between_records(tmp_path: Path) -> None:
    payload = line(artifact("recompile_reasons", "0/0: x", "0/1"))
    noise = b"[rank0]: Traceback (most recent call last):\n"
    data = b"hello\n" + lines(ONE) + b"V is for victory\n" + payload + noise + b"Vnoise\n" + lines(TWO)
    summary = read_log(written(tmp_path, data))
    assert ids(summary) == ["0/0", "1/0"]
    assert list(summary.recompiles[0].reasons) == ["0/0: x"]
    rows = dict(summary.records.unreadable)
    assert rows == {"not a record (garbage between records)": 3, "lines that belong to no record": 1}


def test_nuls_as_a_crashed_machine_leaves_them(tmp_path: Path) -> None:
    summary = read_log(written(tmp_path, lines(ONE) + b"\0" * 5000 + b"\n" + lines(TWO)))
    assert ids(summary) == ["0/0", "1/0"]
    assert sum(summary.records.unreadable.values()) == 1


def test_a_gz_cut_in_half(recording: Recording, tmp_path: Path) -> None:
    (path,) = recording("breaks").glob("*.log")
    packed = gzip.compress(path.read_bytes())
    summary = read_log(written(tmp_path, packed[: len(packed) // 2], NAME + ".gz"))
    assert "0/0" in ids(summary)
    assert summary.records.unreadable["the gzip stream is cut off"] == 1


def test_a_record_that_is_larger_than_a_chunk(tmp_path: Path) -> None:
    summary = read_log(written(tmp_path, lines([*ONE, artifact("x", "line\n" * 2_000_000), *TWO])))
    assert ids(summary) == ["0/0", "1/0"]
    assert not summary.records.unreadable


def test_a_long_payload_costs_no_more_than_its_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many chunks: copying what came before for each of them takes several times the limit here."""
    monkeypatch.setattr(structured_log, "CHUNK_BYTES", 500)
    path = written(tmp_path, lines([*ONE, artifact("x", "line of a payload\n" * 700_000), *TWO]))
    began = time.process_time()
    assert ids(read_log(path)) == ["0/0", "1/0"]
    assert time.process_time() - began < 2


@pytest.mark.parametrize("data", [b"\n\n", b"no log at all", b"{}", b"\0" * 100, b"\x1f\x8b broken"])
def test_what_is_no_log_is_a_user_error(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(UserError, match="contains no records"):
        read_log(written(tmp_path, data))


def test_a_missing_or_empty_log_is_a_user_error(tmp_path: Path) -> None:
    for read in (read_log, log_identity):
        with pytest.raises(UserError, match="cannot be opened"):
            read(str(tmp_path / "none.log"))
        with pytest.raises(UserError, match="is empty"):
            read(written(tmp_path, b""))


# -- identity -----------------------------------------------------------------------------------------------------


def test_identity_of_recordings(recording: Recording) -> None:
    (path,) = recording("breaks").glob("*.log")
    identity = log_identity(str(path))
    summary = read_log(str(path))
    assert (identity.rank, identity.pid) == (None, 1027)
    assert identity.start_ns == summary.environment.recording_start_ns
    assert identity.end_ns == summary.environment.written_ns


def test_the_rank_is_that_of_the_file_name_then_of_the_records(tmp_path: Path) -> None:
    ranked = [Record({**record.metadata, "rank": 3}, record.payload) for record in ONE]
    named = written(tmp_path, lines(ranked), "dedicated_log_torch_trace_rank_12_x.log")
    assert log_identity(named).rank == read_log(named).environment.rank == 12
    unnamed = written(tmp_path, lines(ranked))
    assert log_identity(unnamed).rank == read_log(unnamed).environment.rank == 3
    assert log_identity(written(tmp_path, lines(ONE))).rank is None


def test_identity_of_a_gz_and_of_nonsense(tmp_path: Path) -> None:
    data = lines([mark("B", "dynamo", 0), mark("E", "dynamo", 7)])
    identity = log_identity(written(tmp_path, gzip.compress(data), NAME + ".gz"))
    assert identity.pid == 77
    assert identity.start_ns is not None
    assert identity.end_ns is None
    assert log_identity(written(tmp_path, b"nonsense")).pid is None


# Of each line of a log that torch 2.4.1 wrote: (function, its compile id, its caller, why it was started over).
OLD_FRAMES = [
    ("breaks", "1/0", "<module>", ["builtin: print"]),
    ("torch_dynamo_resume_in_breaks_at_15", "2/0", "breaks", []),
    ("torch_dynamo_resume_in_breaks_at_17", "3/0", "torch_dynamo_resume_in_breaks_at_15", ["Tensor.item"]),
    ("torch_dynamo_resume_in_breaks_at_18", "4/0", "torch_dynamo_resume_in_breaks_at_17", []),
    ("scaled", "6/0", "<module>", []),
    ("scaled", "6/1", "<module>", []),
]


def old_frame(function: str, compile_id: str, caller: str, restarts: list[str], **more: Any) -> list[Record]:
    stack = [{"line": 3, "name": caller, "filename": 0}, {"line": 1116, "name": "__call__", "filename": 1}]
    metrics = {"co_name": function, "co_filename": "/m.py", "co_firstlineno": 9, "restart_reasons": restarts}
    return [
        Record(envelope("dynamo_start", {"stack": stack}, compile_id)),
        Record(envelope("compilation_metrics", {**metrics, **more}, compile_id)),
    ]


def old_log(tmp_path: Path, *more: Record) -> CompileSummary:
    names = [Record({"str": ["/m.py", 0]}), Record({"str": ["/convert_frame.py", 1]})]
    frames = [record for frame in OLD_FRAMES for record in old_frame(*frame)]
    return read_log(written(tmp_path, lines([*names, *frames, *more])))


def test_breaks_and_recompiles_that_torch_2_4_does_not_log(tmp_path: Path) -> None:
    summary = old_log(tmp_path)
    assert [(row.key.compile_id, row.file, row.line, row.reason) for row in summary.graph_breaks] == [
        ("1/0", "/m.py", 15, "builtin: print"),
        ("2/0", "/m.py", 17, "torch 2.4 does not log the reason"),
        ("3/0", "/m.py", 18, "Tensor.item"),
    ]
    (again,) = summary.recompiles
    assert (again.key.compile_id, again.file, again.line, list(again.reasons)) == ("6/1", "/m.py", 9, [])


def test_the_innermost_caller_is_what_broke(tmp_path: Path) -> None:
    """`inner` broke, called by `outer`, though `outer` is what was compiled last."""
    resumed = old_frame("torch_dynamo_resume_in_inner_at_30", "9/0", "inner", [])
    resumed[0].metadata["dynamo_start"]["stack"].insert(0, {"line": 5, "name": "outer", "filename": 0})
    inner, outer = (
        old_frame(name, key, "<module>", []) for name, key in (("inner", "7/0"), ("outer", "8/0"))
    )
    last = old_log(tmp_path, *inner, *outer, *resumed).graph_breaks[-1]
    assert (last.key.compile_id, last.line) == ("7/0", 30)


def test_a_later_torch_logs_them_and_nothing_is_added(tmp_path: Path) -> None:
    summary = old_log(tmp_path, artifact("torch_version", "2.6.0"))
    assert (len(summary.graph_breaks), len(summary.recompiles)) == (0, 0)


def test_a_failure_of_torch_2_4_is_named_as_later_ones_are(tmp_path: Path) -> None:
    failed = old_frame("f", "9/0", "<module>", [], fail_type="<class 'torch._dynamo.exc.Unsupported'>")
    assert old_log(tmp_path, *failed).compilations[-1].failure.type == "Unsupported"


def test_the_number_of_a_thread_is_no_process_id(tmp_path: Path) -> None:
    log = written(tmp_path, b"".join(line(record, pid=139_815_684_995_968) for record in ONE))
    assert log_identity(log).pid is None
    assert read_log(log).environment.pid == 0


def test_a_log_of_torch_2_4(tmp_path: Path) -> None:
    """As torch 2.4 wrote it: explicit nulls, no compile id in events, whole seconds in metrics, one cumulative time."""
    nulls = {"rank": None, "compiled_autograd_id": None, "stack": None}
    stack = {"stack": [{"line": 3, "name": "f", "filename": 0, "loc": "f(x)"}]}
    start = Record({**nulls, **envelope("dynamo_start", stack)})
    metrics = {"co_name": "f", "co_filename": "/m.py", "co_firstlineno": 3, "fail_type": None}
    metrics |= {"entire_frame_compile_time_s": 2.5, "start_time": 1.7e9}
    end = Record({**nulls, **envelope("compilation_metrics", metrics)})
    head = lines([Record({"str": ["/m.py", 0]}), start, end])
    (row,) = read_log(written(tmp_path, head)).compilations
    assert (row.function, row.line) == ("f", 3)
    assert (row.duration_ns, row.start_ns) == (2_500_000_000, 1_700_000_000 * 10**9)
    assert row.stack[0].source == "f(x)"
    assert not row.HasField("failure")
    assert json.loads(row.metrics["entire_frame_compile_time_s"]) == 2.5
