"""How much of the profiled time runs compiled?"""

from __future__ import annotations

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.compilations.rows import compilations
from tb_torchcompile_plugin.profile.compiled.eager_roots import EagerRoots
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.intervals import covered_ns, subtract, union
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, profiled_time
from tb_torchcompile_plugin.profile.units import share_percent


class Coverage(msgspec.Struct, frozen=True):
    """Of the profiled steps, or of the span where there are none, without what graph breaks leave eager.

    gpu_percent: of the GPU time that they launched, None where no GPU worked. host_percent: of the time in which any
    thread runs a compiled region or its backward. compilations: that made a graph, empty_compilations: those of them
    whose graph holds no operator; None without compile data.
    """

    gpu_percent: float | None
    host_percent: float | None
    compilations: int | None
    empty_compilations: int | None


def coverage(profile: Profile) -> Coverage:
    """What share of a step torch.compile is about."""
    graphs = [row.graph_ops for row in profile.data.of(compilations)] if profile.data else None
    known = None if graphs is None else [ops for ops in graphs if ops is not None]
    return Coverage(
        gpu_percent=_gpu_percent(profile) if len(profile.of(gpu_work).index) else None,
        host_percent=_host_percent(profile),
        compilations=None if known is None else len(known),
        empty_compilations=None if known is None else known.count(0),
    )


def _gpu_percent(profile: Profile) -> float | None:
    roots, steps = profile.of(EagerRoots), profile.of(StepWindows)
    launched = roots.launched_ns(steps)
    eager = sum(
        int((part.where(steps.of(part.start) >= 0) if len(steps) else part).device_ns.sum())
        for part in (roots.outside, roots.in_regions)
    )
    return share_percent(launched - eager, launched)


def _host_percent(profile: Profile) -> float | None:
    trace, roots = profile.trace, profile.of(EagerRoots)
    ownership = profile.of(Ownership)
    rows = np.array([row for row, _ in (*ownership.regions, *ownership.backwards)], np.int64)
    compiled = union(trace.ts[rows], trace.ts[rows] + trace.dur[rows])
    broken = union(roots.in_regions.start, roots.in_regions.end)
    windows = profile.of(profiled_time)
    inside = covered_ns(subtract(compiled, broken), *windows)
    return share_percent(int(inside.sum()), windows.total_ns)
