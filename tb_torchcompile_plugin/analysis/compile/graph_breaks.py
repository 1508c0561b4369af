"""Where does the program break its graphs, and what does each place cost a step?

One row per break *site*: the user's line and torch's reason. Attempts, callers and recompiles that break at the same
place are one site. A site that the log knows and the trace did not execute has no price.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.compile.break_costs import GraphBreakCost, graph_break_costs
from tb_torchcompile_plugin.analysis.formatting import both, duration, often, percent, plural
from tb_torchcompile_plugin.compile_log.record import known_number
from tb_torchcompile_plugin.compile_log.summary_pb2 import GraphBreak as GraphBreakMessage
from tb_torchcompile_plugin.generated_code.artifacts import Frame, frames
from tb_torchcompile_plugin.profile.compiled.regions import every, region_calls
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import Step, profiled_steps
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.graph_breaks import BreakKind, break_kind

# Where did dynamo break the graph, and why?


class GraphBreak(msgspec.Struct, frozen=True):
    """One break of one compilation. `source` is the text of the user's line, None where it was not recorded."""

    compile_id: str
    epoch: int
    reason: str
    kind: BreakKind
    explanation: str
    hints: list[str]
    docs_url: str
    file: str
    line: int | None
    source: str | None
    stack: list[Frame]
    count: int
    recovered: bool


def graph_breaks(data: CompileData) -> list[GraphBreak]:
    """In the order in which torch reported them."""
    return [_graph_break(row) for row in data.summary.graph_breaks]


def _graph_break(row: GraphBreakMessage) -> GraphBreak:
    line, stack = known_number(row, "line"), frames(row.stack)
    here = [frame.source for frame in stack if (frame.file, frame.line) == (row.file, line)]
    return GraphBreak(
        compile_id=row.key.compile_id,
        epoch=row.key.epoch,
        reason=row.reason,
        kind=break_kind(row.reason, row.explanation),
        explanation=row.explanation,
        hints=list(row.hints),
        docs_url=row.docs_url,
        file=row.file,
        line=line,
        source=here[-1] if here else None,
        stack=stack,
        count=row.count or 1,
        recovered=row.recovered,
    )


_Site = tuple[str, int | None, str]


class GraphBreakSite(msgspec.Struct, frozen=True):
    """`kind` is None where only the trace knows of it. What is named after a step and `share_percent` are over all
    profiled steps, null without any; the share is of the steps' wall time. The other sums are of the whole span. Prices
    are null where none is known; `no_price` says why, null where there is one and without a trace. `first_us` …
    `last_us`: one execution, from the span's first event. `breaks`: every compilation that broke there; `source`: the
    text of the line."""

    key: str
    file: str
    line: int | None
    reason: str
    kind: BreakKind | None
    source: str | None
    compile_ids: list[str]
    calls: int | None
    calls_per_step: float | None
    host_us: float | None
    step_mean_us: float | None
    step_median_us: float | None
    step_p95_us: float | None
    step_gpu_idle_us: float | None
    share_percent: float | None
    gpu_idle_us: float | None
    first_us: float | None
    last_us: float | None
    breaks: list[GraphBreak]
    no_price: str | None = None


def graph_break_sites(profile: Profile) -> list[GraphBreakSite]:
    """Most expensive first; sites without a price last, in the order in which torch reported them."""
    reported = profile.data.of(graph_breaks) if profile.data else []
    # The last break ends its graph.
    ended = {row.compile_id: _site(row) for row in reported if row.compile_id}
    costs = profile.of(graph_break_costs)
    paid = grouped(costs or (), lambda cost: ended.get(cost.compile_id, (cost.file, cost.line, "")))
    rows = _rows(reported, paid, profile.of(profiled_steps))
    if costs is not None:
        rows = [msgspec.structs.replace(row, no_price=_no_price(profile, row)) for row in rows]
    return sorted(rows, key=lambda row: -(row.host_us or 0))


def reported_sites(data: CompileData) -> list[GraphBreakSite]:
    """What torch reported, in its order; none with a price."""
    return _rows(data.of(graph_breaks), {}, [])


def headline(profile: Profile) -> str:
    """ "4 graph break sites cost 555 µs a step, 9.22 % of it (mean of 3)." """
    sites, costs = profile.of(graph_break_sites), profile.of(graph_break_costs)
    steps = profile.of(profiled_steps)
    what = plural(len(sites), "graph break site")
    priced = [site for site in sites if site.host_us is not None]
    if not sites:
        return "Graph breaks are not known." if profile.data is None and costs is None else "No graph breaks."
    if costs is None:
        return f"{what}. {'Its' if len(sites) == 1 else 'Their'} price is not known: see below."
    if not priced:
        return f"{what}{_unpriced(profile, sites)}."
    of = f"{len(priced)} of {what}" if len(priced) < len(sites) else what
    cost = f"{of} {'costs' if len(priced) == 1 else 'cost'}"
    if not steps:
        host = duration(sum(site.host_us or 0 for site in priced))
        return f"{cost} {host} of host time in this span (no steps were marked)."
    host = duration(sum(site.step_mean_us or 0 for site in priced))
    share = percent(sum(site.share_percent or 0 for site in priced))
    return f"{cost} {host} a step, {share} of it (mean of {len(steps)})."


