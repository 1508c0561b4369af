"""Record torch's structured compile log, live, inside the training process.

One recorder per process, whatever creates it and how often. Taking a record costs microseconds: it is queued as it is,
and read when a summary is written. In steady state torch writes no records; only the times of steps are noted.
Nothing here raises into training: an exception in the log handler would end the user's compilation, one in
`on_trace_ready` can crash the process.
"""

import atexit
import contextlib
import linecache
import logging
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tb_torchcompile_plugin.compile_log import summary as summary_file
from tb_torchcompile_plugin.compile_log.log import CompileLog
from tb_torchcompile_plugin.compile_log.record import Record, readable
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.logdir.compile_status import CompileStatus
from tb_torchcompile_plugin.logdir.discovery import summary_name
from tb_torchcompile_plugin.torch_names import graph_breaks, records
from tb_torchcompile_plugin.writer import compiler_calls
from tb_torchcompile_plugin.writer.environment import (
    Times,
    compiling_now,
    cudagraph_skips,
    file_names,
    fill_environment,
    module_compiled_now,
)
from tb_torchcompile_plugin.writer.log_handlers import LogHandlers
from tb_torchcompile_plugin.writer.recover import (
    TorchState,
    add_autotune_choices,
    add_cuda_graphs,
    recover,
    torch_state,
)
from tb_torchcompile_plugin.writer.sampler import Sampler
from tb_torchcompile_plugin.writer.status_thread import StatusThread
from tb_torchcompile_plugin.writer.step_notes import StepClock

logger = logging.getLogger("tb_torchcompile_plugin")

CAPTURES = ("full", "summary")
TRACE_LOGGER = "torch.__trace"
_SILENT = (
    "torch compiled {} but wrote no records to its compile log (logger torch.__trace): only data from torch's "
    "memory is shown, without phases. Do not reconfigure that logger"
)
# Bytes of payload text that may be pending; beyond it records are read, and their text compressed, as they arrive.
_MAX_PENDING_BYTES = 64 << 20
_MAX_HANDLERS = 16  # a program may create handlers without end, each with a worker name of its own


class Output(NamedTuple):
    """Where summaries are written."""

    folder: str
    worker: str | None  # None for torch's default name
    capture: str

    @property
    def stem(self) -> str:
        """Return `{folder}/{worker}`."""
        default = f"{socket.gethostname()}_{os.getpid()}"  # as torch names it
        return os.path.join(self.folder, self.worker or default)


class _Written(NamedTuple):
    """The last summary of an output."""

    taken: int = 0  # records in it
    steps: int = 0  # unprofiled steps in it
    path: str = ""  # empty before it is written
    worker: str = ""


