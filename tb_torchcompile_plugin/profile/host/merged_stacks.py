"""Calls with one stack put together: the frames of a flame graph, the modules of a program."""

from __future__ import annotations

import numpy as np

from tb_torchcompile_plugin.profile.columns import distinct
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.nest import ways_up
from tb_torchcompile_plugin.torch_names.python_frames import without_address


def merged_stacks(caller: Int64s, *keys: Int64s) -> tuple[Int64s, Int64s]:
    """Frames as rows (parent, *keys), callers before what they called; and the frame of each call.

    caller: the place of each call's caller among the calls, -1 for none. Calls are one frame where their callers are
    one and all keys agree.
    """
    frame = np.full(len(caller) + 1, -1, np.int64)  # the last answers for "none"
    frames = [np.zeros((1 + len(keys), 0), np.int64)]
    count = 0
    for calls in _levels(caller):
        rows, which = distinct(frame[caller[calls]], *(key[calls] for key in keys))
        frame[calls] = count + which
        count += rows.shape[1]
        frames.append(rows)
    return np.hstack(frames), frame[:-1]


def plain_names(profile: Profile) -> tuple[list[str], Int64s]:
    """Names without addresses: calls of one function have one, whatever object it is of. And for each name of the
    trace its place among them."""
    shown = [without_address(name) for name in profile.trace.names]
    names = list(dict.fromkeys(shown))
    places = {name: place for place, name in enumerate(names)}
    return names, np.array([places[name] for name in shown], np.int64)


def _levels(caller: Int64s) -> list[Int64s]:
    """The calls by depth, outermost first."""
    depth = np.zeros(len(caller), np.int64)
    for inner, _ in ways_up(caller, caller):
        depth[inner] += 1
    order = np.argsort(depth, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(depth[order])) + 1) if len(order) else []
