"""Where does the program break its graphs, and what does each break cost when the program runs?

A site is the user's line and torch's reason. Attempts, callers and recompiles that break at the same line for the same
reason are one site. A site that is in the log and was not executed in the trace has no cost.

`host_us` sums, over the calls, the time from the end of one graph execution to the start of the next one of the same
frame, without what was compiled meanwhile. It includes the guards and the overhead of the region that resumes, which
are also given apart. `gpu_idle_us` is how long no device of the process was busy in that time.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.compile.recompile_moments import calls_by_id, step_around
from tb_torchcompile_plugin.analysis.formatting import duration, joined_names, often, percent, plural
from tb_torchcompile_plugin.compile_log.record import optional_number
from tb_torchcompile_plugin.generated_code.artifacts import Frame, frames
from tb_torchcompile_plugin.profile.compiled import regions
from tb_torchcompile_plugin.profile.compiled.regions import Break, BreakLine, region_calls, resumes
from tb_torchcompile_plugin.profile.gpu_work import busy, gpu_work
from tb_torchcompile_plugin.profile.intervals import Intervals, share_percent, us, within
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import Step, StepWindows, profiled_steps
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.graph_breaks import BreakKind, break_kind

_Site = tuple[str, int | None, str]  # file, line, reason


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
    recovered: bool


class GraphBreakSite(msgspec.Struct, frozen=True):
    """One break site with what it costs.

    Fields named after a step and `share_percent` are over all profiled steps, None without any; the other sums are over
    the whole span. All are None where no cost is known.
    """

    key: str
    file: str
    line: int | None
    reason: str
    kind: BreakKind | None  # None where only the trace shows the site
    source: str | None  # text of the line
    compile_ids: list[str]
    calls: int | None
    calls_per_step: float | None
    host_us: float | None
    step_mean_us: float | None
    step_median_us: float | None
    step_p95_us: float | None
    step_gpu_idle_us: float | None
    share_percent: float | None  # of the steps' wall time
    gpu_idle_us: float | None
    first_us: float | None  # start of one execution, from the span's first event
    last_us: float | None  # end of that execution
    breaks: list[GraphBreak]  # every compilation that broke there
    no_price: str | None = None  # why no cost is known; None where one is, and without a trace


class BreakInStep(msgspec.Struct, frozen=True):
    """The executions of one break inside one step."""

    step: str
    calls: int
    host_us: float
    gpu_idle_us: float | None
    share_percent: float | None  # of the step's wall time


class GraphBreakCost(msgspec.Struct, frozen=True):
    """One row per broken and resumed region."""

    compile_id: str
    resume_compile_id: str
    file: str
    line: int | None
    calls: int
    host_us: float
    resume_guard_us: float
    resume_overhead_us: float | None
    gpu_idle_us: float | None
    first_us: float  # start of one execution, from the span's first event
    last_us: float  # end of that execution
    steps: list[BreakInStep]

    @property
    def profiled_us(self) -> float:
        """The part of `host_us` inside steps; all of it where there are none."""
        return sum(step.host_us for step in self.steps) if self.steps else self.host_us


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

    compile_id: str
    step: str | None  # None for a frame that ran outside of all steps
    frame_us: float
    links: list[Link]


def graph_breaks(data: CompileData) -> list[GraphBreak]:
    """Return all breaks in the order in which torch reported them."""
    rows = []
    for message in data.summary.graph_breaks:
        line, stack = optional_number(message, "line"), frames(message.stack)
        sources = [frame.source for frame in stack if (frame.file, frame.line) == (message.file, line)]
        rows.append(
            GraphBreak(
                compile_id=message.key.compile_id,
                epoch=message.key.epoch,
                reason=message.reason,
                kind=break_kind(message.reason, message.explanation),
                explanation=message.explanation,
                hints=list(message.hints),
                docs_url=message.docs_url,
                file=message.file,
                line=line,
                source=sources[-1] if sources else None,
                stack=stack,
                count=message.count or 1,
                recovered=message.recovered,
            )
        )
    return rows


def graph_break_sites(profile: Profile) -> list[GraphBreakSite]:
    """Return the sites, most expensive first; those without a cost last, in the order in which torch reported them."""
    reported = profile.data.of(graph_breaks) if profile.data else []
    # The last break ends its graph.
    site_of = {row.compile_id: _site(row) for row in reported if row.compile_id}
    costs = profile.of(graph_break_costs)
    costs_of = grouped(costs or (), lambda cost: site_of.get(cost.compile_id, (cost.file, cost.line, "")))
    rows = _rows(reported, costs_of, profile.of(profiled_steps))
    if costs is not None:
        rows = [msgspec.structs.replace(row, no_price=_no_price(profile, row)) for row in rows]
    return sorted(rows, key=lambda row: -(row.host_us or 0))


def reported_sites(data: CompileData) -> list[GraphBreakSite]:
    """Return the sites without costs, in the order in which torch reported them."""
    return _rows(data.of(graph_breaks), {}, [])


def count_sites(data: CompileData) -> int:
    """Count the lines of the user's code that broke a graph, for one reason each."""
    return len(data.of(reported_sites))


