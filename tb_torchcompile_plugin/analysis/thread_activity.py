"""What was a host thread doing at each moment, as far as that explains why a GPU waits for it?

Each nanosecond of a thread gets the first that holds of CAUSES. Their order is that of what to change first: a
thread that compiles inside the data loader compiles.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.analysis.intervals import Int64s, Intervals, covered_ns, union
from tb_torchcompile_plugin.analysis.regions import Call, breaks, frames
from tb_torchcompile_plugin.reader.kineto import RUNTIME_CATS, Trace

CAUSES = (
    "compile",
    "communication_wait",
    "synchronise",
    "data_loading",
    "guards_wrapper",
    "break_eager",
    "launch_call",
    "python",
    "nothing_launched",
)
NOTHING = len(CAUSES) - 1

# What a host slice is by its name. Whatever has no rule is what its `cat` says.
_RULES = (
    (
        "compile",
        r".* \(dynamo_timed\)$|.*_data:.*\bcompile_id=|(?:_compile\.compile_inner|entire_frame_compile)$",
    ),
    (
        "communication",
        r"(?:nccl|rccl|gloo|mpi|ucc|xccl):|_?c10d(?:_functional)?::|record_param_comms$|.*torch\._C\._distributed_c10d",
    ),
    ("synchronise", r"(?:cuda|cu|hip)[A-Z]\w*Synchronize$|(?:cuda|hip)Memcpy$|hipMemcpyWithStream$"),
    ("data", r"enumerate\(DataLoader\)|.*\btorch/utils/data/"),
    ("guards", r"(?:TorchDynamo Cache Lookup|Pregraph bytecode|AOTDispatcher Runtime Wrapper Prologue)$"),
    ("graph", r"CompiledFunction(?:Backward)?$|## Call CompiledFxGraph "),
    ("region", r"Torch-Compiled Region"),
)
_NAMED = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _RULES))
_PHASE = re.compile(r"(?P<phase>.+?)(?: \(dynamo_timed\)$|_data:.*\bcompile_id=)")
_KINDS = (*(kind for kind, _ in _RULES), "op", "call", "other")
_OF_CAT = {"cpu_op": "op"} | dict.fromkeys(RUNTIME_CATS, "call")


class Activity(NamedTuple):
    """A step function: from `times[i]` to `times[i + 1]` the thread did `CAUSES[cause[i]]`. Before the first and after
    the last of `times` it did nothing that was recorded."""

    times: Int64s
    cause: Int64s

    def intervals(self, cause: int) -> Intervals:
        here = np.flatnonzero(self.cause[:-1] == cause)
        return Intervals(self.times[here], self.times[here + 1])


class ThreadActivity:
    """The threads of one trace; what a thread did is worked out when first asked for."""

    def __init__(self, trace: Trace, calls: list[Call]) -> None:
        """calls: those of the compiled regions, which tell where graphs broke."""
        self._trace = trace
        self._kind_of_name = _kinds_of_names(trace.names)
        self._kind_of_cat = np.array([_KINDS.index(_OF_CAT.get(cat, "other")) for cat in trace.cats], np.int8)
        self._breaks = _breaks_by_track(trace, calls)
        self._known: dict[int, Activity] = {}

    def of(self, track: int) -> Activity:
        if track not in self._known:
            self._known[track] = self._activity(track)
        return self._known[track]

    def split(self, starts: Int64s, ends: Int64s, tracks: Int64s) -> npt.NDArray[np.int64]:
        """ns of each cause (columns) in each window (rows) of the thread that `tracks` names; -1 names none.

        The columns of a row sum to the length of its window.
        """
        answer = np.zeros((len(starts), len(CAUSES)), np.int64)
        for track in np.unique(tracks[tracks >= 0]).tolist():
            here = np.flatnonzero(tracks == track)
            activity = self.of(track)
            for cause in range(NOTHING):
                answer[here, cause] = covered_ns(activity.intervals(cause), starts[here], ends[here])
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
        for code, kind in enumerate(_KINDS):
            here = kinds == code
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
    cause = np.full(len(times), NOTHING, np.int64)
    for code in reversed(range(NOTHING)):
        cause[conditions[code]] = code
    changed = np.concatenate(([True], cause[1:] != cause[:-1])) if len(times) else np.zeros(0, bool)
    return Activity(times[changed], cause[changed])


def _covers(layer: Intervals, times: Int64s) -> npt.NDArray[np.bool_]:
    """times: in order, among them the edges of the layer."""
    change = np.zeros(len(times) + 1, np.int32)
    change[np.searchsorted(times, layer.starts)] = 1
    np.subtract.at(change, np.searchsorted(times, layer.ends), 1)
    return np.asarray(np.cumsum(change[:-1]) > 0)


def _kinds_of_names(names: list[str]) -> npt.NDArray[np.int8]:
    """-1 where the name does not tell. Since torch 2.11 a phase is there under its plain name, too."""
    phases = {match["phase"] for name in names if (match := _PHASE.match(name))}
    kinds = np.full(len(names), -1, np.int8)
    for code, name in enumerate(names):
        if name in phases:
            kinds[code] = _KINDS.index("compile")
        elif (match := _NAMED.match(name)) and match.lastgroup:
            kinds[code] = _KINDS.index(match.lastgroup)
    return kinds


def _breaks_by_track(trace: Trace, calls: Iterable[Call]) -> dict[int, Intervals]:
    gaps: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for frame in frames(list(calls)):
        for found in breaks(frame):
            gaps[int(trace.track[found.call.index])].append((found.start, found.end))
    return {track: union(*np.array(moments, np.int64).reshape(-1, 2).T) for track, moments in gaps.items()}
