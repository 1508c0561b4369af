"""Compile records as torch would write them, as objects and as a TORCH_TRACE log; values that nobody expects
in one, or in a summary."""

import copy
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from hypothesis import strategies as st

from tb_torchcompile_plugin.compile_log.log import CompileLog
from tb_torchcompile_plugin.compile_log.record import Record
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.reader.torch_trace.structured_log import HEAD, untab

START_US = 1_795_230_247_000_000
START_S = 1_790_000_000  # of `write_log`


def envelope(kind: str, value: Any, compile_id: str = "0/0", **more: Any) -> dict[str, Any]:
    """The metadata of one record."""
    frame, _, number = compile_id.rpartition("/")
    autograd, _, frame = frame.rpartition("/")
    ids: dict[str, Any] = (
        {"frame_id": int(frame), "frame_compile_id": int(number), "attempt": 0} if compile_id else {}
    )
    if autograd:
        ids["compiled_autograd_id"] = int(autograd.removeprefix("!"))
    return {kind: value, **ids, **more}


def mark(
    phase: str, name: str, at_us: float, compile_id: str = "0/0", thread: int = 0, **arguments: Any
) -> Record:
    """A begin ("B") or end ("E") of a timed function."""
    event = {
        "name": name,
        "ts": START_US + at_us,
        "ph": phase,
        "args": {"compile_id": compile_id or "None", **arguments},
        "cat": "dynamo_timed",
        "tid": 0,
        "pid": 0,
    }
    return Record(envelope("chromium_event", {}, compile_id), json.dumps(event), thread)


def artifact(name: str, payload: str, compile_id: str = "0/0", **more: Any) -> Record:
    """An artifact record with its payload."""
    return Record(envelope("artifact", {"name": name, "encoding": "string"}, compile_id, **more), payload)


def line(record: Record, pid: int = 77) -> bytes:
    """The record as a TORCH_TRACE log has it."""
    metadata = dict(record.metadata)
    text = ""
    if record.payload is not None:
        metadata["has_payload"] = hashlib.md5(record.payload.encode(), usedforsecurity=False).hexdigest()
        text = "".join(f"\n\t{part}" for part in record.payload.split("\n"))
    head = f"V1121 03:04:07.471000 {pid} torch/_dynamo/utils.py:2126] "
    return (head + json.dumps(metadata) + text + "\n").encode()


def records_of(log: bytes) -> list[Record]:
    """Every record of a sound log, as a recorder gets them."""
    records = []
    for raw in re.split(rb"\n(?=V)", log):
        head = HEAD.match(raw)
        assert head
        metadata: dict[str, Any] = json.loads(head["json"])
        payload = untab(raw[head.end() :].removesuffix(b"\n"))[0].decode()
        records.append(Record(metadata, payload if metadata.pop("has_payload", None) else None))
    return records


def a_compilation(compile_id: str = "0/0", begin_us: float = 0.0) -> list[Record]:
    """One frame: 1000 µs, of which tracing takes 300."""
    metrics = {"co_name": "forward", "co_filename": "/m.py", "co_firstlineno": 3, "guard_count": 7}
    return [
        mark("B", "dynamo", begin_us, compile_id),
        mark("B", "entire_frame_compile", begin_us, compile_id, fn_name="_compile.compile_inner"),
        Record(envelope("dynamo_start", {"stack": [{"line": 9, "name": "main", "filename": 0}]}, compile_id)),
        mark("B", "bytecode_tracing", begin_us + 100, compile_id),
        mark("E", "bytecode_tracing", begin_us + 400, compile_id),
        mark("E", "entire_frame_compile", begin_us + 1000, compile_id),
        Record(envelope("compilation_metrics", {"compile_id": compile_id, **metrics}, compile_id)),
        mark("E", "dynamo", begin_us + 1001, compile_id),
    ]


