"""What does each graph break cost? What removing it saves: the predicted gain of one graph in place of two.

What the host was measured to take between the graphs is the direct cost (analysis/compile/graph_breaks.py). It is not
what would be saved: the call of the next graph and its kernels go on, and a GPU may hide it.
"""

from collections.abc import Collection, Iterator
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from tb_torchcompile_plugin.analysis.causes import fix
from tb_torchcompile_plugin.analysis.causes.what_if import after_ns, predict_fix, why_nothing
from tb_torchcompile_plugin.analysis.compile import graph_breaks
from tb_torchcompile_plugin.analysis.compile.graph_breaks import GraphBreakSite, graph_break_costs
from tb_torchcompile_plugin.analysis.finding import Predicted, prediction
from tb_torchcompile_plugin.analysis.formatting import about, duration, percent, plural
from tb_torchcompile_plugin.analysis.runtime.source import Program, source
from tb_torchcompile_plugin.analysis.runtime.span_report import Span, span_report
from tb_torchcompile_plugin.profile.columns import Int64s, mask_at, us
from tb_torchcompile_plugin.profile.compiled import regions
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.model.launch_sequence import gpu_queue, host_segments, launch_sequence
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import steady_steps, step_time
from tb_torchcompile_plugin.torch_names.operators import is_fusible, is_fusible_in_graphs

_MAX_PREDICTED = 20  # sites, those with the highest direct cost: each is replayed, which takes up to a second
_NOT_PREDICTED = f"Costs are predicted only for the {_MAX_PREDICTED} sites with the highest direct cost"
# A nested region may be the rest of a broken frame or a frame that it calls.
_AMBIGUOUS = (
    "the trace has no compile log and no Python stacks (with_stack=True), which distinguish nested regions."
)
_REACH_NS = 1_000_000  # a launch that is further from a graph break has nothing to do with it; chosen by eye


def cost_of_breaks(profile: Profile) -> Predicted | None:
    """Return what removing all graph breaks brings; None where none ran, or nothing can be predicted."""
    if profile.of(why_nothing) or not (closed := next(closed_breaks(profile), None)):
        return None
    predicted = predict_fix(profile, closed).predicted
    step_ns = 1000 * predicted.step_us
    return predicted if predicted.gain_us > 0 else prediction(step_ns, step_ns)


def saved_us(profile: Profile) -> float | None:
    """Return by how much a step is shorter without its graph breaks; None where that is unknown, 0 without breaks."""
    if cost := profile.of(cost_of_breaks):
        return cost.gain_us
    return 0.0 if profile.of(graph_breaks.count_sites) == 0 else None


def direct_us(profile: Profile) -> float | None:
    """Return the direct cost of all breaks of a step, or of the span without steps; None where none was measured."""
    steady = profile.of(steady_steps)
    if not steady or not profile.of(graph_break_costs):
        return profile.of(direct_of_span_us)
    return float(profile.of(graph_breaks.direct_cost).step_ns[steady.on_host].mean()) / 1000


def direct_percent(profile: Profile) -> float | None:
    """Return the direct cost of all breaks, of the profiled step: it was measured while profiling."""
    direct, step = profile.of(direct_us), profile.of(step_time)
    return 100 * direct / step.profiled_us if direct is not None and step.profiled_us else None


def direct_of_span_us(profile: Profile) -> float | None:
    """Return the direct cost of all breaks of a span; None where none was measured."""
    return us(profile.of(graph_breaks.direct_cost).host_ns) if profile.of(graph_break_costs) else None


def break_sites(profile: Profile) -> list[GraphBreakSite]:
    """Return the sites with their costs, most expensive first."""
    rows, why = profile.of(graph_breaks.graph_break_sites), profile.of(why_nothing)
    priced = [_priced(profile, row, why, number < _MAX_PREDICTED) for number, row in enumerate(rows)]
    return sorted(priced, key=lambda row: -(row.saves_us or 0))


def _priced(profile: Profile, row: GraphBreakSite, why: str | None, is_near_top: bool) -> GraphBreakSite:
    if why or not is_near_top:
        why_no_cost = (why or _NOT_PREDICTED).rstrip(".")
        return row if row.host_us is None else replace(row, why_no_cost=why_no_cost)
    gaps, ended = profile.of(break_gaps), graph_breaks.ended_graphs(profile, row)
    times = gaps.times[[name in ended for name in gaps.broken]]
    if not len(times):  # none of its graphs is followed by another one
        return row
    if len(profile.of(graph_breaks.graph_break_sites)) == 1 and (cost := profile.of(cost_of_breaks)):
        # The only site costs what all breaks cost: also the gaps after graphs that no resumed one follows.
        return replace(row, saves_us=cost.gain_us, saves_percent=cost.gain_percent, why_no_cost=None)
    closed, step_us = fix.in_sequence(*joined_graphs(profile, times)), profile.of(step_time).step_us
    saves_us = max(step_us - after_ns(profile, closed) / 1000, 0.0)
    return replace(row, saves_us=saves_us, saves_percent=100 * saves_us / step_us, why_no_cost=None)


