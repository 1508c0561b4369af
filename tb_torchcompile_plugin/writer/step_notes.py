"""Note how long a step of the training loop takes, unprofiled and profiled, and the first steps of a process.

Where `profiler.step()` is called, a step lasts from the return of one call to the entry of the next, so that what the
profiler does in between (starting, stopping, writing traces) is in no step. Elsewhere it lasts from one
`optimizer.step()` to the next. A few µs per step; nothing is written and nothing is raised into training.
"""

import functools
import os
import weakref
from collections import deque
from collections.abc import Callable
from itertools import chain
from time import perf_counter_ns, time_ns
from typing import Any, NamedTuple, Protocol

from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary, FirstStep, UnusedProfiler
from tb_torchcompile_plugin.writer.environment import profiler_runs
from tb_torchcompile_plugin.writer.sampler import Sampler

_MAX_FIRST_STEPS = 256  # a program that compiles in each step has no end of them
# Steps: one alone may be the first of an epoch. Many programs warm up before their profiler's block, and wait for one
# step in it.
_MIN_UNPROFILED = 2
# What the mean of the last steps needs, and no more: a summary is written in each cycle.
_UNPROFILED_KEPT = 256
_PROFILED_KEPT = 64
_RECORDING = ("RECORD", "RECORD_AND_SAVE")  # what a profiler does in a step, by torch's names


class FirstSteps:
    """The first steps of a process by Unix time, until one after a compilation compiles nothing: start-up is over."""

    def __init__(self) -> None:
        self.rows: list[FirstStep] = []
        self.is_over = False  # nothing needs to be noted any more

    def note(self, start_ns: int | None, end_ns: int, *, compiled: bool) -> None:
        """Add a step. start_ns: None where it is unknown."""
        steady = not compiled and any(row.compiled for row in self.rows)
        self.rows.append(FirstStep(start_ns=start_ns, end_ns=end_ns, compiled=compiled))
        self.is_over = steady or len(self.rows) == _MAX_FIRST_STEPS

    @property
    def steady_ns(self) -> int | None:
        """Return when the first steady step began."""
        last = self.rows[-1] if self.rows else None
        return last.start_ns if last and self.is_over and not last.compiled else None


def first_steps(by_profiler: FirstSteps, by_optimizer: FirstSteps) -> list[FirstStep]:
    """Return the profiler's steps; the optimizer's where the profiler came after the start, or shows less."""
    if not by_profiler.rows or (by_optimizer.steady_ns and not by_profiler.steady_ns):
        return by_optimizer.rows
    is_late = by_optimizer.steady_ns and by_optimizer.rows[-1].end_ns <= by_profiler.rows[0].end_ns
    return by_optimizer.rows if is_late else by_profiler.rows


class Reporter(Protocol):
    """What this module needs of the recorder."""

    taken: int  # records until now; a step in which it grew has compiled

    def report(self, problem: str, error: BaseException) -> None:
        """Log a problem. Never raises."""