def summary_of(
    records: Iterable[Record],
    *,
    recovered: CompileSummary | None = None,
    readable: bool = False,
    **options: Any,
) -> CompileSummary:
    """What a log makes of these records. readable: whether it must understand each of them."""
    log = CompileLog(**options)
    if recovered is not None:
        log.start_from(recovered)
    for record in records:
        log.add(record)
    summary = log.summary()
    assert not readable or not summary.records.unreadable
    return summary


def write_log(
    folder: Path, name: str, *, pid: int = 7, rank: int | None = None, start_s: int = START_S
) -> Path:
    """A TORCH_TRACE log with one timed record."""
    event: dict[str, Any] = {
        "name": "dynamo",
        "ts": start_s * 1e6,
        "ph": "B",
        "args": {"compile_id": "0/0"},
        "tid": 0,
        "pid": 0,
    }
    head: dict[str, Any] = {"chromium_event": {}, "frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    if rank is not None:
        head["rank"] = rank
    line = (
        f"V0921 14:13:20.000000 {pid} torch/_dynamo/utils.py:1] {json.dumps(head)}\n\t{json.dumps(event)}\n"
    )
    path = folder / f"dedicated_log_torch_trace_{name}.log"
    path.write_text(line)
    os.utime(path, (start_s + 5, start_s + 5))
    return path


Place = tuple[str | int, ...]

LONE_SURROGATE = "file \ud800"
NUMBERS = (-1, 0, 2**31, 2**63, 2**64, 2**200, 1.5, float("nan"), float("inf"), 1e300, True)
TEXTS = ("", "x", "12", "0/0", LONE_SURROGATE, "\0", "‮")
OTHERS: tuple[Any, ...] = (None, [], [1], ["x"], [None], {}, {"a": 1}, {"a": [{}]})
odd_values = st.sampled_from((*NUMBERS, *TEXTS, *OTHERS))
picks = st.integers(0, 2**32)  # of several, by the remainder


def places(value: Any, before: Place = ()) -> Iterator[Place]:
    """Where something stands in it: itself, and all that is inside."""
    yield before
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in inside:
        yield from places(item, (*before, name))


def with_value(value: Any, place: Place, new: Any) -> Any:
    """A copy that has something else there."""
    if not place:
        return new
    changed = copy.copy(value)
    changed[place[0]] = with_value(value[place[0]], place[1:], new)
    return changed


Field = tuple[Any, Any]  # a message and what describes one of its fields
LARGEST = (2**62, 2**63 - 1, -(2**63), 2**64 - 1)
ODD = (*NUMBERS, *LARGEST, *TEXTS, "{}", "[]", "null", "1e999", "NaN", "1/", "triton_poi")


def put_anywhere(message: Any, place: int, one: int, value: Any) -> None:
    """place: of the kinds of fields, whatever a message has most of; one: of those that are alike."""
    by_name: dict[str, list[Field]] = {}
    for inner, field in fields(message):
        by_name.setdefault(field.full_name, []).append((inner, field))
    alike = by_name[sorted(by_name)[place % len(by_name)]]
    put(*alike[one % len(alike)], value, one)


def fields(message: Any) -> Iterator[Field]:
    """All of a message and of those in it."""
    for field in message.DESCRIPTOR.fields:
        yield message, field
        if field.message_type and not field.message_type.GetOptions().map_entry:
            value = getattr(message, field.name)
            inner = value if field.is_repeated else [value] if message.HasField(field.name) else []
            for one in inner:
                yield from fields(one)


def put(message: Any, field: Any, value: Any, place: int) -> None:
    """Where it cannot stand there, nothing changes: protobuf would not have written it."""
    kept = getattr(message, field.name)
    try:
        if field.message_type and field.message_type.GetOptions().map_entry:
            kept[sorted(kept)[place % len(kept)] if kept else "co_name"] = value
        elif field.is_repeated and field.message_type:
            kept.append(kept[place % len(kept)]) if kept and value else kept.add()
        elif field.is_repeated:
            kept.append(value)
        elif field.message_type:
            kept.SetInParent() if value else message.ClearField(field.name)
        elif field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            setattr(message, field.name, bool(value))
        else:
            setattr(message, field.name, value)
    except (TypeError, ValueError):
        pass