def headline(profile: Profile) -> str:
    """Summarize: "4 graph break sites cost about 2.5 ms (2.1-3.2) per step, 42 % of the step (predicted)."."""
    sites, cost = profile.of(break_sites), profile.of(cost_of_breaks)
    if not sites:
        unknown = "Graph breaks are unknown: this trace does not show them."
        return "No graph breaks." if profile.of(graph_breaks.count_sites) == 0 else unknown
    count = plural(len(sites), "graph break site")
    if profile.of(graph_break_costs) is None:
        return f"{count}. The cost is unknown: {profile.of(graph_breaks.unrecorded) or _AMBIGUOUS}"
    ran = [site for site in sites if site.host_us is not None or site.saves_us is not None]
    if not ran:
        reasons = dict.fromkeys(site.why_no_cost for site in sites if site.why_no_cost)
        return ". ".join((f"{count} with unknown cost", *reasons)) + "."
    subject = f"{len(ran)} of {count}" if len(ran) < len(sites) else count
    each, whole = ("per step", "the step") if profile.of(step_time).steps else ("in this span", "the span")
    if cost:
        low_us, high_us = sorted((cost.step_us - cost.low_us, cost.step_us - cost.high_us))
        costs = "costs" if len(ran) == 1 else "cost"
        share = f"{percent(cost.gain_percent, 2)} of {whole} (predicted)"
        return f"{subject} {costs} {about(cost.gain_us, low_us, high_us)} {each}, {share}."
    return f"{subject} ran. {direct_sentence(profile)}."


def direct_sentence(profile: Profile) -> str:
    """Return "No cost is predicted. The direct cost is 63.0 µs per step, 39.6 % of the profiled step"."""
    step, direct = profile.of(step_time), profile.of(direct_us)
    each, whole = ("per step", "the profiled step") if step.steps else ("in this span", "the span")
    if direct is None:
        return "The cost is unknown"
    direct_share = profile.of(direct_percent)
    share = "" if direct_share is None else f", {percent(direct_share)} of {whole}"
    return f"No cost is predicted. The direct cost is {duration(direct)} {each}{share}"


def span_with_costs(profile: Profile) -> Span:
    """Return the trace data of a span, with the costs of its graph breaks."""
    span = profile.of(span_report)
    headlines = span.headlines | {"graph_breaks": profile.of(headline)}
    return replace(span, graph_break_sites=profile.of(break_sites), headlines=headlines)


def source_with_costs(profile: Profile) -> Program:
    """Return the program's lines, with the costs of their graph breaks."""
    program = profile.of(source)
    costs = {f"graph_breaks:{site.key}": site.saves_us for site in profile.of(break_sites)}
    rows = [
        replace(row, breaks=[replace(mark, cost_us=costs.get(mark.row)) for mark in row.breaks])
        for row in program.rows
    ]
    return replace(program, rows=rows)


def closed_breaks(profile: Profile) -> Iterator[fix.Fix]:
    """Yield one graph for what runs inside of one outermost region, and one for its backwards."""
    broken, count = profile.of(broken_calls)
    if not broken:
        return
    gaps = profile.of(break_gaps).times
    closed, fused = joined_graphs(profile, gaps)
    optimistic = fix.in_sequence(*joined_graphs(profile, gaps, with_operators=True))
    yield fix.Fix(
        count / profile.of(launch_sequence).steps, fix.in_sequence(closed, fused), closed, optimistic
    )


def broken_calls(profile: Profile) -> tuple[list[regions.RegionCall], int]:
    """Return the outermost calls in which a graph breaks, and how many breaks are in them."""
    calls = profile.of(regions.region_calls)
    cut = {call.index for call in profile.of(regions.calls_cut_by_breaks)}
    breaks = [
        len(list(regions.all_breaks([call]))) + sum(part.index in cut for part in regions.all_calls([call]))
        for call in calls
    ]
    return [call for call, count in zip(calls, breaks) if count], sum(breaks)


def joined_graphs(
    profile: Profile, gaps: Int64s, with_operators: bool = False
) -> tuple[fix.Change, fix.Change]:
    """Return what takes out the host time of gaps between graphs, and what fuses kernels over the seams.

    The operators in a gap move into the graph with their host work, and so does a value that they wait for: torch's
    hints (`capture_scalar_outputs` and its like) brought nothing where those were the gap. `with_operators`: the fix
    does without them.
    """
    lane, queue, segments = profile.of(launch_sequence), profile.of(gpu_queue), profile.of(host_segments)
    times, points = _seams(profile, *gaps.T)
    inside, _ = fix.points_inside(profile, times)
    gone_ns, waits = fix.time_inside(profile, times), inside & lane.synchronises
    if not with_operators:
        gone_ns = np.where(fix.outermost_operator(profile.trace, segments.row) >= 0, 0, gone_ns)
        waits &= fix.outermost_operator(profile.trace, lane.row.astype(np.int64)) < 0
    closed = fix.in_sequence(fix.without_host_time(gone_ns), fix.without_waiting(waits))
    kernels = profile.of(fix.work_named, is_fusible) | profile.of(fix.work_named, is_fusible_in_graphs)
    at_seam = mask_at(points, len(lane))
    at_seam = mask_at(queue.point[kernels & at_seam[queue.point]], len(lane))
    # Copies to the host go with the break that made them.
    fusible = kernels | ~profile.of(fix.are_kernels)
    return closed, fix.as_one_graph(profile, inside | at_seam, fusible, is_called=False)


