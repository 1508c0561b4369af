"""Answers in memory: each is computed once, and whoever asks for it meanwhile waits. Safe for many threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

Value = TypeVar("Value")
Owner = TypeVar("Owner", bound="Memoized")
Arguments = ParamSpec("Arguments")


class Memo:
    """Answers by key. With more than `most` keys the least recently used ones are forgotten."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        # What an answer was computed from, and the answer, or a future that it will be in.
        self._answers: dict[Hashable, tuple[object, Any]] = {}
        self._lock = threading.Lock()

    def get(
        self,
        key: Hashable,
        compute: Callable[[], Value],
        made_of: object = None,
        keep: Callable[[Value], bool] | None = None,
    ) -> Value:
        """Return the answer, computed here unless it is known or another thread is at it. Raises what that raises.

        made_of: the inputs; an answer with other inputs is computed again.
        keep: which answers are remembered; failures are not, then.
        """
        answer, is_new = self._claim(key, made_of)
        if is_new:
            self._compute(key, answer, compute, keep)
        value: Value = answer.result() if isinstance(answer, Future) else answer
        return value

    def begin(self, key: Hashable, compute: Callable[[], Value], made_of: object = None) -> Future[Value]:
        """Return a future of the answer, which a thread of its own computes unless it is known or being computed."""
        answer, is_new = self._claim(key, made_of)
        if is_new:
            work = partial(self._compute, key, answer, compute, None)
            threading.Thread(target=work, name="tb-torchcompile-answer", daemon=True).start()
        if isinstance(answer, Future):
            return answer
        future: Future[Value] = Future()
        future.set_result(answer)
        return future

    def _claim(self, key: Hashable, made_of: object) -> tuple[Any, bool]:
        """Return the answer or its future, and whether the caller has to compute it."""
        with self._lock:
            current = self._answers.pop(key, None)
            is_new = current is None or current[0] != made_of
            entry = (made_of, Future()) if current is None or is_new else current
            self._answers[key] = entry
            while self._most is not None and len(self._answers) > self._most:
                del self._answers[next(iter(self._answers))]
            return entry[1], is_new

    def _compute(
        self,
        key: Hashable,
        future: Future[Any],
        compute: Callable[[], Value],
        keep: Callable[[Value], bool] | None,
    ) -> None:
        try:
            value, error = compute(), None
            is_kept = keep is None or keep(value)
        except BaseException as failure:  # whatever it is, it belongs to whoever asks
            value, error, is_kept = None, failure, keep is None
        with self._lock:
            made_of, current = self._answers.get(key, (None, None))
            if current is not future:
                pass  # it was forgotten, or something newer is computed
            elif not is_kept:
                del self._answers[key]
            elif error is None:
                # without its future, which takes more memory than most answers
                self._answers[key] = made_of, value
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)


def answers_of(instance: object) -> Memo:
    """Return the answers about this object, which live as long as it does."""
    memo: Memo | None = vars(instance).get("_answers")
    if memo is None:
        memo = vars(instance).setdefault("_answers", Memo())
    return memo


class Memoized:
    """The subject of questions, which are functions of it and computed once."""

    def of(
        self: Owner,
        question: Callable[Concatenate[Owner, Arguments], Value],
        /,
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Value:
        """Return the answer to `question`, computed when first asked for. Raises what `question` raises."""
        key = question, args, tuple(sorted(kwargs.items()))
        return answers_of(self).get(key, partial(question, self, *args, **kwargs))

    def begin(
        self: Owner,
        question: Callable[Concatenate[Owner, Arguments], Value],
        /,
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Future[Value]:
        """Return a future of the same answer, which is computed by a thread of its own."""
        key = question, args, tuple(sorted(kwargs.items()))
        return answers_of(self).begin(key, partial(question, self, *args, **kwargs))


def kept(compute: Callable[[Any], Value]) -> Callable[[Any], Value]:
    """Make a method without parameters compute its answer once, when it is first called."""

    @wraps(compute)
    def method(instance: object) -> Value:
        return answers_of(instance).get(compute.__name__, partial(compute, instance))

    return method


class cached_once(Generic[Value]):
    """A property that is computed when first asked for, and then kept."""

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self._method = kept(compute)
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    def __get__(self, instance: object, owner: object = None) -> Value:
        if instance is None:
            return self  # type: ignore[return-value]  # to look at, not to compute with
        value = self._method(instance)
        vars(instance)[self._name] = value  # the next access does not come here
        return value
