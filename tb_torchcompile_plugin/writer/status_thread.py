"""Keep a status file while torch compiles: what, since when, in which phase.

A thread that exists only while something compiles reads the records once a second, writes the file, and calls the
program's own callback: a hanging disk never blocks a compilation. In steady state no record starts it.
"""

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from tb_torchcompile_plugin.compile_log.log import CompileLog
from tb_torchcompile_plugin.logdir.compile_status import MAX_TEXT, CompileStatus, host_name
from tb_torchcompile_plugin.logdir.discovery import status_name
from tb_torchcompile_plugin.logdir.filesystem import write_atomically
from tb_torchcompile_plugin.torch_names import records

INTERVAL_S = 1.0  # between updates; what compiles faster has no file
# Without any record: what crashed may leave marks without an end. Max-autotune can be silent for minutes.
_MAX_SILENT_S = 3600.0
_END_S = 0.05  # that training waits for the thread to end: its callback or its disk may hang


class StatusThread:
    """The status of this process. There is one."""

    def __init__(
        self,
        newest_stem: Callable[[], str | None],
        read_log: Callable[[Callable[[CompileLog], CompileStatus | None]], CompileStatus | None],
        taken: Callable[[], int],
    ) -> None:
        """Take methods of the recorder. taken: returns the number of records until now."""
        self._newest_stem, self._read_log, self._taken = newest_stem, read_log, taken
        self.on_progress: Callable[[str], None] | None = None
        self.reset()
        # No fork while the thread runs: the child of one with threads gets their locks, and Python warns.
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=lambda: self.stop(remove=False))

    def reset(self) -> None:
        """Forget the thread: at first, and in the child of a fork, which must not write its parent's file."""
        # Held for a few instructions, never while reading or writing. A signal handler may call `stop` meanwhile.
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._end, self._path = threading.Lock(), ""  # released to end it; its file
        self._state: tuple[object, ...] = ()  # that the callback was last called with
        self._began_ns = 0  # the current compilation
        # When a compilation began (ns), and the jobs of the compile workers that were done before.
        self._jobs = 0, 0

    def begin(self) -> None:
        """Start the thread if it does not run; takes less than a microsecond otherwise. Called for each record."""
        with self._lock:
            is_running = self._thread is not None and self._thread.is_alive()
            stem = None if is_running else self._newest_stem()
            if is_running or not (stem or self.on_progress):
                return
            path, end = status_name(stem, os.getpid()) if stem else "", threading.Lock()
            end.acquire()
            thread = threading.Thread(
                target=self._run, args=(end, path), name="tb_torchcompile status", daemon=True
            )
            with contextlib.suppress(RuntimeError):  # no more threads, or the interpreter ends
                thread.start()
                self._thread, self._end, self._path = thread, end, path

    def stop(self, *, remove: bool = True) -> None:
        """End the thread, which removes its file; with `remove` do so here if it does not end in a moment."""
        with self._lock:
            thread, end, path, self._thread = self._thread, self._end, self._path, None
        if thread is None:
            return
        end.release()
        with contextlib.suppress(RuntimeError):  # the callback called this
            thread.join(_END_S)
        if remove and thread.is_alive():
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _run(self, end: threading.Lock, path: str) -> None:
        taken, silent = 0, 0
        # Also where this module's names are gone, as the interpreter ends.
        with contextlib.suppress(BaseException):
            try:
                while not end.acquire(timeout=INTERVAL_S):
                    silent, taken = 0 if self._taken() > taken else silent + 1, self._taken()
                    status = self._read_log(self._status)
                    if status is not None and silent * INTERVAL_S < _MAX_SILENT_S and end.locked():
                        self._publish(status, path)
                    elif self._has_ended(taken):
                        break
            finally:
                os.unlink(path)

    def _has_ended(self, taken: int) -> bool:
        """Whether no record was taken meanwhile; then the next one starts another thread."""
        with self._lock:
            if self._taken() == taken and self._thread is threading.current_thread():
                self._thread = None
            return self._thread is None

    def _publish(self, status: CompileStatus, path: str) -> None:
        if path:
            with contextlib.suppress(OSError), write_atomically(path) as file:
                file.write(json.dumps(asdict(status), ensure_ascii=False).encode())
        state = self._began_ns, *status.state  # the same id may be compiled again
        if self.on_progress is not None and state != self._state:
            self._state = state
            with contextlib.suppress(BaseException):
                self.on_progress(f"compiling {status.in_words()}")

    def _status(self, log: CompileLog) -> CompileStatus | None:
        spans, frame, compilations = log.compiling()
        if not spans:
            return None
        first, last, now_s = spans[0].row, spans[-1], time.time()
        self._began_ns = first.start_ns
        done, kernels = self._kernels()
        is_backward = any(span.row.name in records.COMPILING_BACKWARD for span in spans)
        stack, rank = frame.forward_row().stack if frame else [], os.environ.get("RANK", "")
        place = f"{stack[-1].function} ({os.path.basename(stack[-1].file)}:{stack[-1].line})" if stack else ""
        tuned = last.row.kernel or records.tuned_operator(last.row.name)
        return CompileStatus(
            host=host_name(),
            pid=os.getpid(),
            rank=int(rank) if rank.isdecimal() else None,
            updated_s=now_s,
            seconds=round(max(0.0, now_s - first.start_ns / 1e9), 1),
            compilations=compilations,
            compile_id=last.row.key.compile_id,
            frame=place[-MAX_TEXT:],
            direction="backward" if is_backward else "forward",
            phase=last.phase,
            attempt=1 + ((frame and frame.attempt) or 0),
            kernels_done=done,
            kernels=kernels,
            autotuning=tuned[-MAX_TEXT:] if last.phase == "autotune" else "",
        )

    def _kernels(self) -> tuple[int | None, int | None]:
        """Return how many Triton kernels of this compilation are done, and how many there are until now."""
        with contextlib.suppress(Exception):  # another torch, or no compile workers
            module: Any = sys.modules[records.COMPILE_WORKERS]
            # A job that only shows that the workers are there.
            ready = getattr(module.AsyncCompile, "_ready_future", None)
            (pool,) = module._pool_set
            # pending_jobs from torch 2.15 on
            jobs = pool.pending_jobs if hasattr(pool, "pending_jobs") else pool.pending_futures
            pending = sum(getattr(job, "future", job) is not ready for job in list(jobs.values()))
            submitted = int(repr(pool.job_id_count).strip("count()")) - (ready is not None)
            if self._jobs[0] != self._began_ns:
                self._jobs = self._began_ns, submitted - pending
            if (kernels := submitted - self._jobs[1]) > 0:
                return kernels - pending, kernels
        return None, None
