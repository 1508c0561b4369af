"""Where does the program break its graphs, and how long does the host take from graph to graph there?

A site is the user's line and torch's reason. Attempts, callers and recompiles that break at the same line for the same
reason are one site. A site that is in the log and was not executed in the trace has no direct cost.

The cost of a break is what removing it saves: analysis/causes/break_costs.py predicts it. Measured is the direct cost:
`host_us` sums, over the calls, the time from the end of one graph execution to the start of the next one of the same
frame, without what was compiled meanwhile. It includes the guards and the overhead of the region that resumes, which
are also given apart. `gpu_idle_us` is how long no device of the process was busy in that time.
"""

from collections.abc import Iterable
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import column_head, duration, joined_names, often, plural
from tb_torchcompile_plugin.compile_log.record import optional_number
from tb_torchcompile_plugin.generated_code.output_code import Frame, frames
from tb_torchcompile_plugin.profile.columns import Int64s, us, within
from tb_torchcompile_plugin.profile.compiled import regions
from tb_torchcompile_plugin.profile.coverage import coverage
from tb_torchcompile_plugin.profile.gpu_work import busy, gpu_work
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, steady_steps, step_around, step_time
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.graph_breaks import BreakKind, break_kind

_Site = tuple[str, int | None, str]  # file, line, reason
_AS_LOGGED = ("reason", "explanation", "docs_url", "file")


class GraphBreak(msgspec.Struct, frozen=True):
    """One break of one compilation."""

    compile_id: str
    epoch: int
    reason: str
    kind: BreakKind
    explanation: str
    hints: list[str]
    docs_url: str
    file: str
    line: int | None
    source: str | None  # text of the user's line, None where it was not recorded
    stack: list[Frame]
    count: int


class GraphBreakSite(msgspec.Struct, frozen=True, kw_only=True):
    """One break site with its cost and its direct cost.

    Fields named after a step and `share_percent` are means of the steady steps, None without any; the other sums are
    over the whole span. All are None where they are unknown.
    """

    key: str
    file: str
    line: int | None
    source: Annotated[str | None, column_head(grow=True, wrap=True)]  # text of the line
    # How much shorter a step is without this break alone, as predicted.
    saves_us: Annotated[float | None, column_head("Cost per step", bar=True)] = None
    saves_percent: Annotated[float | None, column_head("Share")] = None
    step_mean_us: Annotated[float | None, column_head("Direct cost per step")] = None
    share_percent: Annotated[float | None, column_head("Direct cost, of the profiled step")] = None
    host_us: Annotated[float | None, column_head("Total direct cost")] = None
    step_gpu_idle_us: Annotated[float | None, column_head("GPU idle per step")] = None
    gpu_idle_us: Annotated[float | None, column_head("Total GPU idle")] = None
    calls_per_step: float | None = None
    calls: int | None = None
    kind: BreakKind | None  # None where only the trace shows the site
    reason: Annotated[str, column_head(grow=True, wrap=True)]
    # None where a cost is known, and without a trace.
    why_no_cost: Annotated[str | None, column_head(hidden=True, wrap=True)] = None
    compile_ids: Annotated[list[str], column_head("Compilations", hidden=True)]
    breaks: list[GraphBreak]  # every compilation that broke there
    # Start and end of the first execution, from the span's first event.
    first_us: Annotated[float | None, column_head("First at", hidden=True)] = None
    last_us: Annotated[float | None, column_head("First until", hidden=True)] = None


class GraphBreakCost(msgspec.Struct, frozen=True):
    """One row per broken and resumed region."""

    compile_id: Annotated[str, column_head("From")]
    resume_compile_id: Annotated[str, column_head("To")]
    file: str
    line: int | None
    calls: int
    host_us: Annotated[float, column_head(total=True)]
    resume_guard_us: Annotated[float, column_head("Guards of the resumed region")]
    resume_overhead_us: Annotated[float | None, column_head("Overhead of the resumed region")]
    gpu_idle_us: Annotated[float | None, column_head(total=True)]


