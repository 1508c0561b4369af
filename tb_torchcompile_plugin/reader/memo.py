"""What is remembered in memory: each answer is made once, and who asks for it meanwhile waits. For many threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

Value = TypeVar("Value")
Owner = TypeVar("Owner", bound="Memoized")
Arguments = ParamSpec("Arguments")


class Memo:
    """Answers by key; of more than `most` keys the ones asked for longest ago are forgotten."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._answers: dict[Hashable, tuple[object, Future[Any]]] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Memo], tuple[int | None]]:
        """A copy in another process answers anew: threads wait here."""
        return Memo, (self._most,)

    def get(
        self,
        key: Hashable,
        make: Callable[[], Value],
        made_of: object = None,
        keep: Callable[[Value], bool] | None = None,
    ) -> Value:
        """The answer; made here unless somebody is at it or was. Raises what `make` raises or raised.

        made_of: an answer made of something else does not count any more. keep: which answers are remembered; then
        failures are not.
        """
        answer, mine = self._claim(key, made_of)
        if mine:
            self._make(key, answer, make, keep)
        value: Value = answer.result()
        return value

    def begin(self, key: Hashable, make: Callable[[], Value], made_of: object = None) -> Future[Value]:
        """The answer, made on a thread of its own unless somebody is at it or was."""
        answer, mine = self._claim(key, made_of)
        if mine:
            work = partial(self._make, key, answer, make, None)
            threading.Thread(target=work, name="tb-torchcompile-answer", daemon=True).start()
        return answer

    def _claim(self, key: Hashable, made_of: object) -> tuple[Future[Any], bool]:
        """The answer, made or not; and whether nobody is at it yet."""
        with self._lock:
            known = self._answers.pop(key, None)
            mine = known is None or known[0] != made_of
            entry = (made_of, Future()) if known is None or mine else known
            self._answers[key] = entry
            while self._most is not None and len(self._answers) > self._most:
                del self._answers[next(iter(self._answers))]
            return entry[1], mine

    def _make(
        self,
        key: Hashable,
        answer: Future[Any],
        make: Callable[[], Value],
        keep: Callable[[Value], bool] | None,
    ) -> None:
        try:
            value = make()
            kept = keep is None or keep(value)
        except BaseException as error:  # whatever it is, it belongs to whoever asks
            if keep is not None:
                self._forget(key, answer)
            answer.set_exception(error)
            return
        if not kept:
            self._forget(key, answer)
        answer.set_result(value)

    def _forget(self, key: Hashable, answer: Future[Any]) -> None:
        with self._lock:
            if self._answers.get(key, (None, None))[1] is answer:
                del self._answers[key]


def answers_of(instance: object) -> Memo:
    """What is remembered of this object, as long as there is the object."""
    memo: Memo = vars(instance).setdefault("_answers", Memo())
    return memo


def key_of(question: object, *args: object, **kwargs: object) -> Hashable:
    """What an answer is remembered by."""
    return question, args, tuple(sorted(kwargs.items()))


class Memoized:
    """What questions are asked of. A question is a function of it; its answer is kept. Many threads may ask."""

    def of(
        self: Owner,
        question: Callable[Concatenate[Owner, Arguments], Value],
        /,
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Value:
        """The answer to `question`, made when first asked for; who asks meanwhile waits. Raises what it raises."""
        make = partial(question, self, *args, **kwargs)
        return answers_of(self).get(key_of(question, *args, **kwargs), make)

    def begin(
        self: Owner,
        question: Callable[Concatenate[Owner, Arguments], Value],
        /,
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Future[Value]:
        """The same answer, made on a thread of its own unless it is there or somebody is at it."""
        make = partial(question, self, *args, **kwargs)
        return answers_of(self).begin(key_of(question, *args, **kwargs), make)


class once(Generic[Value]):
    """A property that is made when first asked for, and then kept."""

    def __init__(self, make: Callable[[Any], Value]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, instance: None, owner: object = None) -> once[Value]: ...

    @overload
    def __get__(self, instance: object, owner: object = None) -> Value: ...

    def __get__(self, instance: object, owner: object = None) -> once[Value] | Value:
        if instance is None:
            return self
        value = answers_of(instance).get(self._name, partial(self._make, instance))
        vars(instance)[self._name] = value  # the next access does not come here
        return value
