"""To which compilation does a launch belong?

Forward: the innermost enclosing compiled region. Backward: through its sequence number to its forward. While
compiling or autotuning: the compilation that it serves. The graph key is that of the innermost enclosing
`## Call CompiledFxGraph KEY ##`; alone it names a compilation only where it belongs to just one.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from tb_torchcompile_plugin.generated_code.generated_code import GeneratedCode
from tb_torchcompile_plugin.generated_code.output_code import unique_graph_keys
from tb_torchcompile_plugin.profile.columns import Cover, Int64s, host_slices, package_calls, values_at
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.arrays import Codes, grouped
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names import slices
from tb_torchcompile_plugin.torch_names.kernels import defined_name
from tb_torchcompile_plugin.torch_names.operators import is_backward

Owned = list[tuple[int, int]]  # (index of a slice, code of the owner of the time inside it)


class Ownership:
    """Who owns a moment of a host thread. Owners are codes into `names`; -1 is unknown.

    `regions`, `compilations` and `backwards` are slices of compiled regions, of compiling, and of backward graphs
    whose forward is known, with their owners. `graph_keys` returns the key of the graph call around the start of each
    host slice (`None`, with caches off, is no key), `is_backward` whether that is in a step of autograd's backward.
    """

    def __init__(self, profile: Profile) -> None:
        self._trace = trace = profile.trace
        self._codes = Codes()
        self.names = self._codes.texts
        self.regions = self._named(slices.region_id)
        graph_calls = self._named(slices.graph_key)
        # Compilations inside the profile: the slice has no id, a near-empty `…_data` slice inside it has.
        compiling = [(row, row) for row in host_slices(trace, slices.is_compilation).tolist()]
        data = self._named(slices.compilation_id)
        around = Timelines(trace, compiling).at(np.array([row for row, _ in data], np.int64)).tolist()
        self.compilations = [(row, code) for row, (_, code) in zip(around, data) if row >= 0]
        frames = [*self.regions, *self.compilations]
        self.graph_keys = Timelines(trace, graph_calls).at
        # For each code that is a graph key the code of the one compile id it belongs to, otherwise -1.
        unique_keys = profile.data.of(unique_graph_keys) if profile.data else {}
        owners = {self.code(key): self.code(compile_id) for key, compile_id in unique_keys.items()}
        codes = [owners.get(code, -1) for code in range(len(self.names))]
        self._unique_keys = np.array(codes or [-1], np.int64)
        self.backwards = list(self._backwards(Timelines(trace, frames), graph_calls))
        self._owners = Timelines(trace, [*frames, *self.backwards])
        self.is_backward = Cover(trace, host_slices(trace, is_backward)).holds

    def compile_ids(self, index: Int64s) -> Int64s:
        """Return the compile id that owns the start of each host slice, or that of the graph key around it."""
        owners = self._owners.at(index)
        keys = self.graph_keys(index)
        return np.where(owners >= 0, owners, np.where(keys >= 0, self._unique_keys[keys], -1))

    def name(self, code: int) -> str | None:
        """Return the name of a code; None for -1."""
        return self.names[code] if code >= 0 else None

    def code(self, name: str) -> int:
        """Return the code of a name; a new one where the trace does not have it."""
        return self._codes.code(name)

    def _named(self, owner_of: Callable[[str], str | None]) -> Owned:
        rows = host_slices(self._trace, lambda name: owner_of(name) is not None).tolist()
        owners = ((row, owner_of(self._trace.names[self._trace.name[row]])) for row in rows)
        return [(row, self.code(owner)) for row, owner in owners if owner is not None]

    def _backwards(self, frames: "Timelines", graph_calls: Owned) -> Iterator[tuple[int, int]]:
        """Yield `CompiledFunctionBackward` slices with the compile id of their forward.

        It is found by the profiler's arrow from forward to backward; otherwise by the sequence number, which counts
        per thread; otherwise by the key of a graph called inside, where only one compile id has it.
        """
        trace = self._trace
        index = host_slices(trace, slices.FORWARD_GRAPH.__eq__)
        codes = frames.at(index)
        forwards = list(zip(index[codes >= 0].tolist(), codes[codes >= 0].tolist()))
        starts = {(int(trace.track[row]), int(trace.ts[row])): code for row, code in forwards}
        by_sequence: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for row, code in forwards:
            by_sequence[int(trace.sequence[row])].append((int(trace.ts[row]), int(trace.track[row]), code))
        arrows = _arrows(trace)
        backwards = host_slices(trace, slices.BACKWARD_GRAPH.__eq__).tolist()
        calls, keys = np.array(graph_calls, np.int64).reshape(-1, 2).T
        around, owners = Timelines(trace, zip(backwards, backwards)).at(calls), self._unique_keys[keys]
        is_known = (around >= 0) & (owners >= 0)
        by_key = dict(zip(around[is_known].tolist(), owners[is_known].tolist()))
        for row in backwards:
            owner = starts.get(arrows.get((int(trace.track[row]), int(trace.ts[row])), (-1, -1)))
            if owner is None and trace.sequence[row] >= 0:
                owner = _latest(by_sequence[int(trace.sequence[row])], int(trace.ts[row]))
            if owner is None:
                owner = by_key.get(row)
            if owner is not None:
                yield row, owner


def _arrows(trace: Trace) -> dict[tuple[int, int], tuple[int, int]]:
    """Return (track, ts) of the head of each forward → backward arrow → (track, ts) of its tail."""
    flows = trace.flows()
    rows = list(zip(*(flows[column].tolist() for column in ("id", "track", "ts", "start"))))
    tails = {flow: (track, ts) for flow, track, ts, start in rows if start}
    return {(track, ts): tails[flow] for flow, track, ts, start in rows if not start and flow in tails}


def _latest(forwards: list[tuple[int, int, int]], before: int) -> int | None:
    """Return the owner of the latest forward of one sequence number; None where two threads have such a forward."""
    earlier = [row for row in forwards if row[0] <= before]
    return max(earlier)[2] if len({track for _, track, _ in earlier}) == 1 else None


class Timelines:
    """The owner of the innermost owned slice at each moment of a track: a step function built once, searched often."""

    def __init__(self, trace: Trace, owned: Iterable[tuple[int, int]]) -> None:
        self._trace = trace
        by_track = grouped(owned, lambda row: int(trace.track[row[0]]))
        self._tracks = {track: _changes(trace, rows) for track, rows in by_track.items()}

    def at(self, index: Int64s) -> Int64s:
        """Return the owner of the start of each slice; -1 for index -1 and where it has none."""
        answer = np.full(len(index), -1, np.int64)
        if not self._tracks:  # as in a trace without slices, where no row can be looked up
            return answer
        tracks = np.where(index >= 0, self._trace.track[index], -1)
        for track, (times, owners) in self._tracks.items():
            rows = np.flatnonzero(tracks == track)
            moment = np.searchsorted(times, self._trace.ts[index[rows]], side="right") - 1
            answer[rows] = values_at(owners, moment)
        return answer


def _changes(trace: Trace, rows: Owned) -> tuple[Int64s, Int64s]:
    """Return when the owner of a track changes, and who it is from then on: the latest to start that still runs.

    Slices may cross: one that outlives the slice around it goes on to own its time.
    """
    index, owner = np.array(rows, np.int64).reshape(-1, 2).T
    start, dur = trace.ts[index], trace.dur[index]
    order = np.lexsort((-dur, start))
    order = order[dur[order] > 0]
    own = owner[order].tolist()
    begins, ends = start[order].tolist(), (start + dur)[order].tolist()
    # At one time ends come before starts; starts keep their order.
    moments = [(time, 1, rank) for rank, time in enumerate(begins)]
    moments += [(time, 0, rank) for rank, time in enumerate(ends)]
    running: list[int] = []
    times, owners = [], []
    for time, starts, rank in sorted(moments):
        if starts:
            running.append(rank)
        elif rank in running:
            running.remove(rank)
        times.append(time)
        owners.append(own[running[-1]] if running else -1)
    return np.array(times, np.int64), np.array(owners, np.int64)


def add_packages(
    trace: Trace, names: Int64s, launch: Int64s, compile_id: Int64s, ownership: Ownership, code: GeneratedCode
) -> None:
    """Fill in `compile_id` of kernels of AOTInductor's packages, which run in C++ and in no compiled region.

    A name that exactly one package defines is its own. Where the trace has Python's stacks, or the package was
    compiled with labels, all that one call launches belongs to one package: its library kernels, and names that
    several define.
    """
    if not code.packages:
        return
    free = compile_id < 0
    for name in np.unique(names[free]).tolist():
        owner = code.packages.get(trace.names[name]) or code.packages.get(defined_name(trace.names[name]))
        if owner is not None:
            compile_id[free & (names == name)] = ownership.code(owner)
    around = Timelines(trace, [(index, index) for index in package_calls(trace).tolist()]).at(launch)
    for call in np.unique(around[free & (around >= 0)]).tolist():
        launched = free & (around == call)
        owners = np.unique(compile_id[launched & (compile_id >= 0)])
        if len(owners) == 1:
            compile_id[launched] = owners[0]
