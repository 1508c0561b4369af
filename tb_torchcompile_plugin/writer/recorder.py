"""Listens to torch's structured compile log, live, inside the training process.

One recorder per process, whatever creates it and how often. Taking a record costs microseconds: it is put aside as it
is, and read when a summary is written. In steady state torch writes no records; only the times of steps are noted.
Nothing here raises into training: an exception in the log handler would end the user's compilation, one in
`on_trace_ready` can crash the process.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from tb_torchcompile_plugin.compile_log import summary as summary_file
from tb_torchcompile_plugin.compile_log.log import CompileLog
from tb_torchcompile_plugin.compile_log.record import Record, readable
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.logdir.discovery import summary_name
from tb_torchcompile_plugin.torch_names.graph_breaks import CUDAGRAPH_LOGGER, says_cudagraphs_are_skipped
from tb_torchcompile_plugin.torch_names.records import BACKWARD_METRICS, CUDAGRAPH_SKIP, METRICS
from tb_torchcompile_plugin.writer.cache_transfers import note_cache_transfers, put_cache_transfers
from tb_torchcompile_plugin.writer.cuda_graphs import add_cuda_graphs
from tb_torchcompile_plugin.writer.environment import (
    Counters,
    Times,
    compiling_now,
    default_worker,
    file_names,
    fill_environment,
)
from tb_torchcompile_plugin.writer.log_handlers import Taps
from tb_torchcompile_plugin.writer.recover import KnownObjects, known_now, recover
from tb_torchcompile_plugin.writer.stacks import fill_sources
from tb_torchcompile_plugin.writer.step_notes import StepClock
from tb_torchcompile_plugin.writer.triton_files import TritonFiles, add_winners

logger = logging.getLogger("tb_torchcompile_plugin")

CAPTURES = ("full", "summary")
TRACE_LOGGER = "torch.__trace"
_SILENT = (
    "torch compiled {} and wrote nothing about that to its compile log (logger torch.__trace): what it keeps "
    "by itself is shown, without phases. Leave that logger as torch has set it up"
)
# Payload text that may wait to be read. Beyond it records are read, and their text compressed, as they come.
_PENDING_LIMIT = 64 << 20
# Handlers may be created without end, each with a worker name of its own.
_HANDLERS_REMEMBERED = 16


class Output(NamedTuple):
    """Where summaries go. worker: None for torch's default name."""

    folder: str
    worker: str | None
    capture: str


class _Written(NamedTuple):
    """The last summary of an output: what was known then, and where it lies. path: empty before there is one."""

    taken: int = 0
    steps: int = 0
    path: str = ""
    worker: str = ""


class _Heard(NamedTuple):
    """How far torch's log was heard: records until then, and what torch itself knew."""

    taken: int = 0
    known: KnownObjects = KnownObjects()


