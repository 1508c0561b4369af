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
from tb_torchcompile_plugin.generated_code.generated_code import Generated
from tb_torchcompile_plugin.profile.columns import alike, picked
from tb_torchcompile_plugin.profile.compiled.regions import generated_code
from tb_torchcompile_plugin.profile.gpu.launches import Launches
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.host.host_tree import host_tree
from tb_torchcompile_plugin.profile.host.operator_calls import site_names
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile


class LineLaunches(NamedTuple):
    """Launches of one kernel that compute the same lines, all forward or all backward. at: their places in `rows`;
    lines: [] where nothing tells. modules: paths in the compiled module, see `GraphCode.modules`; [] outside of
    compiled code and where nothing tells."""

    kernel: Kernel
    rows: Launches
    at: Int64s
    lines: list[Place]
    modules: list[str]
    backward: bool


class _Part(NamedTuple):
    """Of some launches."""

    at: Int64s
    lines: list[Place]
    modules: list[str]


def line_launches(profile: Profile) -> list[LineLaunches]:
    """All launches of the GPUs; of C++ kernels on the CPU in a trace without GPU events."""
    gpu = len(profile.of(gpu_work).index) > 0
    return [
        LineLaunches(kernel, rows, at, part.lines, part.modules, backward)
        for kernel, rows, places in profile.of(KernelTables).rows
        if (kernel.device == "cpu") != gpu
        for part in _parts(profile, kernel, rows, places)
        for at, backward in _by_direction(kernel, rows, part.at)
    ]


def _parts(profile: Profile, kernel: Kernel, rows: Launches, places: Int64s) -> Iterator[_Part]:
    code = profile.of(generated_code).find(kernel.name, kernel.compile_id, kernel.graph_key, kernel.direction)
    if code is not None:
        yield from _by_call(profile, code, kernel, rows, places)
    elif kernel.lines_from == "provenance":
        yield _Part(places, profile.of(Places).of_frames(kernel.lines), [])
    else:
        for at, called in profile.of(extern_lines)[rows.device].each(places):
            if called and (lines := called[0].call_lines(called[1])):
                yield _Part(at, profile.of(Places).of_frames(lines), called[0].modules(called[1]))
            else:
                yield from _by_function(profile, rows, at)


def _by_call(
    profile: Profile, code: Generated, kernel: Kernel, rows: Launches, places: Int64s
) -> Iterator[_Part]:
    """A kernel that its graph calls several times computes the lines of each call; which one a launch is, is not known
    where a CUDA graph replays them: then all lines count."""
    calls, graph, where = code.code.calls_of(code.definition), code.code, profile.of(Places)
    if len(calls) < 2 or kernel.lines_from == "provenance":
        yield _Part(places, where.of_frames(kernel.lines), graph.modules(code.definition))
        return
    number = profile.of(extern_lines)[rows.device].order(places, len(calls))
    for mine in alike(np.arange(len(places)), number):
        if number[mine[0]] < 0:
            modules = dict.fromkeys(path for call in calls for path in graph.modules(call))
            yield _Part(places[mine], where.of_frames(kernel.lines), list(modules))
        else:
            call = calls[number[mine[0]]]
            lines = graph.call_lines(call) or kernel.lines
            yield _Part(places[mine], where.of_frames(lines), graph.modules(call))


def _by_function(profile: Profile, rows: Launches, places: Int64s) -> Iterator[_Part]:
    site = _sites(profile, rows.launch[places])
    for mine in alike(np.arange(len(places)), site):
        place = profile.of(Places).of_function(int(site[mine[0]]))
        yield _Part(places[mine], [place] if place else [], [])


def _by_direction(kernel: Kernel, rows: Launches, places: Int64s) -> Iterator[tuple[Int64s, bool]]:
    """A graph's direction is that of all its launches; outside of graphs each launch has its own."""
    if kernel.direction is not None:
        yield places, kernel.direction == "backward"
        return
    for mine in (places[rows.backward[places]], places[~rows.backward[places]]):
        if len(mine):
            yield mine, bool(rows.backward[mine[0]])


def _sites(profile: Profile, rows: Int64s) -> Int64s:
    """For each row of the trace (-1: none) the code of the name of the user's function that called it, -1 where no
    stack tells."""
    return picked(profile.of(site_names), picked(profile.of(host_tree).place, rows))
