"""The first steps of a process by Unix time, until one behind a compilation compiles nothing: there start-up ends."""

from __future__ import annotations

from tb_torchcompile_plugin.compile_log.summary_pb2 import FirstStep

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
