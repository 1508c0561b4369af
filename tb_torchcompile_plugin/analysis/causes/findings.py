"""What should be changed in a span, or in what a worker compiled?"""

from collections.abc import Collection, Iterable

import msgspec

from tb_torchcompile_plugin.analysis.causes.cause import Cause, SpanContext
from tb_torchcompile_plugin.analysis.causes.ranking import AnyFinding, sort_findings
from tb_torchcompile_plugin.analysis.causes.registry import BY_ID, CAUSES
from tb_torchcompile_plugin.analysis.causes.scenario import adds_ns, predicted_fixes
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.profile.coverage import coverage
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.compile_data import CompileData

# Of two gains: so near to each other, and so much of them shared; chosen by eye on the recordings.
_SAME = 0.8
_OF_DATA = [cause for cause in CAUSES if type(cause).detect_in_data is not Cause.detect_in_data]


class Findings(msgspec.Struct, frozen=True):
    """What to change, largest gain first."""

    findings: list[Finding]
    rules: int  # how many looked


def findings(about: Profile | CompileData) -> Findings:
    """Return what one span and the compile data of its worker show, or that data alone."""
    data = about if isinstance(about, CompileData) else about.data
    of_data = data.of(compile_findings) if data else []
    if isinstance(about, CompileData):
        return Findings(of_data, len(_OF_DATA))
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
