"""What a `Session` answers about windows of a timeline, besides the questions that every panel asks in one way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from tb_torchcompile_plugin.readings import Progress
from tb_torchcompile_plugin.span_answers import Opened
from tb_torchcompile_plugin.timeline_wire import encoded

SpanIds = tuple[str, str, str]  # run, worker, span


class TimelineAnswers(ABC):
    """Answers from a span that `poll_opened` finds; while it is being read, how far that is."""

    @abstractmethod
    def poll_opened(self, run: str, worker: str, span: str) -> Opened | Progress:
        """A span that was read; does not wait. Raises UserError."""

    def timeline_window(
        self, ids: SpanIds, start: int, end: int, width: int, lanes: Sequence[int]
    ) -> bytes | Progress:
        """The rectangles of these lanes in [start, end) ns, as `timeline_wire` writes them. Raises BadRequest."""
        opened = self.poll_opened(*ids)
        if isinstance(opened, Progress):
            return opened
        return encoded(opened.profile.timeline.window(start, end, width, lanes), start, end, width)
