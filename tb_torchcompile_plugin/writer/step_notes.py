"""Note how long a step of the training loop takes, unprofiled and profiled, and the first steps of a process.

Where `profiler.step()` is called, a step lasts from the return of one call to the entry of the next, so that what the
profiler does in between (starting, stopping, writing traces) is in no step. Elsewhere it lasts from one
`optimizer.step()` to the next. A few µs per step; nothing is written and nothing is raised into training.
"""

import weakref
from collections import deque
from collections.abc import Callable
from itertools import chain
from time import perf_counter_ns, time_ns
from typing import Any, NamedTuple, Protocol, TypeAlias

from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary, FirstStep, UnusedProfiler
from tb_torchcompile_plugin.writer.compiler_calls import MARK, hide_from_dynamo, in_place_of
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


# At an end of a step: whose it is, the records taken, and what else must not change meanwhile.
_State: TypeAlias = tuple[Any, ...]


class _Steps:
    """The last steps of one source, in ns, and the first ones."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.unprofiled: deque[int] = deque(maxlen=_UNPROFILED_KEPT)
        self.profiled: deque[int] = deque(maxlen=_PROFILED_KEPT)
        self.count = 0  # unprofiled steps noted until now
        self.first = FirstSteps()
        self._began: tuple[int, int | None, _State] | None = None  # the current step: ns, Unix ns, state

    def begin(self, ns: int, state: _State) -> None:
        """Begin a step. ns: of the performance counter."""
        self._began = ns, None if self.first.is_over else time_ns(), state

    def end(self, ns: int, state: _State, profiled: bool | None) -> None:
        """End a step; note how long it took unless the state has changed. profiled: None where only a part was."""
        began, start_ns, before = self._began or (ns, None, None)
        self._began = None
        if not self.first.is_over:
            self.first.note(start_ns, time_ns(), compiled=state[1] != (before[1] if before else 0))
        if state == before and profiled is not None:
            (self.profiled if profiled else self.unprofiled).append(ns - began)
            self.count += not profiled


class _OptimizerState(NamedTuple):
    optimizer: weakref.ref[Any]
    taken: int
    profiled: bool
    profiler_steps: int


class StepClock:
    """The steps of this process. Those in which torch compiled are left out, and those of two profilers in turn.

    The sampler learns here when a profiler records: after a `start` or `step` until the one that ends the recording.
    """

    def __init__(self, recorder: Reporter, sampler: Sampler) -> None:
        self.recorder, self._sampler = recorder, sampler
        self.reset()

    def reset(self) -> None:
        """Forget all steps and samples: the child of a fork does not use its parent's."""
        self._sampler.forget()
        self.unused: UnusedProfiler | None = None  # that was stopped; None once any has recorded
        self._is_deterministic: bool | None = None  # when a profiler first recorded
        self._has_recorded = False
        self._by_profiler, self._by_optimizer = _Steps("profiler.step"), _Steps("optimizer")
        self._profiler_steps = 0
        self._optimizer: weakref.ref[Any] | None = None  # the first of several that step
        self._last_state: _OptimizerState | None = None  # at the end of the optimizer's last step
        self._one_by_one = True  # whether the optimizer steps once for each step of the profiler

    @property
    def unprofiled(self) -> int:
        """Return the number of steps noted until now, never less than before."""
        return self._by_profiler.count + self._by_optimizer.count

    def start(self) -> None:
        """Note steps here from now on. Never raises."""
        global _active
        _active = self
        for install in (_wrap_profiler, _hook_optimizers):
            try:
                install()
            except Exception as error:
                self.recorder.report("step times cannot be recorded", error)

    def entered(self, prof: Any) -> None:
        """End a step of the loop, as `prof.step()` begins."""
        now = perf_counter_ns()
        self._profiler_steps += 1
        action = prof.current_action._name_
        profiled = None if action == "WARMUP" else action in _RECORDING
        self._by_profiler.end(now, (weakref.ref(prof), self.recorder.taken), profiled)
        self._sampler.follow(prof, records=action == _RECORDING[0])
        self._has_recorded |= action in _RECORDING

    def returned(self, prof: Any) -> None:
        """Begin a step of the loop, as `prof.step()` is done."""
        self.started(prof)
        self._by_profiler.begin(perf_counter_ns(), (weakref.ref(prof), self.recorder.taken))

    def started(self, prof: Any) -> None:
        """Note whether a profiler records from now on."""
        records = prof.current_action._name_ in _RECORDING
        self._sampler.follow(prof, records=records)
        if records and self._is_deterministic is None:
            from torch import are_deterministic_algorithms_enabled

            self._is_deterministic = are_deterministic_algorithms_enabled()

    def stopped(self, prof: Any) -> None:
        """Note a profiler that stops, as its trace is only written once it has recorded."""
        self._sampler.follow(prof, records=False)
        self._has_recorded |= prof.current_action._name_ in _RECORDING
        self.unused = None if self._has_recorded else UnusedProfiler(steps=prof.step_num)

    def optimizer_stepped(self, optimizer: Any) -> None:
        """Note that `optimizer.step()` is done, which ends a step and begins the next."""
        if self._optimizer is None or self._optimizer() is None:
            self._optimizer, self._last_state = weakref.ref(optimizer), None
        if self._optimizer() is not optimizer:
            return
        now = perf_counter_ns()
        state = _OptimizerState(self._optimizer, self.recorder.taken, profiler_runs(), self._profiler_steps)
        last, self._last_state = self._last_state, state
        self._one_by_one &= last is None or _steps_alike(last, state)
        self._by_optimizer.end(now, state, state.profiled)
        self._by_optimizer.begin(now, state)

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