class Recorder:
    """The compile records of this process. Use `recorder()` to get it."""

    def __init__(self) -> None:
        takes = {TRACE_LOGGER: self.take, CUDAGRAPH_LOGGER: self._take_cudagraph_skip}
        self._taps = Taps(takes, (TRACE_LOGGER,), self.report)
        self._holders = 0
        self._forever = False
        self._steps = StepClock(self)
        self._triton: TritonFiles | None = None
        self._reset_to_empty()
        atexit.register(self._at_exit)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def _reset_to_empty(self) -> None:
        """The state of a process that has recorded nothing: at first, and in the child of a fork."""
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._pending: deque[tuple[dict[str, Any], str | None, int]] = deque()
        self._pending_size = 0
        self._logs: dict[str, CompileLog] = {}
        self._times = Times()
        self._counters = Counters()
        self._reported: set[str] = set()
        self.taken = 0  # records until now
        self._steps.forget()
        self._started_ns = time.time_ns()
        self._warnings: list[str] = []
        self._known: KnownObjects | None = None  # while nothing listens: what was known when that began
        self._heard = _Heard()
        self._outputs: dict[Output, _Written] = {}
        # (worker, capture) → where handlers write now
        self._lasting: dict[tuple[str | None, str], Output] = {}

    def _check_process(self) -> None:
        """In the child of a fork: forgets what the parent recorded, and goes on listening for itself."""
        if os.getpid() == self._pid:
            return
        captures = list(self._logs)
        self._reset_to_empty()
        self._logs = {capture: _empty_log(capture) for capture in captures}
        self._times.forget_the_past()
        self._counters.forget_the_past()
        self._known = known_now()
        self._heard = _Heard(0, self._known)

    def _after_fork(self) -> None:
        try:
            self._check_process()
        except Exception as error:
            self.report("the child of a fork cannot be recorded", error)

    # -- listening ----------------------------------------------------------------------------------------------

    def listen(self, capture: str, *, forever: bool) -> None:
        """Starts to listen, or goes on. Unless `forever`, `release` ends it. Never raises."""
        try:
            self._check_process()
            self._forever = self._forever or forever
            self._holders += not forever
            self._times.look(after_pause=not self._listens())
            with self._lock:
                if not self._listens():
                    self._catch_up()
                if capture not in self._logs:
                    self._logs[capture] = self._recovered_into(_empty_log(capture), capture)
            silent = not self._listens()
            self._install()
            if silent:
                self._heard = _Heard(self.taken, known_now())
        except Exception as error:
            self.report("compilations cannot be recorded", error)

    def release(self) -> None:
        """Ends one `listen`. With the last one torch stops building records. Never raises."""
        self._holders -= 1
        if self._holders <= 0 and not self._forever:
            try:
                self._taps.remove()
                self._check_process()
                self._known = known_now()
            except Exception as error:
                self.report("compilations cannot be recovered later", error)

    def note_steps(self) -> None:
        """From now on the times of steps are noted, too. Never raises."""
        with self._lock:
            self._steps.listen()

    def keep_triton(self) -> None:
        """From now on summaries say what Triton made of inductor's kernels. Never raises."""
        try:
            self._triton = self._triton or TritonFiles(self.report).listening()
        except Exception as error:
            self.report("what Triton compiles cannot be kept", error)

    def _listens(self) -> bool:
        return self._taps.on(TRACE_LOGGER)

    def _catch_up(self) -> None:
        """Adds what was compiled while nothing listened, as if it had been compiled before recording began."""
        known, self._known = self._known, None
        if known is None:
            return
        self._drain(wait=True)
        for capture, log in self._logs.items():
            self._recovered_into(log, capture, known)

    def _catch_up_with_silence(self) -> None:
        """Adds what torch compiled since the last look, where its log said nothing at all meanwhile."""
        try:
            heard, self._heard = self._heard, _Heard(self.taken, known_now())
            silent = self._heard.known.compiled_since(heard.known) if heard.taken == self.taken else 0
            if silent and self._listens():
                self._known = heard.known
                self._catch_up()
                self.warn(_SILENT.format("1 function" if silent == 1 else f"{silent} functions"))
        except Exception as error:
            self.report("compilations that were not heard cannot be recovered", error)

    def _install(self) -> None:
        import torch  # its own set-up of the logger must come first

        assert torch is not None
        self._taps.install()
        note_cache_transfers()

    def _recovered_into(self, log: CompileLog, capture: str, known: KnownObjects | None = None) -> CompileLog:
        try:
            recovered = recover(source=capture == "full", known=known, known_codes=log.codes)
            log.start_from(recovered)
            self._warnings.extend(text for text in recovered.warnings if text not in self._warnings)
        except Exception as error:
            self.report("compilations from before recording began cannot be recovered", error)
        return log

    def take(self, record: logging.LogRecord) -> None:
        """Puts one record aside. Called by torch, in any thread, under the handler's lock."""
        self._check_process()
        metadata: dict[str, Any] = record.metadata  # type: ignore[attr-defined]  # torch puts it on its records
        self._put_aside(metadata, record.payload, record.thread or 0)  # type: ignore[attr-defined]  # as above
        if METRICS in metadata or BACKWARD_METRICS in metadata:
            self._times.look()

    def _take_cudagraph_skip(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if says_cudagraphs_are_skipped(text):
            self._check_process()
            self._put_aside({CUDAGRAPH_SKIP: {}, **compiling_now()}, text, record.thread or 0)

    def _put_aside(self, metadata: dict[str, Any], payload: str | None, thread: int) -> None:
        self._pending.append((metadata, payload, thread))
        self.taken += 1
        if payload is not None:
            self._pending_size += len(payload)
        if self._pending_size > _PENDING_LIMIT:
            self._drain(wait=False)

    def _drain(self, *, wait: bool) -> None:
        if not self._lock.acquire(blocking=wait):
            return
        try:
            self._pending_size = 0
            names = file_names() if self._pending else {}
            for log in self._logs.values():
                log.files.update(names)
            while self._pending:
                metadata, payload, thread = self._pending.popleft()
                for log in self._logs.values():
                    log.add(Record(metadata, payload, thread))
        finally:
            self._lock.release()

    # -- writing ------------------------------------------------------------------------------------------------

    def add_output(self, output: Output, *, lasting: bool) -> bool:
        """Remembers where a summary belongs, so that interpreter exit can write what came after the last one.

        lasting: nothing drops it, but one like it replaces it: with a folder for each cycle, what is compiled after
        the last one belongs into the newest folder only. False if it was known already. Never raises.
        """
        try:
            self._check_process()
            is_new = output not in self._outputs
            self._outputs.setdefault(output, _Written())
            if lasting:
                self._keep_lasting(output)
            return is_new
        except Exception as error:
            self.report("nothing will be written at interpreter exit", error)
            return False

    def _keep_lasting(self, output: Output) -> None:
        kind = (output.worker, output.capture)
        older = [self._lasting.pop(kind)] if kind in self._lasting else []
        self._lasting[kind] = output
        if len(self._lasting) > _HANDLERS_REMEMBERED:
            older.append(self._lasting.pop(next(iter(self._lasting))))
        for other in older:
            if other != output:
                self._outputs.pop(other, None)

    def drop_output(self, output: Output) -> None:
        """Ends what `add_output` began, unless a handler writes there too."""
        if output not in self._lasting.values():
            self._outputs.pop(output, None)

    def summary(self, capture: str) -> CompileSummary:
        """All that is known now. `write` is the way that never raises."""
        self._check_process()
        self._drain(wait=True)
        with self._lock:
            self._catch_up_with_silence()
            summary = (self._logs.get(capture) or _empty_log(capture)).summary()
        environment, source = summary.environment, capture == "full"
        environment.capture = capture
        environment.recording_start_ns, environment.written_ns = self._started_ns, time.time_ns()
        self._add("the environment", lambda: fill_environment(environment))
        self._add("torch's times", lambda: self._times.put(summary))
        self._add("the times of steps", lambda: self._steps.put(summary))
        self._add("what was saved and loaded of caches", lambda: put_cache_transfers(summary))
        self._add("torch's counters", lambda: self._counters.put(summary, source=source))
        self._add("the winners of autotuning", lambda: add_winners(summary))
        if triton := self._triton:
            self._add("Triton's files", lambda: triton.put(summary, texts=source))
        self._add("CUDA graphs", lambda: add_cuda_graphs(summary, source=source))
        if source:
            self._add("the lines of the program", lambda: fill_sources(summary))
        summary.warnings.extend(self._warnings)
        return summary

    def _add(self, what: str, add: Callable[[], None]) -> None:
        """A part of a summary, which may fail by itself."""
        try:
            add()
        except Exception as error:
            self.report(f"{what} cannot be read", error)

    def write(self, output: Output, time_ns: int, stem: str | None = None) -> str | None:
        """Writes `{worker}.{time_ns}.pt.compile.pb`; returns its path, or None if that failed. Never raises.

        stem: `{folder}/{worker}` of the trace that it belongs to. A worker name may hold folders, as with torch.
        """
        try:
            self._check_process()
            stem = stem or os.path.join(output.folder, output.worker or default_worker())
            folder, worker = os.path.split(stem)
            os.makedirs(folder or ".", exist_ok=True)
            path = os.path.join(folder, summary_name(worker, time_ns))
            self._save(output, path, worker)
            return path
        except Exception as error:
            self.report("the compile summary cannot be written", error, output.folder)
            return None

    def _save(self, output: Output, path: str, worker: str) -> None:
        written = _Written(self.taken, self._steps.unrecorded, path, worker)
        summary = self.summary(output.capture)
        summary.environment.worker = readable(worker)
        summary_file.save(summary, path)
        if output in self._outputs:
            self._outputs[output] = written

    def _at_exit(self) -> None:
        """Writes what was compiled after the last summary. Steps alone go into that file, if it is still there."""
        try:
            self._check_process()
            for output, last in list(self._outputs.items()):
                if self.taken > last.taken:
                    self.write(output, time.time_ns())
                elif self._steps.unrecorded > last.steps and os.path.exists(last.path):
                    self._save(output, last.path, last.worker)
        except Exception as error:
            self.report("the last compile summary cannot be written", error)

    def report(self, problem: str, error: BaseException, place: str = "") -> None:
        """Says once for each kind of problem what went wrong, and where it did so first. Never raises."""
        try:
            what = f"{problem}: {type(error).__name__}"
            if what not in self._reported:
                self._reported.add(what)
                where = f"{problem} ({place})" if place else problem
                _say(f"{where}: {error}. Training goes on; this is said only once.")
                logger.debug("%s", problem, exc_info=error)
        except Exception:  # a broken logging set-up is the user's, and none of our business
            pass

    def warn(self, text: str) -> None:
        """Says once what the summary says, too. Never raises."""
        try:
            if text not in self._warnings:
                self._warnings.append(text)
                _say(text)
        except Exception:  # as above
            pass


def _say(text: str) -> None:
    """Also where `logging.config` has disabled our logger, as it does with all that it does not name."""
    if logger.disabled:
        print(text, file=sys.stderr)
    else:
        logger.warning("%s", text)


def _empty_log(capture: str) -> CompileLog:
    return CompileLog(source=capture == "full", payloads=capture == "full")


_recorder: Recorder | None = None
_creating = threading.Lock()


def recorder() -> Recorder:
    """The one recorder of this process."""
    global _recorder
    with _creating:
        if _recorder is None:
            _recorder = Recorder()
    return _recorder


def checked_capture(capture: str) -> str:
    """`capture`, if it is a known one. Raises ValueError: a misspelt word must not store source code."""
    if capture not in CAPTURES:
        raise ValueError(f"capture must be one of {CAPTURES}, not {capture!r}")
    return capture
