"""Sample which line of the program each thread runs, while a profiler records.

A daemon thread reads the frames of all Python threads, every 12 to 30 ms: it measures what a sample costs the program,
and takes 1.5 % of the time at most. Meanwhile Python's switch interval is shorter: otherwise pure Python keeps the
interpreter lock for 5 ms, and shorter gaps between operators are never sampled. Nothing here raises or prints.
"""

import contextlib
import functools
import gc
import itertools
import os
import random
import sys
import sysconfig
import threading
import time
import weakref
from array import array
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from tb_torchcompile_plugin.compile_log.record import readable
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary, SampledLine
from tb_torchcompile_plugin.torch_names import patterns
from tb_torchcompile_plugin.torch_names.python_frames import is_user_file

INTERVAL_NS = 2_000_000  # the shortest
_FIRST_COST_NS = 200_000  # of a sample, before any. Measured on busy CPUs: 70 to 300 µs of the program's time
_COST_SHARE = 64  # a sample costs at most one part in so many of the time
# The longest wait for a processor and the interpreter lock that counts as cost: twice, as the program waits for the
# lock afterwards. Longer waits are for pure Python, which goes on meanwhile.
_MAX_HANDOVER_NS = 200_000
SWITCH_INTERVAL_S = 0.0002
# Where several threads run Python, they also take turns that often. With two busy threads and 100 samples a second
# one noisy run had 7 % more CPU time at 0.2 ms, and 2 % at 1 ms and at Python's own 5 ms.
SHARED_SWITCH_INTERVAL_S = 0.001
MAX_ROWS = 1 << 16  # 26 bytes each; with more, half of the samples go, and half as many are taken
_KEPT_ROWS = 1 << 12  # of the recordings before: each cycle writes them again, in about 30 kB
_MAX_LINES = 1 << 14  # a program may generate code without end
_NO_CALLER = -1
_MAX_CALLERS = 32  # lines of the program in a stack: the innermost ones
# Whether a thread whose innermost frame is in this file most likely waits. The last one is inductor's.
_is_waiting = functools.lru_cache(_MAX_LINES)(
    patterns.contains(r"\b(?:threading|selectors|thread|connection|socket|subprocess|subproc_pool)\.py$")
)
# What only calls on: the function behind it says more.
_is_wrapper = functools.lru_cache(_MAX_LINES)(
    patterns.contains(
        r"\btorch[\\/](?:nn[\\/]modules[\\/]module|_dynamo[\\/]eval_frame|utils[\\/]_contextlib|amp[\\/]autocast_mode)\.py$"
        r"|\b(?:contextlib|functools)\.py$"
    )
)
_PYTHON = sys.version_info[:2]
# Identities with their threads. `threading.enumerate` and the context manager that held the garbage collector took
# 60 of the 100 µs of a sample.
_ACTIVE: dict[int, threading.Thread] = getattr(threading, "_active", {})
_END_S = 0.1  # that a profiler waits for the thread to end; it needs one sample


class _Rows:
    """Samples as columns. Those of one thread that follow one another on one line are one row."""

    def __init__(self) -> None:
        # From the sample before the first one to the last one.
        self.start_ns, self.end_ns = array("q"), array("q")
        self.samples, self.thread, self.line = array("I"), array("H"), array("I")

    def __len__(self) -> int:
        return len(self.start_ns)

    def columns(self) -> tuple["array[int]", ...]:
        return self.start_ns, self.end_ns, self.samples, self.thread, self.line

    def add(self, start_ns: int, end_ns: int, thread: int, line: int) -> int:
        """Add a row of one sample; return its index."""
        for column, value in zip(self.columns(), (start_ns, end_ns, 1, thread, line)):
            column.append(value)
        return len(self) - 1

    def thinned(self) -> "_Rows":
        """Return half of the samples, each for twice the time.

        They are chosen at random: every second one could always be the same of two lines in turn.
        """
        rows, choice = _Rows(), random.Random(0)
        for start_ns, end_ns, samples, thread, line in zip(*self.columns()):
            if kept := (samples + choice.getrandbits(1)) // 2:
                ns = (end_ns - start_ns) * 2 * kept // samples
                rows.samples[rows.add(end_ns - ns, end_ns, thread, line)] = kept
        return rows


