"""What does each graph break cost? What removing it saves: the predicted gain of one graph in place of two.

What the host was measured to take between the graphs is the direct cost (analysis/compile/graph_breaks.py). It is not
what would be saved: the call of the next graph and its kernels go on, and a GPU may hide it.
"""

from msgspec.structs import replace

from tb_torchcompile_plugin.analysis.causes.graph_gaps import closed_break, closed_breaks
from tb_torchcompile_plugin.analysis.causes.what_if import after_ns, predict_fix, why_nothing
from tb_torchcompile_plugin.analysis.compile.graph_breaks import (
    GraphBreakSite,
    count_sites,
    direct_cost,
    ended_graphs,
    graph_break_costs,
    graph_break_sites,
    without_cost,
)
from tb_torchcompile_plugin.analysis.finding import Predicted, prediction
from tb_torchcompile_plugin.analysis.formatting import between, duration, percent, plural
from tb_torchcompile_plugin.analysis.runtime.source import Program, source
from tb_torchcompile_plugin.analysis.runtime.span_report import Span, span_report
from tb_torchcompile_plugin.profile.intervals import us
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import steady_steps, step_time

_MAX_PREDICTED = 20  # sites, those with the highest direct cost: each is replayed, which takes up to a second
_NOT_PREDICTED = f"Its cost is predicted for the {_MAX_PREDICTED} sites with the highest direct cost only"


def cost_of_breaks(profile: Profile) -> Predicted | None:
    """Return what removing all graph breaks brings; None where none ran, or nothing can be predicted."""
    if profile.of(why_nothing) or not (fix := next(closed_breaks(profile), None)):
        return None
    predicted = predict_fix(profile, fix).predicted
    step_ns = 1000 * predicted.step_us
    return predicted if predicted.gain_us > 0 else prediction(step_ns, step_ns)


def saved_us(profile: Profile) -> float | None:
    """Return by how much a step is shorter without its graph breaks; None where that is unknown, 0 without breaks."""
    if cost := profile.of(cost_of_breaks):
        return cost.gain_us
    return 0.0 if profile.of(count_sites) == 0 else None


def direct_us(profile: Profile) -> float | None:
    """Return the direct cost of all breaks of a step, or of the span without steps; None where none was measured."""
    steady = profile.of(steady_steps)
    if not steady or not profile.of(graph_break_costs):
        return profile.of(direct_of_span_us)
    return float(profile.of(direct_cost).step_ns[steady.on_host].mean()) / 1000


def direct_percent(profile: Profile) -> float | None:
    """Return the direct cost of all breaks, of the profiled step: it was measured while profiling."""
    direct, step = profile.of(direct_us), profile.of(step_time)
    return 100 * direct / step.profiled_us if direct is not None and step.profiled_us else None


def direct_of_span_us(profile: Profile) -> float | None:
    """Return the direct cost of all breaks of a span; None where none was measured."""
    return us(profile.of(direct_cost).host_ns) if profile.of(graph_break_costs) else None


def break_sites(profile: Profile) -> list[GraphBreakSite]:
    """Return the sites with their costs, most expensive first."""
    rows, why = profile.of(graph_break_sites), profile.of(why_nothing)
    priced = [_priced(profile, row, why, number < _MAX_PREDICTED) for number, row in enumerate(rows)]
    return sorted(priced, key=lambda row: -(row.saves_us or 0))


def _priced(profile: Profile, row: GraphBreakSite, why: str | None, is_near_top: bool) -> GraphBreakSite:
    if why or not is_near_top:
        is_measured = row.host_us is not None
        return replace(row, no_price=(why or _NOT_PREDICTED).rstrip(".")) if is_measured else row
    change = closed_break(profile, ended_graphs(profile, row))
    if change is None:
        return row
    step_us = profile.of(step_time).step_us
    saves_us = max(step_us - after_ns(profile, change) / 1000, 0.0)
    return replace(row, saves_us=saves_us, saves_percent=100 * saves_us / step_us, no_price=None)


def headline(profile: Profile) -> str:
    """Summarize: "4 graph break sites cost 2.51 ms per step, 41.8 % of the step (removing all of them, predicted)."."""
    sites, cost = profile.of(break_sites), profile.of(cost_of_breaks)
    is_known = profile.of(graph_break_costs) is not None
    if not sites:
        return "No graph breaks." if profile.of(count_sites) == 0 else "Graph breaks are not known."
    count = plural(len(sites), "graph break site")
    if not is_known:
        return f"{count}. {'Its' if len(sites) == 1 else 'Their'} cost is unknown: see below."
    ran = [site for site in sites if site.host_us is not None or site.saves_us is not None]
    if not ran:
        return f"{count}{without_cost(profile, sites)}."
    subject = f"{len(ran)} of {count}" if len(ran) < len(sites) else count
    each, whole = ("per step", "the step") if profile.of(step_time).steps else ("in this span", "the span")
    if cost:
        range_ = between(*sorted((cost.step_us - cost.low_us, cost.step_us - cost.high_us)))
        predicted = f"predicted: {range_}" if range_ else "predicted"
        costs = "costs" if len(ran) == 1 else "cost"
        share = f"{percent(cost.gain_percent)} of {whole} ({predicted})"
        return f"{subject} {costs} {duration(cost.gain_us)} {each}, {share}."
    return f"{subject}. {direct_sentence(profile)}."


def direct_sentence(profile: Profile) -> str:
    """Return "The cost is unknown; direct cost: 63.0 µs per step, 39.6 % of the profiled step"."""
    step, direct = profile.of(step_time), profile.of(direct_us)
    each, whole = ("per step", "the profiled step") if step.steps else ("in this span", "the span")
    if direct is None:
        return "The cost is unknown"
    direct_share = profile.of(direct_percent)
    share = "" if direct_share is None else f", {percent(direct_share)} of {whole}"
    return f"The cost is unknown; direct cost: {duration(direct)} {each}{share}"


def span_with_costs(profile: Profile) -> Span:
    """Return the report of a span, with the costs of its graph breaks."""
    span = profile.of(span_report)
    headlines = span.headlines | {"graph_breaks": profile.of(headline)}
    return replace(span, graph_break_sites=profile.of(break_sites), headlines=headlines)


def source_with_costs(profile: Profile) -> Program:
    """Return the program's lines, with the costs of their graph breaks."""
    program, costs = profile.of(source), {site.key: site.saves_us for site in profile.of(break_sites)}
    rows = [
        replace(row, breaks=[replace(mark, cost_us=costs.get(mark.key)) for mark in row.breaks])
        for row in program.rows
    ]
    return replace(program, rows=rows)
