"""What a `Session` answers about two spans at once. Each comparison is made once, on a thread of its own."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from typing import Literal
from weakref import WeakKeyDictionary

import msgspec

from tb_torchcompile_plugin.compare_report import Side, SpanName, compare_report, compare_tables
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.made_once import Answer, MadeOnce
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.readings import Progress
from tb_torchcompile_plugin.span_answers import Opened

SpanIds = tuple[str, str, str]  # run, worker, span; "" for the compile data of a worker alone
Question = Literal["compare", "compare_tables"]
_Found = Opened | CompileData
_PATIENCE_S = 1.0  # most comparisons are there sooner: one request is enough


class CompareAnswers(ABC):
    """Comparisons of what `poll_opened` and `compile_data` find."""

    @abstractmethod
    def poll_opened(self, run: str, worker: str, span: str) -> Opened | Progress:
        """A span that was read; does not wait. Raises UserError."""

    @abstractmethod
    def compile_data(self, run: str, worker: str) -> CompileData:
        """Raises NotFound, and NoCompileData where none could be read."""

    def poll_compare(self, question: Question, a: SpanIds, b: SpanIds) -> msgspec.Struct | Progress:
        """The answer to one of QUESTIONS about both spans; while one is read, or they are compared, how far that is.

        Raises UserError, which tells the side that cannot be shown.
        """
        with _told_of("A"):
            before = self._side(a)
        with _told_of("B"):
            after = self._side(b)
        for side in (before, after):
            if isinstance(side, Progress):
                return side
        assert not isinstance(before, Progress) and not isinstance(after, Progress)
        made = _comparison(question, a, before, b, after)
        wait([made], _PATIENCE_S)
        return made.result() if made.done() else _all_read(after)

    def _side(self, ids: SpanIds) -> _Found | Progress:
        return self.poll_opened(*ids) if ids[2] else self.compile_data(*ids[:2])


QUESTIONS: dict[Question, Callable[[SpanName, Side, SpanName, Side], msgspec.Struct]] = {
    "compare": compare_report,
    "compare_tables": lambda _, before, __, after: compare_tables(before, after),
}
_lock = threading.Lock()
_known: WeakKeyDictionary[_Found, WeakKeyDictionary[_Found, MadeOnce[Question]]] = WeakKeyDictionary()


def _comparison(question: Question, a: SpanIds, before: _Found, b: SpanIds, after: _Found) -> Answer:
    """Begun when first asked for, and kept as long as both sides."""
    with _lock:
        of_a = _known.setdefault(before, WeakKeyDictionary())
        known: MadeOnce[Question] = of_a.setdefault(after, MadeOnce())
    return known.begin(
        question, lambda: QUESTIONS[question](_name(a, before), _of(before), _name(b, after), _of(after))
    )


def _all_read(side: _Found) -> Progress:
    """What whoever polls is told while the answer is made of what was read."""
    if not isinstance(side, Opened):
        return Progress(side.file, 0, 0, 0, None)
    size = side.span.file.size
    return Progress(side.span.file.name, size, size, side.profile.trace.events, 0.0)


def _name(ids: SpanIds, side: _Found) -> SpanName:
    return SpanName(*ids, side.span.file.name if isinstance(side, Opened) else "")


def _of(side: _Found) -> Side:
    if isinstance(side, Opened):
        return Side(side.profile, side.profile.summary)
    return Side(None, side.summary)


@contextmanager
def _told_of(name: str) -> Iterator[None]:
    try:
        yield
    except UserError as error:
        told = error.notice
        raise type(error)(f"{name}: {told.problem}", file=told.file, next_step=told.next_step) from error
