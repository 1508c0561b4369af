"""What really occurs in trace files: everything that can be read is read, and every loss is counted and told."""

import gzip
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

import fuzz_kineto
from kineto_helpers import assert_same, named, read_in_stretches
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.reader.trace import source as kineto_source
from tb_torchcompile_plugin.reader.trace.kineto import Trace, read_trace

HEAD = '{\n  "schemaVersion": 1,\n  "baseTimeNanoseconds": 1000,\n  "traceEvents": [\n  '
TAIL = '\n  ],\n  "traceName": "x"\n}'

Read = Callable[[str | bytes], Trace]


def event(
    name: str = "e",
    ts: str = "1.000",
    dur: str = "1.000",
    args: str = '"External id": 1',
    cat: str = "cpu_op",
) -> str:
    """One event as Kineto writes it."""
    return (
        f'{{\n    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": 1, "tid": 1,\n'
        f'    "ts": {ts}, "dur": {dur},\n    "args": {{\n      {args}\n    }}\n  }}'
    )


def document(*events: str) -> str:
    """Five sound events, the given ones, and five more."""
    before = [event(f"a{i}", f"{i}.000") for i in range(5)]
    behind = [event(f"b{i}", f"{900 + i}.000") for i in range(5)]
    return HEAD + ",\n  ".join([*before, *events, *behind]) + TAIL


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read a text in several ways that must agree."""

    def read_text(text: str | bytes) -> Trace:
        path = tmp_path / "t.json"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        trace = read_trace(str(path))
        for chunk in (1, 300, 5000):
            assert_same(read_trace(str(path), chunk_bytes=chunk), trace)
        assert_same(read_in_stretches(path, 500, 300), trace)
        return trace

    return read_text


def problems(trace: Trace) -> list[str]:
    return [notice.problem for notice in trace.notices]


def others(trace: Trace) -> list[str]:
    """The names of slices that `document` did not add by itself."""
    names = [trace.names[code] for code in trace.name]
    assert sum(name in {f"a{i}" for i in range(5)} | {f"b{i}" for i in range(5)} for name in names) == 10
    return [name for name in names if not (len(name) == 2 and name[0] in "ab" and name[1].isdigit())]


@pytest.mark.parametrize(
    ("broken", "name", "reason"),
    [
        (event('quo"te'), 'quo"te', "quotes inside a name"),
        (event('a "b", "c" d'), 'a "b", "c" d', "quotes inside a name"),
        (event('"'), '"', "quotes inside a name"),
        (event("c", args='"note": "say "hi" now"'), "c", "quotes inside a text"),
        (event("C:\\path\\qew"), "C:\\path\\qew", "backslashes that escape nothing"),
        (event("c", "12,345", "6,789"), "c", "decimal commas"),
        (event("c", args='"bw": inf, "x": -nan'), "c", "numbers that are inf, nan or N/A"),
        (event("c", args='"bw": N/A'), "c", "numbers that are inf, nan or N/A"),
        (event("c", args='"x": 0.-05'), "c", "a minus sign inside a number"),
    ],
)
def test_mended(read: Read, broken: str, name: str, reason: str) -> None:
    trace = read(document(broken))
    assert others(trace) == [name]
    at = document().index('"a4"') and document(broken).index(broken)
    assert problems(trace) == [f"events with {reason}, repaired: 1 (the first at byte {at})"]
    row = named(trace, name)[0]
    assert isinstance(trace.args(row), dict)
    assert trace._args_reader.read(int(trace.event[row]))[0] == at


def test_decimal_commas_keep_their_value(read: Read) -> None:
    trace = read(document(event("c", "12,345", "6,789")))
    row = named(trace, "c")[0]
    assert (trace.ts[row], trace.dur[row]) == (12345, 6789)


def test_control_characters_need_no_mending(read: Read) -> None:
    trace = read(document(event("a\x01b\nc")))
    assert others(trace) == ["a\\x01b\nc"]
    assert not trace.notices


def test_invalid_utf8(read: Read) -> None:
    thread = '{"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "@@"}}'
    trace = read(document(event("@@"), thread).encode().replace(b"@@", b"\xff\xfe"))
    assert others(trace) == ["\ufffd\ufffd"]
    assert "invalid UTF-8, repaired: 2" in problems(trace)[0]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (event("c", "null"), "slices without a readable timestamp, dropped: 1"),
        ('{"ph": "X", "name": "c", "dur": 1}', "slices without a readable timestamp, dropped: 1"),
        (event("c", "5.0", "-3.0"), "slices with a negative duration, dropped: 1"),
        (event("c", "5.0", "null"), "slices without a readable duration, dropped: 1"),
        ("[1, 2]", "entries that are not events, skipped: 1"),
        ('"text"', "entries that are not events, skipped: 1"),
        ("null", "entries that are not events, skipped: 1"),
        ("\0" * 40_000, "text between events that is not JSON, skipped: 1"),
        ('{"ph": "X", "name": }', "damaged events, dropped: 1"),
    ],
)
def test_lost_and_counted(read: Read, bad: str, reason: str) -> None:
    trace = read(document(bad))
    assert others(trace) == []
    assert len(trace.notices) == 1
    assert problems(trace)[0].startswith(reason)
    assert trace.notices[0].kept == f"{trace.events} events were read and are shown"


def test_deep_nesting(read: Read) -> None:
    trace = read(document(event("c", args='"deep": ' + "[" * 20_000 + "]" * 20_000)))
    assert others(trace) == []
    assert problems(trace)[0].startswith("damaged events, dropped: 1")


def test_a_long_list_of_things_like_events(read: Read) -> None:
    inner = ", ".join(['{"ph": "X", "name": "z", "ts": 1, "dur": 1}'] * 3000)
    trace = read(document(event("c", args=f'"list": [{inner}]')))
    assert (trace.events, others(trace), trace.notices) == (11, ["c"], [])


def test_ids_as_text(read: Read) -> None:
    args = '"External id": "12", "correlation": "7", "stream": "9", "device": "0", "grid": "[2, 6, 1]"'
    trace = read(document(event("c", args=args, cat="kernel")))
    row = named(trace, "c")[0]
    ids = [trace.columns[name][row] for name in ("external_id", "correlation", "stream", "device")]
    assert ids == [12, 7, 9, 0]
    assert trace.texts["grid"] == ["[2, 6, 1]"]


@pytest.mark.parametrize("size", ["2e308", "-1e999999999999999999999"])
def test_numbers_past_any_float_are_no_ids(read: Read, size: str) -> None:
    """One with that many digits takes minutes to write out, or cannot be."""
    trace = read(document(event("c", args=f'"External id": {size}, "stream": 7.0, "x": {size}')))
    row = named(trace, "c")[0]
    assert [trace.columns[name][row] for name in ("external_id", "stream")] == [-1, 7]


@pytest.mark.parametrize("pid", ["18446744073709551616", "-1e300", "9223372036854775808"])
def test_a_process_of_a_number_that_no_column_holds(read: Read, pid: str) -> None:
    slice_ = f'"ph": "X", "name": "c", "cat": "kernel", "pid": {pid}, "tid": 7, "ts": 1, "dur": 1'
    trace = read(document("{" + slice_ + "}"))
    (process,) = {track.pid for track in trace.tracks if track.tid == 7 and isinstance(track.pid, str)}
    assert float(process) == float(pid)


def test_epoch_time_stamps_keep_their_nanoseconds(read: Read) -> None:
    trace = read(document(event("c", "1790857026123456.789")))
    assert trace.ts[named(trace, "c")[0]] == 1790857026123456789


def test_no_events(read: Read) -> None:
    trace = read(HEAD + TAIL)
    assert (trace.events, len(trace), trace.window()) == (0, 0, (0, 0))
    assert problems(trace) == ["the trace contains no events"]
    assert trace.metadata["traceName"] == "x"


@pytest.mark.parametrize("gap", ["", "\n"])
def test_two_documents(read: Read, gap: str) -> None:
    trace = read(document() + gap + document(event("c")))
    assert others(trace) == []
    assert problems(trace) == ["unexpected data after the end of the trace was ignored (11 events)"]


def test_begin_and_end_events_are_counted(read: Read) -> None:
    trace = read('{"traceEvents": [{"ph": "B", "ts": 1, "name": "a"}, {"ph": "E", "ts": 2}]}')
    assert trace.phases == {"B": 1, "E": 1}
    assert problems(trace) == ["2 begin and end events (ph B, E) are counted, not shown"]


@pytest.mark.parametrize("cut", [1, 2, 10, 30, 100, 300])
def test_cut_off(read: Read, cut: int) -> None:
    text = document()[:-cut]
    trace = read(text)
    assert trace.events == text.count("\n  }")
    assert trace.notices
    assert trace.base_ns == 1000


@pytest.mark.slow
def test_cut_off_gzip_keeps_what_can_be_inflated(read: Read) -> None:
    draw = random.Random(1)
    events = [event(f"n{draw.random()}", f"{i}.000") for i in range(2000)]
    whole = gzip.compress(document(*events).encode())
    trace = read(whole[: len(whole) * 2 // 3])
    assert 1200 < trace.events < 1500
    assert problems(trace) == ["the gzip stream is cut off, and the event there was dropped"]


@pytest.mark.slow
def test_damaged_gzip(read: Read) -> None:
    draw = random.Random(2)
    data = bytearray(gzip.compress(document(*[event(f"n{draw.random()}") for _ in range(2400)]).encode()))
    data[len(data) // 2] ^= 0xFF
    trace = read(bytes(data))
    assert trace.events > 1000
    assert problems(trace)[0].startswith("the gzip data is damaged")


def test_gzip_in_members_and_with_a_tail(read: Read) -> None:
    text = document().encode()
    trace = read(gzip.compress(text[:500]) + gzip.compress(text[500:]) + b"tail")
    assert trace.events == 10
    assert problems(trace) == ["bytes after the gzip stream were ignored"]


def test_gzip_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress((document()[: -len(TAIL)] + " " * 30_000_000).encode(), 1))
    monkeypatch.setenv("TB_TORCHCOMPILE_MAX_INFLATED_BYTES", "1000000")
    trace = read_trace(str(path))
    assert trace.events == 10
    assert "more than 1000000 bytes" in problems(trace)[0]
    assert kineto_source.max_inflated_bytes() == 1_000_000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b'{"a": 1}', "contains no traceEvents"),
        (b'{"traceEvents": null}', "contains no traceEvents"),
        (b'{"schemaVersion": 1, "tra', "contains no traceEvents"),
        (b"[1, 2, 3]", "contains no traceEvents"),
        (b"<html>", "it is not JSON"),
        (b"\x28\xb5\x2f\xfd" + b"x" * 20, "compressed with zstd"),
        (gzip.compress(b"", mtime=0), "the file is empty"),
    ],
)
def test_no_trace_at_all(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        read_trace(str(path))
    assert caught.value.notice.file == str(path)
    assert caught.value.notice.next_step


def test_not_a_file(tmp_path: Path) -> None:
    fifo, loop = tmp_path / "fifo", tmp_path / "loop"
    os.mkfifo(fifo)
    loop.symlink_to(loop)
    for path in (fifo, loop, tmp_path, tmp_path / "missing"):
        with pytest.raises(UserError):
            read_trace(str(path))


def test_a_file_that_shrinks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.json"
    path.write_text(document(*[event(f"n{i}") for i in range(3000)]))
    source = kineto_source.open_source(str(path))
    os.truncate(path, 10_000)
    assert len(source.read(9_000, 5_000)) == 1000
    assert source.problem == "the file shrank while it was read"
    source.close()


def test_a_file_that_grows_is_read_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(document(*[event(f"n{i}") for i in range(3000)]))
    size = path.stat().st_size

    def grow(_: object) -> None:
        with path.open("a") as file:
            file.write(" ")

    trace = read_trace(str(path), progress=grow, chunk_bytes=4096)
    assert trace.events == 3010
    assert path.stat().st_size > size
    assert problems(trace) == ["the file changed while it was read"]


def test_args_of_a_file_that_changed(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(document())
    trace = read_trace(str(path))
    path.write_text(document(event("c")))
    with pytest.raises(UserError, match="changed since it was read"):
        trace.args(0)


@pytest.mark.parametrize("change", [lambda path: path.write_text("[]"), Path.unlink])
def test_what_was_asked_before_is_not_told_of_another_file(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    path = tmp_path / "t.json"
    path.write_text(document(event("c", "10.000", args='"External id": 2')))
    trace = read_trace(str(path))
    assert [trace.args(row)["External id"] for row in (4, 5, 6, 4)] == [1, 2, 1, 1]
    change(path)
    with pytest.raises(UserError, match="changed since it was read"):
        trace.args(0)


@pytest.mark.slow
@pytest.mark.hypothesis
def test_random_damage() -> None:
    count = settings().max_examples
    assert fuzz_kineto.run(count, seed=20)["trace"] > count // 10
