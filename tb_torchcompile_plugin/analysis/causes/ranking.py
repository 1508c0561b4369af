"""In which order are findings worth fixing? By role, severity and predicted gain; no cause is named here."""

from collections import deque
from collections.abc import Iterable
from typing import TypeVar

from msgspec.structs import replace

from tb_torchcompile_plugin.analysis.finding import SEVERITIES, Finding

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
        best = min(queues, key=lambda queue: min(map(_by_gain, queue)))
        rows.append(best.popleft())
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
