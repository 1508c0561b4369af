"""Show which lines of the program take the time: each line with what the GPU and the host did for it.

A kernel that computes several lines counts for each of them in equal parts of whole nanoseconds, so that the lines and
the kernels of unknown lines sum to the time of all kernels.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis.compile.compilations import compilations
from tb_torchcompile_plugin.analysis.compile.graph_breaks import graph_break_sites
from tb_torchcompile_plugin.analysis.compile.recompiles import recompiles
from tb_torchcompile_plugin.analysis.finding import Panel
from tb_torchcompile_plugin.analysis.formatting import at_line, column_head, duration, percent
from tb_torchcompile_plugin.analysis.runtime import source_lines
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import Kernel
from tb_torchcompile_plugin.analysis.runtime.kernels import kernel_rows
from tb_torchcompile_plugin.analysis.runtime.ledger import LedgerSite, ledger, site_sentence
from tb_torchcompile_plugin.analysis.runtime.source_lines import UserLine, function_ns, launch_ns, shares
from tb_torchcompile_plugin.profile.columns import Int64s, share_percent, us
from tb_torchcompile_plugin.profile.gpu.launches import Device
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.slices import PYTHON_FUNCTION

HostFrom = Literal["stacks", "launches"]


class LineBreak(msgspec.Struct, frozen=True):
    """A graph break on the line. This and the next one lead to a row of another panel."""

    reason: str
    # By how much a step is shorter without it, see causes/break_costs.py; None where unknown.
    cost_us: float | None
    row: str
    panel: Panel = "graph_breaks"


class LineRecompile(msgspec.Struct, frozen=True):
    """A recompile whose guard torch made because of the line, or whose frame begins there if it names no line."""

    reason: str
    compile_id: str
    epoch: int
    duration_s: float | None
    row: str
    panel: Panel = "recompiles"


class LineGuards(msgspec.Struct, frozen=True):
    """A frame that begins on the line, with the guards that are checked before each of its calls."""

    compile_id: str
    epoch: int
    guards: int


class LineKernel(msgspec.Struct, frozen=True):
    """What a row of kernels takes for a line."""

    kernel: Annotated[str, column_head(grow=True)]
    kernel_row: str
    compile_id: str | None
    time_us: float


class SharedLine(msgspec.Struct, frozen=True):
    """Another line, and what the kernels that compute both take for this one."""

    file: str
    line: int
    time_us: float


class ProgramLine(msgspec.Struct, frozen=True):
    """One line, or a function as a whole by its first line. Times are per step (of the span without steps)."""

    key: str
    file: str
    line: int
    # None where it was not recorded; of a user's Triton kernel its signature
    text: Annotated[str | None, column_head("Your code", grow=True)]
    why_no_text: Annotated[str | None, column_head(unseen=True)]
    function: Annotated[str, column_head(hidden=True)]
    whole_function: Annotated[bool, column_head(unseen=True)]
    # on the step's critical path, as in the panel Step
    critical_path_us: Annotated[float, column_head("Of the step", bar=True, total=True)]
    # GPU times are None where no kernel is known to compute the line.
    forward_us: Annotated[float | None, column_head(total=True)]
    backward_us: Annotated[float | None, column_head(total=True)]
    kernel_us: Annotated[float | None, column_head("Forward and backward", hidden=True, total=True)]
    share_percent: Annotated[float | None, column_head("Share of kernel time", hidden=True)]
    host_us: Annotated[float | None, column_head(total=True)]  # see `Program.host_from`
    # beyond what the device needs at least, of kernels of which that is known
    above_floor_us: Annotated[float | None, column_head("More than at peak")]
    kernels: Annotated[list[LineKernel], column_head(inner=True)]
    # the other lines that its kernels compute
    shared: Annotated[list[SharedLine], column_head("Lines in the same kernels", inner=True, hidden=True)]
    breaks: Annotated[list[LineBreak], column_head(inner=True)]
    recompiles: Annotated[list[LineRecompile], column_head(inner=True)]
    guards: Annotated[list[LineGuards], column_head("Compiled frames", inner=True, hidden=True)]


class Program(msgspec.Struct, frozen=True):
    """All lines, those with most of the step first, then by GPU time and host time."""

    headline: str
    note: str  # what the times are
    rows: Annotated[list[ProgramLine], column_head("Lines")]
    device: Literal["GPU", "CPU"] | None  # on which kernels ran
    kernel_us: float  # of all kernels: that of the lines and `unknown_us` together
    unknown_us: float  # of kernels of unknown lines
    # stacks: the time in which a function was the user's innermost one; launches: that of the calls that launched a
    # line's kernels.
    host_from: HostFrom | None


class Marks(NamedTuple):
    """What torch.compile recorded of a line."""

    breaks: list[LineBreak]
    recompiles: list[LineRecompile]
    guards: list[LineGuards]


@dataclass
class LineTime:
    """The time of one line, in ns."""

    forward: int = 0
    backward: int = 0
    launch: int = 0  # of the host's launch calls
    above: float | None = None  # beyond what the device needs at least; None where unknown for all kernels
    kernels: Counter[str] = field(default_factory=Counter)  # by the key of a row of kernels
    shared: Counter[UserLine] = field(default_factory=Counter)  # of kernels that it shares, by the other line

    @property
    def gpu(self) -> int:
        """Return forward and backward together."""
        return self.forward + self.backward


@dataclass
class LineTimes:
    """The time of all lines (ns)."""

    by_line: dict[UserLine, LineTime]
    unknown: int  # of kernels of unknown lines
    all: int  # both together


def source(profile: Profile) -> Program:
    """Return all lines that anything was recorded of."""
    times = line_times(profile.of(source_lines.line_launches), profile.of(launch_ns))
    steps = max(len(profile.of(StepWindows)), 1)
    gpu = len(profile.of(gpu_work).index) > 0
    when = "per step" if len(profile.of(StepWindows)) else "in this span"
    host_from: HostFrom | None = "launches" if gpu else None
    if PYTHON_FUNCTION in profile.trace.cats:
        host_from = "stacks"
    path = {UserLine(row.file, row.line): row for row in profile.of(ledger).sites if row.line is not None}
    lines = dict.fromkeys((*path, *times.by_line, *profile.of(function_ns), *profile.of(marks)))
    kernels = {kernel.key: kernel for kernel, _, _ in profile.of(kernel_rows)}
    rows = [_row(profile, line, path.get(line), times, kernels, host_from) for line in lines]
    rows.sort(key=_order)
    first = path.get(UserLine(rows[0].file, rows[0].line)) if rows else None
    return Program(
        headline=site_sentence(profile, first) if first else _headline(rows, when),
        note=_note(times, host_from, when, steps),
        rows=rows,
        device="GPU" if gpu else "CPU" if times.all else None,
        kernel_us=us(times.all) / steps,
        unknown_us=us(times.unknown) / steps,
        host_from=host_from,
    )


def _order(row: ProgramLine) -> tuple[float, float, float, str, int]:
    return -row.critical_path_us, -(row.kernel_us or 0), -(row.host_us or 0), row.file, row.line


def _headline(rows: list[ProgramLine], when: str) -> str:
    """Return a sentence where no line is on the critical path of a step."""
    if not rows:
        return (
            "No line of your program was recorded: there is neither compile data nor are there Python stacks."
        )
    first = rows[0]
    where = at_line(first.file, first.line)
    if first.kernel_us is not None:
        share = f"{percent(first.share_percent or 0)} of kernel time"
        return f"{where} takes {duration(first.kernel_us)} {when}, {share}."
    if first.host_us is None:
        return "The lines of your program that the kernels compute are unknown."
    takes = f"{first.function} ({where}) takes {duration(first.host_us)} of host time {when}"
    return f"{takes}. The lines that the kernels compute are unknown."


_HOST_NOTES: dict[HostFrom | None, str] = {
    "stacks": "Host time is the time in which a function is your innermost one, with its backward.",
    "launches": "Host time is the time of launching the kernels of a line.",
    None: "",
}


def _note(times: LineTimes, host_from: HostFrom | None, when: str, steps: int) -> str:
    unknown = ""
    if times.unknown:
        share = percent(share_percent(times.unknown, times.all) or 0)
        unknown = f"{duration(us(times.unknown) / steps)} of kernel time ({share}) has no known line."
    return " ".join(filter(None, (f"Times are {when}.", _HOST_NOTES[host_from], unknown)))


def line_times(
    launches: Iterable[source_lines.LineLaunches], launch_ns: Mapping[Device, Int64s]
) -> LineTimes:
    """Return the time of each line, in sum that of all kernels; launch_ns: by device the host time of each launch."""
    by_line: dict[UserLine, LineTime] = {}
    unknown = total = 0
    for row in launches:
        ns, count = row.rows.dur[row.at], len(row.lines)
        total += int(ns.sum())
        if not row.lines:
            unknown += int(ns.sum())
            continue
        launch = shares(launch_ns[row.rows.device][row.at], count)
        for line, part, host in zip(row.lines, shares(ns, count).tolist(), launch.tolist()):
            time = by_line.setdefault(line, LineTime())
            if row.backward:
                time.backward += part
            else:
                time.forward += part
            time.launch += host
            time.kernels[row.kernel.key] += part
            time.shared.update({other: part for other in row.lines if other != line})
            if row.kernel.above_floor_us is not None:
                above = row.kernel.above_floor_us / (row.kernel.time_us or 1.0)
                time.above = (time.above or 0.0) + above * part
    assert unknown + sum(time.gpu for time in by_line.values()) == total
    return LineTimes(by_line, unknown, total)


def marks(profile: Profile) -> dict[UserLine, Marks]:
    """Return what torch.compile recorded by line; without compile data only breaks that the trace shows."""
    by_line: dict[UserLine, Marks] = defaultdict(lambda: Marks([], [], []))
    for site in profile.of(graph_break_sites):
        if site.file and site.line is not None:
            graph_break = LineBreak(site.reason, None, f"graph_breaks:{site.key}")
            by_line[UserLine(site.file, site.line)].breaks.append(graph_break)
    for recompile in profile.data.of(recompiles) if profile.data else ():
        lines = [(guard.file, guard.line) for guard in recompile.guards] + [(recompile.file, recompile.line)]
        line = next((UserLine(file, line) for file, line in lines if file and line is not None), None)
        if line:
            reason, ids = next(iter(recompile.reasons), ""), (recompile.compile_id, recompile.epoch)
            key = f"recompiles:{recompile.compile_id},{recompile.epoch}"
            by_line[line].recompiles.append(LineRecompile(reason, *ids, recompile.duration_s, key))
    for row in profile.data.of(compilations) if profile.data else ():
        if row.guards and row.file and row.line is not None:
            guards = LineGuards(row.compile_id, row.epoch, row.guards)
            by_line[UserLine(row.file, row.line)].guards.append(guards)
    return dict(by_line)


def _row(
    profile: Profile,
    line: UserLine,
    site: LedgerSite | None,
    times: LineTimes,
    by_key: dict[str, Kernel],
    host_from: HostFrom | None,
) -> ProgramLine:
    steps = max(len(profile.of(StepWindows)), 1)
    info = profile.of(source_lines.UserLines).info.get(line, source_lines.UNKNOWN)
    breaks, recompiles, guards = profile.of(marks).get(line, Marks([], [], []))
    time = times.by_line.get(line)
    shared = sorted(time.shared.items(), key=lambda part: (-part[1], part[0])) if time else []
    parts = ((by_key[key], us(ns) / steps) for key, ns in time.kernels.most_common()) if time else ()
    host_ns = time.launch if time and host_from else None
    if host_from == "stacks":
        host_ns = profile.of(function_ns).get(line)
    return ProgramLine(
        key=line.key,
        file=line.file,
        line=line.line,
        function=info.function,
        whole_function=info.whole_function,
        text=info.text,
        why_no_text=None if info.text else _no_text(profile.data, info),
        critical_path_us=site.time_us if site else 0.0,
        forward_us=us(time.forward) / steps if time else None,
        backward_us=us(time.backward) / steps if time else None,
        kernel_us=us(time.gpu) / steps if time else None,
        share_percent=share_percent(time.gpu, times.all) if time else None,
        host_us=None if host_ns is None else us(host_ns) / steps,
        above_floor_us=time.above / 1000 / steps if time and time.above is not None else None,
        kernels=[LineKernel(row.name, row.key, row.compile_id, time_us) for row, time_us in parts],
        shared=[SharedLine(*other, us(ns) / steps) for other, ns in shared],
        breaks=breaks,
        recompiles=recompiles,
        guards=guards,
    )


def _no_text(data: CompileData | None, info: source_lines.LineInfo) -> str:
    if info.whole_function:
        return "Python stacks record functions, not their text"
    if data is None:
        return "The trace records the line without its text"
    if data.summary.environment.capture == "summary":
        return 'capture="summary" stores no text of the program'
    if data.source == "torch_trace":
        return "torch’s log has no text of this line. The trace handler records it"
    return "Its file could not be read when the summary was written"
