"""The first steps of a process by Unix time, until one behind a compilation compiles nothing: there start-up ends."""

from __future__ import annotations

from collections.abc import Iterable

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


def earliest(sources: Iterable[FirstSteps]) -> list[FirstStep]:
    """The steps of the source that saw the first steady one, or else the most steps."""
    steady = [(source.steady_ns, source) for source in sources]
    known = [(ns, source.rows) for ns, source in steady if ns]
    if known:
        return min(known, key=lambda pair: pair[0])[1]
    return max((source.rows for _, source in steady), key=len, default=[])