class Link(msgspec.Struct, frozen=True):
    """A graph execution of `compile_id`, or the break after it."""

    kind: Literal["graph", "break"]
    compile_id: str
    file: str
    line: int | None
    start_us: float  # from the span's first event
    duration_us: float


class BreakChain(msgspec.Struct, frozen=True):
    """One call of a frame: its graphs with the breaks between them."""

    sentence: str
    links: list[Link]


def graph_breaks(data: CompileData) -> list[GraphBreak]:
    """Return all breaks in the order in which torch reported them."""
    rows = []
    for message in data.summary.graph_breaks:
        line, stack = optional_number(message, "line"), frames(message.stack)
        sources = [frame.source for frame in stack if (frame.file, frame.line) == (message.file, line)]
        row = GraphBreak(
            compile_id=message.key.compile_id,
            epoch=message.key.epoch,
            kind=break_kind(message.reason, message.explanation),
            hints=list(message.hints),
            line=line,
            source=sources[-1] if sources else None,
            stack=stack,
            count=message.count or 1,
            **{name: getattr(message, name) for name in _AS_LOGGED},
        )
        rows.append(row)
    return rows


class DirectCost(NamedTuple):
    """How long the host is between graphs, where breaks inside of breaks count once."""

    host_ns: int
    step_ns: Int64s  # by step


class _Executions(NamedTuple):
    """Every execution of a break in the span, as columns of equal length."""

    gaps: list[regions.Break]
    host_ns: Int64s
    idle_ns: Int64s | None  # of `host_ns`; None without work of a GPU
    step: Int64s  # -1 outside of all


def _executions(profile: Profile) -> _Executions:
    gaps = list(regions.all_breaks(profile.of(regions.region_calls)))
    work = profile.of(gpu_work)
    has_gpu = len(work.index) > 0
    return _Executions(
        gaps,
        regions.break_host_ns(profile, gaps),
        regions.break_host_ns(profile, gaps, busy(profile.trace, work.index)) if has_gpu else None,
        within(profile.of(StepWindows).windows, np.array([gap.start for gap in gaps], np.int64)),
    )


def direct_cost(profile: Profile) -> DirectCost:
    """Return the direct cost of all breaks."""
    return _direct_cost(profile, range(len(profile.of(_executions).gaps)))


def _direct_cost(profile: Profile, indices: Iterable[int]) -> DirectCost:
    gaps, host_ns, _, step = profile.of(_executions)
    outermost: list[int] = []
    ends: dict[int, int] = {}  # by thread, of its last gap
    for index in sorted(indices, key=lambda index: (gaps[index].start, -gaps[index].end)):
        track = int(profile.trace.track[gaps[index].call.index])
        if gaps[index].start >= ends.get(track, gaps[index].start):
            outermost.append(index)
            ends[track] = gaps[index].end
    by_step = np.zeros(len(profile.of(StepWindows)), np.int64)
    in_step = np.array([index for index in outermost if step[index] >= 0], np.int64)
    np.add.at(by_step, step[in_step], host_ns[in_step])
    return DirectCost(int(host_ns[outermost].sum()), by_step)


def graph_break_sites(profile: Profile) -> list[GraphBreakSite]:
    """Return the sites, highest direct cost first; those without last, in the order in which torch reported them."""
    reported = profile.data.of(graph_breaks) if profile.data else []
    site_of, costs = _ended_by(reported), profile.of(graph_break_costs)
    places = {(cost.compile_id, cost.resume_compile_id): (cost.file, cost.line, "") for cost in costs or ()}
    ids = [(gap.call.compile_id, gap.resumed.compile_id) for gap in profile.of(_executions).gaps]
    executed = (index for index, pair in enumerate(ids) if pair in places)
    executions = grouped(executed, lambda index: site_of.get(ids[index][0], places[ids[index]]))
    rows = [
        _executed(profile, row, executions[site]) if site in executions else row
        for site, row in _sites(reported, executions).items()
    ]
    if costs is not None or profile.of(unrecorded):
        rows = [msgspec.structs.replace(row, why_no_cost=_no_price(profile, row)) for row in rows]
    return sorted(rows, key=lambda row: -(row.host_us or 0))


