"""One trace event as a typed record, and the ways to get one out of JSON text.

`Event` names every field that becomes a column; msgspec skips all others unbuilt. Values that vary in type
between writers (`stream` as int or string, `null` ids) stay untyped here and are cleaned per column.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any, Literal

import msgspec

from tb_torchcompile_plugin.torch_names.slices import Cat

Raw = msgspec.Raw
_NO_TEXT = Raw(b"")

ARG_NAMES = {
    "external": "External id",
    "external_old": "external id",
    "python_id": "Python id",
    "python_parent": "Python parent id",
    "python_module": "Python module id",
    "sequence": "Sequence number",
    "forward_thread": "Fwd thread id",
    "registers": "registers per thread",
    "shared_memory": "shared memory",
    "occupancy": "est. achieved occupancy %",
    "input_types": "Input type",
    "input_dims": "Input Dims",
    "input_dims_old": "Input dims",
    "concrete_inputs": "Concrete Inputs",
    "memory_bytes": "Bytes",
    "total_allocated": "Total Allocated",
    "total_reserved": "Total Reserved",
    "address": "Addr",
    "device_type": "Device Type",
    "device_id": "Device Id",
    "collective": "Collective name",
    "group_name": "Process Group Name",
    "group_ranks": "Process Group Ranks",
    "comms_id": "Comms Id",
    "collective_seq": "Seq",
    "in_elements": "In msg nelems",
    "out_elements": "Out msg nelems",
    "source_rank": "Src Rank",
    "destination_rank": "Dst Rank",
}


class Args(msgspec.Struct, gc=False, frozen=True, rename=ARG_NAMES):
    """The args that become columns. -1 or empty: not there."""

    external: Any = -1
    python_parent: Any = -1
    python_id: Any = -1
    python_module: Any = -1
    correlation: Any = -1
    sequence: Any = -1
    forward_thread: Any = -1
    device: Any = -1
    stream: Any = -1
    registers: Any = -1
    shared_memory: Any = -1
    grid: Raw = _NO_TEXT
    block: Raw = _NO_TEXT
    stack: Raw = _NO_TEXT
    occupancy: Any = -1
    bytes: Any = -1
    kernel_num_gb: Any = -1
    kernel_flop: Any = -1
    input_types: Raw = _NO_TEXT
    input_dims: Raw = _NO_TEXT
    concrete_inputs: Raw = _NO_TEXT
    total_allocated: Any = -1
    total_reserved: Any = -1
    memory_bytes: Any = 0
    address: Any = -1
    device_id: Any = -1
    device_type: Any = -1
    name: Any = None
    labels: Any = None
    sort_index: Any = None
    external_old: Any = -1
    input_dims_old: Raw = _NO_TEXT
    collective: Raw = _NO_TEXT
    group_name: Raw = _NO_TEXT
    group_ranks: Raw = _NO_TEXT
    dtype: Raw = _NO_TEXT
    comms_id: Raw = _NO_TEXT
    collective_seq: Any = -1
    in_elements: Any = -1
    out_elements: Any = -1
    source_rank: Any = -1
    destination_rank: Any = -1


NO_ARGS = Args()
_Phase = Literal["X", "s", "f", "i", "M"]


class Event(msgspec.Struct, gc=False):
    """One event. `ts` and `dur` are in µs; nan or None where they are missing."""

    ph: str = ""
    cat: str | None = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: float | None = math.nan
    dur: float | None = math.nan
    args: Args = NO_ARGS
    id: Any = None


class CommonEvent(Event, gc=False):
    """The same for the phases and categories that nearly all files have; others fail to decode.

    msgspec reuses their strings, already hashed, and does not create them again.
    """

    ph: _Phase | Literal[""] = ""
    cat: Cat | None = None


class ExactEvent(Event, gc=False):
    """The same with `ts` as text, for files whose time stamps a float cannot hold to the ns (epoch µs)."""

    ts: Raw = _NO_TEXT  # type: ignore[assignment]


_END_NS = 2**62  # in the year 2116
EXACT_FROM = float(2**43)  # µs; below, half a float step is less than half a nanosecond

decode_common_events = msgspec.json.Decoder(list[CommonEvent]).decode
decode_events = msgspec.json.Decoder(list[Event]).decode
decode_exact_events = msgspec.json.Decoder(list[ExactEvent]).decode
_decode_exact_event = msgspec.json.Decoder(ExactEvent).decode


def float_us_to_ns(value: float) -> int:
    """Convert µs to ns for |value| < EXACT_FROM: the integer part first, so that the fraction keeps three decimals."""
    base = math.floor(value)
    return base * 1000 + round((value - base) * 1000)


def exact_ns(text: bytes) -> int | None:
    """Return a time stamp in µs, as written, in ns. None where the text is no number, or one past the year 2116."""
    if text[-4:-3] == b"." and text[-3:].isdigit():
        try:
            nanoseconds = int(text[:-4] + text[-3:])
        except ValueError:
            pass
        else:
            return nanoseconds if abs(nanoseconds) < _END_NS else None
    value = finite(text.decode("ascii", "replace").strip('"'))
    if value is None or abs(value) >= _END_NS:
        return None
    if abs(value) < EXACT_FROM:
        return float_us_to_ns(value)
    nanoseconds = int((Decimal(text.decode().strip('"')) * 1000).to_integral_value())
    return nanoseconds if abs(nanoseconds) < _END_NS else None


def event_from_text(text: bytes) -> ExactEvent:
    """Decode the text of one JSON object. Raises msgspec.DecodeError or TypeError where it is odd."""
    event = _decode_exact_event(text)
    hash((event.name, event.pid, event.tid))
    return event


def event_from_object(fields: dict[str, Any]) -> ExactEvent:
    """Return the event in a decoded JSON object of any shape: what has the wrong type counts as missing."""
    args, ts = fields.get("args"), fields.get("ts")
    return ExactEvent(
        ph=_text(fields.get("ph")) or "",
        cat=_text(fields.get("cat")),
        name=_hashable(fields.get("name")),
        pid=_hashable(fields.get("pid")),
        tid=_hashable(fields.get("tid")),
        ts=Raw(b"" if isinstance(ts, bool) or finite(ts) is None else str(ts).encode()),
        dur=finite(fields.get("dur")),
        args=_args_from_object(args) if isinstance(args, dict) else NO_ARGS,
        id=_hashable(fields.get("id")),
    )


def _args_from_object(args: dict[str, Any]) -> Args:
    values = {}
    for field in Args.__struct_fields__:
        key = ARG_NAMES.get(field, field)
        if key in args:
            is_text = getattr(NO_ARGS, field) is _NO_TEXT
            values[field] = Raw(msgspec.json.encode(args[key])) if is_text else args[key]
    return Args(**values)


def finite(value: Any) -> float | None:
    """Return a number, or the number in a string; None for all else."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def whole(value: Any) -> int:
    """Return an integer id; -1 for all that is none."""
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    number = None if isinstance(value, bool) else finite(value)
    if number is None or abs(number) >= 2**63:
        return -1
    try:
        return int(value)
    except ValueError:
        return int(number)


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)


def _hashable(value: Any) -> Any:
    return str(value) if isinstance(value, (list, dict)) else value
