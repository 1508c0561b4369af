"""Which host operators ran eager, and which loop of the program launches the same few of them again and again?

Eager are those that start outside of everything that torch.compile made. Compiled are regions, the lookups before them,
backward graphs with the autograd nodes that call them, calls of packages, and compiling. Of nested eager operators the
outermost counts; compiled code that runs inside it is no part of its time.
"""

from itertools import compress
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.profile import columns
from tb_torchcompile_plugin.profile.columns import Cover, Int64s, Mask, host_slices, sums
from tb_torchcompile_plugin.profile.compiled.regions import all_calls, marks_graphs, region_calls
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, launching, profiled_time
from tb_torchcompile_plugin.torch_names import slices
from tb_torchcompile_plugin.torch_names.operators import node_name

# A feature pyramid has up to seven levels, whose sizes differ: a loop over them is no loop over samples.
MIN_ITERATIONS = 8
# Of an iteration: one for each tensor of a list is an optimizer, a norm, or a copy of the state.
_MIN_OPERATORS = 2
# Of the operators of two iterations, those that both have: a random flip is in one of ten operators.
_SAME = 0.75
_MAX_SEARCHED = 1 << 15  # operators in which a loop is searched for: it takes time for each name


class Repetition(NamedTuple):
    """Loops whose iterations begin with one operator, as indices into the sequence."""

    first: Int64s  # of each loop, where its first iteration begins
    second: Int64s
    last: Int64s
    iterations: Int64s


def repetition(code: Int64s, part: Int64s) -> Repetition | None:
    """Return the loops that hold most of a sequence of operators.

    code: of the name of each operator. part: in which part of the sequence it is; a loop is within one.
    """
    searched = slice(None, _MAX_SEARCHED)
    names, counts = np.unique(code[searched], return_counts=True)
    covered = {
        name: int((found.last - found.first).sum())
        for name in names[counts >= MIN_ITERATIONS].tolist()
        if (found := _loops_from(name, code[searched], part[searched])) is not None
    }
    # Of equal ones the loop with the longest iteration: its parts may be alike, too.
    best = max(covered, key=lambda name: (covered[name], -int((code == name).sum())), default=None)
    return None if best is None else _loops_from(best, code, part)


def _loops_from(name: int, code: Int64s, part: Int64s) -> Repetition | None:
    """Return the loops whose iterations begin with this operator, None without one."""
    begins = np.flatnonzero(code == name)
    is_whole = part[begins[1:]] == part[begins[:-1]]  # of each iteration but the last of a loop
    continues = np.append(is_whole[1:] & is_whole[:-1] & _are_alike(begins, code), False)
    starts = np.flatnonzero(is_whole & ~np.append(False, continues)[: len(is_whole)])
    ends = np.flatnonzero(is_whole & ~continues) + 1
    is_long = (ends - starts + 1 >= MIN_ITERATIONS) & (begins[starts + 1] - begins[starts] >= _MIN_OPERATORS)
    starts, ends = starts[is_long], ends[is_long]
    loops = Repetition(begins[starts], begins[starts + 1], begins[ends], ends - starts + 1)
    return loops if len(starts) else None


