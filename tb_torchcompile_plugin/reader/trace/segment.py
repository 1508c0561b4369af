"""Read the event array segment by segment into a decoder: fast in chunks, slowly where a chunk does not decode.

A chunk ends at a separator, `}, {"key":`. In valid JSON a raw `"` cannot be inside a string, so a separator
is structural. Only its depth may be wrong, and then the chunk does not decode. By induction every chunk that
decodes starts and ends between two events. What the slow path decides depends on the bytes at an event's start
only, never on chunks, so the result is the same for every chunk size and every number of workers.

A `Meter` reports how far reading is, and lets the caller end it.
"""

import contextlib
import gc
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from tb_torchcompile_plugin.errors import TorchCompilePluginError
from tb_torchcompile_plugin.reader.trace.decode import DecodedPart, Decoder
from tb_torchcompile_plugin.reader.trace.events import (
    Event,
    event_from_object,
    event_from_text,
    load_object,
    repair_object,
)
from tb_torchcompile_plugin.reader.trace.source import Source

CHUNK_BYTES = 2 << 20  # what is read at all places of it at once outweighs what numpy costs a call
_SMALL_CHUNK = 4 << 10  # bytes: of less that does not decode, events are read one by one; chosen by hand
_WINDOWS = tuple(16 << (10 + 3 * k) for k in range(5))  # 16 KiB … 64 MiB, how far one event is followed
MAX_TAIL = 64 << 20  # bytes behind the events, where metadata may be; chosen by hand

_KEY = rb'\s*"[^"\\]{1,64}"\s*:'
SEPARATOR = re.compile(rb"\}\s*,\s*(\{)(?=" + _KEY + rb")")
_EVENT_END = re.compile(rb"(\})(?=\s*(?:,\s*\{" + _KEY + rb'|\]\s*(?:\}|,\s*"|\Z)))')
_ARRAY_END = re.compile(rb'\]\s*(?:\}|,\s*")')
# an object that is no value of a key and no first item of a list, or the array's end
_RESYNC = re.compile(rb"[^:\[\s]\s*(\{)(?=" + _KEY + rb')|(\])(?=\s*(?:\}|,\s*"))')
_BETWEEN = b" \t\n\r\f\v,"
_CANDIDATES = 4  # places where a broken event may end that are tried; chosen by hand
# of a JSON value, as latin-1: so a character is a byte, whatever the text holds
_scan = json.JSONDecoder(strict=False).raw_decode

DAMAGED = "damaged events, dropped"
CUT_OFF = "event cut off at the end of the file, dropped"
NO_EVENT = "entries that are not events, skipped"
BAD_UTF8 = "events with invalid UTF-8, repaired"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
GARBAGE = "text between events that is not JSON, skipped"


class ScanStep(NamedTuple):
    """One decision of the slow path. kind: "event", "skip", "end" (of the array) or "eof"."""

    kind: str
    start: int
    next: int
    event: Event | None = None
    problem: str = ""


@dataclass
class Stop:
    """Where reading stopped: state "more" (`offset` starts the next event), "end" (at the `]`) or "eof"."""

    state: str
    offset: int
    tail: bytes | None = None  # what follows the `]`; None where it was not reached
    problem: str = ""  # why the file ended early, "" if it did not


