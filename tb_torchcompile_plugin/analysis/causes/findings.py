"""What should be changed, in order of what it would bring? Each rule is a row of a table; see docs/findings.md."""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TypeAlias, TypeVar

import msgspec

from tb_torchcompile_plugin.analysis.causes.context import SpanContext
from tb_torchcompile_plugin.analysis.causes.payback import payback
from tb_torchcompile_plugin.analysis.causes.registry import CAUSES
from tb_torchcompile_plugin.analysis.causes.scenario import adds_ns, predicted_fixes, shared_ns
from tb_torchcompile_plugin.analysis.finding import SEVERITIES, Finding
from tb_torchcompile_plugin.profile.coverage import coverage
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.compile_data import CompileData

AnyFinding = TypeVar("AnyFinding", bound=Finding)
_Order: TypeAlias = tuple[bool, bool, float]  # no gain; nobody can act on it; less the gain

# With these everything else is about another program, or is what waiting for that rank looks like.
_OVERRIDING = ("profiler_hooks", "anomaly_mode", "late_rank")
_NOT_ACTIONABLE = ("nothing",)
_GENERIC = ("launch_bound", "batch", *_NOT_ACTIONABLE)  # would make most programs faster, whatever is wrong
# What a program does in addition to its model comes before what is generic from these gains on: percent of a step, and
# share of the generic gain. See "accumulating_singles" in docs/what_if.md for the share.
_SPECIFIC_PERCENT, _SPECIFIC_SHARE = 15.0, 0.3
# First from this gain on, though it may be on purpose, for memory; with gradients that are kept, torch refuses to use
# CUDA graphs.
_PRIORITY, _PRIORITY_PERCENT = ("reduced_once", "zeroed_gradients"), 10.0
# Where nothing prices it: other advice would not help before.
_BLOCKING = ("nothing_compiled", "frame_given_up")
# Where it can be acted on, it may bring more than twice of what any other is predicted to: first if that is little.
_UNPRICED = "large_site"
_OF_RANKS = ("late_rank", "ranks_take_turns")
_OUTDONE_PERCENT = 10.0  # more of a step than a late rank costs: then all ranks suffer from it; chosen by eye
# Findings of a span that show the same matter as one of the compile data, with its price or its root.
_SUPERSEDED_BY = {"frame_given_up": "recompile_limit", "profiler_hooks": "recompile_limit"}
_TAKES_TIME = ("operator", "python", "library", "garbage_collection", "data_loading")
# Of two gains: so near to each other, and so much of them shared; chosen by eye on the recordings.
_SAME = 0.8


class Findings(msgspec.Struct, frozen=True):
    """What to change, largest gain first."""

    findings: list[Finding]
    rules: int  # how many there are


def findings(about: Profile | CompileData) -> Findings:
    """Return what one span and the compile data of its worker show, or that data alone."""
    data = about if isinstance(about, CompileData) else about.data
    of_data = data.of(compile_findings) if data else []
    if isinstance(about, CompileData):
        return Findings(of_data, len(CAUSES))
    of_span = about.of(span_findings)
    return Findings(sort_findings([*of_span, *unreported(of_data, of_span)]), len(CAUSES))


def compile_findings(data: CompileData) -> list[Finding]:
    """Return what the compile data of a worker shows without a trace."""
    return sort_findings([finding for cause in CAUSES for finding in cause.detect_in_data(data)])


def span_context(profile: Profile) -> SpanContext:
    """Return what several causes ask about a span."""
    return SpanContext(profile, predicted_fixes, payback)


def span_findings(profile: Profile) -> list[Finding]:
    """Return what one profiled span shows."""
    context = span_context(profile)
    is_known = profile.of(coverage).level != "insufficient"
    causes = [cause for cause in CAUSES if is_known or not cause.needs_records]
    for cause in causes:
        if cause.applies(context):
            context.found += cause.detect(context)
    rows = sort_findings(context.found)
    # A wait that claims the same time as an operator or a function is caused by it; some are the end of a copy.
    busy = [row for row in rows if row.rule in _TAKES_TIME]
    copies = [row for row in rows if row.rule == "copies"]
    repeated = [
        row
        for row in rows
        if row.rule == "synchronise"
        and (
            any(_is_same_time(profile, row, other) for other in busy)
            or any(_is_part(profile, row, other) for other in copies)
        )
    ]
    return [row for row in rows if row not in repeated]


