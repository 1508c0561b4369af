"""Whether a condition holds: whether a metric rose by more than it may, and by more than is noise."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from math import cos, expm1, hypot, log, pi, sin, sqrt, tan
from statistics import median, stdev
from typing import Any, Literal, NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis.compare.gate_metrics import (
    METRICS,
    Measure,
    MeasuredItem,
    MeasuredRun,
    Unit,
    middle,
)
from tb_torchcompile_plugin.analysis.compare.pairs import change_percent, pair
from tb_torchcompile_plugin.analysis.formatting import duration, plural, signed, size
from tb_torchcompile_plugin.compile_log.counts import COUNTS
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.reader.arrays import grouped

# `step>3%`, `breaks>0`, `kernel:triton_*>10%`: which rise of which metric is too much.


_CONDITION = re.compile(
    r"\s*(?P<metric>[A-Za-z_]+)\s*(?::(?P<pattern>.+?))?\s*(?P<op>>=?)\s*(?P<amount>\d+(?:\.\d+)?)\s*(?P<unit>%|[A-Za-zµ]*)\s*"
)
_UNITS: dict[Unit, dict[str, float]] = {
    "count": {"": 1},
    "time": {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9},
    "bytes": {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30},
}
ALLOWED = ("unknown", "gpu", "torch", "world-size")
_KEYS = {"fail_on", "allow", "name"}


class WrongGate(UserError):
    """A condition or a setting of the gate that cannot be read: a wrong argument."""


class Condition(msgspec.Struct, frozen=True):
    """It holds where the metric rose by more than `amount`: of the base where `percent`, else in the metric's unit (ns,
    bytes, a count). inclusive: by as much, too. pattern: of kernel names, "" for a metric without."""

    text: str
    metric: str
    pattern: str
    inclusive: bool
    amount: float
    percent: bool

    def holds(self, base: int, head: int) -> bool:
        bound = self.amount * base / 100 if self.percent else self.amount
        return head - base > bound or (self.inclusive and head - base == bound)


class GateSettings(msgspec.Struct, frozen=True):
    """conditions: of --fail-on. allow: of ALLOWED, what does not end the gate. name: of what is measured, for other
    programs that read its files."""

    conditions: list[Condition]
    allow: list[str]
    name: str


def condition_of(text: str) -> Condition:
    """Raises WrongGate, which names the condition and what there is."""
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise _wrong(text, "is no condition", "Write one like 'step>3%', 'breaks>0', 'kernel:triton_*>10%'")
    metric, pattern, unit = match["metric"], match["pattern"] or "", match["unit"]
    if metric not in METRICS:
        raise _wrong(text, f"asks for {metric!r}", f"There are {', '.join(METRICS)}")
    if pattern and not METRICS[metric].by_name:
        known = ", ".join(name for name, one in METRICS.items() if one.by_name)
        raise _wrong(text, f"has a pattern, and {metric} has no names", f"Names have: {known}")
    units = _UNITS[METRICS[metric].unit]
    amount = float(match["amount"])
    if unit != "%" and unit not in units and (unit or amount):
        there = ", ".join(["%", *(one or "none" for one in units)])
        raise _wrong(text, f"has the unit {unit!r}" if unit else "has no unit", f"Those of {metric}: {there}")
    return Condition(
        text.strip(), metric, pattern.strip(), match["op"] == ">=", amount * units.get(unit, 1), unit == "%"
    )


def settings_of(
    fail_on: Sequence[str],
    allow: Sequence[str],
    name: str,
    document: dict[str, Any] | None = None,
    file: str = "",
) -> GateSettings:
    """Of the command line, and before it of the table [gate] of a TOML document. Raises WrongGate."""
    table = {} if document is None else _table(document, file)
    allowed = [*_texts(table, "allow", file), *allow]
    if unknown := [one for one in allowed if one not in ALLOWED]:
        raise WrongGate(f"{unknown[0]!r} cannot be allowed", next_step=f"What can: {', '.join(ALLOWED)}")
    wanted = dict.fromkeys([*_texts(table, "fail_on", file), *fail_on])
    return GateSettings([condition_of(text) for text in wanted], allowed, name or str(table.get("name", "")))


def _table(document: dict[str, Any], file: str) -> dict[str, Any]:
    table = document.get("gate")
    if not isinstance(table, dict):
        raise WrongGate("has no table [gate]", file=file, next_step='Write one, with fail_on = ["step>3%"]')
    if wrong := sorted(set(table) - _KEYS):
        raise WrongGate(
            f"has {', '.join(wrong)} in [gate]", file=file, next_step=f"There are {', '.join(sorted(_KEYS))}"
        )
    return table


def _texts(table: dict[str, Any], key: str, file: str) -> list[str]:
    values = table.get(key, [])
    if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
        raise WrongGate(f"{key} is no list of texts", file=file, next_step=f'Write {key} = ["…"]')
    return values


def _wrong(text: str, what: str, next_step: str) -> WrongGate:
    return WrongGate(f"the condition {text!r} {what}", next_step=next_step)


# What made a metric rise: the kernels, breaks and functions of which there is more than before, with their
# lines.


_MAX_KERNEL_CAUSES = 3
_TEXTS: dict[Unit, Callable[[float], str]] = {
    "time": lambda ns: duration(ns / 1000),
    "bytes": size,
    "count": "{:,.0f}".format,
}


class GateCause(msgspec.Struct, frozen=True):
    """where: "folder/file.py:12", "" where no line is known. change: in the metric's unit."""

    text: str
    where: str
    change: int


def in_unit(unit: Unit, value: float | None) -> str:
    """ "13.0 ms", "95.0 MB", "4"; a dash where it is unknown."""
    return "–" if value is None else _TEXTS[unit](value)


