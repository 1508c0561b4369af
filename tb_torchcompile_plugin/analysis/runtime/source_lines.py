"""Show which lines of the program each launch computes, and how long the host needed for each.

What inductor generated names the lines; of a library call its place in the generated code. Outside compiled code the
user's innermost function around the launch counts, where stacks were recorded: they name functions, not lines. Without
stacks it is the line that the handler sampled around the launch.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis.runtime.kernel_rows import Kernel, extern_lines
from tb_torchcompile_plugin.analysis.runtime.kernels import kernel_rows
from tb_torchcompile_plugin.generated_code.generated_code import DefinedKernel
from tb_torchcompile_plugin.generated_code.output_code import Frame, frames
from tb_torchcompile_plugin.profile.columns import Int64s, groups_of_equal, ordinals, values_at
from tb_torchcompile_plugin.profile.compiled.regions import generated_code
from tb_torchcompile_plugin.profile.gpu.captures import graph_origins
from tb_torchcompile_plugin.profile.gpu.launches import Device, Launches, kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.host.host_tree import host_tree, site_names, site_ns
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.samples import lines_around_slices, samples
from tb_torchcompile_plugin.torch_names.python_frames import (
    frame_of,
    is_user_function,
    resumed_from,
    traceback_frames,
)


class UserLine(NamedTuple):
    """A line of the program; of a function as a whole the line that it begins at."""

    file: str
    line: int

    @property
    def key(self) -> str:
        """Return "file:line"."""
        return f"{self.file}:{self.line}"


class LineInfo(NamedTuple):
    """What was recorded of a line."""

    function: str
    text: str | None  # None where it was not recorded
    whole_function: bool  # only stacks name it, and so the function as a whole


UNKNOWN = LineInfo("", None, False)


class LineLaunches(NamedTuple):
    """Launches of one kernel that compute the same lines, all forward or all backward."""

    kernel: Kernel
    rows: Launches
    at: Int64s  # indices of the launches in `rows`
    lines: list[UserLine]  # [] where unknown
    # Paths in the compiled module, see `GraphCode.modules`; [] where unknown, and in eager code.
    modules: list[str]
    backward: bool


_Part = tuple[Int64s, list[UserLine], list[str]]  # indices of launches, their lines and modules


class UserLines:
    """All lines that the compile data of a profile, its kernels or its stacks name.

    The compiler records whole paths, the profiler's stacks the end of one: both get the same name here.
    """

    def __init__(self, profile: Profile) -> None:
        self.info: dict[UserLine, LineInfo] = {}
        # The lines of the user's functions, by the code of the name; those of captured CUDA graphs come after these.
        self.functions: dict[int, UserLine] = {}
        for frame in _recorded(profile):
            line = UserLine(frame.file, frame.line)
            before = self.info.get(line, UNKNOWN)
            function = without_resume(frame.function) or before.function
            self.info[line] = LineInfo(function, frame.source or before.text, False)
        self._paths = {line.file for line in self.info}
        for sampled in profile.of(samples).lines:
            line = UserLine(self.whole_path(sampled.file), sampled.line)
            self.info.setdefault(line, LineInfo(sampled.function, None, False))
        captured = (origin.function for origin in profile.of(graph_origins).origins)
        for code, name in enumerate([*profile.trace.names, *captured]):
            if is_user_function(name) and (frame_in_stack := frame_of(name)):
                file, number, function, _ = frame_in_stack
                line = UserLine(self.whole_path(file), number)
                self.functions[code] = line
                self.info.setdefault(line, LineInfo(without_resume(function), None, True))

    def whole_path(self, file: str) -> str:
        """Return the path that the compiler recorded of a file of which stacks show the end."""
        whole = [path for path in self._paths if path.endswith(f"/{file}")]
        return whole[0] if len(whole) == 1 else file


def _sorted_lines(frames: Iterable[Frame]) -> list[UserLine]:
    return sorted({UserLine(frame.file, frame.line) for frame in frames})


def _recorded(profile: Profile) -> Iterator[Frame]:
    if profile.summary:
        for message in (*profile.summary.compilations, *profile.summary.graph_breaks):
            yield from frames(message.stack)
        for recompile in profile.summary.recompiles:
            for reason in recompile.reasons:
                yield from (Frame(*place[:3], place.source or None) for place in traceback_frames(reason))
    for graph in profile.of(generated_code).graphs:
        yield from (*graph.user_nodes.values(), *graph.nodes.values())
    for kernel, _, _ in profile.of(kernel_rows):
        yield from kernel.lines if kernel.lines_from != "capture" else ()


def without_resume(function: str) -> str:
    """Return the name of a function; a resume function has that of the function that broke."""
    resumed = resumed_from(function)
    return resumed[0] if resumed else function


def line_launches(profile: Profile) -> list[LineLaunches]:
    """Return all launches of the GPUs, in a trace without GPU events those of C++ kernels on the CPU."""
    gpu = len(profile.of(gpu_work).index) > 0
    return [
        LineLaunches(kernel, rows, at, lines, modules, backward)
        for kernel, rows, indices in profile.of(kernel_rows)
        if (kernel.device == "cpu") != gpu
        for part, lines, modules in _parts(profile, kernel, rows, indices)
        for at, backward in _by_direction(kernel, rows, part)
    ]


def _parts(profile: Profile, kernel: Kernel, rows: Launches, indices: Int64s) -> Iterator[_Part]:
    code = profile.of(generated_code).find(kernel.name, kernel.compile_id, kernel.graph_key, kernel.direction)
    if code is not None:
        yield from _by_call(profile, code, kernel, rows, indices)
    elif kernel.lines_from == "provenance":
        yield indices, _sorted_lines(kernel.lines), []
    else:
        for at, called in profile.of(extern_lines)[rows.device].each(indices):
            if called and (lines := called[0].call_lines(called[1])):
                yield at, _sorted_lines(lines), called[0].modules(called[1])
                continue
            # By the user's innermost function around each launch, or by samples; no lines where neither was recorded.
            site = values_at(profile.of(site_names), values_at(profile.of(host_tree).place, rows.launch[at]))
            captured = profile.of(graph_origins).code[rows.index[at]]
            site = np.where(captured >= 0, len(profile.trace.names) + captured, site)
            sampled = lines_around_slices(profile, rows.launch[at])
            for same in groups_of_equal(np.arange(len(at)), site, sampled):
                line = profile.of(UserLines).functions.get(int(site[same[0]]))
                if line is None and sampled[same[0]] >= 0:
                    file, number, *_ = profile.of(samples).lines[sampled[same[0]]]
                    line = UserLine(profile.of(UserLines).whole_path(file), number)
                yield at[same], [line] if line else [], []


def _by_call(
    profile: Profile, code: DefinedKernel, kernel: Kernel, rows: Launches, indices: Int64s
) -> Iterator[_Part]:
    """Yield launches by the call in their graph, which has lines of its own; in CUDA graphs all lines count."""
    graph = code.code
    calls = graph.calls_of(code.definition)
    if len(calls) < 2 or kernel.lines_from == "provenance":
        yield indices, _sorted_lines(kernel.lines), graph.modules(code.definition)
        return
    number = profile.of(extern_lines)[rows.device].order(indices, len(calls))
    for same in groups_of_equal(np.arange(len(indices)), number):
        if number[same[0]] < 0:
            modules = dict.fromkeys(path for call in calls for path in graph.modules(call))
            yield indices[same], _sorted_lines(kernel.lines), list(modules)
        else:
            call = calls[number[same[0]]]
            yield indices[same], _sorted_lines(graph.call_lines(call) or kernel.lines), graph.modules(call)


def _by_direction(kernel: Kernel, rows: Launches, indices: Int64s) -> Iterator[tuple[Int64s, bool]]:
    """Yield launches, and whether they are backward: by their graph, outside of graphs each by itself."""
    backward = rows.backward[indices]
    if kernel.direction is not None:
        backward = np.full(len(indices), kernel.direction == "backward")
    for is_backward in (True, False):
        if (backward == is_backward).any():
            yield indices[backward == is_backward], is_backward


def function_ns(profile: Profile) -> dict[UserLine, int]:
    """Return the host time of each of the user's functions by its line, see `site_ns`; {} without stacks."""
    own, by_line = profile.of(site_ns), Counter[UserLine]()
    for code in np.flatnonzero(own).tolist():
        if line := profile.of(UserLines).functions.get(code):
            by_line[line] += int(own[code])
    return by_line


def launch_ns(profile: Profile) -> dict[Device, Int64s]:
    """Return by device the time (ns) of each launch's call, cut evenly where it made several; 0 without a call."""
    calls = {rows.device: np.zeros(len(rows.launch), np.int64) for rows in profile.of(kernel_launches)}
    for rows in profile.of(kernel_launches):
        if rows.device != "cpu":
            launched = np.flatnonzero(rows.launch >= 0)
            call, call_of, count = np.unique(rows.launch[launched], return_inverse=True, return_counts=True)
            whole, left = profile.trace.dur[call] // count, profile.trace.dur[call] % count
            calls[rows.device][launched] = whole[call_of] + (ordinals(call_of) < left[call_of])
    return calls


def shares(ns: Int64s, parts: int) -> Int64s:
    """Return the sum of these amounts in whole parts, each amount cut evenly: the first parts get what is left over."""
    left = np.bincount(ns % parts, minlength=parts)
    return int((ns // parts).sum()) + np.cumsum(left[::-1])[::-1] - left
