"""Answers that take a while to make: each is made once, and who asks meanwhile waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

import msgspec

Question = TypeVar("Question", bound=str)
Make = Callable[[], msgspec.Struct]
Answer = Future[msgspec.Struct]


class MadeOnce(Generic[Question]):
    """The answers about one thing, by question. Safe to ask from many threads."""

    def __init__(self) -> None:
        self._made: dict[Question, Answer] = {}
        self._lock = threading.Lock()

    def ask(self, question: Question, make: Make) -> msgspec.Struct:
        """The answer; made here unless somebody is at it or was. Raises what `make` raises or raised."""
        answer, mine = self._claim(question)
        if mine:
            _make(answer, make)
        return answer.result()

    def begin(self, question: Question, make: Make) -> Answer:
        """The answer, made on a thread of its own unless somebody is at it or was."""
        answer, mine = self._claim(question)
        if mine:
            threading.Thread(
                target=_make, args=(answer, make), name="tb-torchcompile-answer", daemon=True
            ).start()
        return answer

    def is_making(self, question: Question) -> bool:
        """Whether who asks now would wait for another thread."""
        with self._lock:
            answer = self._made.get(question)
            return answer is not None and not answer.done()

    def _claim(self, question: Question) -> tuple[Answer, bool]:
        """The answer, made or not; and whether nobody is at it yet."""
        with self._lock:
            known = self._made.get(question)
            if known is None:
                known = self._made[question] = Future()
                return known, True
            return known, False


def _make(answer: Answer, make: Make) -> None:
    try:
        answer.set_result(make())
    except BaseException as error:  # whatever it is, it belongs to whoever asks
        answer.set_exception(error)
