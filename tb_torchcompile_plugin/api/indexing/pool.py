"""Orders carried out by processes of this machine, as many at a time as there are workers."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress

from tb_torchcompile_plugin.api.indexing.attempt import Attempted, attempt, failed
from tb_torchcompile_plugin.api.indexing.orphan import end_with
from tb_torchcompile_plugin.api.indexing.write import Order


def in_processes(orders: Iterable[Order], workers: int) -> Generator[tuple[Order, Attempted], None, None]:
    """Each with its outcome, as they are done. What was being read when a process was killed is read once more, with
    nothing else beside it, and is to blame if that is killed, too."""
    waiting = deque(orders)
    while waiting:
        lost = yield from _until_broken(waiting, workers)
        for order in lost:
            yield order, _alone(order)


def _until_broken(
    waiting: deque[Order], workers: int
) -> Generator[tuple[Order, Attempted], None, list[Order]]:
    """Returns what was lost, [] at the end. No more is handed out than is being read, so that nothing else is."""
    running: dict[Future[Attempted], Order] = {}
    with _pool(min(workers, len(waiting))) as pool, suppress(BrokenProcessPool):
        while waiting or running:
            while waiting and len(running) < workers:
                running[_hand_out(pool, waiting[0])] = waiting[0]
                waiting.popleft()
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                outcome = future.result()
                yield running.pop(future), outcome
    lost = [order for future, order in running.items() if future.exception()]
    yield from ((order, future.result()) for future, order in running.items() if order not in lost)
    return lost


def _alone(order: Order) -> Attempted:
    with _pool(1) as pool:
        try:
            return _hand_out(pool, order).result()
        except BrokenProcessPool:
            return failed(
                order,
                "the process that read it was killed, and so was a second one that read it alone",
                "Look for a reason in the system's log: is there enough memory for it?",
            )


def _hand_out(pool: ProcessPoolExecutor, order: Order) -> Future[Attempted]:
    """Processes are started by the first one. They inherit that Ctrl-C waits, which is for the parent alone: they would
    say a traceback where it came while they still import. What was begun is finished."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        return pool.submit(attempt, order)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _pool(workers: int) -> ProcessPoolExecutor:
    """Processes that begin anew: this one may have threads, which a fork would not bring along."""
    context = multiprocessing.get_context("spawn")
    # A pool waits for all of its processes, and each of them for the others.
    return ProcessPoolExecutor(workers, context, initializer=end_with, initargs=(os.getpid(),))
