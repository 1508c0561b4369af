"""What were the host threads doing, and when? As sets of intervals, to be held against those of the GPU.

A moment may be in several sets: threads run side by side.
"""

from __future__ import annotations

import re
from typing import Literal

import numpy as np

from tb_torchcompile_plugin.analysis.frame_times import frame_parts
from tb_torchcompile_plugin.analysis.gpu_utilization import busy
from tb_torchcompile_plugin.analysis.intervals import Intervals, union
from tb_torchcompile_plugin.analysis.profile import Profile
from tb_torchcompile_plugin.analysis.regions import frames
from tb_torchcompile_plugin.analysis.slices import host_slices

Activity = Literal["guards", "overhead", "graphs", "breaks", "region", "backward", "compiling", "eager"]

_COMPILING = re.compile(r"^(?:_compile\.compile_inner|entire_(?:frame|backward)_compile)\b")
_PARTS: dict[str, Activity] = {
    "guards": "guards",
    "overhead": "overhead",
    "graphs": "graphs",
    "breaks": "breaks",
    "other": "region",
}


def host_activity(profile: Profile) -> dict[Activity, Intervals]:
    """guards: cache lookups that led to a region; overhead: pregraph bytecode and runtime wrappers; graphs: forward
    graphs; breaks: from graph to graph, less the guards and overhead of the region that resumes; region: what else a
    compiled region does; backward: compiled backward graphs; compiling: dynamo and what it calls; eager: operators
    outside of all these.

    Where nothing tells resumes from called frames (`profile.resumes` is None) every region is a frame, without breaks.
    """
    moments: dict[Activity, list[tuple[int, int]]] = {activity: [] for activity in _PARTS.values()}
    for frame in frames(profile.calls):
        for part, start, end in frame_parts(frame):
            if part in _PARTS:  # a called frame has parts of its own
                moments[_PARTS[part]].append((start, end))
    found = {
        activity: union(*np.array(pairs or np.zeros((0, 2)), np.int64).T)
        for activity, pairs in moments.items()
    }
    backwards = np.array([row for row, _ in profile.ownership.backwards], np.int64)
    found["backward"] = busy(profile.trace, backwards)
    found["compiling"] = busy(profile.trace, host_slices(profile.trace, _COMPILING))
    found["eager"] = profile.eager.running
    return found