class Recorder:
    """The compile records of this process. Use `recorder()` to get it."""

    def __init__(self) -> None:
        skips = graph_breaks.CUDAGRAPH_LOGGER, graph_breaks.CUDAGRAPH_LIMIT_LOGGER
        takes = dict.fromkeys(skips, self._take_cudagraph_skip)
        takes |= {TRACE_LOGGER: self.take, graph_breaks.ACCURACY_LOGGER: compiler_calls.note_accuracy_failure}
        self._log_handlers = LogHandlers(takes, (TRACE_LOGGER,), self.report)
        self._holders = 0
        self.sampler = Sampler()
        self._steps = StepClock(self, self.sampler)
        self.status = StatusThread(self.newest_stem, self.read_log, lambda: self.taken)
        self._reset_to_empty()
        atexit.register(self._at_exit)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def _reset_to_empty(self) -> None:
        """Set the state of a process that has recorded nothing: at first, and in the child of a fork."""
        self._lock = threading.RLock()
        self._pending: deque[Record] = deque()
        self._pending_size = 0
        self._logs: dict[str, CompileLog] = {}
        self._times = Times()
        self._inherits_code = False  # from the parent of a fork: an empty summary would deny it
        self._inherited_skips = 0  # of CUDA graphs, that the child of a fork has from its parent
        self._reported: set[str] = set()
        self.taken = 0  # records until now
        self._steps.reset()
        self._started_ns = time.time_ns()
        self._warnings: list[str] = []
        # When the records were last known to be complete: their number, and what torch kept.
        self._checked: tuple[int, TorchState] | None = None
        self._outputs: dict[Output, _Written] = {}
        self._lasting: list[Output] = []  # of handlers, one per worker name and capture

    def _after_fork(self) -> None:
        """In the child: forget what the parent recorded, and go on recording."""
        with self.reporting("a forked child cannot be recorded"):
            captures = list(self._logs)
            self.status.reset()
            self._reset_to_empty()
            self._logs = {capture: _empty_log(capture) for capture in captures}
            self._times.forget_parent()
            compiler_calls.forget_parent()
            self._inherited_skips = cudagraph_skips() or 0
            self._checked = 0, torch_state()
            self._inherits_code = bool(self._checked[1].metrics)

    def start(self, capture: str) -> None:
        """Start recording, or go on, until `release` is called as often. Never raises."""
        with self.reporting("compilations cannot be recorded"):
            self._holders += 1
            was_recording = self._log_handlers.is_installed(TRACE_LOGGER)
            self._times.collect(after_pause=not was_recording)
            with self._lock:
                if not was_recording:
                    self._catch_up()
                if capture not in self._logs:
                    self._logs[capture] = _empty_log(capture)
                    self._recover_into(capture)
            import torch  # noqa: F401  # its own set-up of the logger must come first

            self._log_handlers.install()
            compiler_calls.note_compiler_calls()

    def release(self) -> None:
        """End one `start`. With the last one torch stops building records. Never raises."""
        self._holders -= 1
        if self._holders <= 0:
            with self.reporting("compilations cannot be recovered later"):
                compiler_calls.stop_noting_methods()
                self._log_handlers.remove()
                self.status.stop()
                self._checked = self.taken, torch_state()

    def note_steps(self) -> None:
        """Note the times of steps from now on, too. Never raises."""
        with self._lock:
            self._steps.start()

    def _catch_up(self) -> int:
        """Add what torch compiled since the last check, where no record was taken meanwhile; return how much.

        It is added as if it had been compiled before recording began.
        """
        last, now = self._checked, torch_state()
        self._checked = self.taken, now
        compiled = now.compiled_since(last[1]) if last and last[0] == self.taken else 0
        if last and compiled:
            self._drain(wait=True)
            for capture in self._logs:
                self._recover_into(capture, last[1])
        return compiled

    def _recover_into(self, capture: str, before: TorchState | None = None) -> None:
        log = self._logs[capture]
        with self.reporting("compilations from before recording began cannot be recovered"):
            recovered, codes = recover(source=capture == "full", before=before, codes_before=log.codes)
            log.start_from(recovered, codes)
            self._warnings.extend(text for text in recovered.warnings if text not in self._warnings)

    def take(self, record: logging.LogRecord) -> None:
        """Queue one record. Called by torch, in any thread, under the handler's lock."""
        compiler_calls.stop_noting_methods()
        metadata: dict[str, Any] = record.metadata  # type: ignore[attr-defined]  # torch puts it on its records
        # Only for the first version of a frame: counting 10,000 modules takes some 10 ms.
        with contextlib.suppress(Exception):  # another torch, or an unusual module
            if (start := metadata.get(records.DYNAMO_START)) and metadata.get(records.ID_FIELDS[-1]) == 0:
                metadata = {**metadata, records.DYNAMO_START: start | module_compiled_now(start["stack"][-1])}
        self._queue(Record(metadata, record.payload, record.thread or 0))  # type: ignore[attr-defined]  # as above
        self.status.begin()
        if records.METRICS in metadata or records.BACKWARD_METRICS in metadata:
            self._times.collect()

    def _take_cudagraph_skip(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if graph_breaks.is_cudagraph_skip(text):
            self._queue(Record({records.CUDAGRAPH_SKIP: {}, **compiling_now()}, text, record.thread or 0))

    def _queue(self, record: Record) -> None:
        self._pending.append(record)
        self.taken += 1
        self._pending_size += len(record.payload or "")
        if self._pending_size > _MAX_PENDING_BYTES:
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
                record = self._pending.popleft()
                for log in self._logs.values():
                    log.add(record)
        finally:
            self._lock.release()

    def add_output(self, output: Output, *, lasting: bool) -> bool:
        """Remember where summaries belong, so that interpreter exit can write what was compiled after the last one.

        lasting: nothing drops it, but one like it replaces it: with a folder per cycle, what is compiled after the
        last one belongs into the newest folder only. Returns False if it is there already.
        """
        is_new = output not in self._outputs
        self._outputs.setdefault(output, _Written())
        if lasting:
            others = [other for other in self._lasting if other[1:] != output[1:]]
            lasting_now = [*others, output][-_MAX_HANDLERS:]
            for old in set(self._lasting).difference(lasting_now):
                self._outputs.pop(old, None)
            self._lasting = lasting_now
        return is_new

    def drop_output(self, output: Output) -> None:
        """Undo `add_output`, unless a handler writes there too."""
        if output not in self._lasting:
            self._outputs.pop(output, None)

    def newest_stem(self) -> str | None:
        """Return `{folder}/{worker}` of the newest output, None without one."""
        return next((output.stem for output in reversed(list(self._outputs))), None)

    def read_log(self, read: Callable[[CompileLog], CompileStatus | None]) -> CompileStatus | None:
        """Return what is read from the log with all records until now; None before one was started."""
        self._drain(wait=True)
        with self._lock:
            return next((read(log) for log in self._logs.values()), None)

    def summary(self, capture: str) -> CompileSummary:
        """Return everything recorded so far. `write` is the way that never raises."""
        self._drain(wait=True)
        with self._lock:
            with self.reporting("compilations without a record cannot be recovered"):
                is_recording = self._log_handlers.is_installed(TRACE_LOGGER)
                if is_recording and (number := self._catch_up()):
                    self.warn(_SILENT.format("1 function" if number == 1 else f"{number} functions"))
            summary = (self._logs.get(capture) or _empty_log(capture)).summary()
        environment, source = summary.environment, capture == "full"
        environment.capture = capture
        environment.recording_start_ns, environment.written_ns = self._started_ns, time.time_ns()
        parts: dict[str, Callable[[], None]] = {
            "the environment": lambda: fill_environment(environment),
            "torch's times": lambda: self._times.put(summary),
            "the times of steps": lambda: self._steps.put(summary),
            "samples of Python": lambda: self.sampler.put(summary, source=source),
            "calls of torch.compile": lambda: compiler_calls.put_compiler_calls(summary, source=source),
            "torch's counters": lambda: self._put_counters(summary),
            "the choices of autotuning": lambda: add_autotune_choices(summary),
            "CUDA graphs": lambda: add_cuda_graphs(summary, source=source),
            "the lines of the program": lambda: _add_source_lines(summary, source=source),
        }
        for part, add in parts.items():
            with self.reporting(f"{part} cannot be read"):  # the other parts are written
                add()
        summary.warnings.extend(self._warnings)
        return summary

    def _put_counters(self, summary: CompileSummary) -> None:
        if (count := cudagraph_skips()) is not None:
            group, name = graph_breaks.CUDAGRAPH_SKIPS
            summary.counters.add(group=group, name=name, value=count - self._inherited_skips)

    def write(self, output: Output, time_ns: int, stem: str | None = None) -> str | None:
        """Write `{worker}.{time_ns}.pt.compile.pb`; return its path, or None if there is none. Never raises.

        stem: `{folder}/{worker}` of the trace that it belongs to. A worker name may contain folders, as with torch.
        """
        if self._inherits_code and not self.taken:
            return None
        written = ""
        self.status.stop()  # its file is gone when this returns; what still compiles starts it again
        with self.reporting("the compile summary cannot be written", output.folder):
            folder, worker = os.path.split(stem or output.stem)
            path = os.path.join(folder, summary_name(worker, time_ns))
            self._save(output, path, worker)
            written = path
        return written or None

    def _save(self, output: Output, path: str, worker: str) -> None:
        written = _Written(self.taken, self._steps.unprofiled, path, worker)
        summary = self.summary(output.capture)
        summary.environment.worker = readable(worker)
        summary_file.save(summary, path)
        if output in self._outputs:
            self._outputs[output] = written

    def _at_exit(self) -> None:
        """Write what was compiled after the last summary. Steps alone go into that file, if it is still there."""
        self.sampler.stop()
        self.status.stop()
        with self.reporting("the last compile summary cannot be written"):
            for output, last in list(self._outputs.items()):
                if self.taken > last.taken or (self._steps.unused and not last.path):
                    self.write(output, time.time_ns())
                elif self._steps.unprofiled > last.steps and os.path.exists(last.path):
                    self._save(output, last.path, last.worker)

    @contextlib.contextmanager
    def reporting(self, problem: str, path: str = "") -> Iterator[None]:
        """Report what the block raises, which ends it."""
        try:
            yield
        except Exception as error:
            self.report(problem, error, path)

    def report(self, problem: str, error: BaseException, path: str = "") -> None:
        """Log a problem once per kind, with the path where it occurred first. Never raises."""
        # A broken logging set-up is the user's: it must not end training.
        with contextlib.suppress(Exception):
            kind = f"{problem}: {type(error).__name__}"
            if kind not in self._reported:
                self._reported.add(kind)
                where = f"{problem} ({path})" if path else problem
                _log(f"{where}: {error}. Training continues; this is logged only once.")
                logger.debug("%s", problem, exc_info=error)

    def warn(self, text: str) -> None:
        """Log once what the summary contains, too. Never raises."""
        with contextlib.suppress(Exception):  # as above
            if text not in self._warnings:
                self._warnings.append(text)
                _log(text)


def _log(text: str) -> None:
    """Log, also where `logging.config` has disabled our logger, as it does with all that it does not name."""
    if logger.disabled:
        print(text, file=sys.stderr)
    else:
        logger.warning("%s", text)


def _add_source_lines(summary: CompileSummary, *, source: bool) -> None:
    """Fill in the text of the lines that torch leaves out of its stacks: the first one of each compiled frame.

    Each file is read once in a process. A line whose file is gone, or that was never in one, has no text.
    """
    for frame in (row.stack[-1] for row in summary.compilations if source and row.stack):
        if not frame.HasField("source") and (text := linecache.getline(frame.file, frame.line).strip()):
            frame.source = text


def _empty_log(capture: str) -> CompileLog:
    return CompileLog(source=capture == "full", payloads=capture == "full")


_recorder: Recorder | None = None
_creating = threading.Lock()


def recorder() -> Recorder:
    """Return the recorder of this process."""
    global _recorder
    with _creating:
        if _recorder is None:
            _recorder = Recorder()
    return _recorder


def worker_of(name: str | None) -> str | None:
    """Return a worker name as Kineto writes it in file names, so that trace and summary have the same."""
    return name and name.replace("\n", "").replace("\\", "/")


def checked_capture(capture: str) -> str:
    """Return `capture` if it is valid. Raises ValueError: a misspelt word must not store source code."""
    if capture not in CAPTURES:
        raise ValueError(f"capture must be one of {CAPTURES}, not {capture!r}")
    return capture
