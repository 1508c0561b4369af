"""What it took to look up the lines of callers while stacks were recorded.

For each Python call the profiler asks for the line that it comes from, and Python counts from the function's first line
on. In the one long function that inductor writes for a graph, each call thus takes longer than the one before: up to
half of the host's time in it, and of an unrecorded step nothing.
"""

from __future__ import annotations

import numpy as np

from tb_torchcompile_plugin.profile.columns import alike, ordinals
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.host_pieces import host_pieces
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.slices import mask_of
from tb_torchcompile_plugin.torch_names.python_frames import runs_graph

_FEWEST = 12  # pieces of a call: of fewer, growth and chance look alike


def line_lookups(profile: Profile) -> Int64s:
    """Of each piece of host time the part that went into it (ns)."""
    trace, pieces = profile.trace, profile.of(host_pieces)
    taken = np.zeros(len(pieces.row), np.int64)
    name = trace.name[pieces.row]
    mine = np.flatnonzero((pieces.row >= 0) & mask_of(trace.names, runs_graph)[name])
    for here in alike(mine, name):
        at, ns = ordinals(pieces.row[here]), pieces.ns[here]
        taken[here] = np.minimum(_growth(at, ns) * at, ns)
    return taken


def _growth(at: Int64s, ns: Int64s) -> float:
    """By how much a piece is longer than the one before it, from what is usual in the first and in the last third."""
    count = int(at.max()) + 1
    if count < _FEWEST:
        return 0.0
    early, late = at < count / 3, at >= count * 2 / 3
    longer = np.median(ns[late]) - np.median(ns[early])
    return max(0.0, float(longer / (np.median(at[late]) - np.median(at[early]))))