def _is_same_time(profile: Profile, row: Finding, other: Finding) -> bool:
    """Whether two causes have about the same gain, and it is the same time of the host."""
    if row.fix is None or other.fix is None or row.predicted is None or other.predicted is None:
        return False
    less, more = sorted((row.predicted.gain_us, other.predicted.gain_us))
    return less >= _SAME * more and shared_ns(profile, row.fix, other.fix) >= _SAME * 1000 * less


def _is_part(profile: Profile, row: Finding, other: Finding) -> bool:
    """Whether the other one saves most of what the first would."""
    if row.fix is None or other.fix is None or row.predicted is None:
        return False
    return adds_ns(profile, row.fix, other.fix) <= (1 - _SAME) * 1000 * row.predicted.gain_us


def unreported(of_data: Iterable[AnyFinding], of_spans: Collection[Finding]) -> list[AnyFinding]:
    """Return the findings of compile data that the findings of spans do not show already."""
    shown = {(row.rule, row.row) for row in of_spans}
    superseded = {_SUPERSEDED_BY.get(row.rule) for row in of_spans}
    return [row for row in of_data if (row.rule, row.row) not in shown and row.rule not in superseded]


def sort_findings(findings: Iterable[AnyFinding]) -> list[AnyFinding]:
    """Sort by predicted gain, largest first; then, where nothing is predicted, by time to save and by severity.

    What is wrong with this program comes before what would make any program faster, and what can be fixed before what
    nobody can act on, unless that brings several times as much.
    """
    rows = list(findings)
    generic = max((_gain(row) for row in rows if row.rule in _GENERIC), default=0.0)
    best = max((_gain(row) for row in rows if row.rule not in _OVERRIDING), default=0.0)
    # A rank that is not compiled comes late for that reason, so any larger gain of compiling goes first.
    blocking = max((_gain(row) for row in rows if row.rule in _BLOCKING), default=0.0)
    most_of_rank = max(best - _OUTDONE_PERCENT, blocking)
    least_percent = max(_SPECIFIC_PERCENT, _SPECIFIC_SHARE * generic)
    is_unpriced_first = max(map(_gain, rows), default=0.0) < _PRIORITY_PERCENT
    return sorted(rows, key=partial(_rank, least_percent, most_of_rank, is_unpriced_first, _order_of(rows)))


def _rank(
    least_percent: float,
    most_of_rank: float,
    is_unpriced_first: bool,
    order: Callable[[Finding], _Order],
    row: Finding,
) -> tuple[bool, bool, _Order, float, int]:
    gain = _gain(row)
    outdone = row.rule in _OF_RANKS and most_of_rank > gain
    first = row.rule not in _GENERIC and gain >= least_percent and not outdone
    first |= row.rule in _PRIORITY and gain >= _PRIORITY_PERCENT
    first |= row.rule in _BLOCKING and row.predicted is None
    first |= row.rule == _UNPRICED and row.severity != "info" and is_unpriced_first
    overrides = row.rule in _OVERRIDING and not outdone
    severity = SEVERITIES.index(row.severity)
    return not overrides, not first, order(row), -(row.saves_us or 0), severity


def merge_findings(runs: Iterable[list[AnyFinding]]) -> list[AnyFinding]:
    """Merge the findings of runs, keeping the order of each: next comes the run with the most still to gain."""
    queues = [deque(rows) for rows in runs if rows]
    order = _order_of([row for queue in queues for row in queue])
    rows: list[AnyFinding] = []
    while queues:
        best = min(queues, key=lambda queue: min(map(order, queue)))
        rows.append(best.popleft())
        queues = [queue for queue in queues if queue]
    return rows


def _order_of(rows: Iterable[Finding]) -> Callable[[Finding], _Order]:
    """Return the sort key by the gain for the reader: less comes first."""
    actionable = max((_gain(row) for row in rows if row.rule not in _NOT_ACTIONABLE), default=0.0)
    return lambda row: (
        not _gain(row),
        row.rule in _NOT_ACTIONABLE and actionable >= _SPECIFIC_SHARE * _gain(row),
        -_gain(row),
    )


def _gain(row: Finding) -> float:
    return row.predicted.gain_percent if row.predicted else 0.0
