"""Show in which functions Python itself took the time, from the stacks that `with_stack` records."""

from collections.abc import Iterator
from typing import Annotated, Literal, get_args

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import at_line, column_head, duration, percent, plural
from tb_torchcompile_plugin.profile.columns import Int64s, Mask, distinct, mask_of, sums, us
from tb_torchcompile_plugin.profile.host.host_tree import calling_tracks, host_tree, plain_names, site_ns
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.torch_names.python_frames import frame_of, is_program_function, readable_function
from tb_torchcompile_plugin.torch_names.slices import PYTHON_FUNCTION, is_step

Whose = Literal["yours", "library", "built in", "operators"]
_WHOSE: tuple[Whose, ...] = get_args(Whose)


class PythonFunction(msgspec.Struct, frozen=True):
    """One Python function, with times per step (in the span where there are no steps)."""

    key: str  # its name in the trace
    name: Annotated[str, column_head("Function", grow=True)]
    file: Annotated[str | None, column_head(grow=True)]
    line: int | None
    owner: Annotated[Whose, column_head("Whose")]
    # While it was the user's innermost function, with the backward of that; None for others.
    user_us: Annotated[float | None, column_head("With backward", bar=True, total=True)]
    # while nothing that it called ran, operators included
    self_us: Annotated[float, column_head(bar=True, total=True)]
    total_us: float  # counts recursion once
    calls: Annotated[int, column_head(total=True)]
    slices: str  # name of its calls on the timeline


class PythonTime(msgspec.Struct, frozen=True):
    """Python functions with most self time first."""

    headline: str
    note: str  # whose code ran, and what is left out
    recorded: bool
    functions: list[PythonFunction]
    # Host time (µs) of the threads that called operators, by whose code ran: it sums to all that was recorded.
    parts: dict[Whose, float]


def python(profile: Profile) -> PythonTime:
    """Return the time of Python functions; empty without `with_stack`."""
    trace, tree = profile.trace, profile.of(host_tree)
    steps, recorded = len(profile.of(StepWindows)), PYTHON_FUNCTION in trace.cats
    busy, track = profile.of(calling_tracks), trace.track[tree.index]
    functions = [*_functions(profile, np.flatnonzero(tree.python & busy[track]))]
    parts = _parts(profile, functions) if recorded else {}
    return PythonTime(
        headline=_headline(functions, parts, steps),
        note=_note(parts, steps, len(np.unique(track[tree.python & ~busy[track]]))),
        recorded=recorded,
        functions=functions,
        parts=parts,
    )


def _headline(functions: list[PythonFunction], parts: dict[Whose, float], steps: int) -> str:
    """Return "forward (model.py:17) is your most expensive function: 3.80 ms per step …, 34 % of host time."."""
    if not parts:
        return "Python stacks were not recorded."
    # The function that runs the loop is called once, and does not cost what it waits for.
    in_steps = [row for row in functions if row.calls >= steps and row.user_us]
    first = max(in_steps or functions, key=lambda row: row.user_us or 0.0, default=None)
    if first is None or not first.user_us:
        return "No function of yours ran in this span."
    where, when = at_line(first.file or "", first.line), "per step" if steps else "in this span"
    share = percent(100 * first.user_us / sum(parts.values()))
    cost = f"{duration(first.user_us)} {when}, {share} of host time"
    return f"{first.name} ({where}) is your most expensive function. With library calls and backward, it takes {cost}."


_OWNERS: dict[Whose, str] = {
    "yours": "your functions",
    "library": "libraries",
    "built in": "built-in functions",
    "operators": "operators and runtime calls",
}


def _note(parts: dict[Whose, float], steps: int, idle_threads: int) -> str:
    """Return "Host time per step: your functions 1.20 ms (12 %), …"."""
    whole = sum(parts.values()) or 1.0
    times = (f"{_OWNERS[owner]} {duration(us)} ({percent(100 * us / whole)})" for owner, us in parts.items())
    note = f"Host time {'per step' if steps else 'in this span'}: {', '.join(times)}."
    if idle_threads:
        note += f" {plural(idle_threads, 'thread')} without operators {'is' if idle_threads == 1 else 'are'} excluded."
    return note


def _parts(profile: Profile, functions: list[PythonFunction]) -> dict[Whose, float]:
    """Return the time of the user's functions, libraries, builtins, and the operators and runtime calls they make."""
    trace = profile.trace
    calls = profile.of(calling_tracks)[trace.track] & ~mask_of(trace.cats, PYTHON_FUNCTION.__eq__)[trace.cat]
    calls_ns = int(trace.self_ns[calls & ~mask_of(trace.names, is_step)[trace.name]].sum())
    times = {owner: sum(row.self_us for row in functions if row.owner == owner) for owner in _WHOSE}
    times["operators"] = us(calls_ns) / max(len(profile.of(StepWindows)), 1)
    return times


def _functions(profile: Profile, position: Int64s) -> Iterator[PythonFunction]:
    """Yield one row per name of these calls. position: among the slices of the host tree."""
    trace, (names, plain) = profile.trace, profile.of(plain_names)
    rows = profile.of(host_tree).index[position]
    name = plain[trace.name[rows]]
    outermost = _outermost(trace.ts[rows], trace.ts[rows] + trace.dur[rows], trace.track[rows], name)
    calls = np.bincount(name, minlength=len(names))
    self_ns = sums(name, trace.self_ns[rows], len(names))
    total_ns = sums(name, np.where(outermost, trace.dur[rows], 0), len(names))
    own_ns = sums(plain, profile.of(site_ns, program_only=True), len(names))
    steps = max(len(profile.of(StepWindows)), 1)
    called = np.flatnonzero(calls)
    for code in called[np.argsort(-self_ns[called], kind="stable")].tolist():
        key = names[code]
        frame, is_yours = frame_of(key), is_program_function(key)
        yield PythonFunction(
            key=key,
            name=readable_function(frame.function if frame else key),
            file=frame.file if frame else None,
            line=frame.line if frame else None,
            owner="yours" if is_yours else "library" if frame and frame.file else "built in",
            calls=int(calls[code]),
            slices=key,
            self_us=us(self_ns[code]) / steps,
            user_us=us(own_ns[code]) / steps if is_yours else None,
            total_us=us(total_ns[code]) / steps,
        )


def _outermost(start: Int64s, end: Int64s, track: Int64s, name: Int64s) -> Mask:
    """Return which calls are in no other call of the same name on their track."""
    group = distinct(name, track)[1]
    order = np.lexsort((-end, start, group))
    outermost = np.ones(len(order), bool)
    if not len(order):
        return outermost
    first = int(start.min())
    offset = group[order] * (int(end.max()) - first + 1)  # groups follow one another on one axis
    reach = np.maximum.accumulate(end[order] - first + offset)
    outermost[order[1:]] = (start[order] - first + offset)[1:] >= reach[:-1]
    return outermost