def change_in_unit(unit: Unit, base: float | None, head: float | None) -> str:
    """ "+550 µs (+4.21 %)", "equal"; a dash where a side is unknown."""
    if base is None or head is None:
        return "–"
    if base == head:
        return "equal"
    return signed(head - base, _TEXTS[unit]) + change_percent(pair(base, head))


def causes(metric: str, pattern: str, base: MeasuredRun, head: MeasuredRun) -> list[GateCause]:
    """The largest rises, three at most."""
    unit = METRICS[metric].unit
    before, after = (grouped(_items(one, metric, pattern), lambda item: item.key) for one in (base, head))
    rises = {key: _sum(items) - _sum(before.get(key, [])) for key, items in after.items()}
    largest = sorted((key for key in rises if rises[key] > 0), key=lambda key: -rises[key])[
        :_MAX_KERNEL_CAUSES
    ]
    return [_cause(metric, unit, before.get(key, []), after[key]) for key in largest]


def _items(one: MeasuredRun, metric: str, pattern: str) -> list[MeasuredItem]:
    """Of a step also what its kernels take."""
    metrics = (metric, "kernel") if metric == "step" else (metric,)
    rows = [item for name in metrics for item in one.measures[name].items]
    return [item for item in rows if not pattern or fnmatchcase(item.what, pattern)]


def _sum(items: Sequence[MeasuredItem]) -> int:
    return sum(item.value for item in items)


def _cause(metric: str, unit: Unit, before: list[MeasuredItem], after: list[MeasuredItem]) -> GateCause:
    """At a line that was not there before, if there is one."""
    known = {item.line for item in before}
    item = max(after, key=lambda item: (item.line not in known, item.value))
    base, head = _sum(before), _sum(after)
    kind = next((kind for name, kind in COUNTS.items() if name == metric), None)
    what = item.what if kind is None or item.what == kind.one else f"{kind.one} of {item.what}"
    text = f"{what}: {item.why}" if item.why else what
    rose = f"+{head - base:,}" if unit == "count" else change_in_unit(unit, base, head)
    change = "" if rose == "+1" else f", {rose}"
    where = item.file if item.line is None else f"{item.file}:{item.line}"
    return GateCause(text + change, where, head - base)


# How much of a change may be chance? Inside a run: its steps follow one another, so they say too little of
# how the next run will differ for their mean to be trusted to the root of their number. All steps of a run
# count as one: a change is noise up to what two single steps of these runs would lie apart 99 times of 100.
# Between runs: where the base is several, up to what one more of them would lie apart from those, 99 times
# of 100. The larger of the two counts.


_CHANCE = 0.01  # that a change of nothing is larger than its noise
_MAX_LOG_SPREAD = 50.0  # as a logarithm: beyond that everything is noise
_ROBUST_FROM = 20  # steps: fewer tell too little of which of them are odd
_OF_NORMAL = 1.4826  # standard deviations in a median absolute deviation, where values spread as chance does


def spread(samples: Sequence[int]) -> float | None:
    """Of single samples, as a standard deviation, None for fewer than two. From 20 on by the median absolute deviation,
    which a few slow steps do not move; of fewer the larger of both."""
    if len(samples) < 2:
        return None
    middle = median(samples)
    robust = _OF_NORMAL * median(abs(one - middle) for one in samples)
    return robust if len(samples) >= _ROBUST_FROM else max(robust, stdev(samples))


def noise(
    base: Sequence[Sequence[int]], values: Sequence[int], head: Sequence[int], questions: int = 1
) -> float | None:
    """None where neither steps nor runs tell. base: the samples of each base run; values: what each run is compared by;
    head: the samples of the other side. questions: how many are asked at once, each of which chance may answer."""
    chance = _CHANCE / questions
    known = [one for one in (_inside(base, head, chance), _between(values, chance)) if one is not None]
    return max(known, default=None)


def bounds(value: int, samples: Sequence[int]) -> tuple[int, int] | None:
    """Between which a single step lies 99 times of 100; None where fewer than two tell."""
    if (single := spread(samples)) is None:
        return None
    half = round(student_t(len(samples) - 1) * single)
    return max(0, value - half), value + half


def _inside(base: Sequence[Sequence[int]], head: Sequence[int], chance: float) -> float | None:
    known = [samples for samples in base if len(samples) > 1]
    ours, theirs = spread(head), [single for samples in known if (single := spread(samples)) is not None]
    if ours is None or not theirs:
        return None
    return student_t(min(map(len, known)) + len(head) - 2, chance) * hypot(median(theirs), ours)


def _between(values: Sequence[int], chance: float) -> float | None:
    """How far above the middle of those known one more run would lie: in ratios, as a busy machine slows all alike."""
    if len(values) < 2 or min(values) <= 0:
        return None if len(values) < 2 else 0.0
    apart = stdev(log(value) for value in values) * sqrt(1 + 1 / len(values))
    return median(values) * expm1(min(_MAX_LOG_SPREAD, student_t(len(values) - 1, chance) * apart))


@lru_cache
def student_t(freedom: int, chance: float = _CHANCE) -> float:
    """Beyond which Student's t lies with this chance, on both sides together."""
    low, high = 0.0, pi / 2  # of its angle
    for _ in range(60):
        angle = (low + high) / 2
        low, high = (angle, high) if _inside_angle(angle, freedom) < 1 - chance else (low, angle)
    return sqrt(freedom) * tan(low)


def _inside_angle(angle: float, freedom: int) -> float:
    """The chance that |t| < √freedom · tan(angle): a finite sum (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    odd = freedom % 2
    term = total = (cos(angle) if odd else 1.0) if freedom > 1 else 0.0
    for number in range(1 + odd, freedom - 2, 2):
        term *= number / (number + 1) * cos(angle) ** 2
        total += term
    return 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total


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
