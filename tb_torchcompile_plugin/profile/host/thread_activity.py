"""What was a host thread doing at each moment, as far as that explains why a GPU waits for it?

Each nanosecond of a thread gets the first that holds of CAUSES. Their order is that of what to change first: a
thread that compiles inside the data loader compiles.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.profile.compiled.regions import RegionCall, every_break, region_calls
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, union
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.memo import Memo
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names import slices
from tb_torchcompile_plugin.torch_names.collectives import is_communication

Cause = Literal[
    "compile",
    "communication_wait",
    "synchronise",
    "data_loading",
    "guards_wrapper",
    "break_eager",
    "launch_call",
    "python",
    "nothing_launched",
]
CAUSES: tuple[Cause, ...] = get_args(Cause)
NOTHING = len(CAUSES) - 1

# What a host slice is by its name, where it is not the compiler's. Whatever has no rule is what its `cat` says.
_RULES: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("communication", is_communication),
    ("synchronise", slices.is_synchronisation),
    ("data", slices.is_data_loading),
    ("guards", (*slices.LOOKUPS, *slices.WRAPPERS).__contains__),
    ("graph", slices.is_graph),
    ("region", slices.is_region),
)
_KINDS = ("compile", *(kind for kind, _ in _RULES), "op", "call", "other")
_TOLD = tuple(kind for kind in _KINDS if kind not in ("region", "other"))  # by which a cause is told
_OF_CAT = {slices.OPERATOR: "op"} | dict.fromkeys(slices.RUNTIME_CATS, "call")


class _Moments(NamedTuple):
    """Times (ns), and how many of an activity's `times` are not after each."""

    at: Int64s
    behind: Int64s


class Activity(NamedTuple):
    """A step function: from `times[i]` to `times[i + 1]` the thread did `CAUSES[cause[i]]`. Before the first and after
    the last of `times` it did nothing that was recorded."""

    times: Int64s
    cause: npt.NDArray[np.int8]

    def causes(self) -> list[int]:
        """Those that it had, but for NOTHING."""
        return [cause for cause in range(NOTHING) if (self.cause == cause).any()]

    def between(self, cause: int, start: _Moments, end: _Moments) -> Int64s:
        """The ns of this cause between two moments each."""
        whole = np.cumsum(np.where(self.cause[:-1] == cause, np.diff(self.times), 0))
        before = np.concatenate(([0, 0], whole))
        return self._before(cause, before, end) - self._before(cause, before, start)

    def _before(self, cause: int, before: Int64s, moments: _Moments) -> Int64s:
        at, behind = moments
        running = np.where(self.cause[behind - 1] == cause, at - self.times[behind - 1], 0)
        return np.asarray(before[behind] + running, np.int64)


class ThreadActivity:
    """The threads of one trace; what a thread did is worked out when first asked for."""

    def __init__(self, profile: Profile) -> None:
        self._trace = trace = profile.trace
        self._kind_of_name = _kinds_of_names(trace.names)
        self._kind_of_cat = np.array([_KINDS.index(_OF_CAT.get(cat, "other")) for cat in trace.cats], np.int8)
        self._breaks = _breaks_by_track(trace, profile.of(region_calls))
        self._memo = Memo()

    def of(self, track: int) -> Activity:
        return self._memo.get(track, partial(self._activity, track))

    def split(self, starts: Int64s, ends: Int64s, tracks: Int64s) -> npt.NDArray[np.int64]:
        """ns of each cause (columns) in each window (rows) of the thread that `tracks` names; -1 names none.

        The columns of a row sum to the length of its window.
        """
        answer = np.zeros((len(starts), len(CAUSES)), np.int64)
        for track in np.unique(tracks[tracks >= 0]).tolist():
            here = np.flatnonzero(tracks == track)
            activity = self.of(track)
            begin, end = (
                _Moments(at, np.searchsorted(activity.times, at, "right"))
                for at in (starts[here], ends[here])
            )
            for cause in activity.causes():
                answer[here, cause] = activity.between(cause, begin, end)
        answer[:, NOTHING] = ends - starts - answer.sum(axis=1)
        assert (answer >= 0).all()
        return answer

    def _activity(self, track: int) -> Activity:
        trace = self._trace
        rows = slice(int(trace.track_bounds[track]), int(trace.track_bounds[track + 1]))
        starts = np.asarray(trace.ts[rows])
        ends = starts + trace.dur[rows]
        kinds = self._kind_of_name[trace.name[rows]]
        kinds = np.where(kinds >= 0, kinds, self._kind_of_cat[trace.cat[rows]])
        layers = {}
        for kind in _TOLD:
            here = np.flatnonzero(kinds == _KINDS.index(kind))
            layers[kind] = union(starts[here], ends[here])
        layers["all"] = union(starts, ends)
        layers["break"] = self._breaks.get(track, union(starts[:0], ends[:0]))
        return _first_match(layers)


def _first_match(layers: dict[str, Intervals]) -> Activity:
    """What runs inside a graph's execution belongs to the graph: there is nothing eager in it."""
    times = np.sort(np.concatenate([edge for layer in layers.values() for edge in layer]), kind="stable")
    on = {kind: _covers(layer, times) for kind, layer in layers.items()}
    conditions = [
        on["compile"],
        on["communication"],
        on["synchronise"],
        on["data"],
        on["guards"],
        (on["op"] | on["break"]) & ~on["graph"],
        on["call"] | (on["op"] & on["graph"]),
        on["all"],
    ]
    cause = np.full(len(times), NOTHING, np.int8)
    for code in reversed(range(NOTHING)):
        cause[conditions[code]] = code
    changed = np.concatenate(([True], cause[1:] != cause[:-1])) if len(times) else np.zeros(0, bool)
    return Activity(times[changed], cause[changed])


def _covers(layer: Intervals, times: Int64s) -> npt.NDArray[np.bool_]:
    """times: in order, among them the edges of the layer."""
    change = np.zeros(len(times) + 1, np.int32)
    change[np.searchsorted(times, layer.starts)] = 1
    change[np.searchsorted(times, layer.ends)] -= 1
    return np.asarray(np.cumsum(change[:-1]) > 0)


def _kinds_of_names(names: list[str]) -> npt.NDArray[np.int8]:
    """-1 where the name does not tell."""
    rules = list(enumerate((holds for _, holds in _RULES), 1))
    kinds = (
        0 if at_work else next((kind for kind, holds in rules if holds(name)), -1)
        for name, at_work in zip(names, slices.compiling(names), strict=True)
    )
    return np.fromiter(kinds, np.int8, len(names))


def _breaks_by_track(trace: Trace, calls: list[RegionCall]) -> dict[int, Intervals]:
    by_track = grouped(every_break(calls), lambda gap: int(trace.track[gap.call.index]))
    return {
        track: union(np.array([gap.start for gap in gaps]), np.array([gap.end for gap in gaps]))
        for track, gaps in by_track.items()
    }