def reported_sites(data: CompileData) -> list[GraphBreakSite]:
    """Return the sites without costs, in the order in which torch reported them."""
    return list(_sites(data.of(graph_breaks)).values())


def _sites(reported: list[GraphBreak], executed: Iterable[_Site] = ()) -> dict[_Site, GraphBreakSite]:
    breaks = grouped(reported, _site)
    return {
        (file, line, reason): GraphBreakSite(
            key=f"{file}:{'' if line is None else line}:{reason}",
            file=file,
            line=line,
            reason=reason,
            kind=rows[0].kind if rows else None,
            source=next((row.source for row in rows if row.source), None),
            compile_ids=sorted({row.compile_id for row in rows} - {""}),
            breaks=rows,
        )
        for file, line, reason in dict.fromkeys((*breaks, *executed))
        for rows in (breaks.get((file, line, reason), []),)
    }


def count_sites(about: Profile | CompileData) -> int | None:
    """Count the lines that broke a graph, for one reason each; None where neither log nor trace shows them."""
    if isinstance(about, CompileData):
        return None if about.is_unknown("graph breaks") else len(about.of(reported_sites))
    is_logged = about.data is not None and not about.data.is_unknown("graph breaks")
    is_known = is_logged or about.of(graph_break_costs) is not None
    return len(about.of(graph_break_sites)) if is_known else None


def _site(row: GraphBreak) -> _Site:
    return row.file, row.line, row.reason


def _ended_by(reported: list[GraphBreak]) -> dict[str, _Site]:
    """Map each compile id to the site of its last break, which ends its graph."""
    return {row.compile_id: _site(row) for row in reported if row.compile_id}


def ended_graphs(profile: Profile, site: GraphBreakSite) -> set[str]:
    """Return the compile ids whose graphs end at a site."""
    ended = _ended_by(profile.data.of(graph_breaks) if profile.data else [])
    own = site.file, site.line, site.reason
    return {name for name in site.compile_ids if ended.get(name, own) == own}


def _executed(profile: Profile, row: GraphBreakSite, indices: list[int]) -> GraphBreakSite:
    """Add what a span shows of a site. indices: of its executions, in order of time."""
    runs, direct, (first, _) = profile.of(_executions), _direct_cost(profile, indices), profile.trace.window()
    gaps = [runs.gaps[index] for index in indices]
    idle_ns = None if runs.idle_ns is None else runs.idle_ns[indices]
    per_step: dict[str, float | None] = {}
    steady = profile.of(steady_steps)
    if steady and (count := len(steady.on_host)):
        is_steady = np.isin(runs.step[indices], steady.on_host)
        mean_us = float(direct.step_ns[steady.on_host].mean()) / 1000
        per_step = {
            "calls_per_step": int(is_steady.sum()) / count,
            "step_mean_us": mean_us,
            "step_gpu_idle_us": None if idle_ns is None else us(idle_ns[is_steady].sum()) / count,
            "share_percent": 100 * mean_us / profile.of(step_time).profiled_us,
        }
    return msgspec.structs.replace(
        row,
        compile_ids=sorted({*row.compile_ids, *(gap.call.compile_id for gap in gaps)}),
        calls=len(gaps),
        host_us=us(direct.host_ns),
        gpu_idle_us=None if idle_ns is None else us(idle_ns.sum()),
        first_us=us(gaps[0].start - first),
        last_us=us(gaps[0].end - first),
        **per_step,
    )


def _no_price(profile: Profile, site: GraphBreakSite) -> str | None:
    """Explain why no cost is known: "f runs eagerly, so no compiled graph follows the break"."""
    if site.host_us is not None:
        return None
    if functions := _left_eager(profile, site):
        runs = "runs" if len(functions) == 1 else "run"
        return f"{joined_names(functions)} {runs} eagerly, so no compiled graph follows the break"
    if calls := sum(profile.of(regions.calls_by_id)[compile_id] for compile_id in site.compile_ids):
        return f"Regions that end at this break ran {often(calls)}, but no compiled graph ran on both sides"
    lost = profile.of(unrecorded) if profile.of(graph_break_costs) is None else None
    return lost.rstrip(".") if lost else "Not executed in this span"


