"""The idle time of each GPU as slices of a lane of its own, each named after what the host did meanwhile."""

from __future__ import annotations

from functools import partial

import numpy as np

from tb_torchcompile_plugin.analysis.gpu_utilization.idle_gaps import took
from tb_torchcompile_plugin.analysis.timeline.lanes import Item, ItemSlices
from tb_torchcompile_plugin.profile.gpu.idle import Gaps, causes_of, idle_gaps
from tb_torchcompile_plugin.profile.host.thread_activity import CAUSES, NOTHING, ThreadActivity
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.units import us

_MOST = 500  # of each device: each asks what its thread did


def gaps_of_gpus(profile: Profile, origin: int) -> dict[int, ItemSlices]:
    """By device its longest gaps between two GPU events. origin: the trace's time at the timeline's zero."""
    inner = {device: gaps.inner() for device, gaps in profile.of(idle_gaps).items()}
    return {device: _slices(profile, _longest(gaps), origin) for device, gaps in inner.items() if len(gaps)}


def gaps_left_out(profile: Profile) -> dict[int, int]:
    """By device how many shorter gaps have no slice."""
    return {device: max(0, len(gaps) - 2 - _MOST) for device, gaps in profile.of(idle_gaps).items()}


def _longest(gaps: Gaps) -> Gaps:
    chosen = np.argsort(gaps.starts - gaps.ends, kind="stable")[:_MOST]
    return gaps.take(np.sort(chosen))


def _slices(profile: Profile, gaps: Gaps, origin: int) -> ItemSlices:
    """What the host did meanwhile is asked when it is to be drawn: a timeline opens before that is known."""
    return ItemSlices(gaps.starts - origin, gaps.ends - gaps.starts, partial(_items, profile, gaps, origin))


def _items(profile: Profile, gaps: Gaps, origin: int) -> list[Item]:
    causes = causes_of(gaps, profile.of(ThreadActivity))
    return [_item(profile, gaps, place, ns.tolist(), origin) for place, ns in enumerate(causes)]


def _item(profile: Profile, gaps: Gaps, place: int, causes: list[int], origin: int) -> Item:
    trace = profile.trace
    start, end, track = int(gaps.starts[place]), int(gaps.ends[place]), int(gaps.track[place])
    row = took(trace, track, start, end) if track >= 0 else None
    cause = CAUSES[max(range(len(causes)), key=causes.__getitem__)]
    named = row is not None and cause != CAUSES[NOTHING]
    return Item(
        name=trace.names[trace.name[row]] if row is not None and named else "idle",
        start=start - origin,
        dur=end - start,
        color=f"gap_{cause}",
        row=row,
        facts={f"{name}_us": us(ns) for name, ns in zip(CAUSES, causes, strict=True) if ns},
    )
