"""A profiler for loops without a schedule: it waits until nothing is compiled any more, and records."""

import atexit
import functools
import os
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from tb_torchcompile_plugin.writer.environment import profiler_runs
from tb_torchcompile_plugin.writer.handler import tensorboard_trace_handler
from tb_torchcompile_plugin.writer.recorder import recorder

P = ParamSpec("P")
R = TypeVar("R")

_QUIET_STEPS = 2  # steps in a row without compilation that end the warm-up
_MAX_WAIT_STEPS = 20  # a program that compiles in each step is recorded nevertheless
_NOT_PROFILED = "the steps cannot be profiled"
_TOO_SHORT = (
    "profile_steps recorded nothing: the loop ended after {}, while the program was still compiling or another "
    "profiler was active. Run more steps, or set the number of steps before recording: profile_steps(..., after=1)"
)
_NO_STEP = "profile_steps recorded nothing: step() was not called. Call it at the end of each step"


class profile_steps:  # named as torch.profiler.profile is
    """Records some steps of a loop with `torch.profiler`, and what torch.compile did before them.

    Use it around a loop, or as a decorator of the function that runs one step:

        with profile_steps("runs") as steps:          @profile_steps("runs")
            for batch in loader:                      def train_step(batch): ...
                train_step(batch)
                steps.step()

    dir_name, worker_name, capture, index, digest and sample have the same meaning as in `tensorboard_trace_handler`,
    which writes the files. All other keywords are passed to `torch.profiler.profile`. By default, `record_shapes` is on
    (bandwidths need it) and all activities are recorded.

    steps: number of recorded steps.

    after: number of steps before them; None waits until two steps in a row compile nothing, at most 20. During one more
    step the profiler starts.

    Create it before the first call to the model. If a library owns the loop, call `start`, `step` and `stop` from its
    callbacks. Failures are logged once, never raised, including options that torch does not accept; only invalid values
    of steps, after and capture raise ValueError. After the recording, a step costs one function call.
    """

    def __init__(  # noqa: PLR0913  # all but the first are options
        self,
        dir_name: str | os.PathLike[str],
        worker_name: str | None = None,
        *,
        steps: int = 3,
        after: int | None = None,
        capture: str = "full",
        index: bool = False,
        digest: bool = False,
        sample: bool = True,
        **options: Any,
    ) -> None:
        if steps < 1 or (after is not None and after < 0):
            raise ValueError("profile_steps needs steps >= 1 and after >= 0")
        self._write = tensorboard_trace_handler(
            dir_name, worker_name, capture=capture, index=index, digest=digest, sample=sample
        )
        self._schedule = functools.partial(_Schedule, steps, after)
        self._options = {"record_shapes": True, **options}
        self._profiler: Any = None
        self._is_started = self._is_written = False

    def start(self) -> None:
        """Begin a loop; this ends the previous one if `stop` was not called."""
        self.stop()
        self._is_started, self._is_written = True, False
        with recorder().reporting(_NOT_PROFILED):
            from torch.profiler import profile

            profiler = profile(schedule=self._schedule(), on_trace_ready=self._ready, **self._options)
            profiler.start()
            self._profiler = profiler

    def step(self) -> None:
        """End a step of the loop."""
        if self._profiler is None:
            return
        try:
            self._profiler.step()
        except Exception as error:
            self._profiler = None
            recorder().report(_NOT_PROFILED, error)
        if self._is_written:
            self.stop()

    def stop(self) -> None:
        """End the loop. What was recorded of a loop that ended too early is written."""
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return
        with recorder().reporting(_NOT_PROFILED):
            profiler.stop()
        if not self._is_written:
            steps = profiler.step_num
            count = f"{steps} step{'' if steps == 1 else 's'}"
            recorder().warn(_TOO_SHORT.format(count) if steps else _NO_STEP)

    def __enter__(self) -> "profile_steps":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function that does one step; recording begins with its first calls."""

        @functools.wraps(function)
        def recorded(*args: P.args, **kwargs: P.kwargs) -> R:
            if not self._is_started:
                self.start()
                atexit.register(self.stop)
            result = function(*args, **kwargs)
            self.step()
            return result

        return recorded

    def _ready(self, profiler: Any) -> None:
        self._is_written = True
        self._write(profiler)


class _Schedule:
    """Called by the profiler once per step: what to do in it."""

    def __init__(self, steps: int, after: int | None) -> None:
        self._steps, self._after = steps, after
        self._taken = self._quiet = 0
        self._first: int | None = None  # recorded step

    def __call__(self, step: int) -> Any:
        from torch.profiler import ProfilerAction

        # A second profiler would take the records of the first.
        if self._first is None and self._is_time(step) and not profiler_runs():
            self._first = step + 1
            return ProfilerAction.WARMUP
        if self._first is None or step >= self._first + self._steps:
            return ProfilerAction.NONE
        last = step == self._first + self._steps - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    def _is_time(self, step: int) -> bool:
        if self._after is not None:
            return step >= self._after
        taken, self._taken = self._taken, recorder().taken
        self._quiet = self._quiet + 1 if step and self._taken == taken else 0
        return self._quiet >= _QUIET_STEPS or step >= _MAX_WAIT_STEPS
