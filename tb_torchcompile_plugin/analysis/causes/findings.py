"""What should be changed in a span, or in what a worker compiled, and what first?

Findings are sorted by role, severity and predicted gain; no cause is named here.
"""

from collections import deque
from collections.abc import Collection, Iterable
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from tb_torchcompile_plugin.analysis.causes.cause import Cause, SpanContext
from tb_torchcompile_plugin.analysis.causes.registry import BY_ID, CAUSES
from tb_torchcompile_plugin.analysis.causes.scenario import adds_ns, predicted_fixes
from tb_torchcompile_plugin.analysis.finding import SEVERITIES, Finding
from tb_torchcompile_plugin.profile.coverage import coverage
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.compile_data import CompileData

AnyFinding = TypeVar("AnyFinding", bound=Finding)

# What a program does in addition to its model comes before what is generic from these gains on: percent of a step, and
# share of the generic gain. The program `accumulating_singles` of tests/exam determined the share.
_SPECIFIC_PERCENT, _SPECIFIC_SHARE = 15.0, 1 / 3
# What a finding without a prediction is taken to bring: this share of the time that it names, and no more than this of
# a step, as its fix is unknown. Chosen by eye on the recordings.
_UNPRICED_SHARE, _UNPRICED_PERCENT = 0.5, 10.0


def sort_findings(findings: Iterable[AnyFinding]) -> list[AnyFinding]:
    """Sort findings: what to fix first is the first, and no finding is more severe than those before it.

    Blocking causes come first; then what is specific to this program, if it brings enough; then the others by severity
    and gain. A symptom comes after what can be acted on, unless it is several times as large.
    """
    rows = _with_symptoms_capped(list(findings))
    generic = max((_gain(row) for row in rows if row.role == "generic"), default=0.0)
    least_percent = max(_SPECIFIC_PERCENT, _SPECIFIC_SHARE * generic)
    rows.sort(
        key=lambda row: (
            row.role != "blocking",
            not (row.role == "specific" and row.predicted is not None and _gain(row) >= least_percent),
            *_by_gain(row),
        )
    )
    level = len(SEVERITIES) - 1
    for index in range(len(rows) - 1, -1, -1):
        level = min(level, SEVERITIES.index(rows[index].severity))
        rows[index] = _with_severity(rows[index], level)
    return rows


def merge_findings(runs: Iterable[list[AnyFinding]]) -> list[AnyFinding]:
    """Merge the findings of runs, keeping the order of each: next comes the run with the most still to gain."""
    queues = [deque(rows) for rows in runs if rows]
    rows: list[AnyFinding] = []
    while queues:
        rows.append(min(queues, key=lambda queue: min(map(_by_gain, queue))).popleft())
        queues = [queue for queue in queues if queue]
    return rows


def _by_gain(row: Finding) -> tuple[int, bool, float, float]:
    return SEVERITIES.index(row.severity), row.role == "symptom", -_gain(row), -(row.saves_us or 0)


def _with_symptoms_capped(rows: list[AnyFinding]) -> list[AnyFinding]:
    """Make a symptom no more severe than what can be acted on, unless it is several times as large."""
    best = max((row for row in rows if row.role != "symptom"), key=_gain, default=None)
    if best is None:
        return rows
    level = SEVERITIES.index(best.severity)
    return [
        _with_severity(row, max(level, SEVERITIES.index(row.severity)))
        if row.role == "symptom" and _gain(best) >= _SPECIFIC_SHARE * _gain(row)
        else row
        for row in rows
    ]


def _with_severity(row: AnyFinding, level: int) -> AnyFinding:
    return row if row.severity == SEVERITIES[level] else replace(row, severity=SEVERITIES[level])


def _gain(row: Finding) -> float:
    """Return what a fix is expected to bring (percent of a step)."""
    if row.predicted:
        return row.predicted.gain_percent
    named_percent = row.evidence.get("share_percent", 0.0) if row.asks_for_change else 0.0
    return min(_UNPRICED_SHARE * named_percent, _UNPRICED_PERCENT)


# Of two gains: so near to each other, and so much of them shared; chosen by eye on the recordings.
_SAME = 0.8
_OF_DATA = [cause for cause in CAUSES if type(cause).detect_in_data is not Cause.detect_in_data]


class Findings(msgspec.Struct, frozen=True):
    """What to change, largest gain first."""

    findings: list[Finding]
    rules: int  # how many looked


def findings(about: Profile | CompileData) -> Findings:
    """Return what one span and the compile data of its worker show, or that data alone."""
    if isinstance(about, CompileData):
        return Findings(about.of(compile_findings), len(_OF_DATA))
    of_data = about.data.of(compile_findings) if about.data else []
    of_span = about.of(span_findings)
    return Findings(sort_findings([*of_span, *unreported(of_data, of_span)]), len(CAUSES))


def compile_findings(data: CompileData) -> list[Finding]:
    """Return what the compile data of a worker shows without a trace."""
    return sort_findings([finding for cause in _OF_DATA for finding in cause.detect_in_data(data)])


def span_context(profile: Profile) -> SpanContext:
    """Return what several causes ask about a span."""
    return SpanContext(profile, predicted_fixes)


def span_findings(profile: Profile) -> list[Finding]:
    """Return what one profiled span shows."""
    context = span_context(profile)
    is_known = profile.of(coverage).level != "insufficient"
    for cause in CAUSES:
        if (is_known or not cause.needs_records) and (context.whole or not cause.needs_all):
            context.found += cause.detect(context)
    return sort_findings(
        row for row in context.found if not any(_supersedes(profile, other, row) for other in context.found)
    )


def _supersedes(profile: Profile, other: Finding, row: Finding) -> bool:
    """Whether the other finding shows the same matter: by its cause and, where both have a price, by what is left."""
    if other.rule not in _superseding(row):
        return False
    if row.fix is None or other.fix is None or row.predicted is None:
        return True
    return adds_ns(profile, row.fix, other.fix) <= (1 - _SAME) * 1000 * row.predicted.gain_us


def _superseding(row: Finding) -> tuple[str, ...]:
    cause = BY_ID.get(row.rule)
    return cause.superseded_by if cause else ()


def unreported(rows: Iterable[AnyFinding], of_spans: Collection[Finding]) -> list[AnyFinding]:
    """Return the findings of compile data that the findings of spans do not show already."""
    shown, causes = {(row.rule, row.row) for row in of_spans}, {row.rule for row in of_spans}
    return [row for row in rows if (row.rule, row.row) not in shown and causes.isdisjoint(_superseding(row))]
