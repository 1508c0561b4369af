"""What a `Session` answers about windows of a timeline, besides the questions that every panel asks in one way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, TypeVar

from tb_torchcompile_plugin.analysis.timeline import Timeline
from tb_torchcompile_plugin.analysis.timeline_range import TimelineRange, timeline_range
from tb_torchcompile_plugin.analysis.timeline_search import TimelineHits, timeline_search
from tb_torchcompile_plugin.analysis.timeline_slice import TimelineSlice, timeline_slice
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.logdir import File
from tb_torchcompile_plugin.reader import copies
from tb_torchcompile_plugin.reader.kineto_trim import trimmed
from tb_torchcompile_plugin.readings import Progress
from tb_torchcompile_plugin.span_answers import Opened
from tb_torchcompile_plugin.timeline_wire import encoded

SpanIds = tuple[str, str, str]  # run, worker, span
Told = TypeVar("Told")
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Download:
    """A file for the user to keep. size: in bytes, None where nobody knows before the end."""

    name: str
    blocks: Iterator[bytes]
    size: int | None = None


class TimelineAnswers(ABC):
    """Answers from a span that `poll_opened` finds; while it is being read, how far that is."""

    @abstractmethod
    def poll_opened(self, run: str, worker: str, span: str) -> Opened | Progress:
        """A span that was read; does not wait. Raises UserError."""

    @abstractmethod
    def trace_of(self, run: str, worker: str, span: str) -> File:
        """The trace file of a span. Raises NotFound."""

    def timeline_window(
        self, ids: SpanIds, start: int, end: int, width: int, lanes: Sequence[int]
    ) -> bytes | Progress:
        """The rectangles of these lanes in [start, end) ns, as `timeline_wire` writes them. Raises BadRequest."""
        return self._told(ids, lambda it: encoded(it.window(start, end, width, lanes), start, end, width))

    def timeline_slice(self, ids: SpanIds, lane: int, row: int) -> TimelineSlice | Progress:
        """All of one slice; lane -1: of that row of the trace. Raises BadRequest where there is none."""
        return self._told(ids, lambda it: timeline_slice(it, lane, row))

    def timeline_search(
        self,
        ids: SpanIds,
        query: str,
        window: tuple[int, int] | None,
        lanes: Sequence[int],
        *,
        at: int,
        offset: int,
        limit: int,
    ) -> TimelineHits | Progress:
        """Slices by name; see `analysis.timeline_search`."""
        return self._told(ids, lambda it: timeline_search(it, query, window, lanes, at, offset, limit))

    def timeline_range(self, ids: SpanIds, start: int, end: int) -> TimelineRange | Progress:
        """What happened in [start, end) ns. Raises BadRequest."""
        return self._told(ids, lambda it: timeline_range(it, start, end))

    def timeline_trim(self, ids: SpanIds, start: int, end: int) -> Download | Progress:
        """The events that touch [start, end] ns as a trace of their own, gzipped. Raises UserError."""
        file = self.trace_of(*ids)

        def trim(timeline: Timeline) -> Download:
            timeline.check(start, end)
            moments = start + timeline.origin, end + timeline.origin
            stem = file.name.removesuffix(".gz").removesuffix(".json")
            return Download(f"{stem}.part.json.gz", _started(_trimmed(timeline, file, *moments)))

        return self._told(ids, trim)

    def trace_file(self, ids: SpanIds) -> Download:
        """The trace as it is. Raises NotFound, and UserError where it cannot be read."""
        file = self.trace_of(*ids)
        return Download(file.name, _started(_raw(file)), file.size)

    def _told(self, ids: SpanIds, tell: Callable[[Timeline], Told]) -> Told | Progress:
        opened = self.poll_opened(*ids)
        return opened if isinstance(opened, Progress) else tell(opened.profile.timeline)


def _started(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """With its first block made: what fails at once fails before an answer has begun."""
    first = next(blocks, b"")

    def rest() -> Iterator[bytes]:
        yield first
        yield from blocks

    return rest()


def _trimmed(timeline: Timeline, file: File, start: int, end: int) -> Iterator[bytes]:
    with copies.local(file) as path:
        yield from trimmed(timeline.rows.trace, start, end, path)


def _raw(file: File) -> Iterator[bytes]:
    with copies.local(file) as path, _opened(path) as opened:
        left = file.size  # a file that grows is cut where the answer said it ends
        while left > 0 and (block := opened.read(min(_BLOCK, left))):
            left -= len(block)
            yield block


def _opened(path: str) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as error:
        raise UserError(
            f"cannot be opened: {error.strerror}", file=path, next_step="Check the path and its permissions"
        ) from error