class BreakGaps(NamedTuple):
    """The times between graphs, or backward graphs, that would be one graph without graph breaks."""

    times: Int64s  # (slice of the thread, begin, end) in rows
    broken: list[str]  # the compile id whose break alone is there; "" where several are


def break_gaps(profile: Profile) -> BreakGaps:
    """Return the gaps of all breaks."""
    return gaps_between(profile, profile.of(broken_calls)[0])


def gaps_between(profile: Profile, calls: list[regions.RegionCall]) -> BreakGaps:
    """Return the gaps between the graphs of each call. The frames that it calls would be part of its graph, too."""
    trace, ownership = profile.trace, profile.of(Ownership)
    cut = {call.compile_id for call in profile.of(regions.calls_cut_by_breaks)}
    gaps, broken, outermost = [], [], {}
    # By the id of the call: the ids of its graphs in order, and which id's break is behind each.
    forwards: dict[str, tuple[list[str], list[str]]] = {}
    for call in calls:
        parts = list(regions.all_calls([call]))
        outermost.update(dict.fromkeys((part.compile_id for part in parts), call.compile_id))
        graphs = sorted(((*graph, part) for part in parts for graph in part.graphs), key=itemgetter(0))
        parted = [_broken_id(part, following, cut) for (*_, part), (*_, following) in pairwise(graphs)]
        forwards[call.compile_id] = [part.compile_id for *_, part in graphs], parted
        for ((_, end, part), (begin, _, following)), name in zip(pairwise(graphs), parted):
            if part is not following and begin >= end:
                gaps.append((part.index, end, begin))
                broken.append(name)
    owners = {row: outermost.get(ownership.names[code]) for row, code in ownership.backwards}
    own_ids = {row: ownership.names[code] for row, code in ownership.backwards}
    backwards = sorted((row for row, owner in owners.items() if owner), key=trace.ts.__getitem__)
    for row, next_row in pairwise(backwards):
        end, begin = int(trace.ts[row] + trace.dur[row]), int(trace.ts[next_row])
        same = owners[row] == owners[next_row] and trace.track[row] == trace.track[next_row]
        if same and end <= begin < end + _REACH_NS:
            gaps.append((row, end, begin))
            # A backward runs the graphs in reverse.
            broken.append(_only_break(*forwards[owners[row] or ""], own_ids[next_row], own_ids[row]))
    return BreakGaps(np.array(gaps, np.int64).reshape(-1, 3), broken)


def _only_break(ids: list[str], broken: list[str], first: str, last: str) -> str:
    """Return the compile id whose breaks alone are between two graphs; "" where several have to be removed."""
    between = set(broken[ids.index(first) : ids.index(last)]) if {first, last} <= set(ids) else set()
    return between.pop() if len(between) == 1 else ""


def _broken_id(call: regions.RegionCall, following: regions.RegionCall, cut: Collection[str]) -> str:
    """Return the compile id whose break is between the graphs of two calls that follow each other."""
    outer = following.outer
    if outer is None or (call.compile_id in cut and not following.resume and outer is not call):
        return call.compile_id
    return outer.compile_id


def _seams(profile: Profile, rows: Int64s, begins: Int64s, ends: Int64s) -> tuple[fix.Times, Int64s]:
    """Widen each gap to the launches around it, where its thread made them within reach; return these points, too."""
    lane, tracks = profile.of(launch_sequence), profile.trace.track[rows]
    widened_begins, widened_ends = begins.copy(), ends.copy()
    points = [np.zeros(0, np.int64)]
    for track in np.unique(tracks).tolist():
        launches = np.flatnonzero(lane.launches & (lane.track == track))
        on_track = np.flatnonzero(tracks == track)
        previous = np.searchsorted(lane.begin[launches], begins[on_track]) - 1
        following = np.searchsorted(lane.begin[launches], ends[on_track])
        before, after = on_track[previous >= 0], on_track[following < len(launches)]
        last, first = launches[previous[previous >= 0]], launches[following[following < len(launches)]]
        widened_begins[before] = np.maximum(lane.end[last], begins[before] - _REACH_NS)
        widened_ends[after] = np.minimum(lane.begin[first], ends[after] + _REACH_NS)
        points.append(last[widened_begins[before] == lane.end[last]])
        points.append(first[widened_ends[after] == lane.begin[first]])
    times = fix.on_tracks(profile, rows, widened_begins, np.maximum(widened_begins, widened_ends))
    return times, np.concatenate(points)
