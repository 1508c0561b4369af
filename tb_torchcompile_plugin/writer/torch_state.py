"""What torch counts by itself while compiling: times of functions, counters, numbers of files. Read, never changed.

Modules are looked up among the loaded ones: reading must not be what imports torch._dynamo.
"""

from __future__ import annotations

import sys

from tb_torchcompile_plugin.compile_log.compile_rows import break_row
from tb_torchcompile_plugin.compile_log.record import readable
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.torch_names.records import ID_FIELDS


class Times:
    """torch's `compilation_time_metrics`, kept across torch._dynamo.reset().

    reset() empties the dict and leaves the lists, so holding the lists is enough; a list that was exchanged for
    another one begins a new epoch.
    """

    def __init__(self) -> None:
        self._epochs: list[dict[str, list[float]]] = [{}]
        self._complete = True
        self._skipped: dict[str, int] = {}  # of the first epoch: how many times are the parent's

    def look(self, *, after_pause: bool = False) -> None:
        """Takes note of the lists that are there now. A few µs.

        after_pause: nobody looked for a while. If torch was reset meanwhile, what was compiled between two resets
        may be lost.
        """
        now: dict[str, list[float]] = getattr(
            sys.modules.get("torch._dynamo.utils"), "compilation_time_metrics", {}
        )
        current = self._epochs[-1]
        if after_pause and any(now.get(name) is not seconds for name, seconds in current.items()):
            self._complete = False
        for name, seconds in list(now.items()):
            known = current.get(name)
            if known is not None and known is not seconds:
                current = {}
                self._epochs.append(current)
            current[name] = seconds

    def forget_the_past(self) -> None:
        """The child of a fork inherits its parent's times, which are not its own."""
        self.look()
        self._skipped = {name: len(seconds) for name, seconds in self._epochs[0].items()}

    def put(self, summary: CompileSummary) -> None:
        """Replaces the times that the records gave by torch's own: every function, every run."""
        self.look()
        del summary.compile_times[:]
        together: dict[str, list[float]] = {}
        for number, epoch in enumerate(self._epochs):
            for name, seconds in epoch.items():
                first = self._skipped.get(name, 0) if number == 0 else 0
                together.setdefault(name, []).extend(seconds[first:])
        for name, seconds in together.items():
            if seconds:
                summary.compile_times.add(function=name, seconds=seconds)
        summary.compile_times_complete = self._complete


class Counters:
    """torch's `counters`; they survive torch._dynamo.reset(), and a fork."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, str], int] = {}

    def forget_the_past(self) -> None:
        self._before = _counters()

    def put(self, summary: CompileSummary, *, source: bool) -> None:
        """Adds those that are not zero, without quoting the user's code unless `source`."""
        totals: dict[tuple[str, str], int] = {}
        for (group, name), value in _counters().items():
            shown = name
            if not source and group in ("graph_break", "unimplemented"):  # their names are whole break texts
                shown = break_row(name, source=False).reason
            new = value - self._before.get((group, name), 0)
            totals[group, shown] = totals.get((group, shown), 0) + new
        for (group, shown), value in totals.items():
            if value:
                summary.counters.add(group=readable(group), name=readable(shown), value=value)


def _counters() -> dict[tuple[str, str], int]:
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return {
        (str(group), str(name)): value
        for group, values in list(counters.items())
        for name, value in list(values.items())
        if isinstance(value, int)
    }


def compiling_now() -> dict[str, int]:
    """What this thread is compiling, as the fields of a record's envelope; empty where it compiles nothing."""
    context = getattr(sys.modules.get("torch._guards"), "CompileContext", None)
    current = None if context is None else context.current_compile_id()
    fields = {name: getattr(current, name, None) for name in ID_FIELDS}
    return {name: value for name, value in fields.items() if value is not None}


def file_names() -> dict[int, str]:
    """torch's numbers for file names. A number given before recording began is in no record."""
    table: dict[str, int] = getattr(sys.modules.get("torch._logging.structured"), "INTERN_TABLE", {})
    return {number: name for name, number in list(table.items())}


def profiler_runs() -> bool:
    """Whether a profiler of torch's records in this moment."""
    from torch.autograd import _profiler_enabled  # type: ignore[attr-defined]  # it is no public name

    return bool(_profiler_enabled())