def _unpriced(profile: Profile, sites: list[GraphBreakSite]) -> str:
    """ " without a price: 2 leave f and g eager; 1 was not executed inside this span" """
    if len(sites) == 1:
        return f". {sites[0].no_price}"
    eager = [site for site in sites if _left_eager(profile, site)]
    ran = [site for site in sites if site not in eager and _ran(profile, site)]
    idle = len(sites) - len(eager) - len(ran)
    names = both(list(dict.fromkeys(name for site in eager for name in _left_eager(profile, site))))
    parts = (
        f"{plural(len(eager), 'leaves', 'leave')} {names} eager" if eager else "",
        f"{plural(len(ran), 'has', 'have')} no compiled graph on both sides" if ran else "",
        f"{plural(idle, 'was', 'were')} not executed inside this span" if idle else "",
    )
    return f" without a price: {'; '.join(filter(None, parts))}"


def reported_headline(data: CompileData) -> str:
    """The same without a trace."""
    what = plural(len(data.of(reported_sites)), "graph break site")
    return f"{what}. Without a trace there is no price." if data.of(reported_sites) else "No graph breaks."


def count_sites(data: CompileData) -> int:
    """Lines of the user's code that broke a graph, for one reason each."""
    return len(data.of(reported_sites))


def _no_price(profile: Profile, site: GraphBreakSite) -> str | None:
    """Why nothing tells what it costs: "Its regions ran 33 times, but no compiled graph on both sides of the break"."""
    if site.host_us is not None:
        return None
    if names := _left_eager(profile, site):
        runs = "runs" if len(names) == 1 else "run"
        return f"{both(names)} {runs} eager because of it, so there is no graph to come back to"
    if ran := _ran(profile, site):
        return f"Regions that it ended ran {often(ran)}, but no compiled graph on both sides of the break"
    return "It was not executed inside this span"


def _left_eager(profile: Profile, site: GraphBreakSite) -> list[str]:
    """The functions that torch gave up because of it."""
    compiled = profile.summary.compilations if profile.summary else ()
    failed = (row for row in compiled if row.HasField("failure") and row.key.compile_id in site.compile_ids)
    return list(dict.fromkeys(row.function or "the frame" for row in failed))


def _ran(profile: Profile, site: GraphBreakSite) -> int:
    calls = profile.of(_calls)
    return sum(calls[one] for one in site.compile_ids)


def _calls(profile: Profile) -> Counter[str | None]:
    """How often the regions of each compilation ran."""
    return Counter(call.compile_id for call in every(profile.of(region_calls)))


def _site(row: GraphBreak) -> _Site:
    return row.file, row.line, row.reason


def _rows(
    reported: list[GraphBreak], paid: Mapping[_Site, list[GraphBreakCost]], steps: list[Step]
) -> list[GraphBreakSite]:
    breaks = grouped(reported, _site)
    return [
        _row(site, breaks.get(site, []), paid.get(site, []), steps)
        for site in dict.fromkeys((*breaks, *paid))
    ]


def _row(
    site: _Site, breaks: list[GraphBreak], paid: list[GraphBreakCost], steps: list[Step]
) -> GraphBreakSite:
    file, line, reason = site
    ids = {row.compile_id for row in breaks} | {cost.compile_id for cost in paid}
    in_steps = _in_steps(paid, len(steps))
    idle_in_steps = [step.gpu_idle_us for cost in paid for step in cost.steps if step.gpu_idle_us is not None]
    wall = sum(step.wall_us for step in steps)
    calls = sum(cost.calls for cost in paid)
    idle = [cost.gpu_idle_us for cost in paid if cost.gpu_idle_us is not None]
    dearest = max(paid, key=lambda cost: cost.host_us, default=None)
    return GraphBreakSite(
        key=f"{file}:{'' if line is None else line}:{reason}",
        file=file,
        line=line,
        reason=reason,
        kind=breaks[0].kind if breaks else None,
        source=next((row.source for row in breaks if row.source), None),
        compile_ids=sorted(ids - {""}),
        calls=calls if paid else None,
        calls_per_step=sum(step.calls for cost in paid for step in cost.steps) / len(steps)
        if paid and steps
        else None,
        host_us=round(sum(cost.host_us for cost in paid), 3) if paid else None,
        step_mean_us=float(in_steps.mean()) if paid and steps else None,
        step_median_us=float(np.median(in_steps)) if paid and steps else None,
        step_p95_us=float(np.percentile(in_steps, 95)) if paid and steps else None,
        step_gpu_idle_us=sum(idle_in_steps) / len(steps) if idle_in_steps else None,
        share_percent=100 * float(in_steps.sum()) / wall if paid and wall else None,
        gpu_idle_us=round(sum(idle), 3) if idle else None,
        first_us=dearest.first_us if dearest else None,
        last_us=dearest.last_us if dearest else None,
        breaks=breaks,
    )


def _in_steps(paid: list[GraphBreakCost], steps: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Host µs that the site cost in each step."""
    return np.array([sum(cost.steps[step].host_us for cost in paid) for step in range(steps)], np.float64)
