"""One trace event: as a typed record, out of JSON text that may need repair, and as codes.

`Event` names every field that becomes a column; msgspec skips all others unbuilt. Values that vary in type
between writers (`stream` as int or string, `null` ids) stay untyped here and are cleaned per column.

(ph, cat, name, pid, tid) of an event is its *combo*. It determines the kind of event, and with it the args that become
columns. Combos and texts get codes that are private to the dictionaries that gave them; `table` brings those of
several together.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from decimal import Decimal
from itertools import islice, pairwise
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.torch_names import collectives, slices
from tb_torchcompile_plugin.torch_names.kernels import category_of
from tb_torchcompile_plugin.torch_names.operators import CONVOLUTION as CONVOLUTION_NAME

Raw = msgspec.Raw
_NO_TEXT, NO_ARGS = Raw(b""), Raw(b"{}")

ARG_NAMES = {
    "external": "External id",
    "external_old": "external id",
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
    "graph_node": "graph node id",
    "annotation": "name",
}


GPU, RUNTIME, PYTHON, HOST, CONVOLUTION, COLLECTIVE, PARAMETERS, META, MEMORY, FLOW, UNUSED = range(11)
LAST_SLICE_KIND = PARAMETERS

TEXT_FIELDS = (
    *("grid", "block", "stack", "input_types", "input_dims", "concrete_inputs"),
    *("collective", "group_name", "group_ranks", "dtype", "comms_id", "annotation"),
)
FLOATS: dict[str, Any] = {"occupancy": np.float32, "kernel_num_gb": np.float64, "kernel_flop": np.float64}

_LAUNCH_FIELDS = ("correlation", "external")
_DEVICE_FIELDS = (*_LAUNCH_FIELDS, "device", "stream")
_HOST_FIELDS = (
    *(*_DEVICE_FIELDS, "sequence", "forward_thread", "kernel_num_gb", "kernel_flop"),
    *("input_types", "input_dims"),
)
_GPU_FIELDS = (
    *(*_DEVICE_FIELDS, "registers", "shared_memory", "occupancy", "bytes", "grid", "block", "stack"),
    *("graph_node", "annotation"),  # of CUDA graphs: the node, and what torch's `mark_kernels` named it
)
COLLECTIVE_FIELDS = (
    *("collective", "group_name", "group_ranks", "dtype", "comms_id"),
    *("collective_seq", "in_elements", "out_elements", "source_rank", "destination_rank"),
)

# what each kind of slice may carry; the table is also what `Trace` offers as columns
SLICE_FIELDS: dict[int, tuple[str, ...]] = {
    GPU: _GPU_FIELDS,
    RUNTIME: _LAUNCH_FIELDS,
    PYTHON: ("python_module",),
    HOST: _HOST_FIELDS,
    # the one operator whose work does not follow from its shapes alone
    CONVOLUTION: (*_HOST_FIELDS, "concrete_inputs"),
    # the kernels of collectives, and what c10d says of each where it is called
    COLLECTIVE: (*_GPU_FIELDS, *COLLECTIVE_FIELDS),
    PARAMETERS: (*_HOST_FIELDS, *COLLECTIVE_FIELDS),
}
MEMORY_FIELDS = ("memory_bytes", "total_allocated", "total_reserved", "address", "device_type", "device_id")
ARGS_FIELDS = {**SLICE_FIELDS, MEMORY: MEMORY_FIELDS}

_MISSING = {**dict.fromkeys(TEXT_FIELDS, _NO_TEXT), "memory_bytes": 0}  # -1 for the others
_OLD_NAMES = [b'"%b"' % name.encode() for field, name in ARG_NAMES.items() if field.endswith("_old")]


def _args_decoder(fields: Iterable[str]) -> Any:
    """Return a decoder of lists of args that keeps these fields, under their names of now and once."""
    columns = [
        (name, Raw if field in TEXT_FIELDS else Any, _MISSING.get(field, -1))
        for field in fields
        for name in (field, f"{field}_old")
        if name == field or name in ARG_NAMES
    ]
    args: Any = msgspec.defstruct("Args", columns, rename=ARG_NAMES, frozen=True, gc=False)
    return msgspec.json.Decoder(list[args]).decode


class MetaArgs(msgspec.Struct, gc=False):
    """The args of an event that names a process or a thread."""

    name: Any = None


_decode_args = {kind: _args_decoder(fields) for kind, fields in ARGS_FIELDS.items()}
_decode_args[META] = msgspec.json.Decoder(list[MetaArgs]).decode
_decode_objects = msgspec.json.Decoder(list[dict[str, Raw]]).decode


class Event(msgspec.Struct, gc=False):
    """One event. `ts` and `dur` are in µs, `ts` as text: a float cannot hold epoch time to the ns."""

    ph: str = ""
    cat: str | None = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Raw = _NO_TEXT
    dur: float | None = math.nan
    args: Raw = NO_ARGS
    id: Any = None


END_NS = 2**62  # in the year 2116; sums of two times fit into 64 bits
EXACT_FROM = float(2**43)  # µs; below, half a float step is less than half a nanosecond

decode_events = msgspec.json.Decoder(list[Event]).decode
decode_event = msgspec.json.Decoder(Event).decode


def exact_ns(text: bytes) -> int | None:
    """Return a time stamp in µs, as written, in ns. None where the text is no number, or one past the year 2116."""
    integer, _, fraction = text.partition(b".")
    if integer and len(fraction) <= 3 and (fraction.isdigit() or not fraction):
        try:
            nanoseconds = int(integer + fraction.ljust(3, b"0"))
        except ValueError:
            pass
        else:
            return nanoseconds if abs(nanoseconds) < END_NS else None
    number = text.decode("ascii", "replace").strip('"')
    if (value := finite(number)) is None or abs(value) >= END_NS:
        return None
    nanoseconds = int((Decimal(number) * 1000).to_integral_value())
    return nanoseconds if abs(nanoseconds) < END_NS else None


def event_from_text(text: bytes) -> Event:
    """Decode the text of one JSON object. Raises msgspec.DecodeError or TypeError where it is odd."""
    event = decode_event(text)
    hash((event.name, event.pid, event.tid))
    decode = _decode_args.get(kind_of(event.ph, event.cat, event.name), _decode_objects)
    decode(b"[%b]" % bytes(event.args))
    return event


def event_from_object(fields: dict[str, Any]) -> Event:
    """Return the event in a decoded JSON object of any shape: what has the wrong type counts as missing."""
    args, ts = fields.get("args"), fields.get("ts")
    return Event(
        ph=_text(fields.get("ph")) or "",
        cat=_text(fields.get("cat")),
        name=_hashable(fields.get("name")),
        pid=_hashable(fields.get("pid")),
        tid=_hashable(fields.get("tid")),
        ts=Raw(b"" if isinstance(ts, bool) or finite(ts) is None else str(ts).encode()),
        dur=finite(fields.get("dur")),
        args=_encoded(args) if isinstance(args, dict) else NO_ARGS,
        id=_hashable(fields.get("id")),
    )


def _encoded(args: dict[str, Any]) -> Raw:
    """Return args as JSON, without those that it cannot hold."""
    values = {}
    for key, value in args.items():
        with suppress(OverflowError, TypeError, ValueError):
            values[key] = Raw(msgspec.json.encode(value))
    return Raw(msgspec.json.encode(values))


def finite(value: Any) -> float | None:
    """Return a number, or the number in a string; otherwise None."""
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


# What profilers are known to write wrongly. Each repair is tried on top of the ones before, in this order, until the
# text decodes to an object.
_NOT_A_NUMBER = re.compile(
    rb"([:\[,]\s*)(?:[-+]?(?:inf(?:inity)?|nan(?:\([^)\"]*\))?)|N/A)(?=\s*[,}\]])", re.IGNORECASE
)
_COMMA_DECIMAL = re.compile(rb'(":\s*-?\d+),(\d+)(?=\s*(?:[}\]]|,\s*"))')
_INNER_MINUS = re.compile(rb"(:\s*)-?(\d+)\.-(\d+)")
_BACKSLASH = re.compile(rb'\\(u[0-9a-fA-F]{4}|["\\/bfnrt])|\\')
_STRING = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)
_NAME_START = re.compile(rb'"name"\s*:\s*"')
_NAME_END = re.compile(rb'"\s*(?:,\s*"(?:pid|tid|ts|dur|ph|cat|args|id|s|bp)"\s*:|\})')
_NAME_ENDS = 8  # positions where a name may end that are tried; chosen by hand
_BARE_QUOTE = re.compile(rb'(?<!\\)"')
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD]")
_SURROGATES = re.compile("[\ud800-\udfff]")

RAW_BACKSLASHES = "backslashes that escape nothing"


def _raw_backslashes(text: bytes) -> bytes:
    """Escape all backslashes of a string in which one escapes nothing: torch has written Windows paths so."""

    def escaped(string: re.Match[bytes]) -> bytes:
        if all(escape[1] for escape in _BACKSLASH.finditer(string[1])):
            return string[0]
        return b'"%s"' % re.sub(rb'\\(?!")', rb"\\\\", string[1])

    return _BACKSLASH.sub(lambda m: m[0] if m[1] else b"\\\\", _STRING.sub(escaped, text))


def _quotes_in_name(text: bytes) -> bytes:
    """End the name at the first possible end that makes the whole text decodable."""
    if (start := _NAME_START.search(text)) is None:
        return text
    at = start.end()
    for end in islice(_NAME_END.finditer(text, at), _NAME_ENDS):
        repaired = text[:at] + _BARE_QUOTE.sub(b'\\"', text[at : end.start()]) + text[end.start() :]
        if load_object(repaired) is not None:
            return repaired
    return text


def _quotes_anywhere(text: bytes) -> bytes:
    """A quote ends a string only before , : } ] and starts one only after { , : [."""
    out, inside = [], False
    pieces = _BARE_QUOTE.split(text)
    for before, after in pairwise(pieces):
        out.append(before)
        structural = after.lstrip()[:1] in (b",", b":", b"}", b"]") or not after.strip()
        closes = inside and structural
        opens = not inside and before.rstrip()[-1:] in (b"{", b",", b":", b"[")
        out.append(b'"' if closes or opens else b'\\"')
        inside = inside != (closes or opens)
    return b"".join([*out, pieces[-1]])


REPAIRS: tuple[tuple[str, Callable[[bytes], bytes]], ...] = (
    ("numbers that are inf, nan or N/A", lambda text: _NOT_A_NUMBER.sub(rb"\1null", text)),
    ("decimal commas", lambda text: _COMMA_DECIMAL.sub(rb"\1.\2", text)),
    # Kineto prints the thousandths of a negative number with their sign, padded to three characters
    (
        "a minus sign inside a number",
        lambda text: _INNER_MINUS.sub(lambda m: m[1] + b"-%s.%03d" % (m[2], int(m[3])), text),
    ),
    (RAW_BACKSLASHES, _raw_backslashes),
    ("quotes inside a name", _quotes_in_name),
    ("quotes inside a text", _quotes_anywhere),
)


def exact(text: str) -> Decimal | float:
    """Return a fraction with all its digits; infinite past any float: as an integer it would fill the memory."""
    number = float(text)
    return Decimal(text) if math.isfinite(number) else number


def load_object(text: bytes, number: Callable[[str], Any] = exact) -> dict[str, Any] | None:
    """Return the object that `text` is, leniently: control characters, invalid UTF-8, NaN and lone surrogates pass.

    number: what fractions become.
    """
    try:
        value = json.loads(text.decode("utf-8", "replace"), strict=False, parse_float=number)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return _without_surrogates(value) if _ESCAPED_SURROGATE.search(text) else value


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATES.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value


def repair_object(text: bytes, number: Callable[[str], Any] = exact) -> tuple[dict[str, Any], str] | None:
    """Return the object in broken text, and what was repaired last; None where no repair helps."""
    for what, repair in REPAIRS:
        repaired = repair(text)
        if repaired != text:
            if (value := load_object(repaired, number)) is not None:
                return value, what
            text = repaired
    return None


def sound_object(text: bytes, number: Callable[[str], Any] = exact) -> dict[str, Any] | None:
    """Return the object that `text` is, repaired if it must be; None where no repair helps."""
    return load_object(text, number) or (repair_object(text, number) or (None,))[0]


Array = npt.NDArray[Any]
Combo = tuple[Any, Any, Any, Any, Any]  # ph, cat, name, pid, tid
Columns = tuple[int, Array, dict[str, Array]]  # kind, places of events, and what their args hold, by field
combo_of = attrgetter("ph", "cat", "name", "pid", "tid")

KIND_NAMES = {
    GPU: "gpu",
    RUNTIME: "runtime",
    PYTHON: "python",
    HOST: "host",
    CONVOLUTION: "convolution",
    COLLECTIVE: "collective",
    PARAMETERS: "parameters",
}

_KIND_OF_CAT = {
    **dict.fromkeys(slices.GPU_CATS, GPU),
    **dict.fromkeys(slices.RUNTIME_CATS, RUNTIME),
    slices.PYTHON_FUNCTION: PYTHON,
}
_KIND_OF_NAME = {CONVOLUTION_NAME: CONVOLUTION, collectives.PARAM_COMMS: PARAMETERS}


def kind_of(ph: Any, cat: Any, name: Any) -> int:
    """Return the kind of an event, from its phase, category and name."""
    if ph == "X" and cat != slices.LANE_CAT:
        cat = slices.current_cat(cat, str(name))
        if cat == slices.KERNEL and category_of(str(name)) == "communication":
            return COLLECTIVE
        return _KIND_OF_CAT.get(cat, _KIND_OF_NAME.get(name, HOST))
    if ph == "M":
        return META
    if ph in ("i", "I") and name == slices.MEMORY_MOMENT:
        return MEMORY
    return FLOW if ph in ("s", "f") and cat == slices.FORWARD_BACKWARD else UNUSED


class Combos(dict[Combo, int]):
    """Combo → code, codes in order of first appearance. `kinds[code]` is the kind of event."""

    def __init__(self) -> None:
        self.kinds: Array = np.zeros(1024, np.int8)
        self.phases: dict[str, int] = {}
        self.phase_codes: Array = np.zeros(1024, np.int16)

    def __missing__(self, key: Combo) -> int:
        code = len(self)
        if code == len(self.kinds):
            self.kinds = np.concatenate([self.kinds, np.zeros_like(self.kinds)])
            self.phase_codes = np.concatenate([self.phase_codes, np.zeros_like(self.phase_codes)])
        self.kinds[code] = kind_of(key[0], key[1], key[2])
        self.phase_codes[code] = self.phases.setdefault(key[0], len(self.phases))
        self[key] = code
        return code


class Interner(dict[bytes, int]):
    """JSON text → code. It starts with the empty text, whose code is -1."""

    def __missing__(self, key: bytes) -> int:
        code = self[key] = len(self) - 1
        return code


class Dictionaries:
    """The dictionaries of one decoder; they live as long as it."""

    def __init__(self) -> None:
        self.combos = Combos()
        self.interners = {name: Interner({b"": -1}) for name in TEXT_FIELDS}

    def columns(self, kind: int, text: bytes, count: int) -> dict[str, Array]:
        """Return what a JSON list of so many args holds, by field of their kind.

        A number, or the code of a text; -1 where it has none. Raises msgspec.DecodeError, and ValueError where the
        list has another length.
        """
        args = _decode_args[kind](text)
        if len(args) != count:
            raise ValueError("the text of one event holds more than one object, or less")
        columns = {name: self._column(args, name, name) for name in ARGS_FIELDS[kind]}
        if any(name in text for name in _OLD_NAMES):
            for name in (name for name in columns if f"{name}_old" in ARG_NAMES):
                values, old = columns[name], self._column(args, name, f"{name}_old")
                columns[name] = np.where(values < 0, old, values)
        return columns

    def _column(self, args: Sequence[Any], name: str, attribute: str) -> Array:
        if name in FLOATS:
            with np.errstate(over="ignore"):  # what is too large for a column is infinite there
                return numbers(args, attribute, FLOATS[name], real)
        if name in self.interners:
            texts = map(bytes, map(attrgetter(attribute), args))
            return np.fromiter(map(self.interners[name].__getitem__, texts), np.int32, len(args))
        return numbers(args, attribute, np.int64, whole)


def numbers(items: Sequence[Any], name: str, dtype: Any, clean: Callable[[Any], Any]) -> Array:
    """Return an attribute of each item as numbers, by `clean` where numpy alone cannot."""
    get = attrgetter(name)
    try:
        return np.fromiter(map(get, items), dtype, len(items))
    except (TypeError, ValueError, OverflowError):
        return np.array([clean(value) for value in map(get, items)], dtype)


def real(value: Any) -> float:
    """Return a number; nan for all that is none."""
    number = finite(value)
    return np.nan if number is None else number
