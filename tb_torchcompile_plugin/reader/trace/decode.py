"""Events to columns: a `Decoder` takes batches of events and gives out `DecodedPart`s, bundles of small numpy arrays.

Strings become codes at once. One dictionary look-up per event, on (ph, cat, name, pid, tid), gives its *combo*,
and with it the kind of event, which says what args to extract. All codes are private to one decoder;
`table` brings the parts of several decoders together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.reader.trace.events import (
    EXACT_FROM,
    Event,
    ExactEvent,
    decode_common_events,
    decode_events,
    decode_exact_events,
    exact_ns,
    finite,
    whole,
)
from tb_torchcompile_plugin.torch_names.collectives import PARAM_COMMS
from tb_torchcompile_plugin.torch_names.kernels import category_of
from tb_torchcompile_plugin.torch_names.operators import CONVOLUTION as CONVOLUTION_NAME
from tb_torchcompile_plugin.torch_names.slices import (
    FORWARD_BACKWARD,
    GPU_CATS,
    KERNEL,
    MEMORY_MOMENT,
    PYTHON_FUNCTION,
    RUNTIME_CATS,
)

Array = npt.NDArray[Any]
Combo = tuple[Any, Any, Any, Any, Any]  # ph, cat, name, pid, tid

GPU, RUNTIME, PYTHON, HOST, CONVOLUTION, COLLECTIVE, PARAMETERS, META, MEMORY, FLOW, UNUSED = range(11)
LAST_SLICE_KIND = PARAMETERS

_KEY = attrgetter("ph", "cat", "name", "pid", "tid")
_ARGS = attrgetter("args")
TEXT_FIELDS = (
    *("grid", "block", "stack", "input_types", "input_dims", "concrete_inputs"),
    *("collective", "group_name", "group_ranks", "dtype", "comms_id"),
)
FLOATS: dict[str, Any] = {"occupancy": np.float32, "kernel_num_gb": np.float64, "kernel_flop": np.float64}

_LAUNCH_FIELDS = ("correlation", "external")
_DEVICE_FIELDS = (*_LAUNCH_FIELDS, "device", "stream")
_HOST_FIELDS = (
    *(*_DEVICE_FIELDS, "sequence", "forward_thread", "kernel_num_gb", "kernel_flop"),
    *("input_types", "input_dims"),
)
_GPU_FIELDS = (*_DEVICE_FIELDS, "registers", "shared_memory", "occupancy", "bytes", "grid", "block", "stack")
COLLECTIVE_FIELDS = (
    *("collective", "group_name", "group_ranks", "dtype", "comms_id"),
    *("collective_seq", "in_elements", "out_elements", "source_rank", "destination_rank"),
)

# what each kind of slice may carry; the table is also what `Trace` offers as columns
SLICE_FIELDS: dict[int, tuple[str, ...]] = {
    GPU: _GPU_FIELDS,
    RUNTIME: _LAUNCH_FIELDS,
    PYTHON: ("python_id", "python_parent", "python_module"),
    HOST: _HOST_FIELDS,
    # the one operator whose work does not follow from its shapes alone
    CONVOLUTION: (*_HOST_FIELDS, "concrete_inputs"),
    # the kernels of collectives, and what c10d says of each where it is called
    COLLECTIVE: (*_GPU_FIELDS, *COLLECTIVE_FIELDS),
    PARAMETERS: (*_HOST_FIELDS, *COLLECTIVE_FIELDS),
}
MEMORY_FIELDS = ("memory_bytes", "total_allocated", "total_reserved", "address", "device_type", "device_id")


_KIND_OF_CAT = {
    **dict.fromkeys(GPU_CATS, GPU),
    **dict.fromkeys(RUNTIME_CATS, RUNTIME),
    PYTHON_FUNCTION: PYTHON,
}
_KIND_OF_NAME = {CONVOLUTION_NAME: CONVOLUTION, PARAM_COMMS: PARAMETERS}


def kind_of(ph: Any, cat: Any, name: Any) -> int:
    """What sort of event this is, from its phase, category and name."""
    if ph == "X":
        if cat == KERNEL and category_of(str(name)) == "communication":
            return COLLECTIVE
        return _KIND_OF_CAT.get(cat, _KIND_OF_NAME.get(name, HOST))
    if ph == "M":
        return META
    if ph in ("i", "I") and name == MEMORY_MOMENT:
        return MEMORY
    return FLOW if ph in ("s", "f") and cat == FORWARD_BACKWARD else UNUSED


class Combos(dict[Combo, int]):
    """Combo → code, codes in order of first appearance; `kinds[code]` says what kind of event it is."""

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
    """JSON text → code; the empty text is -1."""

    def __init__(self) -> None:
        self[b""] = -1

    def __missing__(self, key: bytes) -> int:
        code = self[key] = len(self) - 1
        return code


@dataclass
class DecodedPart:
    """The columns of a stretch of the file.

    columns: name → array. `code ts dur event` have one row per slice; `gpu.row` … and `gpu.FIELD` (kinds:
    `KIND_NAMES`) one row per slice of that kind, `row` counting slices of this part;
    `memory.*` and `flow.*` one row per such event. `event` counts events of this part.
    chunks: (start, end, first event) of each run of text that was decoded in one go, in bytes.
    """

    events: int = 0
    slices: int = 0
    phases: dict[str, int] = field(default_factory=dict)
    columns: dict[str, Array] = field(default_factory=dict)
    chunks: list[tuple[int, int, int]] = field(default_factory=list)
    meta: list[tuple[Any, Any, Any, Any]] = field(default_factory=list)
    losses: dict[str, tuple[int, int]] = field(default_factory=dict)


KIND_NAMES = {
    GPU: "gpu",
    RUNTIME: "runtime",
    PYTHON: "python",
    HOST: "host",
    CONVOLUTION: "convolution",
    COLLECTIVE: "collective",
    PARAMETERS: "parameters",
}


class Decoder:
    """Collects events into the current part. Dictionaries live as long as the decoder."""

    def __init__(self) -> None:
        self.combos = Combos()
        self.interners = {name: Interner() for name in TEXT_FIELDS}
        self._exact = False  # whether time stamps are too long for a float
        self._common = True  # whether all phases and categories so far were common ones
        self._start_part()

    def _start_part(self) -> None:
        self._part = DecodedPart()
        self._pieces: dict[str, list[Array]] = {}
        self._phase_counts: Array = np.zeros(0, np.int64)

    @property
    def events(self) -> int:
        """Events in the current part so far."""
        return self._part.events

    def lose(self, why: str, offset: int = -1, count: int = 1) -> None:
        """Count something that was dropped or mended; the first byte offset of each reason is kept."""
        if count:
            before, first = self._part.losses.get(why, (0, offset))
            self._part.losses[why] = (before + count, first)

    def mark(self, start: int, end: int, event: int) -> None:
        """The text of these byte offsets holds this event of the part first."""
        self._part.chunks.append((start, end, event))

    def take(self) -> DecodedPart:
        """The finished part; the decoder starts a new one."""
        part = self._part
        part.columns = {name: np.concatenate(pieces) for name, pieces in self._pieces.items()}
        part.phases = {ph: int(n) for ph, n in zip(self.combos.phases, self._phase_counts) if n}
        self._start_part()
        return part

    def feed_text(self, text: bytes) -> None:
        """Add the events of `[…]`.

        Raises msgspec.DecodeError, TypeError or ValueError, with nothing added, where it cannot.
        """
        if not self._exact:
            events = self._decode(text)
            stamps = _floats(events, "ts")
            if not len(stamps) or np.fmax.reduce(np.abs(stamps)) < EXACT_FROM or np.isnan(stamps).all():
                self._feed(events, _to_ns(stamps))
                return
            self._exact = True
        self._feed(*_with_exact_stamps(decode_exact_events(text)))

    def _decode(self, text: bytes) -> Sequence[Event]:
        if self._common:
            try:
                return decode_common_events(text)
            except msgspec.ValidationError:
                events = decode_events(text)
                self._common = False
                return events
        return decode_events(text)

    def feed_exact(self, events: Sequence[ExactEvent]) -> None:
        """Add events whose time stamps are text."""
        self._feed(*_with_exact_stamps(events))

    def _feed(self, events: Sequence[Event], stamps: tuple[Array, Array]) -> None:
        count = len(events)
        codes = np.fromiter(map(self.combos.__getitem__, map(_KEY, events)), np.int32, count)
        kinds = self.combos.kinds[codes]
        ts, no_ts = stamps
        with np.errstate(over="ignore"):  # what is too large for a column is infinite there
            self._add_slices(events, codes, kinds, ts, no_ts)
            if (kinds > LAST_SLICE_KIND).any():
                self._add_others(events, codes, kinds, ts)
        self._count_phases(codes)
        self._part.events += count

    def _add_slices(self, events: Sequence[Any], codes: Array, kinds: Array, ts: Array, no_ts: Array) -> None:
        is_slice = kinds <= LAST_SLICE_KIND
        dur, bad = _durations(_select(events, is_slice))
        if bad.any() or no_ts.any() or (len(dur) and dur.min() < 0):
            is_slice, dur = self._drop(is_slice, no_ts, dur, bad)
        rows = np.flatnonzero(is_slice)
        self._put("code", codes[rows])
        self._put("ts", ts[rows])
        self._put("dur", dur)
        self._put("event", (rows + self._part.events).astype(np.int32))
        numbering = np.cumsum(is_slice, dtype=np.int32) + (self._part.slices - 1)
        for kind, fields in SLICE_FIELDS.items():
            mask = is_slice & (kinds == kind)
            if mask.any():
                self._add_kind(
                    KIND_NAMES[kind], fields, list(map(_ARGS, _select(events, mask))), numbering[mask]
                )
        self._part.slices += len(rows)

    def _drop(self, is_slice: Array, no_ts: Array, dur: Array, bad: Array) -> tuple[Array, Array]:
        rows = np.flatnonzero(is_slice)
        reasons = {
            "slices without a readable time stamp, dropped": no_ts[rows],
            "slices without a readable duration, dropped": ~no_ts[rows] & bad,
            "slices with a negative duration, dropped": ~no_ts[rows] & ~bad & (dur < 0),
        }
        kept = np.ones(len(rows), bool)
        for why, lost in reasons.items():
            self.lose(why, count=int(lost.sum()))
            kept &= ~lost
        is_slice = np.zeros_like(is_slice)
        is_slice[rows[kept]] = True
        return is_slice, dur[kept]

    def _add_kind(self, kind: str, fields: Iterable[str], args: list[Any], rows: Array) -> None:
        self._put(f"{kind}.row", rows)
        for name in fields:
            self._put(f"{kind}.{name}", self._column(args, name))

    def _column(self, args: list[Any], name: str) -> Array:
        if name in TEXT_FIELDS:
            return self._interned(args, name)
        if name in FLOATS:
            return _numbers(args, name, FLOATS[name], _real)
        values = _numbers(args, name, np.int64, whole)
        if name == "external" and (values < 0).any():
            return np.where(values < 0, _numbers(args, "external_old", np.int64, whole), values)
        return values

    def _interned(self, args: list[Any], name: str) -> Array:
        look_up = self.interners[name].__getitem__
        codes = np.fromiter(map(look_up, map(bytes, map(attrgetter(name), args))), np.int32, len(args))
        if name == "input_dims" and (codes < 0).any():
            old = np.fromiter(
                map(look_up, map(bytes, map(attrgetter("input_dims_old"), args))), np.int32, len(args)
            )
            return np.where(codes < 0, old, codes)
        return codes

    def _add_others(self, events: Sequence[Any], codes: Array, kinds: Array, ts: Array) -> None:
        memory, flow = kinds == MEMORY, kinds == FLOW
        if memory.any():
            args = list(map(_ARGS, _select(events, memory)))
            self._put_event_rows("memory", memory, codes, ts)
            for name in MEMORY_FIELDS:
                self._put(f"memory.{name}", _numbers(args, name, np.int64, whole))
        if flow.any():
            self._put_event_rows("flow", flow, codes, ts)
            self._put("flow.id", _numbers(_select(events, flow), "id", np.int64, whole))
        for event in _select(events, kinds == META):
            args = event.args
            value = next((v for v in (args.name, args.labels, args.sort_index) if v is not None), None)
            self._part.meta.append((event.name, event.pid, event.tid, value))

    def _put_event_rows(self, kind: str, mask: Array, codes: Array, ts: Array) -> None:
        self._put(f"{kind}.code", codes[mask])
        self._put(f"{kind}.ts", ts[mask])
        self._put(f"{kind}.event", (np.flatnonzero(mask) + self._part.events).astype(np.int32))

    def _count_phases(self, codes: Array) -> None:
        counts = np.bincount(self.combos.phase_codes[codes], minlength=len(self._phase_counts))
        counts[: len(self._phase_counts)] += self._phase_counts
        self._phase_counts = counts

    def _put(self, name: str, values: Array) -> None:
        self._pieces.setdefault(name, []).append(values)


def _with_exact_stamps(events: Sequence[ExactEvent]) -> tuple[Sequence[ExactEvent], tuple[Array, Array]]:
    stamps = [exact_ns(bytes(event.ts)) for event in events]
    missing = np.array([stamp is None for stamp in stamps], bool)
    return events, (np.array([stamp or 0 for stamp in stamps], np.int64), missing)


def _select(events: Sequence[Any], mask: Array) -> list[Any]:
    return list(events) if mask.all() else list(compress(events, mask.tolist()))


def _floats(events: Sequence[Any], name: str) -> Array:
    """A float attribute of each event, nan where it is None."""
    get = attrgetter(name)
    try:
        return np.fromiter(map(get, events), np.float64, len(events))
    except TypeError:
        return np.array([np.nan if value is None else value for value in map(get, events)], np.float64)


def _to_ns(us: Array) -> tuple[Array, Array]:
    """µs to exact integer ns (see `float_us_to_ns`), and where there was no number."""
    missing = np.isnan(us)
    us = np.where(missing, 0.0, us) if missing.any() else us
    base = np.floor(us)
    return base.astype(np.int64) * 1000 + np.rint((us - base) * 1000).astype(np.int64), missing


def _durations(events: Sequence[Any]) -> tuple[Array, Array]:
    dur = _floats(events, "dur")
    bad = ~(np.abs(dur) < EXACT_FROM)
    return _to_ns(np.where(bad, 0.0, dur) if bad.any() else dur)[0], bad


def _numbers(items: list[Any], name: str, dtype: Any, clean: Callable[[Any], Any]) -> Array:
    """An attribute of each item as numbers, by `clean` where numpy alone cannot."""
    get = attrgetter(name)
    try:
        return np.fromiter(map(get, items), dtype, len(items))
    except (TypeError, ValueError, OverflowError):
        return np.array([clean(value) for value in map(get, items)], dtype)


def _real(value: Any) -> float:
    number = finite(value)
    return np.nan if number is None else number
