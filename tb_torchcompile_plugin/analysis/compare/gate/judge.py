"""Whether a condition holds: whether a metric rose by more than it may, and by more than is noise."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis.compare.gate.causes import GateCause, causes, change_in_unit, in_unit
from tb_torchcompile_plugin.analysis.compare.gate.conditions import Condition
from tb_torchcompile_plugin.analysis.compare.gate.measures import Measure, MeasuredItem, MeasuredRun, middle
from tb_torchcompile_plugin.analysis.compare.gate.metrics import METRICS
from tb_torchcompile_plugin.analysis.compare.gate.noise import noise
from tb_torchcompile_plugin.analysis.words import plural

GateOutcome = Literal["failed", "unknown", "noise", "passed"]
_NAME = 80  # characters in a sentence
_MORE_RUNS = "Give several runs as BASE, or save them in one baseline"


class GateCondition(msgspec.Struct, frozen=True):
    """A condition, and whether it holds. failed: it does; unknown: nobody can tell; noise: the rise is more than it may
    be, and no more than chance. base, head, noise: ns, bytes or a count, None where unknown; of several base runs that
    in the middle, of counts the largest. sentence: all of it in words."""

    condition: str
    metric: str
    label: str
    outcome: GateOutcome
    base: int | None
    head: int | None
    noise: float | None
    sentence: str
    causes: list[GateCause]


class Series(NamedTuple):
    """One number of both sides, by its name among several. base: of each run its value and its samples. needs_runs: as
    in `Measure`."""

    name: str
    base: list[tuple[int, list[int]]]
    head: tuple[int, list[int]]
    needs_runs: bool


class JudgedSeries(NamedTuple):
    """One series under one condition."""

    outcome: GateOutcome
    name: str
    base: int
    head: int
    noise: float | None


_ORDER: list[GateOutcome] = ["failed", "unknown", "noise", "passed"]


def judge(condition: Condition, base: Sequence[MeasuredRun], head: MeasuredRun) -> GateCondition:
    """base: one run, or several."""
    metric = condition.metric
    if why := why_unknown(metric, base, head):
        return _unknown(condition, f"not known. {why}")
    rows = _named(condition, base, head) if METRICS[metric].by_name else [whole(metric, base, head)]
    if not rows:
        return _unknown(condition, f"no kernel of either side matches {condition.pattern!r}")
    judged = [_judged(condition, row, len(rows)) for row in rows]
    worst = min(judged, key=lambda one: _ORDER.index(one.outcome))
    failed = sum(one.outcome == "failed" for one in judged)
    return GateCondition(
        condition=condition.text,
        metric=metric,
        label=METRICS[metric].label,
        outcome=worst.outcome,
        base=worst.base,
        head=worst.head,
        noise=worst.noise,
        sentence=_sentence(condition, worst, failed, len(base)),
        causes=causes(metric, condition.pattern, middle_run(metric, base), head)
        if worst.outcome != "passed"
        else [],
    )


def _unknown(condition: Condition, why: str) -> GateCondition:
    metric, label = condition.metric, METRICS[condition.metric].label
    return GateCondition(condition.text, metric, label, "unknown", None, None, None, f"{label}: {why}.", [])


def why_unknown(metric: str, base: Sequence[MeasuredRun], head: MeasuredRun) -> str:
    """ "" where it is known of all runs."""
    sides = [*(("BASE", one) for one in base), ("HEAD", head)]
    whys = [
        f"{side}: {_of(one, metric).why_unknown}" for side, one in sides if _of(one, metric).value is None
    ]
    return "; ".join(dict.fromkeys(whys))


def _of(one: MeasuredRun, metric: str) -> Measure:
    """A baseline that an older version wrote may lack a metric."""
    return one.measures.get(metric) or Measure(
        None, why_unknown="the baseline was saved without it: save it again"
    )


def whole(metric: str, base: Sequence[MeasuredRun], head: MeasuredRun) -> Series:
    """A metric as it is, known on both sides."""
    measures = [one.measures[metric] for one in (*base, head)]
    *before, after = [(one.value or 0, one.samples) for one in measures]
    return Series("", before, after, any(one.needs_runs for one in measures))


def middle_run(metric: str, base: Sequence[MeasuredRun]) -> MeasuredRun:
    """The run that stands for several: of a count the one with most, else that in the middle."""
    runs = sorted(base, key=lambda one: one.measures[metric].value or 0)
    return runs[-1] if METRICS[metric].noise == "exact" else runs[(len(runs) - 1) // 2]


def _named(condition: Condition, base: Sequence[MeasuredRun], head: MeasuredRun) -> list[Series]:
    """All items that match together and, where a pattern asks for them, each that does the same work in all runs: one
    that is launched more often does what another one did. [] where nothing matches."""
    measures = [one.measures[condition.metric] for one in (*base, head)]
    runs = [_matching(one.items, condition.pattern or "*") for one in measures]
    if not any(runs):
        return []
    alike = set.intersection(*({(item.what, item.launches) for item in items} for items in runs))
    names = ["", *sorted(name for name, _ in alike)] if condition.pattern else [""]
    needs_runs = any(one.needs_runs for one in measures)
    sums = {name: [_summed(items, name, one) for items, one in zip(runs, measures)] for name in names}
    return [Series(name, values[:-1], values[-1], needs_runs) for name, values in sums.items()]


def _matching(items: Sequence[MeasuredItem], pattern: str) -> list[MeasuredItem]:
    return [item for item in items if fnmatchcase(item.what, pattern)]


def _summed(items: list[MeasuredItem], name: str, measure: Measure) -> tuple[int, list[int]]:
    """Of all, or of those of one name: 0 in each step without any. A baseline may have been saved without its steps."""
    mine = [item for item in items if name in ("", item.what)]
    samples = [sum(step) for step in zip(*(item.samples for item in mine))] or [0] * len(measure.samples)
    return (middle(samples), samples) if samples else (sum(item.value for item in mine), [])


def _judged(condition: Condition, row: Series, questions: int) -> JudgedSeries:
    values, kind = [value for value, _ in row.base], METRICS[condition.metric].noise
    base = max(values) if kind == "exact" else sorted(values)[(len(values) - 1) // 2]
    chance = None if kind == "exact" else _noise(row, values, questions)
    return JudgedSeries(
        _outcome(condition, base, row.head[0], chance, kind == "needed"), row.name, base, row.head[0], chance
    )


def _noise(row: Series, values: list[int], questions: int) -> float | None:
    if row.needs_runs:
        return noise([], values, [], questions)
    return noise([samples for _, samples in row.base], values, row.head[1], questions)


def _outcome(condition: Condition, base: int, head: int, chance: float | None, needed: bool) -> GateOutcome:
    if not condition.holds(base, head):
        return "passed"
    if chance is None:
        return "unknown" if needed else "failed"
    return "failed" if head - base > chance else "noise"


def _sentence(condition: Condition, one: JudgedSeries, failed: int, runs: int) -> str:
    label, unit, *_ = METRICS[condition.metric]
    of = f" of {one.name[:_NAME]}" if one.name else f" ({condition.pattern})" if condition.pattern else ""
    allowed = f"{condition.amount:g} %" if condition.percent else in_unit(unit, condition.amount)
    base, head = in_unit(unit, one.base), in_unit(unit, one.head)
    change = change_in_unit(unit, one.base, one.head)
    more = f"; so did {plural(failed - 1, 'other')}" if failed > 1 else ""
    chance = "" if one.noise is None else f" (± {in_unit(unit, one.noise)})"
    by, also = f" by more than {allowed}" if condition.amount else "", f", and by more than the noise{chance}"
    says: dict[GateOutcome, str] = {
        "failed": f"It rose{by}{also if chance else ''}{more}.",
        "passed": f"No rise{by}.",
        "noise": f"It rose{by}, but within the noise{chance}.",
        "unknown": f"It rose{by}, but {plural(runs, 'run')} of BASE cannot tell whether that is noise. {_MORE_RUNS}.",
    }
    return f"{label}{of}: {base} → {head}, {change}. {says[one.outcome]}"
