"""How much of a collective could run beside compute?

What nothing overlaps now, and no more than its thread gives the GPU to compute that nothing overlaps: a backward that
takes 2 ms hides 2 ms of the all-reduces of its gradients, and the forward hides none of them.
"""

from __future__ import annotations

import numpy as np

from tb_torchcompile_plugin.profile.columns import Floats
from tb_torchcompile_plugin.profile.gpu_work import busy, gpu_work
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, covered_ns, subtract
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.host_lane import host_lane
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.slices import mask_of

# Of what runs beside compute, since either slows the other: on H100s 10 to 40 % of it was gained by smaller buckets of
# gradients, beside backwards of 3, 6 and 20 ms.
SAVED = 0.4
_NO_COMPUTE = ("communication", "memcpy", "memset")


def beside_compute(profile: Profile, work: Int64s, last: Int64s) -> Floats:
    """The share of the last so many ns of each of these collectives, by place in the queue: before them it waited."""
    queue, lane, trace = profile.of(gpu_queue), profile.of(host_lane), profile.trace
    track, (compute, alone), end = lane.track[queue.point], profile.of(_compute), queue.end[work]
    bare = last - covered_ns(busy(trace, compute), end - last, end)
    computes = np.isin(queue.row, compute)
    threads = int(track.max(initial=-1)) + 1
    room = np.bincount(track, np.where(computes, covered_ns(alone, queue.start, queue.end), 0), threads)
    wanted = np.bincount(track[work], bare, threads)
    fits = np.minimum(room / np.maximum(wanted, 1), 1.0)[track[work]]
    return np.asarray(fits * bare / np.maximum(last, 1))


def _compute(profile: Profile) -> tuple[Int64s, Intervals]:
    """The rows of all of it, and when any of it ran that no communication ran beside."""
    trace, work = profile.trace, profile.of(gpu_work)
    compute = work.index[~mask_of(work.categories, _NO_COMPUTE.__contains__)[work.category]]
    return compute, subtract(busy(trace, compute), busy(trace, work.of("communication").index))
