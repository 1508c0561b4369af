"""Lines of the program, one name each: the compiler tells whole paths, the profiler's stacks the end of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis.runtime.kernel_code import extern_lines
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import Kernel
from tb_torchcompile_plugin.analysis.runtime.kernels import kernel_rows
from tb_torchcompile_plugin.generated_code.artifacts import Frame, frames
from tb_torchcompile_plugin.generated_code.generated_code import Generated
from tb_torchcompile_plugin.profile.columns import alike, ordinals, picked
from tb_torchcompile_plugin.profile.compiled.regions import generated_code
from tb_torchcompile_plugin.profile.gpu.launches import Device, Launches, kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.host.host_tree import host_tree
from tb_torchcompile_plugin.profile.host.operator_calls import site_names, site_ns
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.python_frames import frame_of, is_users, places, resumed_from


class Place(NamedTuple):
    """A line; of a function as a whole the line that it begins at."""

    file: str
    line: int

    @property
    def key(self) -> str:
        return f"{self.file}:{self.line}"


class Known(NamedTuple):
    """What is known of a line. text: None where nobody recorded it. of_stack: only stacks tell of it, and so of the
    function as a whole."""

    function: str
    text: str | None
    of_stack: bool


UNKNOWN = Known("", None, False)


class Places:
    """All lines that the compile data of a profile, its kernels or its stacks tell of."""

    def __init__(self, profile: Profile) -> None:
        self.known: dict[Place, Known] = {}
        for frame in _recorded(profile):
            self._learn(frame)
        paths = {place.file for place in self.known}
        self._functions: dict[int, Place] = {}
        for code, name in enumerate(profile.trace.names):
            if is_users(name) and (frame_in_stack := frame_of(name)):
                file, line, function = frame_in_stack
                self._functions[code] = place = Place(_whole(file, paths), line)
                self.known.setdefault(place, Known(_without_resume(function), None, True))

    def of_frames(self, rows: Iterable[Frame]) -> list[Place]:
        """Each once, in the order of the files."""
        return sorted({Place(frame.file, frame.line) for frame in rows})

    def of_function(self, code: int) -> Place | None:
        """Of a function in a stack by the code of its name; None for what is not the user's, and for -1."""
        return self._functions.get(code)

    def _learn(self, frame: Frame) -> None:
        place = Place(frame.file, frame.line)
        before = self.known.get(place, UNKNOWN)
        function = _without_resume(frame.function) or before.function
        self.known[place] = Known(function, frame.source or before.text, False)


def _recorded(profile: Profile) -> Iterator[Frame]:
    if profile.data:
        yield from _in_stacks(profile.data)
    for graph in profile.of(generated_code).graphs:
        yield from graph.user_nodes.values()
        yield from graph.nodes.values()
    for kernel, _, _ in profile.of(kernel_rows):
        yield from kernel.lines


def _in_stacks(data: CompileData) -> Iterator[Frame]:
    for message in (*data.summary.compilations, *data.summary.graph_breaks):
        yield from frames(message.stack)
    for recompile in data.summary.recompiles:
        for reason in recompile.reasons:
            yield from (Frame(*place[:3], place.source or None) for place in places(reason))


def _without_resume(function: str) -> str:
    """What goes on after a graph break is the function that broke."""
    resumed = resumed_from(function)
    return resumed[0] if resumed else function


def _whole(file: str, paths: set[str]) -> str:
    """The path that ends so, where there is just one."""
    whole = [path for path in paths if path.endswith(f"/{file}")]
    return whole[0] if len(whole) == 1 else file


# Which lines of the program does each launch compute? What inductor generated tells; of a library call its
# place in the generated code. Outside of compiled code the user's innermost function around the launch,
# where stacks were recorded: they tell functions, not lines.


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
        for kernel, rows, places in profile.of(kernel_rows)
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


# What the host needed: for each function of the user's, where stacks tell, and for each launch.


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
            calls[rows.device][known] = _launch_parts(rows.launch[known], profile.trace.dur)
    return calls


def _launch_parts(call: Int64s, dur: Int64s) -> Int64s:
    """The part of each launch in the duration of its call."""
    distinct, place, count = np.unique(call, return_inverse=True, return_counts=True)
    whole, left = dur[distinct] // count, dur[distinct] % count
    return np.asarray(whole[place] + (ordinals(place) < left[place]), np.int64)
