"""How long a step of the training loop takes while nothing is recorded, and while something is.

Where `profiler.step()` is called, a step lasts from the return of one call to the entry of the next, so that what the
profiler does in between (starting, stopping, writing traces) is in no step. Elsewhere it lasts from one
`optimizer.step()` to the next. A few µs a step; nothing is written and nothing is raised into training.
"""

from __future__ import annotations

import functools
import os
import weakref
from collections import deque
from collections.abc import Callable
from itertools import chain
from time import perf_counter_ns, time_ns
from typing import Any, NamedTuple, Protocol

from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary, FirstStep
from tb_torchcompile_plugin.writer.environment import profiler_runs

# The first steps of a process by Unix time, until one behind a compilation compiles nothing: there start-up
# ends.


_KEPT = 256  # a program that compiles in each step has no end of them


class FirstSteps:
    """As one source tells them. `is_over`: nothing needs to be noted any more."""

    def __init__(self) -> None:
        self.rows: list[FirstStep] = []
        self.is_over = False

    def note(self, start_ns: int | None, end_ns: int, *, compiled: bool) -> None:
        """start_ns: None where nobody knows when it began."""
        steady = not compiled and any(row.compiled for row in self.rows)
        self.rows.append(FirstStep(start_ns=start_ns, end_ns=end_ns, compiled=compiled))
        self.is_over = steady or len(self.rows) == _KEPT

    @property
    def steady_ns(self) -> int | None:
        """When the first steady step began."""
        last = self.rows[-1] if self.rows else None
        return last.start_ns if last and self.is_over and not last.compiled else None


def first_steps(by_profiler: FirstSteps, by_optimizer: FirstSteps) -> list[FirstStep]:
    """As the profiler's steps tell; as the optimizer's do where the profiler came after the start, or tells less."""
    if not by_profiler.rows or (by_optimizer.steady_ns and not by_profiler.steady_ns):
        return by_optimizer.rows
    came_late = by_optimizer.steady_ns and by_optimizer.rows[-1].end_ns <= by_profiler.rows[0].end_ns
    return by_optimizer.rows if came_late else by_profiler.rows


_FEWEST = 2  # unrecorded steps that tell something: one alone may be the first of an epoch
# What the mean of the last steps needs, and no more: a summary is written in each cycle.
_UNRECORDED_KEPT = 256
_RECORDED_KEPT = 64


class Reporter(Protocol):
    """What is needed of the recorder. taken: records until now; a step in which it grew has compiled."""

    taken: int

    def report(self, problem: str, error: BaseException) -> None: ...


