"""Which lines of the program does each launch compute?

What inductor generated tells; of a library call its place in the generated code. Outside of compiled code the user's
innermost function around the launch, where stacks were recorded: they tell functions, not lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis.kernels.extern_lines import extern_lines
from tb_torchcompile_plugin.analysis.kernels.kernel_rows import Kernel
from tb_torchcompile_plugin.analysis.kernels.kernels import KernelTables
from tb_torchcompile_plugin.analysis.source.places import Place, Places
from tb_torchcompile_plugin.profile.columns import alike
from tb_torchcompile_plugin.profile.gpu.launches import Launches
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.host.call_sites import site_names
from tb_torchcompile_plugin.profile.host.host_tree import host_tree
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile


class LineLaunches(NamedTuple):
    """Launches of one kernel that compute the same lines, all forward or all backward. at: their places in `rows`;
    lines: [] where nothing tells."""

    kernel: Kernel
    rows: Launches
    at: Int64s
    lines: list[Place]
    backward: bool


def line_launches(profile: Profile) -> list[LineLaunches]:
    """All launches of the GPUs; of C++ kernels on the CPU in a trace without GPU events."""
    gpu = len(profile.of(gpu_work).index) > 0
    return [
        LineLaunches(kernel, rows, at, lines, backward)
        for kernel, rows, places in profile.of(KernelTables).rows
        if (kernel.device == "cpu") != gpu
        for mine, lines in _by_lines(profile, kernel, rows, places)
        for at, backward in _by_direction(kernel, rows, mine)
    ]


def _by_lines(
    profile: Profile, kernel: Kernel, rows: Launches, places: Int64s
) -> Iterator[tuple[Int64s, list[Place]]]:
    where = profile.of(Places)
    if kernel.lines and (kernel.code_line is not None or kernel.lines_from == "provenance"):
        yield places, where.of_frames(kernel.lines)
        return
    for mine, frames in profile.of(extern_lines)[rows.device].each(places):
        if frames:
            yield mine, where.of_frames(frames)
        else:
            yield from _by_function(profile, rows, mine)


def _by_function(profile: Profile, rows: Launches, places: Int64s) -> Iterator[tuple[Int64s, list[Place]]]:
    where, sites = profile.of(Places), profile.of(slice_sites)
    for mine in alike(places, sites[rows.launch]):
        place = where.of_function(int(sites[rows.launch[mine[0]]]))
        yield mine, [place] if place else []


def _by_direction(kernel: Kernel, rows: Launches, places: Int64s) -> Iterator[tuple[Int64s, bool]]:
    """A graph's direction is that of all its launches; outside of graphs each launch has its own."""
    if kernel.direction is not None:
        yield places, kernel.direction == "backward"
        return
    for mine in alike(places, rows.backward.astype(np.int64)):
        yield mine, bool(rows.backward[mine[0]])


def slice_sites(profile: Profile) -> Int64s:
    """For each row of the trace the code of the name of the user's function that called it, -1 where no stack tells;
    the last one answers for row -1."""
    tree = profile.of(host_tree)
    sites = np.append(profile.of(site_names), -1)
    return np.append(sites[tree.place], -1)
