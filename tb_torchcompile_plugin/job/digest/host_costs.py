"""What the host of a rank was busy with between its calls, and which work it launched meanwhile."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.job.digest.rank_calls import communication_rows
from tb_torchcompile_plugin.profile.intervals import Int64s, covered_ns, union
from tb_torchcompile_plugin.profile.model.attribution import Culprit, CulpritCause, culprits, culprits_of
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane, host_pieces
from tb_torchcompile_plugin.profile.model.model import model
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.slices import compiling

LateCause = Literal[CulpritCause, "slower_kernels", "more_work"]


class Blamed(NamedTuple):
    """cause, name: what it is; file, line: the user's line, "" and 0 where none is known."""

    cause: LateCause
    name: str
    file: str
    line: int


class HostCosts(NamedTuple):
    """What the host lane was busy with, as columns: the pieces between its calls, the calls' own time, and their
    waiting, one part behind the other, each in order of time. begin, end (ns); code: place of the culprit in `blamed`.
    reach: when all that stands before, in its part, has ended; bounds: of the three parts."""

    begin: Int64s
    end: Int64s
    code: Int64s
    reach: Int64s
    blamed: list[Blamed]
    bounds: tuple[int, int, int, int]

    def window(self, begin: int, end: int) -> tuple[Int64s, Int64s]:
        """What lies in a window, by place, and how much of each does."""
        parts = [np.arange(*self._inside(part, begin, end)) for part in pairwise(self.bounds)]
        rows = np.concatenate(parts)
        ns = np.minimum(self.end[rows], end) - np.maximum(self.begin[rows], begin)
        return rows, np.maximum(ns, 0)

    def _inside(self, part: tuple[int, int], begin: int, end: int) -> tuple[int, int]:
        first, last = part
        low = np.searchsorted(self.reach[first:last], begin, side="right")
        return first + int(low), first + max(int(low), int(np.searchsorted(self.begin[first:last], end)))

    def summed(self, rows: Int64s, ns: Int64s | npt.NDArray[np.float64]) -> dict[Blamed, float]:
        """By culprit; one may stand in the list twice, for pieces and for calls."""
        codes, code = np.unique(self.code[rows], return_inverse=True)
        sums: dict[Blamed, float] = defaultdict(float)
        for one, total in zip(codes.tolist(), np.bincount(code, ns, len(codes)).tolist()):
            sums[self.blamed[one]] += total
        return sums


def host_costs(profile: Profile) -> HostCosts:
    """Of the lane of a rank."""
    lane, pieces, own = profile.of(host_lane), profile.of(host_pieces), profile.of(model).own
    between, at = profile.of(culprits), culprits_of(profile, lane.row)
    blamed = [_blamed(one) for one in (*between.culprits, *at.culprits)]
    code = at.code + len(between.culprits)
    working = np.minimum(lane.begin + own, lane.end)
    waits = profile.of(waits_order)
    ends = pieces.end, working, lane.end[waits]
    count = len(pieces.point)
    return HostCosts(
        np.concatenate((pieces.begin, lane.begin, working[waits])),
        np.concatenate(ends),
        np.concatenate((between.code, code, code[waits])),
        np.concatenate([np.maximum.accumulate(one) for one in ends]),
        blamed,
        (0, count, count + len(lane), count + 2 * len(lane)),
    )


def waits_order(profile: Profile) -> Int64s:
    """The calls of the lane in the order in which they begin to wait."""
    lane, own = profile.of(host_lane), profile.of(model).own
    return np.argsort(np.minimum(lane.begin + own, lane.end), kind="stable")


def _blamed(culprit: Culprit) -> Blamed:
    """The key of a compiled graph is another one on each rank."""
    return Blamed(*(culprit._replace(name="") if culprit.cause == "graph" else culprit))


def launched_between(profile: Profile, begin: int, end: int) -> slice:
    """Which work of a rank's queue was launched in a window (ns, on the clock of its trace)."""
    low, high = np.searchsorted(profile.of(launched), (begin, end))
    return slice(int(low), int(high))


def launched(profile: Profile) -> Int64s:
    """When each piece of work was launched; ascending, as the queue is in the order of its launches."""
    return profile.of(host_lane).begin[profile.of(gpu_queue).point]


def computes(profile: Profile) -> npt.NDArray[np.bool_]:
    """Which work of a rank's queue is no collective."""
    return ~np.isin(profile.of(gpu_queue).row, profile.of(communication_rows))


# How long did a rank compile in each of its steps?


def compile_ns(profile: Profile) -> dict[str, int]:
    """By step: how much of its time on the host any thread of the process was in torch's compiler."""
    steps = profile.of(StepWindows)
    return dict(zip(steps.names, compile_ns_in(profile, steps.starts, steps.ends).tolist()))


def compile_ns_in(profile: Profile, starts: Int64s, ends: Int64s) -> Int64s:
    """The same of any windows."""
    trace = profile.trace
    rows = trace.call_rows
    rows = rows[_compiling(trace)[trace.name[rows]]]
    return covered_ns(union(trace.ts[rows], trace.ts[rows] + trace.dur[rows]), starts, ends)


def _compiling(trace: Trace) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.array(compiling(trace.names) or [False], bool)
