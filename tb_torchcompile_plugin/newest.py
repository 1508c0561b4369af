"""What was made of files that may change, remembered until they do, and made once however many ask for it at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(eq=False)
class _Made(Generic[Value]):
    made_of: object
    value: Future[Value] = field(default_factory=Future)


class Newest(Generic[Key, Value]):
    """The newest value of each key, of the `kept` keys that were asked for last. Safe to call from many threads."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._known: dict[Key, _Made[Value]] = {}
        self._lock = threading.Lock()

    def get(
        self, key: Key, made_of: object, make: Callable[[], Value], keep: Callable[[Value], bool]
    ) -> Value:
        """The value for `made_of`: who comes while it is made waits for it. It is remembered if `keep` says so."""
        with self._lock:
            known = self._known.pop(key, None)
            mine = known is None or known.made_of != made_of
            entry: _Made[Value] = _Made(made_of) if known is None or mine else known
            self._known[key] = entry
            while len(self._known) > self._kept:
                del self._known[next(iter(self._known))]
        return self._make(key, entry, make, keep) if mine else entry.value.result()

    def _make(
        self, key: Key, entry: _Made[Value], make: Callable[[], Value], keep: Callable[[Value], bool]
    ) -> Value:
        try:
            value = make()
            remember = keep(value)
        except BaseException as error:
            self._forget(key, entry)
            entry.value.set_exception(error)
            raise
        if not remember:
            self._forget(key, entry)
        entry.value.set_result(value)
        return value

    def _forget(self, key: Key, entry: _Made[Value]) -> None:
        with self._lock:
            if self._known.get(key) is entry:
                del self._known[key]
