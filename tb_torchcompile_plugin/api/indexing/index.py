"""Write the missing digests of a logdir, with as many processes of this machine as there are workers."""

import errno
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple

from tb_torchcompile_plugin.api.joined import unexpected
from tb_torchcompile_plugin.errors import Notice, UserError
from tb_torchcompile_plugin.job.digest.file import is_current, load, save
from tb_torchcompile_plugin.job.digest.make import digest
from tb_torchcompile_plugin.logdir.discovery import SpanFile, WorkerFiles
from tb_torchcompile_plugin.logdir.filesystem import File, is_remote, local_file
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.cache import copies
from tb_torchcompile_plugin.reader.cache.store import is_stored, open_trace
from tb_torchcompile_plugin.reader.compile_data import read_compile_data
from tb_torchcompile_plugin.reader.memo import Memo
from tb_torchcompile_plugin.reader.trace.kineto import Trace, read_trace

POLL_S = 0.5  # between two checks whether the parent still runs


def end_with(parent: int) -> None:
    """End this process when `parent` has gone; a thread watches it.

    Pipes do not show it: processes of one pool hold each other's ends open.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


_compiled = Memo(1)  # the spans of a worker come one after the other


class Order(NamedTuple):
    """One digest to write."""

    worker: WorkerFiles  # whose digest it is, without its spans
    span: SpanFile
    path: str  # where it goes, a path or URL
    there: File | None = None  # the file at a URL
    next_to_trace: File | None = None  # the digest next to the trace, where it is written elsewhere


def write_digest(order: Order, trace: Trace | None = None) -> Literal["written", "there already"]:
    """Write a digest in this process, unless a current one is there. trace: where it was already read.

    Raises UserError, OSError where the digest cannot be written, and whatever a question about the trace raises.
    """
    there = order.there if is_remote(order.path) else local_file(order.path)
    if is_current(there, order.span.file):
        return "there already"
    if is_current(order.next_to_trace, order.span.file) and order.next_to_trace:
        save(load(order.next_to_trace), order.path)
        return "written"
    folder = os.path.dirname(order.path)
    if not is_remote(order.path) and os.path.isdir(folder) and not os.access(folder, os.W_OK):
        # before the trace is read for nothing
        raise UserError(
            "this folder is not writable", file=folder, next_step="Choose another one with --out DIR"
        )
    files = order.worker.compile_files
    read = partial(read_compile_data, order.worker)
    data = _compiled.get(files, read, keep=lambda _: True)[0] if files else None
    profile = Profile(trace or _read(order.span.file), data, order.span)
    save(profile.of(digest), order.path)
    return "written"


def _read(file: File) -> Trace:
    """Read a trace from the cache if possible, without storing it."""
    with copies.local(file, keep=False) as path:
        trace = (open_trace if is_stored(path) else read_trace)(path, workers=1)
    return replace(trace, notices=copies.named(trace.notices, path, file))


_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


class Attempted(NamedTuple):
    """The outcome of an order, on any process or machine."""

    kind: Literal["written", "there already", "failed", "no room"]
    notice: Notice | None = None  # why it failed; of `no room`, which costs all others too, where


def attempt(order: Order) -> Attempted:
    """Execute one order. Never raises an Exception."""
    try:
        return Attempted(write_digest(order))
    except UserError as error:
        return Attempted("failed", error.notice)
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno in _NO_ROOM:
            return Attempted("no room", Notice(order.path, f"there is no disk space for it ({why})"))
        return failed(order, f"its digest cannot be written ({why})", "Choose another folder with --out DIR")
    except MemoryError:
        return failed(order, "there is not enough memory to read it", "Run fewer workers at a time")
    except Exception as error:
        return Attempted("failed", unexpected(order.span.file, error))


def failed(order: Order, problem: str, next_step: str) -> Attempted:
    """Return why the trace of an order has no digest."""
    return Attempted("failed", Notice(order.span.file.path, problem, next_step=next_step))


def in_processes(orders: Iterable[Order], workers: int) -> Generator[tuple[Order, Attempted], None, None]:
    """Carry out orders in processes of this machine; yield each with its outcome as it is done.

    What was being read when a process was killed is read once more, with nothing else at the same time, and is to blame
    if that is killed, too.
    """
    waiting = deque(orders)
    while waiting:
        lost = yield from _until_broken(waiting, workers)
        for order in lost:
            if (yield from _until_broken(deque([order]), 1)):
                problem = "the process that read it was killed, twice, the second time with no other process running"
                next_step = "Check the system log for the reason, such as too little memory"
                yield order, failed(order, problem, next_step)


def _until_broken(
    waiting: deque[Order], workers: int
) -> Generator[tuple[Order, Attempted], None, list[Order]]:
    """Return lost orders, [] at the end. Only as many as are being read are submitted, so that no others are lost."""
    running: dict[futures.Future[Attempted], Order] = {}
    # Fresh processes: this one may have threads, which a fork would not bring along. A pool waits for all of its
    # processes, and each process for the others.
    context, parent = multiprocessing.get_context("spawn"), (os.getpid(),)
    pool = futures.ProcessPoolExecutor(min(workers, len(waiting)), context, end_with, parent)
    with pool, suppress(BrokenProcessPool):
        while waiting or running:
            while waiting and len(running) < workers:
                running[_hand_out(pool, waiting[0])] = waiting[0]
                waiting.popleft()
            for future in futures.wait(running, return_when=futures.FIRST_COMPLETED).done:
                outcome = future.result()
                yield running.pop(future), outcome
    lost = [order for future, order in running.items() if future.exception()]
    yield from ((order, future.result()) for future, order in running.items() if order not in lost)
    return lost


def _hand_out(pool: futures.ProcessPoolExecutor, order: Order) -> futures.Future[Attempted]:
    """Submit an order.

    Processes, which the first one starts, inherit that Ctrl-C is blocked: it is for the parent alone. They would print
    a traceback where it came while they still import. What was begun is finished.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        return pool.submit(attempt, order)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
