"""Where does the program break its graphs, and what does each place cost a step?

One row per break *site*: the user's line and torch's reason. Attempts, callers and recompiles that break at the same
place are one site. A site that the log knows and the trace did not execute has no price.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.graph_breaks.costs import GraphBreakCost, graph_break_costs
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary, GraphBreak
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import Step, profiled_steps
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.graph_breaks import BreakKind, break_kind

_Site = tuple[str, int | None, str]


class GraphBreakSite(msgspec.Struct, frozen=True):
    """`kind` is None where only the trace knows of it. What is named after a step and `share_percent` are over all
    profiled steps, null without any; the share is of the steps' wall time. The other sums are of the whole span. Prices
    are null where the site was not executed inside the span. `first_us` … `last_us`: one execution, from the span's
    first event."""

    file: str
    line: int | None
    reason: str
    kind: BreakKind | None
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


def graph_break_sites(profile: Profile) -> list[GraphBreakSite]:
    """Most expensive first; sites without a price last, in the order in which torch reported them."""
    costs, steps = profile.of(graph_break_costs) or [], profile.of(profiled_steps)
    summary = profile.summary
    reasons = _reasons(summary)
    costs_of: dict[_Site, list[GraphBreakCost]] = {site: [] for site in reasons.values()}
    for cost in costs:
        site = reasons.get(cost.compile_id, (cost.file, cost.line, ""))
        costs_of.setdefault(site, []).append(cost)
    ids: dict[_Site, set[str]] = defaultdict(set)
    for compile_id, site in reasons.items():
        ids[site].add(compile_id)
    kinds = _kinds(summary)
    rows = [_row(site, kinds.get(site), paid, steps, ids[site]) for site, paid in costs_of.items()]
    return sorted(rows, key=lambda row: -(row.host_us or 0))


def count_sites(data: CompileData) -> int:
    """Lines of the user's code that broke a graph, for one reason each."""
    return len({_site(row) for row in data.summary.graph_breaks})


def _reasons(summary: CompileSummary | None) -> dict[str, _Site]:
    """compile id → the site that ended its graph: the last break that torch reported for it."""
    return {
        row.key.compile_id: _site(row)
        for row in (summary.graph_breaks if summary else ())
        if row.key.compile_id
    }


def _kinds(summary: CompileSummary | None) -> dict[_Site, BreakKind]:
    return {
        _site(row): break_kind(row.reason, row.explanation)
        for row in (summary.graph_breaks if summary else ())
    }


def _site(row: GraphBreak) -> _Site:
    return row.file, row.line if row.HasField("line") else None, row.reason


def _row(
    site: _Site, kind: BreakKind | None, paid: list[GraphBreakCost], steps: list[Step], ids: set[str]
) -> GraphBreakSite:
    file, line, reason = site
    in_steps = _in_steps(paid, len(steps))
    idle_in_steps = [step.gpu_idle_us for cost in paid for step in cost.steps if step.gpu_idle_us is not None]
    wall = sum(step.wall_us for step in steps)
    calls = sum(cost.calls for cost in paid)
    idle = [cost.gpu_idle_us for cost in paid if cost.gpu_idle_us is not None]
    dearest = max(paid, key=lambda cost: cost.host_us, default=None)
    return GraphBreakSite(
        file=file,
        line=line,
        reason=reason,
        kind=kind,
        compile_ids=sorted(ids | {cost.compile_id for cost in paid}),
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
    )


def _in_steps(paid: list[GraphBreakCost], steps: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Host µs that the site cost in each step."""
    return np.array([sum(cost.steps[step].host_us for cost in paid) for step in range(steps)], np.float64)
