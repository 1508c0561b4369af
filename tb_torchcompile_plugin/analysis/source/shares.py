"""Time of kernels that compute several lines, shared out among these in whole nanoseconds: the sum is that of all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from tb_torchcompile_plugin.analysis.kernels.kernel_rows import Kernel
from tb_torchcompile_plugin.analysis.source.launch_lines import LineLaunches
from tb_torchcompile_plugin.analysis.source.places import Place
from tb_torchcompile_plugin.profile.gpu.launches import Device
from tb_torchcompile_plugin.profile.intervals import Int64s


def shares(ns: Int64s, parts: int) -> Int64s:
    """What each of `parts` gets of these amounts: each amount is cut into equal whole parts, and the first ones get
    what is left of it. They sum to the sum of all."""
    left = np.bincount(ns % parts, minlength=parts)
    return int((ns // parts).sum()) + np.cumsum(left[::-1])[::-1] - left


@dataclass
class LineTime:
    """Of one line, in ns. kernels: the part of each row of kernels by key. shared: what kernels that it shares with
    another line took for it, by that line. above: beyond what the device needs at least; None where no kernel of it
    tells. launch: of the host's launch calls."""

    forward: int = 0
    backward: int = 0
    launch: int = 0
    above: float | None = None
    kernels: dict[str, int] = field(default_factory=dict)
    shared: dict[Place, int] = field(default_factory=dict)

    @property
    def gpu(self) -> int:
        return self.forward + self.backward

    def add(self, of: LineLaunches, ns: int, launch: int) -> None:
        if of.backward:
            self.backward += ns
        else:
            self.forward += ns
        self.launch += launch
        self.kernels[of.kernel.key] = self.kernels.get(of.kernel.key, 0) + ns
        for other in of.lines if len(of.lines) > 1 else ():
            self.shared[other] = self.shared.get(other, 0) + ns
        above = above_floor(of.kernel)
        if above is not None:
            self.above = (self.above or 0.0) + above * ns


def above_floor(kernel: Kernel) -> float | None:
    """The part of a kernel's time beyond what its device needs at least, as Kernels tells it."""
    above_us = kernel.achieved.above_floor_us
    return None if above_us is None else above_us / (kernel.time_us or 1.0)


@dataclass
class LineTimes:
    """By line, and what no line is known of (ns); together all time of the kernels."""

    by_line: dict[Place, LineTime]
    unknown: int
    all: int


def line_times(launches: Iterable[LineLaunches], launch_ns: Mapping[Device, Int64s]) -> LineTimes:
    """launch_ns: by device what the host needed for each launch."""
    by_line: dict[Place, LineTime] = {}
    unknown = whole = 0
    for one in launches:
        ns = one.rows.dur[one.at]
        whole += int(ns.sum())
        if not one.lines:
            unknown += int(ns.sum())
            continue
        called = launch_ns[one.rows.device][one.at]
        for place, part, host in zip(one.lines, *(shares(x, len(one.lines)).tolist() for x in (ns, called))):
            by_line.setdefault(place, LineTime()).add(one, part, host)
    for place, row in by_line.items():
        row.shared.pop(place, None)
    assert unknown + sum(row.gpu for row in by_line.values()) == whole
    return LineTimes(by_line, unknown, whole)