class Sampler:
    """The samples of this process. There is one, and at most one profiler records at a time."""

    def __init__(self) -> None:
        self.enabled = False  # from the next recording on
        self._thread: threading.Thread | None = None  # while it runs
        self._end = threading.Lock()  # released to end it
        self._switch_interval: tuple[float, float] | None = None  # the program's, and the one that is set
        self.forget()
        if hasattr(os, "register_at_fork"):
            # No fork while the thread runs: the child of one with threads gets their locks, and Python warns.
            os.register_at_fork(before=self._stop, after_in_parent=self._resume)

    def forget(self) -> None:
        """Forget all samples, and that a profiler records: the child of a fork has neither."""
        self._owner: weakref.ref[Any] | None = None  # the profiler that records
        self._rows = _Rows()
        self._lines: dict[tuple[int, int, int, int], int] = {}
        # Of `_lines`, with the number of the caller's line; keeps their ids valid.
        self._codes: list[tuple[CodeType, int, CodeType | None, int]] = []
        self._threads: dict[int, int] = {}  # native id: index
        self._left_out = 0  # samples of threads that run no line of the program, or have no known id
        self._last: dict[int, int] = {}  # row of each thread at the sample before
        self._interval_ns = INTERVAL_NS
        self._switching = threading.Lock()

    def follow(self, prof: Any, *, records: bool) -> None:
        """Sample from now on if this profiler records. If it no longer does, stop."""
        owner = self._owner() if self._owner else None
        if owner is None and records and self.enabled and not prof.with_stack:
            self._stop()  # of a profiler that is gone
            self._drop_old()
            self._owner, self._interval_ns = weakref.ref(prof), INTERVAL_NS
            self._resume()
        elif owner is prof and not records:
            self.stop()

    def _resume(self) -> None:
        """Start the thread if a profiler records. Never raises an Exception."""
        # In a build without the lock other threads' frames must not be read: that can crash.
        if self._owner is None or not getattr(sys, "_is_gil_enabled", lambda: True)():
            return
        with contextlib.suppress(Exception):
            self._last, self._end = {}, threading.Lock()
            self._end.acquire()
            self._thread = threading.Thread(
                target=self._run, args=(self._end,), name="tb_torchcompile sampler", daemon=True
            )
            try:
                self._set_switch_interval(SWITCH_INTERVAL_S)
                self._thread.start()
            except BaseException:
                self._stop()
                raise

    def stop(self) -> None:
        """End sampling. Never raises an Exception."""
        self._owner = None
        self._stop()

    def _stop(self) -> None:
        with contextlib.suppress(Exception):
            thread, self._thread = self._thread, None
            self._restore_switch_interval()
            if thread is not None:
                self._end.release()
                thread.join(_END_S)

    def _set_switch_interval(self, seconds: float) -> None:
        """Set it, unless the program's is shorter or was changed meanwhile."""
        now = sys.getswitchinterval()
        before, ours = self._switch_interval or (now, now)
        if now == ours and before > seconds:
            sys.setswitchinterval(seconds)
            self._switch_interval = before, sys.getswitchinterval()

    def _restore_switch_interval(self) -> None:
        """Set the program's own, unless it was changed meanwhile."""
        with self._switching:
            saved, self._switch_interval = self._switch_interval, None
            if saved and sys.getswitchinterval() == saved[1]:
                # Python cuts off what is beyond a whole µs; of some values rounding would lose one.
                sys.setswitchinterval(saved[0] + 5e-7)

    def _run(self, end: threading.Lock) -> None:
        thread, jitter = threading.current_thread(), random.Random(0)
        # Also where this module's names are gone, as the interpreter ends.
        with contextlib.suppress(BaseException):
            try:
                before, cost_ns, handover_ns = time.time_ns(), _FIRST_COST_NS, _MAX_HANDOVER_NS
                while True:
                    # Not at even distances: these could always be at the same places of steps.
                    interval_ns = max(self._interval_ns, _COST_SHARE * cost_ns) * (0.5 + jitter.random())
                    asked_ns = time.monotonic_ns()
                    if end.acquire(timeout=interval_ns / 1e9) or not (self._owner and self._owner()):
                        break
                    now, used_ns = time.time_ns(), time.thread_time_ns()
                    late_ns = time.monotonic_ns() - asked_ns - int(interval_ns)
                    if now > before:
                        _without_collection(self._sample, before, now)
                    else:  # the clock was set back: no row goes on from before
                        self._last = {}
                    # About the shortest of the last ones.
                    handover_ns = min(max(late_ns, 1), handover_ns * 9 // 8 + 1, _MAX_HANDOVER_NS)
                    before = now
                    # Slowly: of a new line more is noted.
                    cost_ns += (2 * handover_ns + time.thread_time_ns() - used_ns - cost_ns) // 8
            finally:
                if self._thread is thread:
                    self._restore_switch_interval()

    def _sample(self, before: int, now: int) -> None:
        """Add the line of each thread, for the time since the previous sample.

        A thread in C code that keeps the interpreter lock delays the sample until that code returns.
        """
        own, last, rows = threading.get_ident(), self._last, self._rows
        self._last, busy = {}, 0
        for ident, frame in sys._current_frames().items():
            if ident == own:
                continue
            busy += not _is_waiting(frame.f_code.co_filename)
            line, thread = self._line_of(frame), _ACTIVE.get(ident)
            number = thread.native_id if thread else None
            if line is None or number is None:
                self._left_out += 1
                continue
            index = self._threads.setdefault(number, len(self._threads))
            if (row := last.get(number, -1)) >= 0 and rows.line[row] == line:
                rows.end_ns[row] = now
                rows.samples[row] += 1
            else:
                row = rows.add(before, now, index, line)
            self._last[number] = row
        with self._switching:
            if self._switch_interval and self._thread is threading.current_thread():
                self._set_switch_interval(SHARED_SWITCH_INTERVAL_S if busy > 1 else SWITCH_INTERVAL_S)
        if len(rows) >= MAX_ROWS:
            self._rows, self._last = rows.thinned(), {}
            self._interval_ns *= 2

    def _line_of(self, frame: FrameType | None) -> int | None:
        """Return the number of the program's innermost line, with the library's function that it calls."""
        called, lines, codes = None, list[tuple[FrameType, CodeType | None]](), set[int]()
        while frame is not None and len(lines) < _MAX_CALLERS:
            if _is_users(frame.f_code.co_filename):
                if id(frame.f_code) not in codes:  # of a recursion the innermost call
                    lines.append((frame, called))
                    codes.add(id(frame.f_code))
                called = None
            elif called is None or not _is_wrapper(frame.f_code.co_filename):
                called = frame.f_code
            frame = frame.f_back
        number, caller = None, _NO_CALLER
        for frame, called in reversed(lines):
            number = self._number_of(frame, called, caller)
            caller = _NO_CALLER if number is None else number
        return number

    def _number_of(self, frame: FrameType, called: CodeType | None, caller: int) -> int | None:
        # By identity: the hash of code is computed from all that it holds.
        key = id(frame.f_code), frame.f_lasti, id(called), caller
        if (number := self._lines.get(key)) is None and len(self._codes) < _MAX_LINES:
            number = self._lines[key] = len(self._codes)
            self._codes.append((frame.f_code, frame.f_lineno or 0, called, caller))
        return number

    def _drop_old(self) -> None:
        """Keep the last rows, and the lines that they need."""
        for column in self._rows.columns():
            del column[:-_KEPT_ROWS]
        needed = set[int]()
        for number in self._rows.line:
            while number != _NO_CALLER and number not in needed:
                needed.add(number)
                number = self._codes[number][-1]
        kept = {before: now for now, before in enumerate(sorted(needed))} | {_NO_CALLER: _NO_CALLER}
        keys = {number: key for key, number in self._lines.items() if number in needed}
        self._lines = {(*keys[before][:3], kept[keys[before][3]]): kept[before] for before in sorted(needed)}
        self._codes = [(*self._codes[before][:3], kept[self._codes[before][3]]) for before in sorted(needed)]
        self._rows.line = array("I", (kept[number] for number in self._rows.line))

    def put(self, summary: CompileSummary, *, source: bool) -> None:
        """Add all samples; without `source` file and line only."""
        if not self._rows and not self._left_out:
            return
        samples, rows = summary.python_samples, self._rows
        samples.left_out = self._left_out
        samples.threads.extend(self._threads)
        samples.lines.extend(_line(*codes, source=source) for codes in self._codes)
        # The first value, and how much each one is beyond the one before.
        beginnings = itertools.pairwise(itertools.chain((0,), rows.start_ns))
        samples.start_ns.extend(start - before for before, start in beginnings)
        samples.duration_ns.extend(end - start for start, end in zip(rows.start_ns, rows.end_ns))
        samples.samples.extend(rows.samples)
        samples.thread.extend(rows.thread)
        samples.line.extend(rows.line)


def _without_collection(sample: Callable[[int, int], None], before: int, now: int) -> None:
    """Keep the garbage collector from running while frames of other threads are looked at, in Python 3.11.

    Each gets an object when it is first looked at. In 3.11 making one may collect garbage; where a finalizer then lets
    another thread run that returns from the frame, the object points to freed memory, and the process crashes. Later
    versions collect between two instructions only, earlier ones have an object for each frame.
    """
    threshold = gc.get_threshold()[0] if _PYTHON == (3, 11) else 0
    try:
        if threshold:
            gc.set_threshold(0)
        sample(before, now)
    finally:
        if threshold and gc.get_threshold()[0] == 0:  # unless the program set it meanwhile
            gc.set_threshold(threshold)


def _line(code: CodeType, number: int, called: CodeType | None, caller: int, *, source: bool) -> SampledLine:
    line = SampledLine(file=readable(code.co_filename), line=number, caller=caller + 1)
    if source:
        line.function = readable(code.co_name)
        if called is not None:
            file = _as_in_traces(called.co_filename)
            line.called = readable(f"{file}({called.co_firstlineno}): {called.co_name}")
    return line


def _as_in_traces(file: str) -> str:
    """Cut off the folder that a module was imported from, as the profiler does in its stacks."""
    folders = (os.path.join(folder, "") for folder in sys.path if folder and file.startswith(folder))
    return file.removeprefix(max(folders, key=len, default=""))


# Cached in C: each frame of a sample is looked up.
@functools.lru_cache(_MAX_LINES)
def _is_users(file: str) -> bool:
    return is_user_file(file) and not file.startswith(_library_folders())


@functools.cache
def _library_folders() -> tuple[str, ...]:
    """Return the folders of Python, torch and this package, wherever they are installed."""
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    packages = [sys.modules["tb_torchcompile_plugin"].__file__, torch]
    folders = [os.path.dirname(file) for file in packages if file]
    return tuple(os.path.join(folder, "") for folder in (*folders, sysconfig.get_path("stdlib")))