def _site(row: GraphBreak) -> _Site:
    return row.file, row.line, row.reason


def _rows(
    reported: list[GraphBreak], costs_of: Mapping[_Site, list[GraphBreakCost]], steps: list[Step]
) -> list[GraphBreakSite]:
    breaks = grouped(reported, _site)
    sites = dict.fromkeys((*breaks, *costs_of))
    return [_row(site, breaks.get(site, []), costs_of.get(site, []), steps) for site in sites]


def _row(
    site: _Site, breaks: list[GraphBreak], costs: list[GraphBreakCost], steps: list[Step]
) -> GraphBreakSite:
    file, line, reason = site
    ids = {row.compile_id for row in breaks} | {cost.compile_id for cost in costs}
    in_steps = [step for cost in costs for step in cost.steps]
    idle_in_steps = [step.gpu_idle_us for step in in_steps if step.gpu_idle_us is not None]
    idle = [cost.gpu_idle_us for cost in costs if cost.gpu_idle_us is not None]
    wall = sum(step.wall_us for step in steps)
    host_by_step = np.array([sum(cost.steps[step].host_us for cost in costs) for step in range(len(steps))])
    has_steps = bool(costs and steps)
    most_expensive = max(costs, key=lambda cost: cost.host_us, default=None)
    return GraphBreakSite(
        key=f"{file}:{'' if line is None else line}:{reason}",
        file=file,
        line=line,
        reason=reason,
        kind=breaks[0].kind if breaks else None,
        source=next((row.source for row in breaks if row.source), None),
        compile_ids=sorted(ids - {""}),
        calls=sum(cost.calls for cost in costs) if costs else None,
        calls_per_step=sum(step.calls for step in in_steps) / len(steps) if has_steps else None,
        host_us=round(sum(cost.host_us for cost in costs), 3) if costs else None,
        step_mean_us=float(host_by_step.mean()) if has_steps else None,
        step_median_us=float(np.median(host_by_step)) if has_steps else None,
        step_p95_us=float(np.percentile(host_by_step, 95)) if has_steps else None,
        step_gpu_idle_us=sum(idle_in_steps) / len(steps) if idle_in_steps else None,
        share_percent=100 * float(host_by_step.sum()) / wall if costs and wall else None,
        gpu_idle_us=round(sum(idle), 3) if idle else None,
        first_us=most_expensive.first_us if most_expensive else None,
        last_us=most_expensive.last_us if most_expensive else None,
        breaks=breaks,
    )


def _no_price(profile: Profile, site: GraphBreakSite) -> str | None:
    """Explain why no cost is known: "Regions that it ended ran 33 times, but no compiled graph on both sides …"."""
    if site.host_us is not None:
        return None
    if functions := _left_eager(profile, site):
        runs = "runs" if len(functions) == 1 else "run"
        return f"{joined_names(functions)} {runs} eager because of it, so there is no graph to come back to"
    if calls := _calls(profile, site):
        return f"Regions that it ended ran {often(calls)}, but no compiled graph on both sides of the break"
    return "It was not executed inside this span"


def _left_eager(profile: Profile, site: GraphBreakSite) -> list[str]:
    """Return the functions that torch runs eager because of the break."""
    compiled = profile.summary.compilations if profile.summary else ()
    failed = (row for row in compiled if row.HasField("failure") and row.key.compile_id in site.compile_ids)
    return list(dict.fromkeys(row.function or "the frame" for row in failed))


def _calls(profile: Profile, site: GraphBreakSite) -> int:
    return sum(profile.of(calls_by_id)[compile_id] for compile_id in site.compile_ids)


def headline(profile: Profile) -> str:
    """Summarize in a sentence: "4 graph break sites cost 555 µs a step, 9.22 % of it (mean of 3)."."""
    sites, costs = profile.of(graph_break_sites), profile.of(graph_break_costs)
    steps = profile.of(profiled_steps)
    count = plural(len(sites), "graph break site")
    with_cost = [site for site in sites if site.host_us is not None]
    if not sites:
        return "Graph breaks are not known." if profile.data is None and costs is None else "No graph breaks."
    if costs is None:
        return f"{count}. {'Its' if len(sites) == 1 else 'Their'} price is not known: see below."
    if not with_cost:
        return f"{count}{_without_cost(profile, sites)}."
    subject = f"{len(with_cost)} of {count}" if len(with_cost) < len(sites) else count
    verb = "costs" if len(with_cost) == 1 else "cost"
    if not steps:
        host = duration(sum(site.host_us or 0 for site in with_cost))
        return f"{subject} {verb} {host} of host time in this span (no steps were marked)."
    host = duration(sum(site.step_mean_us or 0 for site in with_cost))
    share = percent(sum(site.share_percent or 0 for site in with_cost))
    return f"{subject} {verb} {host} a step, {share} of it (mean of {len(steps)})."