def _left_eager(profile: Profile, site: GraphBreakSite) -> list[str]:
    """Return the functions that torch runs eagerly because of the break."""
    compiled = profile.summary.compilations if profile.summary else ()
    failed = (row for row in compiled if row.HasField("failure") and row.key.compile_id in site.compile_ids)
    return list(dict.fromkeys(row.function or "the frame" for row in failed))


def reported_headline(data: CompileData) -> str:
    """Summarize without a trace."""
    count = len(data.of(reported_sites))
    return f"{plural(count, 'graph break site')}." if count else data.none_of("graph breaks")


def unrecorded(profile: Profile) -> str | None:
    """Return a sentence about the thread or steps whose operators are missing; None where all that ran is known.

    Code that broke its graphs may have run there, and so may compiled code.
    """
    kinds = ("thread_operators", "step_operators")
    return next((row.sentence for row in profile.of(coverage).rows if row.kind in kinds), None)


def graph_break_costs(profile: Profile) -> list[GraphBreakCost] | None:
    """Return the breaks, most expensive first; None where they are unknown.

    They are where resumes cannot be distinguished from called frames, and where none was seen in a part of what ran.
    """
    resume_lines, runs = profile.of(regions.resumes), profile.of(_executions)
    if resume_lines is None or (not runs.gaps and profile.of(unrecorded)):
        return None
    by_ids = grouped(enumerate(runs.gaps), lambda row: (row[1].call.compile_id, row[1].resumed.compile_id))
    rows = []
    for ids, executions in by_ids.items():
        indices, resumed = [index for index, _ in executions], [gap.resumed for _, gap in executions]
        file, line = resume_lines.place(*ids)
        overhead = sum(call.overhead_ns for call in resumed)
        rows.append(
            GraphBreakCost(
                compile_id=ids[0],
                resume_compile_id=ids[1],
                file=file,
                line=line,
                calls=len(indices),
                host_us=us(runs.host_ns[indices].sum()),
                resume_guard_us=us(sum(call.guard_ns for call in resumed)),
                resume_overhead_us=us(overhead) if regions.marks_overhead(profile.trace) else None,
                gpu_idle_us=None if runs.idle_ns is None else us(runs.idle_ns[indices].sum()),
            )
        )
    return sorted(rows, key=lambda row: -row.host_us)


def break_chain(profile: Profile) -> BreakChain | None:
    """Return the frame with the most breaks, in its call of median cost: what a typical step passes through.

    None where no frame broke, or resumes cannot be distinguished from called frames.
    """
    resume_lines = profile.of(regions.resumes)
    if resume_lines is None:
        return None
    gaps_of = [
        (frame, list(regions.breaks(frame))) for frame in regions.frames(profile.of(regions.region_calls))
    ]
    most = max((len(gaps) for _, gaps in gaps_of), default=0)
    if not most:
        return None
    calls = [(frame, gaps) for frame, gaps in gaps_of if len(gaps) == most]
    calls.sort(key=lambda call: (sum(gap.end - gap.start for gap in call[1]), call[0].begin))
    frame, gaps = calls[(len(calls) - 1) // 2]
    first, _ = profile.trace.window()
    links = [
        Link("graph", call.compile_id, "", None, us(start - first), us(end - start))
        for call in frame.chain()
        for start, end in call.graphs
    ]
    for gap in gaps:
        file, line = resume_lines.place(gap.call.compile_id, gap.resumed.compile_id)
        start_us, duration_us = us(gap.start - first), us(gap.end - gap.start)
        links.append(Link("break", gap.call.compile_id, file, line, start_us, duration_us))
    step, between_ns = step_around(profile, frame.start), sum(gap.end - gap.start for gap in gaps)
    where = f" in {step}" if step else ""
    return BreakChain(
        sentence=f"One call of {frame.compile_id}{where}: {duration(us(frame.end - frame.begin))}, "
        f"of which {duration(us(between_ns))} between graphs.",
        links=sorted(links, key=lambda link: link.start_us),
    )
