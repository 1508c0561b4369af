"""How did each call of a compiled graph run: replayed as a CUDA graph, recorded as one, or kernel by kernel?

The trace alone shows it: by calls into the runtime that launch and capture graphs, and by torch's own slices around
warming up and recording. A call may hold several replays: inductor may cut a graph around what no CUDA graph holds.
"""

from dataclasses import dataclass

import numpy as np

from tb_torchcompile_plugin.profile.columns import Cover, Int64s, Mask, host_slices, mask_at, mask_of, sums
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership, Timelines
from tb_torchcompile_plugin.profile.compiled.regions import marks_graphs
from tb_torchcompile_plugin.profile.gpu.launches import launch_calls
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.nest import first_ancestor
from tb_torchcompile_plugin.torch_names import slices


@dataclass(frozen=True, eq=False)
class GraphRuns:
    """Calls of compiled graphs as columns, in the order of the trace."""

    row: Int64s
    compile_id: Int64s  # code of `Ownership`, -1 unknown
    backward: Mask
    # How many began inside the call.
    preparations: Int64s  # before warming up
    launches: Int64s  # of graphs
    events: Int64s  # GPU events of graphs
    recorded: Mask  # calls in which torch recorded: it launches what it has recorded at once

    @property
    def replayed(self) -> Mask:
        """Calls that launched graphs recorded before, and recorded none."""
        return np.asarray((self.launches > 0) & ~self.recorded & (self.preparations == 0))


def graph_runs(profile: Profile) -> GraphRuns:
    """Return every call of a compiled graph in the trace, on any thread."""
    trace, launches = profile.trace, profile.of(launch_calls)
    # torch before 2.11 marks only graphs that have a backward.
    is_call = slices.is_graph_call if marks_graphs(trace) else slices.is_graph
    calls = host_slices(trace, is_call)
    around = first_ancestor(trace.parent, trace.parent[calls], mask_at(calls, len(trace)))
    row = calls[around < 0]
    graphs = Timelines(trace, [(slice_, number) for number, slice_ in enumerate(row.tolist())])
    ownership = profile.of(Ownership)
    preparing = host_slices(trace, slices.NEW_FUNCTION.__eq__)
    runtime = trace.select(cat=slices.RUNTIME_CATS)
    replays = runtime[mask_of(trace.names, slices.is_replay)[trace.name[runtime]]]
    captures = runtime[mask_of(trace.names, slices.is_capture)[trace.name[runtime]]]
    # Without that of the memory pool, which is empty.
    captures = captures[~Cover(trace, preparing).holds(captures)]
    of_replays = launches.call[launches.replay]

    def inside(rows: Int64s, weights: Int64s | None = None) -> Int64s:
        return sums(graphs.at(rows), np.ones_like(rows) if weights is None else weights, len(row))

    recordings, captured = inside(host_slices(trace, slices.RECORDING.__eq__)), inside(captures)
    return GraphRuns(
        row=row,
        compile_id=ownership.compile_ids(row),
        backward=ownership.is_backward(row),
        preparations=inside(preparing),
        launches=inside(replays),
        events=inside(of_replays, launches.events[launches.replay]),
        recorded=np.asarray((recordings > 0) | (captured > 0)),
    )
