"""When did each GPU idle, for which launch did it wait, and what did the thread that launched do meanwhile?

Each idle interval belongs to the launch of the first GPU event after it, and is cut at the host events of the thread
that made this launch. So the causes of a device sum to its idle time, to the nanosecond. Each nanosecond of a thread
gets the first of HOST_KINDS that is true. Their order is that of what to change first: a thread that compiles inside
the data loader compiles.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.profile.columns import Int64s, Intervals, Mask, ranges, union
from tb_torchcompile_plugin.profile.compiled.regions import all_breaks, region_calls
from tb_torchcompile_plugin.profile.gpu_work import busy, gpu_work
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import has_gpu_records
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.memo import Memo
from tb_torchcompile_plugin.torch_names import collectives, slices

HostKind = Literal[
    "compiling",
    "waiting_for_ranks",
    "waiting_for_gpu",
    "data_loading",
    "guards",
    "kernel_launches",
    "compiled_graph",
    "graph_breaks",
    "eager_operators",
    "python",
    "unaccounted",
]
HOST_KINDS: tuple[HostKind, ...] = get_args(HostKind)
UNACCOUNTED = HOST_KINDS.index("unaccounted")

# What a host slice is by its name, where it is not the compiler's. Without a rule its `cat` decides.
_RULES: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("communication", collectives.is_communication),
    ("synchronise", slices.is_synchronisation),
    ("data", slices.is_data_loading),
    ("guards", (*slices.LOOKUPS, *slices.WRAPPERS).__contains__),
    ("graph", slices.is_graph),
    ("region", slices.is_region),
)
_KINDS = ("compile", *(kind for kind, _ in _RULES), "op", "call", "other")
_DECISIVE = tuple(kind for kind in _KINDS if kind not in ("region", "other"))  # that show a cause
# Of these, causes by themselves and before all others, whatever runs.
_FIRST = ("compile", "communication", "synchronise", "data", "guards")
_OF_CAT = {slices.OPERATOR: "op"} | dict.fromkeys(slices.RUNTIME_CATS, "call")


# From times[i] to times[i + 1] the thread did the cause of this index; before the first and after the last of them
# nothing that was recorded.
Activity = tuple[Int64s, npt.NDArray[np.int8]]


class ThreadActivity:
    """The threads of one trace; the activity of a thread is computed when first asked for.

    Eager and compiled code compare like with like: an operator that launches does so in an eager step and in a compiled
    graph alike, so it is a kernel launch in both. `eager_operators` are the others; `graph_breaks` what a break adds.
    """

    def __init__(self, profile: Profile) -> None:
        self._trace = trace = profile.trace
        rules = list(enumerate((holds for _, holds in _RULES), 1))
        kinds = (
            0 if is_at_work else next((kind for kind, holds in rules if holds(name)), -1)
            for name, is_at_work in zip(trace.names, slices.are_compiling(trace.names), strict=True)
        )
        # -1 where the name does not decide
        self._kind_of_name = np.fromiter(kinds, np.int8, len(trace.names))
        self._kind_of_cat = np.array([_KINDS.index(_OF_CAT.get(cat, "other")) for cat in trace.cats], np.int8)
        breaks = grouped(all_breaks(profile.of(region_calls)), lambda gap: int(trace.track[gap.call.index]))
        self.breaks = {
            track: union(np.array([gap.start for gap in gaps]), np.array([gap.end for gap in gaps]))
            for track, gaps in breaks.items()
        }
        work = profile.of(gpu_work).index
        # Without a GPU the kernels of a graph run in its calls; most of them have no slice of their own.
        self._is_on_cpu = not len(work)
        self._launches = np.zeros(len(trace) + 1, bool)  # operators that launch; row -1 is none
        self._launches[trace.op_of()[work]] = True
        self._memo = Memo()

    def split(self, starts: Int64s, ends: Int64s, tracks: Int64s) -> Int64s:
        """Return the ns of each cause (columns) in each window (rows) of the thread in `tracks`; -1 is none.

        The columns of a row sum to the length of its window.
        """
        answer = np.zeros((len(starts), len(HOST_KINDS)), np.int64)
        for track in np.unique(tracks[tracks >= 0]).tolist():
            rows = np.flatnonzero(tracks == track)
            times, causes = self._memo.get(track, partial(self._activity, track))
            edges = [(at, np.searchsorted(times, at, "right")) for at in (starts[rows], ends[rows])]
            for cause in np.unique(causes[causes < UNACCOUNTED]).tolist():
                before = np.append([0, 0], np.cumsum(np.where(causes[:-1] == cause, np.diff(times), 0)))
                since, until = (
                    before[behind] + np.where(causes[behind - 1] == cause, at - times[behind - 1], 0)
                    for at, behind in edges
                )
                answer[rows, cause] = until - since
        answer[:, UNACCOUNTED] = ends - starts - answer.sum(axis=1)
        assert (answer >= 0).all()
        return answer

    def _activity(self, track: int) -> Activity:
        trace = self._trace
        rows = slice(int(trace.track_bounds[track]), int(trace.track_bounds[track + 1]))
        starts = np.asarray(trace.ts[rows])
        ends = starts + trace.dur[rows]
        kinds = self._kind_of_name[trace.name[rows]]
        kinds = np.where(kinds >= 0, kinds, self._kind_of_cat[trace.cat[rows]])
        masks = {kind: kinds == _KINDS.index(kind) for kind in _DECISIVE}
        masks |= {"all": np.ones(len(starts), bool), "launching": self._launches[:-1][rows]}
        layers = {kind: union(starts[mask], ends[mask]) for kind, mask in masks.items()}
        layers["break"] = self.breaks.get(track, union(starts[:0], ends[:0]))
        return _first_match(layers, self._conditions)

    def _conditions(self, on: dict[str, Mask]) -> list[Mask]:
        """Return where each kind but the last is true. What runs inside a graph is the graph's, and not eager."""
        in_graph = on["graph"] & (on["op"] | self._is_on_cpu)
        launching = on["call"] | (on["launching"] & on["op"]) | in_graph
        return [
            *(on[kind] for kind in _FIRST),
            launching & (not self._is_on_cpu),
            launching & self._is_on_cpu,
            on["break"] & ~on["graph"],
            on["op"] & ~on["graph"],
            on["all"],
        ]