def _are_alike(begins: Int64s, code: Int64s) -> Mask:
    """Return for each iteration but the last two whether it and the next have most operators in common."""
    number = np.repeat(np.arange(len(begins) - 1), np.diff(begins))
    size = int(code.max()) + 1
    keys, counts = np.unique(number * size + code[begins[0] : begins[-1]], return_counts=True)
    following = np.minimum(np.searchsorted(keys, keys + size), len(keys) - 1)
    shared = np.where(keys[following] == keys + size, np.minimum(counts, counts[following]), 0)
    shared = sums(keys // size, shared, len(begins) - 1)[:-1]
    lengths = np.diff(begins)
    return np.asarray(shared >= _SAME * np.maximum(lengths[1:], lengths[:-1]))


class Roots(NamedTuple):
    """Outermost eager operators as columns."""

    row: Int64s
    start: Int64s  # ns
    end: Int64s
    host_ns: Int64s  # how much of that is not compiled code
    device_ns: Int64s  # summed time of the GPU events launched in it

    def where(self, mask: Mask) -> "Roots":
        """Return some of them."""
        return Roots(*(column[mask] for column in self))


class EagerRoots:
    """The eager operators of a profile.

    `outside` are outside of compiled regions. `in_regions` are in a region between its graphs: they run where a graph
    breaks and are part of its cost. `running` is when any thread ran one of `outside`, without compiled code in it.
    """

    def __init__(self, profile: Profile) -> None:
        self._trace = trace = profile.trace
        work = profile.of(gpu_work)
        launch = trace.launch_of()[work.index]
        self._launches = np.where(launch >= 0, launch, trace.op_of()[work.index])
        self._gpu_ns = trace.dur[work.index]
        regions = host_slices(trace, slices.is_region)
        # Compiled code, what calls it, and compiling.
        compiling = compress(trace.names, slices.are_compiling(trace.names))
        called = {*compiling, *slices.LOOKUPS, *slices.WRAPPERS}
        parts = host_slices(trace, lambda name: name in called or slices.is_graph(node_name(name)))
        is_compiled, is_op = np.zeros((2, len(trace)), bool)
        is_compiled[regions] = is_compiled[parts] = is_compiled[columns.package_calls(trace)] = True
        is_op[trace.select(cat=slices.OPERATOR)] = is_op[launch[launch >= 0]] = True
        ops = np.flatnonzero(is_op & ~is_compiled)
        compiled, graphs = Cover(trace, np.flatnonzero(is_compiled)), Cover(trace, parts)
        # Regions whose graphs the trace marks: in others nothing separates a graph from what runs next to it.
        marked = marks_graphs(trace)
        marked_regions = [call.index for call in all_calls(profile.of(region_calls)) if marked or call.graphs]
        self.outside, self.running = self._roots(ops[~compiled.holds(ops)], compiled)
        inside = ops[Cover(trace, np.array(marked_regions, np.int64)).holds(ops)]
        self.in_regions, _ = self._roots(inside[~graphs.holds(inside)], graphs)

    def launched_ns(self, steps: StepWindows) -> int:
        """Return the summed time of all GPU events launched in the steps, or in the span where there are none."""
        is_known = self._launches >= 0
        inside = launching(steps.windows, self._trace, self._launches) >= 0 if len(steps) else is_known
        return int(self._gpu_ns[inside].sum())

    def _roots(self, ops: Int64s, compiled: Cover) -> tuple[Roots, columns.Intervals]:
        """Return the outermost of these operators, and when they ran outside of compiled code."""
        launches = np.flatnonzero((self._launches >= 0) & ~compiled.holds(self._launches))
        tracks = self._trace.track[self._launches[launches]]
        empty = np.zeros(0, np.int64)
        roots, running = [Roots(*[empty] * len(Roots._fields))], [columns.Intervals(empty, empty)]
        for track, rows in columns.by_track(self._trace, ops):  # rows in order of time
            start = self._trace.ts[rows]
            reach = np.maximum.accumulate(start + self._trace.dur[rows])
            first = np.flatnonzero(np.append(True, start[1:] >= reach[:-1]))
            begin, end = start[first], reach[np.append(first[1:], len(rows)) - 1]
            own = columns.subtract(columns.union(begin, end), compiled.on(track))
            launched = launches[tracks == track]
            root = columns.within(columns.Intervals(begin, end), self._trace.ts[self._launches[launched]])
            device = sums(root, self._gpu_ns[launched], len(first))
            roots.append(Roots(rows[first], begin, end, columns.covered_ns(own, begin, end), device))
            running.append(own)
        return Roots(*map(np.concatenate, zip(*roots))), columns.joined(*running)


def lookups_in_vain(profile: Profile) -> int:
    """Return how often dynamo looked a frame up in its cache and no compiled region followed: torch has given it up.

    0 where something was compiled meanwhile, for that follows a lookup, too, and without marked steps, as outside of
    them frames are called for the first time.
    """
    trace, steps = profile.trace, profile.of(profiled_time)
    if not len(profile.of(StepWindows)) or len(host_slices(trace, slices.is_compilation)):
        return 0
    calls = (host_slices(trace, named) for named in (slices.LOOKUPS.__contains__, slices.is_region))
    lookups, regions = (int((columns.within(steps, trace.ts[rows]) >= 0).sum()) for rows in calls)
    return max(lookups - regions, 0)
