"""Programs as the users of other libraries write them, timed and recorded as they run.

    python3 -m benchmarks.diagnosis.real --out /tmp/real --limit 180 --batch 9

Nothing is planted: what the tab says of them is read by people, and most have a twin in which what it says first is
mended. The loop belongs to the library; `Watch`, called after each of its steps, warms up, times some steps without a
profiler, records some, and ends the loop. Twins are timed alone.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.diagnosis import record

if TYPE_CHECKING:
    from benchmarks.diagnosis.program import Machine, Recorded

WARM_UP_STEPS = 12
TIMED_STEPS = 25


class Done(Exception):
    """Ends a loop that would go on."""


class Watch:
    """Called after each step of a loop. mended: whether the loop is to do what was advised."""

    def __init__(
        self,
        machine: Machine,
        recorded: Recorded,
        handler: Callable[[Any], None],
        ready: Callable[[], None],
        mended: bool = False,
    ) -> None:
        self.mended = mended
        self.handler, self.answer = handler, {"setup_s": 0.0}
        self._machine, self._recorded, self._ready = machine, recorded, ready
        self._started, self._steps = time.perf_counter(), self._watched()

    def __call__(self) -> None:
        """Raises Done when everything is recorded."""
        next(self._steps)

    def warmed_up(self) -> None:
        """Waits until nothing else runs on the machine."""
        from benchmarks.diagnosis.one import wait

        wait(self._machine)
        self.answer["setup_s"] = round(time.perf_counter() - self._started, 2)
        self._ready()

    def _watched(self) -> Iterator[None]:
        """What is done after each step; the loop's next step runs at each yield."""
        from benchmarks.diagnosis.one import Marks, profiler

        for _ in range(self._machine.pick(WARM_UP_STEPS, 3) - 1):
            yield
        self.warmed_up()
        marks = Marks(self._machine)
        yield
        while marks.add() < self._machine.pick(TIMED_STEPS, 3):
            yield
        self.answer["timing"] = marks.timing()  # type: ignore[assignment]  # values differ by key
        if not self.mended:
            recording = profiler(self._machine, self._recorded, self.handler, wait=1)
            recording.start()
            for _ in range(1 + 2 + self._recorded.steps):
                yield
                recording.step()
            recording.stop()
        raise Done


@dataclass(frozen=True)
class Loop:
    """A task of the exam: someone else's loop. `Exam` starts it in a process of its own."""

    name: str
    device: str
    quick: bool
    folder: Path
    mended: bool = False

    def __call__(self, ready: Callable[[], None]) -> dict[str, Any]:
        import torch

        from benchmarks.diagnosis.libraries import LOOPS, RECORDED
        from benchmarks.diagnosis.one import without_inductor
        from benchmarks.diagnosis.program import Machine
        from tb_torchcompile_plugin import tensorboard_trace_handler

        if self.quick:
            without_inductor()
        machine, recorded = Machine(torch.device(self.device), self.quick), RECORDED[self.name]
        handler = tensorboard_trace_handler(str(self.folder), self.name)
        watch = Watch(machine, recorded, handler, ready, self.mended)
        with suppress(Done):
            LOOPS[self.name](machine, watch)
        return watch.answer


def task(options: argparse.Namespace, name: str) -> list[Loop]:
    from benchmarks.diagnosis.libraries import MENDED

    device, folder = "cpu" if options.cpu else "cuda", options.out / "planted" / name
    return [Loop(name, device, options.quick, folder, twin) for twin in (False, True)[: 1 + (name in MENDED)]]


def main() -> int:
    options = record.arguments(__doc__)
    record.prepare(options)
    from benchmarks.diagnosis.libraries import LOOPS, RECORDED
    from benchmarks.diagnosis.suite import Exam  # torch reads the environment when it is imported

    rows = {name: {"name": name, "recorded": vars(RECORDED[name])} for name in LOOPS}
    exam = Exam(options.out, options.start, options.cpu, options.limit, rows, partial(task, options))
    return record.run(exam, options)


if __name__ == "__main__":
    sys.exit(main())