class SegmentReader:
    """Feeds a decoder with the events of a source."""

    def __init__(self, source: Source, decoder: Decoder, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._source, self._decoder, self._chunk = source, decoder, chunk_bytes

    def find_start(self, offset: int) -> int | None:
        """Return where the first event after the first separator at or behind `offset` starts; None for none."""
        for count in _WINDOWS:
            text = self._source.read(offset, count)
            if match := SEPARATOR.search(text):
                return offset + match.start(1)
            if len(text) < count:
                return None
        return None

    def run(self, start: int, limit: int, tick: Callable[[int], None]) -> Stop:
        """Read events from `start` until one closes at or behind `limit`. Calls `tick(offset)` after each chunk."""
        position, size, shrunk = start, self._chunk, False
        while True:
            text = self._source.read(position, size)
            cut, last = _find_cut(text, limit - position)
            if cut and self._feed(text, cut[0], position):
                stop = Stop("more" if last else "going", position + cut[1])
            elif cut and size > _SMALL_CHUNK:
                size, shrunk = max(size // 8, _SMALL_CHUNK), True
                continue
            elif not cut and not shrunk and len(text) == size < _WINDOWS[-1]:
                size *= 4
                continue
            else:
                stop = self._run_slowly(position, position + max(len(text), 1), limit, tick)
            position, size, shrunk = stop.offset, self._chunk, False
            tick(position)
            if stop.state != "going":
                if stop.state == "end":
                    stop.tail = self._source.read(stop.offset + 1, MAX_TAIL)
                stop.problem = self._source.problem
                return stop

    def _feed(self, text: bytes, end: int, offset: int) -> bool:
        """Return False, with nothing added, where the chunk does not decode."""
        first = self._decoder.part.events
        try:
            self._decoder.feed_text(text, end)
        except (msgspec.DecodeError, TypeError, ValueError, OverflowError, RecursionError):
            return False
        self._decoder.part.chunks.append((offset, offset + end, first))
        return True

    def _run_slowly(self, position: int, until: int, limit: int, tick: Callable[[int], None]) -> Stop:
        events: list[Event] = []
        state = "going"
        while state == "going" and position < until:
            step = self._step(position)
            if step.problem:
                self._decoder.lose(step.problem, step.start)
            if step.event is not None:
                first = self._decoder.part.events + len(events)
                self._decoder.part.chunks.append((step.start, step.next, first))
                events.append(step.event)
            if step.kind in ("end", "eof"):
                state = step.kind
            elif step.next > limit and self._is_followed(step.next):
                state = "more"
            position = step.next
            tick(position)
        self._decoder.feed(events)
        if state == "more":
            position += len(_between(self._source.read(position, _WINDOWS[0])))
        return Stop(state, position)

    def _is_followed(self, offset: int) -> bool:
        text = self._source.read(offset, _WINDOWS[0])
        gap = _between(text)
        return b"," in gap and text[len(gap) : len(gap) + 1] == b"{"

    def _step(self, position: int) -> ScanStep:
        for count in _WINDOWS:
            text = self._source.read(position, count)
            if (step := _decide(text, len(text) < count)) is not None:
                break
        else:
            # the last bytes stay, as an event may begin in them; chosen by hand
            step = ScanStep("skip", 0, max(len(text) - 256, 1), problem=GARBAGE)
        return step._replace(start=position + step.start, next=position + step.next)


def _between(text: bytes) -> bytes:
    """Return the spaces and commas at the start of `text`."""
    return text[: len(text) - len(text.lstrip(_BETWEEN))]


def _find_cut(text: bytes, limit: int) -> tuple[tuple[int, int] | None, bool]:
    """Return (end of the events, start of the next) of the cut to make, and whether it is the segment's last one."""
    if limit < len(text) and (match := SEPARATOR.search(text, max(limit, 0))):
        return (match.start() + 1, match.start(1)), True
    tail = 2048
    while True:
        at = max(0, len(text) - tail)
        if matches := list(SEPARATOR.finditer(text, at)):
            return (matches[-1].start() + 1, matches[-1].start(1)), False
        if at == 0:
            return None, False
        tail *= 8


def _decide(text: bytes, complete: bool) -> ScanStep | None:
    """Return the step at the start of `text`; None where more text is needed. complete: the file ends here."""
    at = len(_between(text))
    if not (first := text[at : at + 1]):
        return ScanStep("eof", at, at) if complete else None
    if first == b"{":
        return _decide_event(text, at, complete)
    if first == b"]":
        if _ARRAY_END.match(text, at) or (complete and not text[at + 1 :].strip()):
            return ScanStep("end", at, at)
        if not complete and len(text) - at < _WINDOWS[0] // 2:
            return None
    return _skip_value(text, at, complete)


def _ran_out(text: bytes, at: int, error: json.JSONDecodeError) -> bool:
    """Whether the value may be sound and `text` only too short."""
    # 16 bytes: an error so near to the end may be of a value that goes on; chosen by hand
    return error.pos >= len(text) - at - 16 or error.msg.startswith("Unterminated")


def _skip_value(text: bytes, at: int, complete: bool) -> ScanStep | None:
    try:
        return ScanStep("skip", at, at + _scan(text[at:].decode("latin-1"))[1], problem=NO_EVENT)
    except json.JSONDecodeError as error:
        if not complete and text[at : at + 1] in (b'"', b"[") and _ran_out(text, at, error):
            return None
    except RecursionError:
        pass
    if match := _RESYNC.search(text, at):
        return ScanStep("skip", at, max(match.start(1), match.start(2)), problem=GARBAGE)
    return ScanStep("eof", at, len(text), problem=GARBAGE) if complete else None


def _decide_event(text: bytes, at: int, complete: bool) -> ScanStep | None:
    try:
        end = at + _scan(text[at:].decode("latin-1"))[1]
    except json.JSONDecodeError as error:
        if _ran_out(text, at, error) and not complete:
            return None
        return _decide_broken(text, at, complete)
    except RecursionError:
        return _decide_broken(text, at, complete)
    return ScanStep("event", at, end, *_read_valid(text[at:end]))


def _read_valid(raw: bytes) -> tuple[Event | None, str]:
    """Return the event in the text of one object, and what is wrong with it, "" for nothing."""
    try:
        return event_from_text(raw), ""
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError):
        fields = load_object(raw)
    if fields is None:
        return None, DAMAGED
    try:
        raw.decode()
    except UnicodeDecodeError:
        # control characters next to invalid bytes are damage, too
        if isinstance(name := fields.get("name"), str):
            fields["name"] = _CONTROL.sub("\ufffd", name)
        return event_from_object(fields), BAD_UTF8
    return event_from_object(fields), ""


def _decide_broken(text: bytes, at: int, complete: bool) -> ScanStep | None:
    ends = []
    for match in _EVENT_END.finditer(text, at):
        ends.append(match.end(1))
        if repaired := repair_object(text[at : match.end(1)]):
            problem = f"events with {repaired[1]}, repaired"
            return ScanStep("event", at, match.end(1), event_from_object(repaired[0]), problem)
        if len(ends) == _CANDIDATES or _is_object(text, match.end(1)):
            break  # an event ended here, whatever is wrong with it
    else:
        if not complete:
            return None
        if not ends:
            return ScanStep("eof", at, len(text), problem=CUT_OFF)
    return ScanStep("skip", at, ends[0], problem=DAMAGED)


def _is_object(text: bytes, at: int) -> bool:
    following = at + len(_between(text[at:]))
    try:
        return text[following : following + 1] == b"{" and _scan(text[following:].decode("latin-1"))[1] > 0
    except (ValueError, RecursionError):
        return False


class Cancelled(TorchCompilePluginError):
    """Reading ended because the caller asked for it."""


@dataclass(frozen=True)
class BytesRead:
    """How far reading is. seconds_left: an estimate, None while there is none."""

    file: str
    bytes_read: int
    bytes_total: int
    events: int
    seconds_left: float | None


Advance = Callable[[BytesRead], None]
Cancel = Callable[[], bool]  # asked now and then; true ends the reading with `Cancelled`


@dataclass
class Outcome:
    """What came of the event array."""

    parts: list[DecodedPart]  # in file order
    stop: Stop  # where it stopped


class Meter:
    """Reports how far reading is, at most every `EVERY_S` seconds, and asks whether to go on."""

    EVERY_S = 0.1

    def __init__(self, path: str, total: int, progress: Advance | None, cancelled: Cancel | None) -> None:
        self._path, self._total = path, total
        self._progress, self._cancelled = progress, cancelled
        self._start = time.monotonic()
        self._last = 0.0

    def check(self) -> None:
        """Raise Cancelled if the caller wants no more."""
        if self._cancelled is not None and self._cancelled():
            raise Cancelled(f"reading {self._path} was cancelled")

    def at(self, consumed: int, events: int) -> None:
        """Report the numbers of bytes and events that have been read."""
        self.check()
        now = time.monotonic()
        if self._progress is None or now - self._last < self.EVERY_S:
            return
        self._last = now
        elapsed = now - self._start
        left = elapsed * (self._total - consumed) / consumed if consumed and elapsed > 0.2 else None
        self._progress(BytesRead(self._path, min(consumed, self._total), self._total, events, left))

    def at_end(self, events: int, seconds_left: float | None) -> None:
        """Report that all is read. seconds_left: None while the tables are still to come, for an unknown time."""
        if self._progress is not None:
            self._progress(BytesRead(self._path, self._total, self._total, events, seconds_left))


class Task(NamedTuple):
    """What is read, and how: `segment` bytes after another, decoded `chunk_bytes` at a time."""

    path: str
    size: int  # of which so much is read
    start: int  # the offset of the first event's array
    chunk_bytes: int
    segment: int


@contextlib.contextmanager
def without_gc() -> Iterator[None]:
    """Collect no garbage inside the context."""
    # millions of short-lived objects and no cycles among them: collecting would cost as much as decoding
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
