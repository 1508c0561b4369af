"""What the host needed: for each function of the user's, where stacks tell, and for each launch."""

from __future__ import annotations

import numpy as np

from tb_torchcompile_plugin.analysis.source.places import Place, Places
from tb_torchcompile_plugin.profile.columns import ordinals
from tb_torchcompile_plugin.profile.gpu.launches import Device, kernel_launches
from tb_torchcompile_plugin.profile.host.operator_calls import site_ns
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile


def function_ns(profile: Profile) -> dict[Place, int]:
    """By the place of each function of the user's: see `site_ns`. {} without stacks."""
    own, where = profile.of(site_ns), profile.of(Places)
    by_place: dict[Place, int] = {}
    for code in np.flatnonzero(own).tolist():
        if place := where.of_function(code):
            by_place[place] = by_place.get(place, 0) + int(own[code])
    return by_place


def launch_ns(profile: Profile) -> dict[Device, Int64s]:
    """By device the time of the call that made each launch (ns), in equal parts where it made several: the sum is that
    of the calls. 0 where the call is not known; a C++ kernel on the CPU is its own call, and has none."""
    calls = {rows.device: np.zeros(len(rows.launch), np.int64) for rows in profile.of(kernel_launches)}
    for rows in profile.of(kernel_launches):
        if rows.device != "cpu":
            known = np.flatnonzero(rows.launch >= 0)
            calls[rows.device][known] = _parts(rows.launch[known], profile.trace.dur)
    return calls


def _parts(call: Int64s, dur: Int64s) -> Int64s:
    """The part of each launch in the duration of its call."""
    distinct, place, count = np.unique(call, return_inverse=True, return_counts=True)
    whole, left = dur[distinct] // count, dur[distinct] % count
    return np.asarray(whole[place] + (ordinals(place) < left[place]), np.int64)