class _Durations:
    """The last steps of one source, in ns."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.unprofiled: deque[int] = deque(maxlen=_UNPROFILED_KEPT)
        self.profiled: deque[int] = deque(maxlen=_PROFILED_KEPT)
        self.first = FirstSteps()
        self._started: tuple[int | None, int] = None, 0  # the current step: Unix ns, records taken

    def end(self, taken: int) -> None:
        """End a step. When the first one began is unknown."""
        if not self.first.is_over:
            start_ns, before = self._started
            self.first.note(start_ns, time_ns(), compiled=taken != before)

    def begin(self, taken: int) -> None:
        if not self.first.is_over:
            self._started = time_ns(), taken


class _OptimizerStep(NamedTuple):
    """The state at the end of a step of the optimizer."""

    ns: int
    taken: int
    profiled: bool
    profiler_steps: int


class StepClock:
    """The steps of this process. Those in which torch compiled are left out, and those of two profilers in turn.

    The sampler learns here when a profiler records: after a `start` or `step` until the one that ends the recording.
    """

    def __init__(self, recorder: Reporter, sampler: Sampler) -> None:
        self._recorder, self._sampler = recorder, sampler
        self.reset()

    def reset(self) -> None:
        """Forget all steps and samples: the child of a fork does not use its parent's."""
        self._sampler.forget()
        self.unprofiled = 0  # steps noted until now, never less than before
        self.unused: UnusedProfiler | None = None  # that was stopped; None once any has recorded
        self._is_deterministic: bool | None = None  # when a profiler first recorded
        self._has_recorded = False
        self._by_profiler = _Durations("profiler.step")
        self._by_optimizer = _Durations("optimizer")
        self._profiler_steps = 0
        self._returned: tuple[weakref.ref[Any], int, int] | None = None  # profiler, ns, records taken
        self._optimizer: weakref.ref[Any] | None = None  # the first of several that step
        self._last_step: _OptimizerStep | None = None
        self._one_by_one = True  # whether the optimizer steps once for each step of the profiler

    def start(self) -> None:
        """Note steps here from now on. Never raises."""
        global _active
        _active = self
        for install in (_wrap_profiler_step, _hook_optimizers):
            try:
                install()
            except Exception as error:
                self._recorder.report("the times of steps cannot be noted", error)

    def entered(self, prof: Any) -> None:
        """End a step of the loop, as `prof.step()` begins. Never raises."""
        try:
            now = perf_counter_ns()
            self._profiler_steps += 1
            self._by_profiler.end(self._recorder.taken)
            last, self._returned = self._returned, None
            action = prof.current_action._name_
            self._sampler.follow(prof, records=action == _RECORDING[0])
            self._has_recorded |= action in _RECORDING
            if last is None or last[0]() is not prof or last[2] != self._recorder.taken:
                return
            if action == "NONE":
                self._by_profiler.unprofiled.append(now - last[1])
                self.unprofiled += 1
            elif action in _RECORDING:
                self._by_profiler.profiled.append(now - last[1])
        except Exception as error:
            self._recorder.report("the time of a step cannot be noted", error)

    def returned(self, prof: Any) -> None:
        """Begin a step of the loop, as `prof.step()` is done. Never raises."""
        self.started(prof)
        try:
            self._returned = (weakref.ref(prof), perf_counter_ns(), self._recorder.taken)
            self._by_profiler.begin(self._recorder.taken)
        except Exception as error:
            self._recorder.report("the time of a step cannot be noted", error)

    def started(self, prof: Any) -> None:
        """Note whether a profiler records from now on. Never raises."""
        try:
            records = prof.current_action._name_ in _RECORDING
            self._sampler.follow(prof, records=records)
            if records and self._is_deterministic is None:
                from torch import are_deterministic_algorithms_enabled

                self._is_deterministic = are_deterministic_algorithms_enabled()
        except Exception as error:
            self._recorder.report("the begin of a recording cannot be noted", error)

    def stopped(self, prof: Any) -> None:
        """Note a profiler that stops, as its trace is only written once it has recorded. Never raises."""
        self._sampler.follow(prof, records=False)
        try:
            self._has_recorded |= prof.current_action._name_ in _RECORDING
            self.unused = None if self._has_recorded else UnusedProfiler(steps=prof.step_num)
        except Exception as error:
            self._recorder.report("the end of a profiler cannot be noted", error)

    def optimizer_stepped(self, optimizer: Any, profiled: bool) -> None:
        """Note that `optimizer.step()` is done. profiled: whether a profiler runs. Never raises."""
        try:
            if self._optimizer is None or self._optimizer() is None:
                self._optimizer, self._last_step = weakref.ref(optimizer), None
            if self._optimizer() is not optimizer:
                return
            taken = self._recorder.taken
            self._by_optimizer.end(taken)
            self._by_optimizer.begin(taken)
            step = _OptimizerStep(perf_counter_ns(), taken, profiled, self._profiler_steps)
            last, self._last_step = self._last_step, step
            self._one_by_one &= last is None or _steps_alike(last, step)
            # compiled, half profiled, or noted by the profiler's step
            if last is None or last[1:] != step[1:]:
                return
            if profiled:
                self._by_optimizer.profiled.append(step.ns - last.ns)
            else:
                self._by_optimizer.unprofiled.append(step.ns - last.ns)
                self.unprofiled += 1
        except Exception as error:
            self._recorder.report("the time of a step cannot be noted", error)

    def put(self, summary: CompileSummary) -> None:
        """Add the steps of the source with enough unprofiled ones, the profiler's before the optimizer's."""
        both = (self._by_profiler, self._by_optimizer)
        sources = both if self._one_by_one else both[:1]
        enough = (source for source in sources if len(source.unprofiled) >= _MIN_UNPROFILED)
        some = (source for source in sources if source.unprofiled)
        if best := next(chain(enough, some, (source for source in sources if source.profiled)), None):
            summary.steps.source = best.source
            summary.steps.unrecorded_ns.extend(best.unprofiled)
            summary.steps.recorded_ns.extend(best.profiled)
        if first := first_steps(self._by_profiler.first, self._by_optimizer.first):
            summary.steps.first.extend(first)
        if self._is_deterministic is not None:
            summary.environment.deterministic_algorithms = self._is_deterministic
        if self.unused is not None:
            summary.steps.unused.CopyFrom(self.unused)


