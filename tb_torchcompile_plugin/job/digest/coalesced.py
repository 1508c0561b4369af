"""Calls of c10d that NCCL runs as one kernel: `batch_isend_irecv`, pipelines, `_coalescing_manager`.

torch writes beside such a kernel only that it was coalesced; what it is, the calls before it on the same thread say.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tb_torchcompile_plugin.profile.columns import codes_of, host_slices, mask_of
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.reader.trace.nest import climb
from tb_torchcompile_plugin.torch_names.collectives import PARAM_COMMS, collective, is_coalesced, moves_data


def coalesced_call(trace: Trace, rows: Int64s) -> Int64s:
    """The call that each of these kernels is of, where it is the only one that was coalesced into it; else -1."""
    launch = trace.launch_of()[rows]
    label = climb(trace.parent, launch, mask_of(trace.names, is_coalesced)[trace.name])
    if not (label >= 0).any():
        return label
    calls = {
        one: its
        for track in np.unique(trace.track[label[label >= 0]])
        for one, its in _of_track(trace, track)
    }
    return np.array([calls.get(one, -1) for one in label.tolist()], np.int64)


def _of_track(trace: Trace, track: int) -> list[tuple[int, int]]:
    """Each label of what a thread coalesced with the one call that began between the label before and it."""
    labels = host_slices(trace, is_coalesced)
    labels = labels[trace.track[labels] == track]
    calls = _waiting(trace)
    calls = calls[trace.track[calls] == track]
    place = np.searchsorted(trace.ts[calls], trace.ts[labels])
    ranges = pairwise([0, *place.tolist()])
    return [
        (label, int(calls[last - 1]))
        for label, (first, last) in zip(labels.tolist(), ranges)
        if last - first == 1
    ]


def _waiting(trace: Trace) -> Int64s:
    """What c10d says of calls that move data and that it did not hand to the back end by themselves."""
    said = host_slices(trace, PARAM_COMMS.__eq__)
    words = [moves_data(text) for text in [*(trace.texts.get("collective") or ()), ""]]
    said = said[np.array(words)[codes_of(trace, "collective", said)]]
    own = host_slices(trace, lambda name: collective(name) is not None and not is_coalesced(name))
    handed = trace.parent[own]
    return np.asarray(said[~np.isin(said, handed)])