class _Durations:
    """The last steps, in ns, as one source tells them."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.unrecorded: deque[int] = deque(maxlen=_UNRECORDED_KEPT)
        self.recorded: deque[int] = deque(maxlen=_RECORDED_KEPT)
        self.first = FirstSteps()
        self._began: tuple[int | None, int] = None, 0  # the step that goes on: Unix ns, records taken

    def ends(self, taken: int) -> None:
        """A step is over. Of the first one nobody knows when it began."""
        if not self.first.is_over:
            start_ns, before = self._began
            self.first.note(start_ns, time_ns(), compiled=taken != before)

    def begins(self, taken: int) -> None:
        if not self.first.is_over:
            self._began = time_ns(), taken


class _Stepped(NamedTuple):
    """A step of the optimizer: when it was done, and what was so then."""

    ns: int
    taken: int
    recorded: bool
    profiler_steps: int


class StepClock:
    """Of this process. Steps in which torch compiled are left out; two profilers that step in turn tell nothing."""

    def __init__(self, recorder: Reporter) -> None:
        self._recorder = recorder
        self.forget()

    def forget(self) -> None:
        """The child of a fork does not go by its parent's steps."""
        self.unrecorded = 0  # steps noted until now, never less than before
        self._by_profiler = _Durations("profiler.step")
        self._by_optimizer = _Durations("optimizer")
        self._profiler_steps = 0
        self._returned: tuple[weakref.ref[Any], int, int] | None = None  # profiler, ns, records taken
        self._optimizer: weakref.ref[Any] | None = None  # the first of several that step
        self._stepped: _Stepped | None = None
        self._one_by_one = True  # whether the optimizer steps once for each step of the profiler

    def listen(self) -> None:
        """From now on steps are noted here. Never raises."""
        global _listening
        _listening = self
        for install in (_wrap_profiler_step, _hook_optimizers):
            try:
                install()
            except Exception as error:
                self._recorder.report("the times of steps cannot be noted", error)

    def entered(self, prof: Any) -> None:
        """`prof.step()` begins: here a step of the loop ends. Never raises."""
        try:
            now = perf_counter_ns()
            self._profiler_steps += 1
            self._by_profiler.ends(self._recorder.taken)
            last, self._returned = self._returned, None
            action = prof.current_action._name_
            if last is None or last[0]() is not prof or last[2] != self._recorder.taken:
                return
            if action == "NONE":
                self._by_profiler.unrecorded.append(now - last[1])
                self.unrecorded += 1
            elif action in ("RECORD", "RECORD_AND_SAVE"):
                self._by_profiler.recorded.append(now - last[1])
        except Exception as error:
            self._recorder.report("the time of a step cannot be noted", error)

    def returned(self, prof: Any) -> None:
        """`prof.step()` is done: here a step of the loop begins. Never raises."""
        try:
            self._returned = (weakref.ref(prof), perf_counter_ns(), self._recorder.taken)
            self._by_profiler.begins(self._recorder.taken)
        except Exception as error:
            self._recorder.report("the time of a step cannot be noted", error)

    def optimizer_stepped(self, optimizer: Any, recorded: bool) -> None:
        """`optimizer.step()` is done. recorded: whether a profiler runs. Never raises."""
        try:
            if self._optimizer is None or self._optimizer() is None:
                self._optimizer, self._stepped = weakref.ref(optimizer), None
            if self._optimizer() is optimizer:
                self._by_optimizer.ends(self._recorder.taken)
                self._by_optimizer.begins(self._recorder.taken)
                taken, steps = self._recorder.taken, self._profiler_steps
                self._note_optimizer(_Stepped(perf_counter_ns(), taken, recorded, steps))
        except Exception as error:
            self._recorder.report("the time of a step cannot be noted", error)

    def _note_optimizer(self, now: _Stepped) -> None:
        last, self._stepped = self._stepped, now
        self._one_by_one &= last is None or _steps_alike(last, now)
        if last is None or last[1:] != now[1:]:  # compiled, half recorded, or noted by the profiler's step
            return
        if now.recorded:
            self._by_optimizer.recorded.append(now.ns - last.ns)
        else:
            self._by_optimizer.unrecorded.append(now.ns - last.ns)
            self.unrecorded += 1

    def put(self, summary: CompileSummary) -> None:
        """Adds the steps of the source that knows enough unrecorded ones, the profiler's before the optimizer's: many
        warm up before their profiler's block, and wait for one step in it."""
        both = (self._by_profiler, self._by_optimizer)
        sources = both if self._one_by_one else both[:1]
        enough = (it for it in sources if len(it.unrecorded) >= _FEWEST)
        some = (it for it in sources if it.unrecorded)
        if source := next(chain(enough, some, (it for it in sources if it.recorded)), None):
            summary.steps.source = source.source
            summary.steps.unrecorded_ns.extend(source.unrecorded)
            summary.steps.recorded_ns.extend(source.recorded)
        if first := first_steps(*(it.first for it in both)):
            summary.steps.first.extend(first)


def _steps_alike(last: _Stepped, now: _Stepped) -> bool:
    """Whether between two steps of the optimizer the profiler stepped once, if it steps at all: with gradients that are
    summed up it steps more often, in a loop that it tells nothing of less."""
    if now.profiler_steps == last.profiler_steps:
        return not (last.profiler_steps and last.recorded and now.recorded)
    return not last.profiler_steps or now.profiler_steps == last.profiler_steps + 1


_listening: StepClock | None = None
_hooked = False


def _wrap_profiler_step() -> None:
    """Once, also where others wrapped it since: functools.wraps hands the mark on. Twice would do no harm."""
    from torch.profiler import profile

    if not hasattr(profile.step, "_notes_step_times"):
        profile.step = _noting(profile.step)  # type: ignore[method-assign]


def _noting(original: Callable[..., None]) -> Callable[..., None]:
    """`original`, a profiler's step, with the times noted; what it returns and raises stays as it is."""

    @functools.wraps(original)
    def step(self: Any, *args: Any, **kwargs: Any) -> None:
        times = _listening
        if times is None:
            return original(self, *args, **kwargs)
        times.entered(self)
        try:
            return original(self, *args, **kwargs)
        finally:
            times.returned(self)

    step._notes_step_times = True  # type: ignore[attr-defined]
    for function in (step, StepClock.entered, StepClock.returned):
        _hide_from_dynamo(function, beside=original)
    return step


def _hide_from_dynamo(function: Any, *, beside: Any) -> None:
    """Dynamo compiles no function of `torch/profiler`, by its file. What stands around one must be left alone, too,

    or a loop that is compiled as a whole gets frames and graph breaks that it did not have.
    """
    folder = os.path.dirname(beside.__code__.co_filename)
    name = os.path.join(folder, "tb_torchcompile_plugin.step_notes")
    function.__code__ = function.__code__.replace(co_filename=name)


def _hook_optimizers() -> None:
    global _hooked
    if _hooked:
        return
    from torch.compiler import is_compiling
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
        # A compiled optimizer runs no hooks, but dynamo traces them: this one then comes to nothing.
        if not is_compiling() and _listening is not None:
            _listening.optimizer_stepped(optimizer, profiler_runs())

    register_optimizer_step_post_hook(stepped)
    _hooked = True
