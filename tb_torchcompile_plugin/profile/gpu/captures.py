"""How did each call of a compiled graph run, and where do the kernels of replayed CUDA graphs come from?

A call is replayed as a CUDA graph, recorded as one, or runs kernel by kernel. The trace alone shows it: by calls into
the runtime that launch and capture graphs, and by torch's own slices around warming up and recording. A call may hold
several replays: inductor may cut a graph around what no CUDA graph holds.

Traces of capturing the graphs show what a replay does not. While a graph is captured, calls that launch run inside
operators, modules and Python functions, and the GPU does nothing. A replay runs the same launches in the same order,
without any of them. The two are joined if they have equally many launches of the same kinds, and the same names where
the capture has them. Otherwise the origin of the kernels is unknown. What torch's `mark_kernels` wrote next to a kernel
is shown as the module.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.errors import Notice, UserError
from tb_torchcompile_plugin.profile.columns import (
    Cover,
    Int64s,
    Intervals,
    Mask,
    codes_of,
    host_slices,
    mask_at,
    mask_of,
    sums,
    values_at,
    within,
)
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership, Timelines
from tb_torchcompile_plugin.profile.compiled.regions import marks_graphs
from tb_torchcompile_plugin.profile.gpu.launches import launch_calls
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.profile import CaptureTrace, Profile
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.reader.trace.nest import first_ancestor
from tb_torchcompile_plugin.torch_names import slices
from tb_torchcompile_plugin.torch_names.kernels import has_triton_prefix
from tb_torchcompile_plugin.torch_names.python_frames import is_module_call, is_user_function, module_of


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
    calls = host_slices(trace, slices.is_graph_call if marks_graphs(trace) else slices.is_graph)
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

    def inside(rows: Int64s, weights: Int64s | None = None) -> Int64s:
        return sums(graphs.at(rows), np.ones_like(rows) if weights is None else weights, len(row))

    recordings, captured = inside(host_slices(trace, slices.RECORDING.__eq__)), inside(captures)
    return GraphRuns(
        row=row,
        compile_id=ownership.compile_ids(row),
        backward=ownership.is_backward(row),
        preparations=inside(preparing),
        launches=inside(replays),
        events=inside(launches.call[launches.replay], launches.events[launches.replay]),
        recorded=np.asarray((recordings > 0) | (captured > 0)),
    )


_FILE_SIZE = re.compile(r"(?:^|_)bs_(\d+)")  # as SGLang and ATOM name the trace of one size
_KINDS = ("launch", "memory_copy")  # of captured calls


class Origin(NamedTuple):
    """Where a kernel was launched when its graph was captured; "" is unknown."""

    operator: str = ""
    module: str = ""
    function: str = ""  # the user's innermost one, as a stack names it


class CapturedGraph(NamedTuple):
    """The launches that a CUDA graph was captured from, in their order."""

    group: tuple[object, ...]  # the same for all graphs that one batch replays
    size: int | None  # tokens or requests of the batch
    launches: list[str]  # names of inductor's kernels, otherwise kinds
    origins: list[Origin]


class EngineBatch(NamedTuple):
    """One batch of an inference engine, or the replay of a graph outside of any."""

    requested: int | None  # tokens or requests, None unknown
    captured: int | None  # the size that its graphs were captured for, None unknown
    replays: int
    joined: int  # replays of which the origin of kernels is known


class GraphOrigins(NamedTuple):
    """The origins of GPU events in replays."""

    code: Int64s  # by row of the trace, into `origins`; -1 unknown
    origins: list[Origin]
    batches: list[EngineBatch]
    sizes: set[int]  # that graphs were captured for
    notices: list[Notice]  # capture traces that could not be read

    def of(self, index: Int64s) -> list[list[str]]:
        """Return the distinct operators, modules and functions that GPU events come from."""
        origins = [self.origins[code] for code in np.unique(self.code[index]).tolist() if code >= 0]
        return [[*dict.fromkeys(filter(None, names))] for names in zip(*origins)] or [[], [], []]


class _Replay(NamedTuple):
    rows: Int64s  # of the trace: GPU events in the order in which the graph was captured
    launches: list[str]  # as of a captured graph, of each row


def graph_origins(profile: Profile) -> GraphOrigins:
    """Return where kernels in replays come from, and the batches that replayed them or ran without."""
    trace = profile.trace
    answer = GraphOrigins(np.full(len(trace), -1, np.int32), [], [], set(), [])
    batches = list(_batches(profile)) if any(map(slices.is_replay, trace.names)) else []
    graphs = _captured_graphs(profile.captures, [size for size, _ in batches], answer)
    groups = list(grouped(graphs, lambda graph: graph.group).values())
    marks, codes = ["", *trace.texts.get("annotation", ())], {Origin(): -1}
    joined_of: dict[tuple[object, ...], list[list[Origin]]] = {}
    for requested, replays in batches:
        captured = _padded(requested, answer.sizes)
        key = (captured, *(tuple(replay.launches) for replay in replays))
        if key not in joined_of:
            joined_of[key] = [_origins(groups, captured, replays, number) for number in range(len(replays))]
        joined = joined_of[key]
        for replay, origins in zip(replays, joined, strict=True) if graphs or len(marks) > 1 else ():
            mark = codes_of(trace, "annotation", replay.rows) + 1
            marked = (
                origin._replace(module=origin.module or marks[number])
                for origin, number in zip(origins, mark.tolist(), strict=True)
            )
            answer.code[replay.rows] = [codes.setdefault(origin, len(codes) - 1) for origin in marked]
        known = sum(any(map(any, origins)) for origins in joined)
        answer.batches.append(EngineBatch(requested, captured if replays else None, len(replays), known))
    answer.origins.extend(list(codes)[1:])
    return answer


def _batches(profile: Profile) -> Iterator[tuple[int | None, list[_Replay]]]:
    """Yield each batch with its size and the replays in it, then each replay outside of any."""
    trace, work = profile.trace, profile.of(gpu_work)
    launch = trace.launch_of()[work.index]
    inside = (launch >= 0) & mask_of(trace.names, slices.is_replay)[trace.name[launch]]
    index, call = work.index[inside], launch[inside]
    node = codes_of(trace, "graph_node", index)
    order = np.lexsort((trace.ts[index], node, trace.ts[call]))
    index, call, node = index[order], call[order], node[order]
    labels, batch = _labelled(trace, slices.batch_size, trace.ts[call])
    kinds = [_KINDS[cat != slices.KERNEL] for cat in trace.cats]
    replays: dict[int, list[_Replay]] = {}
    for at in np.split(np.arange(len(index)), np.flatnonzero(np.diff(call)) + 1) if len(index) else ():
        rows = index[at]
        # Without node ids, work on several streams has no known order.
        is_ordered = (node[at] >= 0).all() or len(np.unique(trace.track[rows])) == 1
        pairs = zip(trace.name[rows].tolist(), trace.cat[rows].tolist(), strict=True)
        launches = [_launch(trace.names[name], kinds[cat]) if is_ordered else "" for name, cat in pairs]
        replays.setdefault(int(batch[at[0]]), []).append(_Replay(rows, launches))
    yield from ((slices.batch_size(name), replays.get(number, [])) for number, name in enumerate(labels))
    yield from ((None, [replay]) for replay in replays.get(-1, ()))


def _labelled(trace: Trace, size_of: Callable[[str], object], times: Int64s) -> tuple[list[str], Int64s]:
    """Return the labels that name a size in order of time, and for each of `times` which label it is in, -1 none."""
    labels = host_slices(trace, lambda name: size_of(name) is not None, (slices.LABEL,))
    labels = labels[np.argsort(trace.ts[labels], kind="stable")]
    windows = Intervals(trace.ts[labels], trace.ts[labels] + trace.dur[labels])
    return [trace.names[code] for code in trace.name[labels].tolist()], within(windows, times)


def _padded(requested: int | None, sizes: Iterable[int]) -> int | None:
    """Return the size of the graph that a batch replays: the smallest that holds it."""
    return min((size for size in sizes if requested is not None and size >= requested), default=None)


def _origins(
    groups: list[list[CapturedGraph]], captured: int | None, replays: list[_Replay], number: int
) -> list[Origin]:
    """Return the origins of the GPU events of one replay of a batch, as far as all captures that fit agree."""
    of_size = [graphs for graphs in groups if captured is None or graphs[0].size in (captured, None)]
    launches = [replay.launches for replay in replays]
    whole = [graphs[number] for graphs in of_size if [graph.launches for graph in graphs] == launches]
    alike = (graph for graphs in of_size for graph in graphs if graph.launches == launches[number])
    fitting = whole or list(alike)
    if not fitting:
        return [Origin()] * len(replays[number].rows)
    return [
        Origin(*(values[0] if len({*values}) == 1 else "" for values in zip(*origins, strict=True)))
        for origins in zip(*(graph.origins for graph in fitting), strict=True)
    ]


def _captured_graphs(
    captures: Sequence[CaptureTrace], requested: Sequence[int | None], answer: GraphOrigins
) -> list[CapturedGraph]:
    """Return the graphs that the batches need; add all captured sizes, and what could not be read, to the answer."""
    sizes = [int(match[1]) if (match := _FILE_SIZE.search(file.name)) else None for file, _ in captures]
    answer.sizes.update(size for size in sizes if size is not None)
    needed = {None, *(_padded(size, answer.sizes) for size in requested)}
    graphs: list[CapturedGraph] = []
    notices: list[Notice] = []
    for (file, read), size in zip(captures, sizes, strict=True):
        try:
            if requested and (size in needed or None in requested):
                trace = read()
                notices += filter(lambda notice: notice.is_missing_something, trace.notices)
                graphs += _graphs_in(Profile(trace, None), file.path, size)
        except UserError as error:
            notices.append(error.notice)
    kept = "Kernels in replays of its CUDA graphs may have no operator, module or line"
    answer.notices.extend(replace(notice, kept=kept) for notice in notices)
    answer.sizes.update(graph.size for graph in graphs if graph.size is not None)
    return graphs


def _graphs_in(profile: Profile, file: str, size: int | None) -> Iterator[CapturedGraph]:
    """Yield the graphs that were captured in a trace, in order of time. size: in the name of the file."""
    trace = profile.trace
    runtime = trace.select(cat=slices.RUNTIME_CATS)
    runtime = runtime[np.argsort(trace.ts[runtime], kind="stable")]
    kinds = [slices.call_kind(name) for name in trace.names]
    name = trace.name[runtime]
    begins = runtime[mask_of(trace.names, slices.is_capture)[name]]
    ends = trace.ts[runtime[mask_of(trace.names, slices.is_capture_end)[name]]]
    # Calls with GPU work ran immediately: they were not captured.
    ran = np.isin(runtime, trace.launch_of()[profile.of(gpu_work).index])
    calls = runtime[mask_of(kinds, _KINDS.__contains__)[name] & ~ran]
    labels, label_of = _labelled(trace, slices.captured_size, trace.ts[begins])
    until = np.append(ends, np.iinfo(np.int64).max)[np.searchsorted(ends, trace.ts[begins])]
    for begin, end, at in zip(trace.ts[begins].tolist(), until.tolist(), label_of.tolist(), strict=True):
        captured = calls[slice(*np.searchsorted(trace.ts[calls], (begin, end)))]
        label = labels[at] if at >= 0 else ""
        origins = list(_launched_from(trace, captured))
        codes = trace.name[captured].tolist()
        launches = [_launch(row.operator, kinds[code]) for row, code in zip(origins, codes, strict=True)]
        of_graph = int(slices.captured_size(label) or 0) or size
        yield CapturedGraph((file, label or size or begin), of_graph, launches, origins)


def _launched_from(trace: Trace, calls: Int64s) -> Iterator[Origin]:
    is_op = mask_of(trace.cats, slices.OPERATOR.__eq__)[trace.cat]
    wanted = (is_op, *(mask_of(trace.names, test)[trace.name] for test in (is_module_call, is_user_function)))
    columns = [values_at(trace.name, first_ancestor(trace.parent, calls, mask)) for mask in wanted]
    names = [*trace.names, ""]  # the last is read for -1
    for operator, module, function in np.stack(columns, 1).tolist():
        yield Origin(names[operator], module_of(names[module]) or "", names[function])


def _launch(name: str, kind: str) -> str:
    return name if has_triton_prefix(name) else kind