def _without_cost(profile: Profile, sites: list[GraphBreakSite]) -> str:
    """Return " without a price: 2 leave f and g eager; 1 was not executed inside this span"."""
    if len(sites) == 1:
        return f". {sites[0].no_price}"
    eager = [functions for site in sites if (functions := _left_eager(profile, site))]
    names = joined_names(list(dict.fromkeys(name for functions in eager for name in functions)))
    ran = sum(not _left_eager(profile, site) and _calls(profile, site) > 0 for site in sites)
    idle = len(sites) - len(eager) - ran
    parts = (
        f"{plural(len(eager), 'leaves', 'leave')} {names} eager" if eager else "",
        f"{plural(ran, 'has', 'have')} no compiled graph on both sides" if ran else "",
        f"{plural(idle, 'was', 'were')} not executed inside this span" if idle else "",
    )
    return f" without a price: {'; '.join(filter(None, parts))}"


def reported_headline(data: CompileData) -> str:
    """Summarize without a trace."""
    count = plural(data.of(count_sites), "graph break site")
    return f"{count}. Without a trace there is no price." if data.of(count_sites) else "No graph breaks."


def graph_break_costs(profile: Profile) -> list[GraphBreakCost] | None:
    """Return the breaks, most expensive first; None where resumes cannot be distinguished from called frames."""
    resume_lines = profile.of(resumes)
    if resume_lines is None:
        return None
    work = profile.of(gpu_work)
    gpu = busy(profile.trace, work.index) if len(work.index) else None
    gaps = regions.all_breaks(profile.of(region_calls))
    by_ids = grouped(gaps, lambda gap: (gap.call.compile_id, gap.resumed.compile_id))
    rows = [_cost(profile, ids, gaps, gpu, resume_lines.place(*ids)) for ids, gaps in by_ids.items()]
    return sorted(rows, key=lambda row: -row.host_us)


def _cost(
    profile: Profile, ids: tuple[str, str], gaps: list[Break], gpu: Intervals | None, location: BreakLine
) -> GraphBreakCost:
    host = regions.break_host_ns(profile, gaps)
    idle = None if gpu is None else regions.break_host_ns(profile, gaps, gpu)
    first, _ = profile.trace.window()
    overhead = sum(gap.resumed.overhead_ns for gap in gaps)
    steps = profile.of(StepWindows)
    step_of_gap = within(steps.windows, np.array([gap.start for gap in gaps], np.int64))
    in_steps = []
    for step, name in enumerate(steps.names):
        is_inside = step_of_gap == step
        step_ns = int(host[is_inside].sum())
        in_steps.append(
            BreakInStep(
                step=name,
                calls=int(is_inside.sum()),
                host_us=us(step_ns),
                gpu_idle_us=None if idle is None else us(idle[is_inside].sum()),
                share_percent=share_percent(step_ns, int(steps.ends[step] - steps.starts[step])),
            )
        )
    return GraphBreakCost(
        compile_id=ids[0],
        resume_compile_id=ids[1],
        file=location.file,
        line=location.line,
        calls=len(gaps),
        host_us=us(host.sum()),
        resume_guard_us=us(sum(gap.resumed.guard_ns for gap in gaps)),
        resume_overhead_us=us(overhead) if regions.marks_overhead(profile.trace) else None,
        gpu_idle_us=None if idle is None else us(idle.sum()),
        first_us=us(gaps[0].start - first),
        last_us=us(gaps[0].end - first),
        steps=in_steps,
    )


def break_chain(profile: Profile) -> BreakChain | None:
    """Return the frame with the most breaks, in its call of median cost: what a typical step passes through.

    None where no frame broke, or resumes cannot be distinguished from called frames.
    """
    resume_lines = profile.of(resumes)
    if resume_lines is None:
        return None
    gaps_of = [(frame, list(regions.breaks(frame))) for frame in regions.frames(profile.of(region_calls))]
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
    return BreakChain(
        compile_id=frame.compile_id,
        step=step_around(profile, frame.start),
        frame_us=us(frame.end - frame.begin),
        links=sorted(links, key=lambda link: link.start_us),
    )