def _steps_alike(last: _OptimizerState, state: _OptimizerState) -> bool:
    """Return whether the profiler stepped once between two steps of the optimizer, if it steps at all.

    With accumulated gradients it steps more often; in a loop without profiler steps less.
    """
    if state.profiler_steps == last.profiler_steps:
        return not (last.profiler_steps and last.profiled and state.profiled)
    return not last.profiler_steps or state.profiler_steps == last.profiler_steps + 1


Method = Callable[[StepClock, Any], None]
_active: StepClock | None = None
_hooked = False


def note(method: Method, stepping: Any) -> None:
    """Note what a profiler or an optimizer does. Never raises."""
    if (clock := _active) is None:
        return
    try:
        method(clock, stepping)
    except Exception as error:
        clock.recorder.report("a step time cannot be recorded", error)


def _wrap_profiler() -> None:
    """Wrap once, also where others wrapped it since. Twice would do no harm."""
    from torch.profiler import profile

    if not hasattr(profile.step, MARK):
        profile.step = noting(profile.step, StepClock.entered, StepClock.returned)  # type: ignore[method-assign]
        profile.start = noting(profile.start, None, StepClock.started)  # type: ignore[method-assign]
        profile.stop = noting(profile.stop, StepClock.stopped, None)  # type: ignore[method-assign]


def noting(original: Callable[..., Any], before: Method | None, after: Method | None) -> Callable[..., Any]:
    """Return a profiler's method with its calls noted; what it returns and raises stays as it is."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if before:
            note(before, self)
        result = original(self, *args, **kwargs)
        if after:
            note(after, self)
        return result

    for function in filter(None, (note, before, after)):
        hide_from_dynamo(function, original)
    return in_place_of(original, call)


def _hook_optimizers() -> None:
    global _hooked
    if _hooked:
        return
    from torch.compiler import is_compiling
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
        # A compiled optimizer runs no hooks, but dynamo traces them: this one is then empty.
        if not is_compiling():
            note(StepClock.optimizer_stepped, optimizer)

    register_optimizer_step_post_hook(stepped)
    _hooked = True
