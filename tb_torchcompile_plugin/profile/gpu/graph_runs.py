"""How did each call of a compiled graph run: replayed as a CUDA graph, recorded as one, or kernel by kernel?

Read off the trace alone: the calls into the runtime that launch and capture graphs, and torch's own slices around
warming up and recording. A call may hold several replays: inductor may cut a graph around what no CUDA graph holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.profile.columns import by_track, host_slices, mask_of
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import marks_graphs
from tb_torchcompile_plugin.profile.gpu.launches import launch_calls
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, within
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names import slices

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class GraphRuns:
    """Calls of compiled graphs as columns, in the order of the trace. `row`: the slice; `compile_id`: a code of
    `Ownership`, -1 for nobody's. How many began inside: `preparations` (before warming up), `recordings`, `captures`,
    `launches` of graphs. `events`: GPU events out of graphs. launch_ns: of the calls that launched graphs."""

    row: Int64s
    compile_id: Int64s
    backward: Bools
    preparations: Int64s
    recordings: Int64s
    captures: Int64s
    launches: Int64s
    events: Int64s
    launch_ns: Int64s

    @property
    def recorded(self) -> Bools:
        """Calls in which torch recorded: it launches what it has recorded at once."""
        return np.asarray((self.recordings > 0) | (self.captures > 0))

    @property
    def replayed(self) -> Bools:
        """Calls that launched graphs recorded before, and recorded none."""
        return np.asarray((self.launches > 0) & ~self.recorded & (self.preparations == 0))

    @property
    def replays(self) -> Int64s:
        """Launches of graphs that had been recorded before: each recording launches its own once."""
        return np.maximum(self.launches - np.maximum(self.recordings, self.captures), 0)


def graph_runs(profile: Profile) -> GraphRuns:
    """Every call of a compiled graph in the trace, on any thread."""
    trace, launches = profile.trace, profile.of(launch_calls)
    row = _outermost(trace, _graph_calls(trace))
    ownership = profile.of(Ownership)
    preparing = host_slices(trace, slices.is_preparation)
    captures = _calls(trace, slices.is_capture)
    captures = captures[
        _around(trace, _outermost(trace, preparing), captures) < 0
    ]  # the pool's own, which is empty
    replays = _calls(trace, slices.is_replay)
    of_replays = launches.call[launches.replay]

    def inside(rows: Int64s, weights: Int64s | None = None) -> Int64s:
        around = _around(trace, row, rows)
        return np.bincount(
            around[around >= 0], None if weights is None else weights[around >= 0], len(row)
        ).astype(np.int64)

    return GraphRuns(
        row=row,
        compile_id=ownership.compile_ids(row),
        backward=ownership.is_backward(row),
        preparations=inside(preparing),
        recordings=inside(host_slices(trace, slices.is_recording)),
        captures=inside(captures),
        launches=inside(replays),
        events=inside(of_replays, launches.events[launches.replay]),
        launch_ns=inside(replays, trace.dur[replays]),
    )


def _graph_calls(trace: Trace) -> Int64s:
    """torch before 2.11 marks those only that have a backward."""
    wanted = slices.is_graph_call if marks_graphs(trace) else slices.is_graph
    return host_slices(trace, wanted)


def _calls(trace: Trace, wanted: Callable[[str], bool]) -> Int64s:
    """Calls into the runtime or driver of these names."""
    rows = trace.select(cat=slices.RUNTIME_CATS)
    return rows[mask_of(trace.names, wanted)[trace.name[rows]]]


def _outermost(trace: Trace, rows: Int64s) -> Int64s:
    """Those that none of the others holds, in order of time on each thread."""
    kept = []
    for _, mine in by_track(trace, rows):
        mine = mine[np.lexsort((-trace.dur[mine], trace.ts[mine]))]
        reach = np.maximum.accumulate(trace.ts[mine] + trace.dur[mine])
        kept.append(mine[np.concatenate(([True], trace.ts[mine][1:] >= reach[:-1]))])
    return np.concatenate(kept) if kept else np.zeros(0, np.int64)


def _around(trace: Trace, outer: Int64s, rows: Int64s) -> Int64s:
    """For each row the place in `outer` of the slice in which it begins, -1 for none. outer: none holds another."""
    around = np.full(len(rows), -1, np.int64)
    for track, mine in by_track(trace, outer):
        here = np.flatnonzero(trace.track[rows] == track)
        places = np.flatnonzero(trace.track[outer] == track)
        place = within(Intervals(trace.ts[mine], trace.ts[mine] + trace.dur[mine]), trace.ts[rows[here]])
        around[here] = np.where(place >= 0, places[place], -1)
    return around