def _steps_alike(last: _OptimizerStep, step: _OptimizerStep) -> bool:
    """Return whether the profiler stepped once between two steps of the optimizer, if it steps at all.

    With accumulated gradients it steps more often; in a loop without profiler steps less.
    """
    if step.profiler_steps == last.profiler_steps:
        return not (last.profiler_steps and last.profiled and step.profiled)
    return not last.profiler_steps or step.profiler_steps == last.profiler_steps + 1


_active: StepClock | None = None
_hooked = False


def _wrap_profiler_step() -> None:
    """Wrap once, also where others wrapped it since: functools.wraps copies the mark. Twice would do no harm."""
    from torch.profiler import profile

    if not hasattr(profile.step, "_notes_step_times"):
        profile.step = _noting(profile.step)  # type: ignore[method-assign]
        profile.start = _noting_start(profile.start)  # type: ignore[method-assign]
        profile.stop = _noting_stop(profile.stop)  # type: ignore[method-assign]


def _noting(original: Callable[..., None]) -> Callable[..., None]:
    """Return `original`, a profiler's step, with the times noted; what it returns and raises stays as it is."""

    @functools.wraps(original)
    def step(self: Any, *args: Any, **kwargs: Any) -> None:
        clock = _active
        if clock is None:
            return original(self, *args, **kwargs)
        clock.entered(self)
        try:
            return original(self, *args, **kwargs)
        finally:
            clock.returned(self)

    step._notes_step_times = True  # type: ignore[attr-defined]
    for function in (step, StepClock.entered, StepClock.returned):
        _hide_from_dynamo(function, original)
    return step


def _noting_start(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def start(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if _active is not None:
            _active.started(self)

    return start


def _noting_stop(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def stop(self: Any, *args: Any, **kwargs: Any) -> None:
        if _active is not None:
            _active.stopped(self)
        return original(self, *args, **kwargs)

    return stop


def _hide_from_dynamo(function: Any, original: Any) -> None:
    """Give the function a file in the folder of `original`: Dynamo skips all functions of `torch/profiler`.

    Otherwise a loop that is compiled as a whole gets frames and graph breaks that it did not have.
    """
    folder = os.path.dirname(original.__code__.co_filename)
    name = os.path.join(folder, "tb_torchcompile_plugin.step_notes")
    function.__code__ = function.__code__.replace(co_filename=name)


def _hook_optimizers() -> None:
    global _hooked
    if _hooked:
        return
    from torch.compiler import is_compiling
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
        # A compiled optimizer runs no hooks, but dynamo traces them: this one is then empty.
        if not is_compiling() and _active is not None:
            _active.optimizer_stepped(optimizer, profiler_runs())

    register_optimizer_step_post_hook(stepped)
    _hooked = True
