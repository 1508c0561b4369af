"""Which lines of the program take the time? Each line with what the GPU and the host did for it.

A kernel that computes several lines counts for each of them in equal parts of whole nanoseconds, so that the lines and
what no line is known of sum to the time of all kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.compile.compilations import compilations
from tb_torchcompile_plugin.analysis.compile.graph_breaks import graph_break_sites
from tb_torchcompile_plugin.analysis.compile.recompiles import Recompile, recompiles
from tb_torchcompile_plugin.analysis.formatting import at_line, duration
from tb_torchcompile_plugin.analysis.formatting import percent as in_percent
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import Kernel
from tb_torchcompile_plugin.analysis.runtime.kernels import kernel_rows
from tb_torchcompile_plugin.analysis.runtime.source_lines import (
    UNKNOWN,
    Known,
    LineLaunches,
    Place,
    Places,
    function_ns,
    launch_ns,
    line_launches,
)
from tb_torchcompile_plugin.profile.gpu.launches import Device
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.profile.units import share_percent, us
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.slices import PYTHON_FUNCTION

# Time of kernels that compute several lines, shared out among these in whole nanoseconds: the sum is that
# of all.


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


# What torch.compile has to say about a line: graph breaks, recompiles and guards.


class LineBreak(msgspec.Struct, frozen=True):
    """A graph break on the line. `key`: of its row among the graph breaks. step_us: its price, None where unknown."""

    key: str
    reason: str
    step_us: float | None


class LineRecompile(msgspec.Struct, frozen=True):
    """A recompile whose guard torch made because of the line; of one that does not say so, the frame begins here."""

    compile_id: str
    epoch: int
    reason: str
    duration_s: float | None


class LineGuards(msgspec.Struct, frozen=True):
    """A frame that begins on the line, with what is checked before each of its calls."""

    compile_id: str
    epoch: int
    guards: int


class Marks(NamedTuple):
    breaks: list[LineBreak]
    recompiles: list[LineRecompile]
    guards: list[LineGuards]


def marks(profile: Profile) -> dict[Place, Marks]:
    """By line; {} without compile data, but for breaks that the trace tells of."""
    by_line: dict[Place, Marks] = {}
    for place, mark in (*_breaks(profile), *_recompiles(profile), *_guards(profile)):
        row = by_line.setdefault(place, Marks([], [], []))
        row[(LineBreak, LineRecompile, LineGuards).index(type(mark))].append(mark)  # type: ignore[arg-type]
    return by_line


def _breaks(profile: Profile) -> Iterator[tuple[Place, LineBreak]]:
    for site in profile.of(graph_break_sites):
        if site.file and site.line is not None:
            yield Place(site.file, site.line), LineBreak(site.key, site.reason, site.step_mean_us)


def _recompiles(profile: Profile) -> Iterator[tuple[Place, LineRecompile]]:
    for row in profile.data.of(recompiles) if profile.data else ():
        if place := _of_recompile(row):
            reason = row.reasons[0] if row.reasons else ""
            yield place, LineRecompile(row.compile_id, row.epoch, reason, row.duration_s)


def _of_recompile(row: Recompile) -> Place | None:
    """The line of the first guard that has one, else that of the frame."""
    places = [(guard.file, guard.line) for guard in row.guards] + [(row.file, row.line)]
    return next((Place(file, line) for file, line in places if file and line is not None), None)


def _guards(profile: Profile) -> Iterator[tuple[Place, LineGuards]]:
    for row in profile.data.of(compilations) if profile.data else ():
        if row.guards and row.file and row.line is not None:
            yield Place(row.file, row.line), LineGuards(row.compile_id, row.epoch, row.guards)


HostFrom = Literal["stacks", "launches"]


class LineKernel(msgspec.Struct, frozen=True):
    """What a row of kernels, by its `key`, takes for a line. artifact, code_line: where inductor defined it."""

    key: str
    name: str
    compile_id: str | None
    artifact: int | None
    code_line: int | None
    time_us: float


class SharedLine(msgspec.Struct, frozen=True):
    """Another line, by its `key`, and what the kernels that compute both take for this one."""

    key: str
    time_us: float


class ProgramFile(msgspec.Struct, frozen=True):
    """The lines of one file together; times as those of lines. host_us: None where none of them has any."""

    file: str
    lines: int
    kernel_us: float
    host_us: float | None


class ProgramLine(msgspec.Struct, frozen=True):
    """One line, or a function as a whole, by the line that it begins at: `whole_function`. Times are a step, or of the
    span where there are no steps; those of the GPU are None where no kernel is known to compute the line.

    share_percent: of all GPU time. kernel_us: forward and backward together. host_us: see `Program.host_from`.
    above_floor_us: beyond what the device needs at least, of kernels of which that is known. text: None where it was
    not recorded, and no_text says why; of a Triton kernel of the user's its signature. shared: the other lines that its
    kernels compute, with what these kernels took for this one.
    """

    key: str
    file: str
    line: int
    function: str
    whole_function: bool
    text: str | None
    no_text: str | None
    forward_us: float | None
    backward_us: float | None
    kernel_us: float | None
    share_percent: float | None
    host_us: float | None
    above_floor_us: float | None
    kernels: list[LineKernel]
    shared: list[SharedLine]
    breaks: list[LineBreak]
    recompiles: list[LineRecompile]
    guards: list[LineGuards]


class Program(msgspec.Struct, frozen=True):
    """Hottest first: by GPU time, then by host time. device: what kernels ran on.

    kernel_us: of all kernels, of which unknown_us is what no line is known of: `kernel_us` of the lines and that sum to
    it. steps: by how many all times are divided, 1 where there are none. host_from: "stacks" is the time in which a
    function was the innermost one of the user's, "launches" that of the calls that launched a line's kernels.
    """

    headline: str
    rows: list[ProgramLine]
    files: list[ProgramFile]
    device: Literal["GPU", "CPU"] | None
    kernel_us: float
    unknown_us: float
    steps: int
    has_steps: bool
    host_from: HostFrom | None


def source(profile: Profile) -> Program:
    """All lines that anything is known of."""
    times, host, noted = profile.of(source_times), profile.of(function_ns), profile.of(marks)
    steps = len(profile.of(StepWindows))
    places = dict.fromkeys((*times.by_line, *host, *noted))
    rows = [_row(profile, place, times, max(steps, 1)) for place in places]
    rows.sort(key=lambda row: (-(row.kernel_us or 0), -(row.host_us or 0), row.file, row.line))
    unknown = us(times.unknown) / max(steps, 1)
    return Program(
        headline=_headline(rows, times, "a step" if steps else "in this span"),
        rows=rows,
        files=_files(rows),
        device=_device(profile, times),
        kernel_us=us(times.all) / max(steps, 1),
        unknown_us=unknown,
        steps=max(steps, 1),
        has_steps=steps > 0,
        host_from=profile.of(_host_from),
    )


def source_times(profile: Profile) -> LineTimes:
    """Kernel time by line, in ns: the sum is that of all kernels."""
    return line_times(profile.of(line_launches), profile.of(launch_ns))


def _device(profile: Profile, times: LineTimes) -> Literal["GPU", "CPU"] | None:
    if len(profile.of(gpu_work).index):
        return "GPU"
    return "CPU" if times.all else None


def _host_from(profile: Profile) -> HostFrom | None:
    if PYTHON_FUNCTION in profile.trace.cats:
        return "stacks"
    return "launches" if len(profile.of(gpu_work).index) else None


def _row(profile: Profile, place: Place, times: LineTimes, steps: int) -> ProgramLine:
    known = profile.of(Places).known.get(place, UNKNOWN)
    noted = profile.of(marks).get(place, Marks([], [], []))
    time = times.by_line.get(place)
    return ProgramLine(
        key=place.key,
        file=place.file,
        line=place.line,
        function=known.function,
        whole_function=known.of_stack,
        text=known.text,
        no_text=None if known.text else _no_text(profile.data, known),
        forward_us=us(time.forward) / steps if time else None,
        backward_us=us(time.backward) / steps if time else None,
        kernel_us=us(time.gpu) / steps if time else None,
        share_percent=share_percent(time.gpu, times.all) if time else None,
        host_us=_host_us(profile, place, time, steps),
        above_floor_us=time.above / 1000 / steps if time and time.above is not None else None,
        kernels=_kernels(profile, time, steps) if time else [],
        shared=_shared(time, steps) if time else [],
        breaks=noted.breaks,
        recompiles=noted.recompiles,
        guards=noted.guards,
    )


def _no_text(data: CompileData | None, known: Known) -> str:
    if known.of_stack:
        return "A stack tells the function, and no text"
    if data is None:
        return "The trace tells the line, and not its text"
    if data.summary.environment.capture == "summary":
        return 'capture="summary" stores no text of the program'
    if data.source == "torch_trace":
        return "torch’s log holds no text of it; the handler’s summary does"
    return "Its file could not be read when the summary was written"


def _host_us(profile: Profile, place: Place, time: LineTime | None, steps: int) -> float | None:
    if profile.of(_host_from) == "stacks":
        ns = profile.of(function_ns).get(place)
    else:
        ns = time.launch if time and profile.of(_host_from) else None
    return None if ns is None else us(ns) / steps


def _kernels(profile: Profile, time: LineTime, steps: int) -> list[LineKernel]:
    """Most time first."""
    known = profile.of(_by_key)
    parts = [(known[key], ns) for key, ns in sorted(time.kernels.items(), key=lambda part: -part[1])]
    return [
        LineKernel(row.key, row.name, row.compile_id, row.artifact, row.code_line, us(ns) / steps)
        for row, ns in parts
    ]


def _by_key(profile: Profile) -> dict[str, Kernel]:
    return {kernel.key: kernel for kernel, _, _ in profile.of(kernel_rows)}


def _shared(time: LineTime, steps: int) -> list[SharedLine]:
    """Most time first."""
    parts = sorted(time.shared.items(), key=lambda part: (-part[1], part[0]))
    return [SharedLine(place.key, us(ns) / steps) for place, ns in parts]


def _files(rows: list[ProgramLine]) -> list[ProgramFile]:
    """In the order of their hottest lines."""
    return [
        ProgramFile(
            file=file,
            lines=len(lines),
            kernel_us=sum(row.kernel_us or 0.0 for row in lines),
            host_us=sum(host)
            if (host := [row.host_us for row in lines if row.host_us is not None])
            else None,
        )
        for file, lines in grouped(rows, lambda row: row.file).items()
    ]


def _headline(rows: list[ProgramLine], times: LineTimes, when: str) -> str:
    """ "resnet.py:96 takes 481 µs a step, 29.1 % of kernel time. The line is known for 91.6 % of it." """
    first = rows[0] if rows else None
    if first is None:
        return "Nothing tells a line of your program: neither compile data nor stacks."
    if first.kernel_us is None:
        return _of_host(first, when)
    known = share_percent(times.all - times.unknown, times.all)
    said = f"{at_line(first.file, first.line)} takes {duration(first.kernel_us)} {when}"
    share = f", {in_percent(first.share_percent or 0)} of kernel time"
    return f"{said}{share}. The line is known for {in_percent(known or 0)} of it."


def _of_host(first: ProgramLine, when: str) -> str:
    where = at_line(first.file, first.line)
    if first.host_us is None:
        return "No kernel tells which line of your program it computes."
    return f"{first.function} ({where}) takes {duration(first.host_us)} of host time {when}. No kernel tells its line."
