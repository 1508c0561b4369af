"""Read a few traces at a time, the others in a queue, until they are read or nobody wants them any more.

Whoever polls keeps a reading alive. One that nobody has polled for a while, or that was cancelled, stops and gives
way to the next; asking again starts it again. Results are kept, failures are raised once: the cause may be gone by
the next time. The threads are daemons that end with their `ReadQueue`, and so with the process.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, Literal, TypeVar

from tb_torchcompile_plugin.errors import TorchCompilePluginError
from tb_torchcompile_plugin.reader.trace.kineto import BytesRead, Cancelled

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Stage = Literal["queued", "fetching", "reading"]

PLACES = 2  # traces read at the same time; more would only compete for the same cores
PATIENCE_S = 90.0  # a browser lets a hidden page run once a minute only
PATIENCE_IN_QUEUE_S = 10.0  # while others wait for the place
GRACE_S = 1.5  # after a cancel, for another page that shows the same span and polls every 0.3 s
KEPT = 8  # results: each holds its trace open
_SOON_S = 0.01  # between polls of who waits to the end; chosen by hand
_GOODBYE_S = 5.0  # for threads to clean up; reading checks for the end more often


@dataclass(frozen=True)
class Progress(BytesRead):
    """How far a reading is: the bytes of the file that is being fetched or read (`stage`)."""

    stage: Stage = "reading"
    queue_position: int = 0  # 0 while it is read, 1 for the next to be read


def finished(
    poll: Callable[[], Value | Progress], advance: Callable[[Progress], None] = lambda progress: None
) -> Value:
    """Poll until there is an answer. Raises what `poll` raises."""
    while isinstance(answer := poll(), Progress):
        advance(answer)
        time.sleep(_SOON_S)
    return answer


class Reading(Generic[Value]):
    """One result on its way. `progress` is replaced as it moves."""

    def __init__(self, progress: Progress, job: "Callable[[Reading[Value]], Value]", made_of: object) -> None:
        self.progress, self.made_of = progress, made_of
        self.future: Future[Value] = Future()
        self._job: Callable[[Reading[Value]], Value] | None = job
        self.wanted_until = 0.0  # monotonic seconds, if nobody else waits for its place
        self.contested_until = 0.0  # if somebody does
        self.stop: Callable[[], bool] = lambda: False  # what the job asks now and then

    def run(self) -> Value:
        """Do the work, once. The job is let go of, or a kept result would keep its session alive."""
        job, self._job = self._job, None
        if job is None or self.stop():
            raise Cancelled("no request waits for it any more")
        return job(self)

    def advance(self, moved: BytesRead, stage: Stage = "reading") -> None:
        """Take over where the reader is; the file keeps the name that it was asked for by."""
        self.progress = Progress(**vars(replace(moved, file=self.progress.file)), stage=stage)


class ReadQueue(Generic[Key, Value]):
    """A bounded pool of readings by key. Safe to call from many threads."""

    def __init__(self, places: int = PLACES, clock: Callable[[], float] = time.monotonic) -> None:
        self._places, self._clock = places, clock
        # Its lock is reentrant: the collector may call `close` anywhere.
        self._changed = threading.Condition()
        self._known: dict[Key, Reading[Value]] = {}
        self._waiting: deque[tuple[Key, Reading[Value]]] = deque()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False

    def ask(
        self, key: Key, made_of: object, progress: Progress, job: Callable[[Reading[Value]], Value]
    ) -> Reading[Value]:
        """Return the reading of this key, started if there is none; wanted for `PATIENCE_S` more.

        made_of: a result that was computed from something else does not count. One that is on its way does, for files
        that keep changing would otherwise never get to the end.
        """
        with self._changed:
            reading = self._known.pop(key, None)
            if reading is None or (reading.future.done() and reading.made_of != made_of):
                reading = Reading(progress, job, made_of)
                self._enqueue(key, reading)
            self._known[key] = reading  # at the end: the least recently used results go first
            # otherwise long queues would be searched for nothing
            if len(self._known) - len(self._waiting) > KEPT:
                done = [key for key, reading in self._known.items() if reading.future.done()]
                for oldest in done[: max(0, len(done) - KEPT)]:
                    del self._known[oldest]
            now = self._clock()
            reading.wanted_until = now + PATIENCE_S
            reading.contested_until = now + PATIENCE_IN_QUEUE_S
            return reading

    @property
    def is_busy(self) -> bool:
        """Whether something is being read, or waits for that."""
        with self._changed:
            return bool(self._waiting) or self._idle < len(self._threads)

    def progress(self, reading: Reading[Value]) -> Progress:
        """Return where the reading is; while it waits, its position in the queue."""
        with self._changed:
            for position, (_, waiting) in enumerate(self._waiting, 1):
                if waiting is reading:
                    before = reading.progress
                    return Progress(before.file, 0, before.bytes_total, 0, None, "queued", position)
        return reading.progress

    def cancel(self, key: Key) -> None:
        """Stop a reading unless somebody else asks for it within `GRACE_S` seconds."""
        with self._changed:
            if (reading := self._known.get(key)) is not None:
                reading.wanted_until = reading.contested_until = self._clock() + GRACE_S

    def forget(self, key: Key, reading: Reading[Value]) -> None:
        """Do not answer with this one again: its failure has been raised."""
        with self._changed:
            if self._known.get(key) is reading:
                del self._known[key]

    def close(self) -> None:
        """Stop everything, and wait a moment until what runs has cleaned up behind itself."""
        with self._changed:
            self._closed = True
            while self._waiting:
                self._waiting.popleft()[1].future.set_exception(Cancelled("the server is shutting down"))
            self._changed.notify_all()
        deadline = time.monotonic() + _GOODBYE_S
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    def _enqueue(self, key: Key, reading: Reading[Value]) -> None:
        if self._closed:
            raise TorchCompilePluginError("the server is shutting down")
        self._waiting.append((key, reading))
        if self._idle < len(self._waiting) and len(self._threads) < self._places:
            thread = threading.Thread(target=self._work, name="tb-torchcompile-reader", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._changed.notify()

    def _work(self) -> None:
        while (turn := self._next()) is not None:
            key, reading = turn
            reading.stop = partial(self._abandoned, key, reading)
            try:
                reading.future.set_result(reading.run())
            except BaseException as error:  # whatever it is, it belongs to whoever asks
                reading.future.set_exception(error)
            del turn, key, reading  # a thread that waits must not keep the last answer alive

    def _next(self) -> tuple[Key, Reading[Value]] | None:
        with self._changed:
            self._idle += 1
            try:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                return None if self._closed else self._waiting.popleft()
            finally:
                self._idle -= 1

    def _abandoned(self, key: Key, reading: Reading[Value]) -> bool:
        """Whether nobody wants it any more. Then it is forgotten at once: who asks now starts a new one."""
        with self._changed:
            until = reading.contested_until if self._waiting else reading.wanted_until
            gone = self._closed or self._clock() > until
            if gone:
                self.forget(key, reading)
            return gone
