"""What was the host of a rank busy with, which work did it launch meanwhile, and how long did it compile?"""

from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.digest.rank_calls import communication_rows
from tb_torchcompile_plugin.profile.columns import Floats, Mask
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.attribution import Attribution, attributions_of, culprits
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_segments, launch_sequence
from tb_torchcompile_plugin.profile.model.model import model
from tb_torchcompile_plugin.profile.profile import Profile


class HostCosts(NamedTuple):
    """What the launch sequence was busy with, as columns.

    There are three parts, one behind the other and each in order of time: the pieces between its calls, the calls' own
    time, and their waiting.
    """

    begin: Int64s
    end: Int64s
    code: Int64s  # index into `blamed`
    reach: Int64s  # when all that is before it, in its part, has ended
    blamed: list[Attribution]
    bounds: tuple[int, int, int, int]  # of the three parts
    waits_order: Int64s  # the calls in the order in which they begin to wait

    def window(self, begin: int, end: int) -> tuple[Int64s, Int64s]:
        """Return the rows that have time in a window, and how much of each."""
        parts = []
        for first, last in pairwise(self.bounds):
            low = int(np.searchsorted(self.reach[first:last], begin, side="right"))
            high = int(np.searchsorted(self.begin[first:last], end))
            parts.append(np.arange(first + low, first + max(low, high)))
        rows = np.concatenate(parts)
        ns = np.minimum(self.end[rows], end) - np.maximum(self.begin[rows], begin)
        return rows, np.maximum(ns, 0)

    def summed(self, rows: Int64s, ns: Int64s | Floats) -> dict[Attribution, float]:
        """Return the sums by what is blamed, which may be in the list twice, for pieces and for calls."""
        codes, code = np.unique(self.code[rows], return_inverse=True)
        sums: dict[Attribution, float] = defaultdict(float)
        for index, total in zip(codes.tolist(), np.bincount(code, ns, len(codes)).tolist()):
            sums[self.blamed[index]] += total
        return sums


def host_costs(profile: Profile) -> HostCosts:
    """Return what the launch sequence of a rank was busy with."""
    lane, pieces = profile.of(launch_sequence), profile.of(host_segments)
    between, at = profile.of(culprits), attributions_of(profile, lane.row)
    code = at.code + len(between.culprits)
    waiting_from = np.minimum(lane.begin + profile.of(model).own, lane.end)
    waits = np.argsort(waiting_from, kind="stable")
    ends = pieces.end, waiting_from, lane.end[waits]
    count = len(pieces.point)
    return HostCosts(
        np.concatenate((pieces.begin, lane.begin, waiting_from[waits])),
        np.concatenate(ends),
        np.concatenate((between.code, code, code[waits])),
        np.concatenate([np.maximum.accumulate(part) for part in ends]),
        # The key of a compiled graph is another one on each rank.
        [
            culprit._replace(name="") if culprit.cause == "graph" else culprit
            for culprit in (*between.culprits, *at.culprits)
        ],
        (0, count, count + len(lane), count + 2 * len(lane)),
        waits,
    )


def launched(profile: Profile) -> Int64s:
    """Return when each piece of work was launched; ascending, as the queue is in the order of its launches."""
    return profile.of(launch_sequence).begin[profile.of(gpu_queue).point]


def computes(profile: Profile) -> Mask:
    """Return which work of a rank's queue is not a collective."""
    return ~np.isin(profile.of(gpu_queue).row, profile.of(communication_rows))
