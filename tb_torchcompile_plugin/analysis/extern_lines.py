"""Which lines of the user's program does a library call inside a compiled graph compute?

The calls of an operator stand in the generated code in the order in which they run: the k-th call inside a graph's
execution is the k-th in its code, where there are as many of one as of the other. Else nothing is claimed. Kernels that
a CUDA graph replays have no calls.
"""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np

from tb_torchcompile_plugin.analysis.compile_time import Frame
from tb_torchcompile_plugin.analysis.generated_code import GeneratedCode, GraphCode
from tb_torchcompile_plugin.analysis.intervals import Int64s
from tb_torchcompile_plugin.analysis.kernel_lines import distinct
from tb_torchcompile_plugin.analysis.kernels import Launches
from tb_torchcompile_plugin.analysis.ownership import Ownership
from tb_torchcompile_plugin.reader.kineto import Trace

_GRAPH_CALL = re.compile(r"^## Call CompiledFxGraph ")


class ExternLines:
    """The lines of each launch of one device, where they can be told."""

    def __init__(self, trace: Trace, rows: Launches, ownership: Ownership, code: GeneratedCode) -> None:
        self._tops = _tops(trace, rows)
        self._lines: dict[int, list[Frame]] = {}  # by the row of the call
        for (compile_id, key), calls in _by_graph(rows, self._tops).items():
            graph = code.graph(ownership.name(compile_id), ownership.name(key))
            if graph is not None:
                self._learn(trace, graph, calls)

    def of(self, places: Int64s) -> list[Frame]:
        """The distinct lines of these launches."""
        calls = np.unique(self._tops[places]).tolist()
        return distinct(frame for call in calls for frame in self._lines.get(call, []))

    def _learn(self, trace: Trace, graph: GraphCode, calls: list[int]) -> None:
        by_execution: dict[tuple[int, str], list[int]] = defaultdict(list)
        for row in sorted(calls, key=lambda row: int(trace.ts[row])):
            by_execution[int(trace.parent[row]), trace.names[trace.name[row]]].append(row)
        for (_, operator), found in by_execution.items():
            written = [call for call in graph.calls if call.operator == operator]
            if len(found) == len(written):
                for row, call in zip(found, written, strict=True):
                    self._lines[row] = graph.call_lines(call)


def _tops(trace: Trace, rows: Launches) -> Int64s:
    """For each launch the outermost operator around it that a graph's execution calls itself; -1 without one."""
    is_graph = np.array([_GRAPH_CALL.match(name) is not None for name in trace.names] or [False])
    found = np.full(len(rows.op), -1, np.int64)
    here = np.flatnonzero((rows.graph_key >= 0) & (rows.op >= 0))
    at = rows.op[here]
    while len(here):
        parent = trace.parent[at]
        inside = (parent >= 0) & is_graph[trace.name[parent]]
        found[here[inside]] = at[inside]
        climb = ~inside & (parent >= 0)
        here, at = here[climb], parent[climb]
    return found


def _by_graph(rows: Launches, tops: Int64s) -> dict[tuple[int, int], list[int]]:
    known = tops >= 0
    keys = np.stack([rows.compile_id[known], rows.graph_key[known], tops[known]])
    calls: dict[tuple[int, int], list[int]] = defaultdict(list)
    for compile_id, key, top in np.unique(keys, axis=1).T.tolist():
        calls[compile_id, key].append(top)
    return calls
