"""A trimmed trace: the events of a window and nothing else, as they were, and readable by everybody."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from recordings import Recording
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.reader.trace.kineto import Trace, read_trace
from tb_torchcompile_plugin.reader.trace.trim import trimmed
from traces import launch, slice_, write_trace


def cut(trace: Trace, start: int, end: int, path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(gzip.decompress(b"".join(trimmed(trace, start, end, str(path)))))
    return document


def touches(event: dict[str, Any], start: int, end: int) -> bool:
    """By the file's µs, exact to the ns for these recordings."""
    if event["ph"] == "M":
        return True
    begin = round(event["ts"] * 1000)
    return bool(begin <= end and begin + round(event.get("dur", 0) * 1000) >= start)


@pytest.mark.parametrize(
    ("name", "part"), [("breaks", (0.3, 0.4)), ("breaks", (-1, 2)), ("handler_breaks", (0.0, 0.001))]
)
def test_it_holds_the_events_of_the_window_verbatim(
    recording: Recording, name: str, part: tuple[float, float]
) -> None:
    path = next(recording(name).glob("*.pt.trace.json"))
    trace = read_trace(str(path), chunk_bytes=20_000)
    first, last = trace.window()
    start, end = (int(first + share * (last - first)) for share in part)
    whole = json.loads(path.read_text())
    expected = [event for event in whole["traceEvents"] if touches(event, start, end)]
    document = cut(trace, start, end, path)
    assert document.pop("tb_torchcompile_plugin.export")  # in a logdir it is no run
    assert document["traceEvents"] == expected
    assert {key: value for key, value in document.items() if key != "traceEvents"} == {
        key: value for key, value in whole.items() if key != "traceEvents"
    }


def test_our_reader_finds_the_same_slices_in_it(recording: Recording, tmp_path: Path) -> None:
    path = next(recording("breaks").glob("*.pt.trace.json"))
    trace = read_trace(str(path))
    first, _ = trace.window()
    part = tmp_path / "part.json.gz"
    part.write_bytes(b"".join(trimmed(trace, first + 2_000_000, first + 3_000_000, str(path))))
    small = read_trace(str(part))
    inside = (trace.ts <= first + 3_000_000) & (trace.ts + trace.dur >= first + 2_000_000)
    assert small.notices == []
    assert sorted(zip(small.ts.tolist(), small.dur.tolist())) == sorted(
        zip(trace.ts[inside].tolist(), trace.dur[inside].tolist())
    )
    assert small.base_ns == trace.base_ns


def test_a_broken_event_is_mended_and_one_beyond_mending_is_left_out(tmp_path: Path) -> None:
    path = write_trace(tmp_path, [slice_("first", 0, 1), slice_("QUOTE", 2, 1), *launch("k", 4, 5, 1)])
    path.write_text(path.read_text().replace("QUOTE", 'quo"te'))
    names = [event["name"] for event in cut(read_trace(str(path)), 0, 10_000, path)["traceEvents"]]
    assert names == ["first", 'quo"te', "cuLaunchKernelEx", "k"]


def test_a_compressed_trace_is_trimmed_too(recording: Recording, tmp_path: Path) -> None:
    plain = next(recording("breaks").glob("*.pt.trace.json"))
    packed = tmp_path / "x.pt.trace.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    one, other = read_trace(str(plain)), read_trace(str(packed))
    start, end = one.window()[0] + 10**6, one.window()[0] + 2 * 10**6
    assert cut(one, start, end, plain) == cut(other, start, end, packed)


def test_a_file_that_has_changed_is_refused_at_once(tmp_path: Path) -> None:
    path = write_trace(tmp_path, [slice_("a", 0, 1)])
    trace = read_trace(str(path))
    path.write_text(path.read_text() + "\n")
    with pytest.raises(UserError, match="has changed"):
        trimmed(trace, 0, 1000, str(path))


def test_a_chunk_with_an_event_of_odd_types(tmp_path: Path) -> None:
    """Beside others that are as they should be."""
    odd = {"ph": "X", "cat": "cpu_op", "name": ["x"], "pid": 1, "tid": 1, "ts": 2, "dur": 1}
    path = write_trace(tmp_path, [slice_("a", 1, 1), odd, slice_("b", 3, 1), {**odd, "ph": "BYTE"}])
    path.write_bytes(path.read_bytes().replace(b"BYTE", b"\xff"))
    kept = cut(read_trace(str(path)), 0, 10_000, path)["traceEvents"]
    assert [event["name"] for event in kept] == ["a", ["x"], "b", ["x"]]