def _first_match(
    layers: dict[str, Intervals], conditions_of: Callable[[dict[str, Mask]], list[Mask]]
) -> Activity:
    times = np.sort(np.concatenate([edge for layer in layers.values() for edge in layer]), kind="stable")
    on: dict[str, Mask] = {}  # at which times a layer covers the next moment
    for kind, layer in layers.items():
        change = np.zeros(len(times), np.int32)
        change[np.searchsorted(times, layer.starts)] = 1
        change[np.searchsorted(times, layer.ends)] -= 1
        on[kind] = np.cumsum(change) > 0
    conditions = conditions_of(on)
    cause = np.select(conditions, range(len(conditions)), len(conditions)).astype(np.int8)
    changed = np.diff(cause, prepend=-1) != 0
    return times[changed], cause[changed]


@dataclass(frozen=True, eq=False)
class Gaps:
    """Idle intervals of one device in order of time, as columns; -1 where unknown."""

    starts: Int64s
    ends: Int64s
    preceding: Int64s  # the last GPU event before the gap
    following: Int64s  # the first one after it
    launch: Int64s  # the host slice that launched the latter
    track: Int64s  # its thread

    def __len__(self) -> int:
        return len(self.starts)

    def inner(self) -> "Gaps":
        """Return the intervals between the first GPU event and the last one."""
        return self.take(np.arange(1, len(self) - 1))

    def take(self, rows: Int64s) -> "Gaps":
        """Return some of them."""
        return Gaps(*(column[rows] for column in vars(self).values()))


def idle_gaps(profile: Profile) -> dict[int, Gaps]:
    """Return all idle intervals of each device, from the start of the trace to its end.

    The first one ends with the first GPU event, the last one begins where the last one ends; both may be empty. {}
    where each step lacks GPU records: then idle time is unknown.
    """
    trace, work = profile.trace, profile.of(gpu_work)
    first, last = trace.window()
    gaps: dict[int, Gaps] = {}
    if not profile.of(has_gpu_records):
        return gaps
    for device, done in profile.of(busy_intervals).items():
        index = work.index[work.device == device]
        row = _at(index, trace.ts[index], done.starts)
        call = trace.launch_of()[row]
        launch = np.where(call >= 0, call, trace.op_of()[row])
        gaps[device] = Gaps(
            starts=np.append(first, done.ends),
            ends=np.append(done.starts, last),
            preceding=np.append(-1, _at(index, trace.ts[index] + trace.dur[index], done.ends)),
            following=np.append(row, -1),
            launch=np.append(launch, -1),
            track=np.append(np.where(launch >= 0, trace.track[launch], -1).astype(np.int64), -1),
        )
    return gaps


def busy_intervals(profile: Profile) -> dict[int, Intervals]:
    """Return when each device did something."""
    work = profile.of(gpu_work)
    devices = np.unique(work.device).tolist()
    return {device: busy(profile.trace, work.index[work.device == device]) for device in devices}


def idle_before(profile: Profile, device: int, starts: Int64s) -> Int64s:
    """Return how long a device had been idle when events of it began at these times (ns).

    0: it was busy until then; -1: nothing is known to have run before.
    """
    done = profile.of(busy_intervals)[device]
    index = np.searchsorted(done.starts, starts, side="right") - 1
    idle = np.where(index > 0, starts - done.ends[index - 1], -1)
    return np.where(done.starts[index] < starts, 0, idle)


def _at(index: Int64s, times: Int64s, moments: Int64s) -> Int64s:
    """Return for each moment the first of `index` whose time it is."""
    order = np.argsort(times, kind="stable")
    return np.asarray(index[order][np.searchsorted(times[order], moments)])


def causes_of(gaps: Gaps, threads: ThreadActivity) -> Int64s:
    """Return the ns of each cause (columns) in each gap (rows)."""
    return threads.split(gaps.starts, gaps.ends, gaps.track)


def causes_in(gaps: Gaps, threads: ThreadActivity, begins: Int64s, ends: Int64s) -> Int64s:
    """Return the ns of each cause (columns) in each window (rows), of the parts of the gaps in it."""
    low = np.searchsorted(gaps.ends, begins, side="right")
    counts = np.maximum(np.searchsorted(gaps.starts, ends, side="left") - low, 0)
    window, gap = ranges(low, counts)
    starts = np.maximum(gaps.starts[gap], begins[window])
    pieces = threads.split(starts, np.minimum(gaps.ends[gap], ends[window]), gaps.track[gap])
    before = np.concatenate((np.zeros((1, pieces.shape[1]), np.int64), np.cumsum(pieces, axis=0)))
    edges = np.cumsum(counts)
    return np.asarray(before[edges] - before[edges - counts])
