"""Does a condition hold: did a metric rise by more than it may, and by more than noise?

Inside a run all steps count as one, as they follow one another; between several base runs, up to one more of them. The
larger of the two counts (see `statistics`).
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis.compare.gate_metrics import (
    METRICS,
    Measure,
    MeasuredItem,
    MeasuredRun,
    Unit,
    rounded_median,
    unknown_measure,
)
from tb_torchcompile_plugin.analysis.compare.pairs import in_words, pair, text_of
from tb_torchcompile_plugin.analysis.formatting import plural
from tb_torchcompile_plugin.analysis.statistics import GATE, noise_of_runs, spread, student_t
from tb_torchcompile_plugin.compile_log.counts import COUNTS
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.reader.arrays import grouped

_CONDITION = re.compile(
    r"\s*(?P<metric>[A-Za-z_]+)\s*(?::(?P<pattern>.+?))?\s*(?P<op>>=?)\s*(?P<amount>\d+(?:\.\d+)?)\s*(?P<unit>%|[A-Za-zµ]*)\s*"
)
_UNITS: dict[Unit, dict[str, float]] = {
    "count": {"": 1},
    "time": {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9},
    "bytes": {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30},
}
ALLOWED = ("unknown", "program", "gpu", "torch", "world-size")
_KEYS = {"fail_on", "allow", "name"}  # of the table [gate]

MAX_CAUSES = 3  # of one condition, and of a report: a few lines; chosen by eye
_MAX_CHARS = 80  # of a name in a sentence
_MORE_RUNS = "Give several runs as BASE, or save them in one baseline"

GateOutcome = Literal["failed", "unknown", "noise", "passed"]
_ORDER: list[GateOutcome] = ["failed", "unknown", "noise", "passed"]  # worst first


class InvalidGateError(UserError):
    """A condition or a setting of the gate that cannot be read: a wrong argument."""


class Condition(msgspec.Struct, frozen=True):
    """How much a metric may rise: `step>3%`, `breaks>0`, `kernel:triton_*>10%`."""

    text: str
    metric: str
    pattern: str  # of kernel names, "" for a metric without
    inclusive: bool  # whether the condition also holds for exactly the amount
    amount: float  # percent of the base, or in the metric's unit (ns, bytes, a count)
    percent: bool

    def holds(self, base: int, head: int) -> bool:
        """Return whether the metric rose by more than it may."""
        bound = self.amount * base / 100 if self.percent else self.amount
        return head - base > bound or (self.inclusive and head - base == bound)


class GateSettings(msgspec.Struct, frozen=True):
    """What a gate checks."""

    conditions: list[Condition]
    allow: list[str]  # of ALLOWED, what does not end the gate
    name: str  # of what is measured, for other programs that read its files


class GateCause(msgspec.Struct, frozen=True):
    """Something of which there is more than before."""

    text: str
    where: str  # "folder/file.py:12", "" where no line is known
    change: int  # in the metric's unit


class GateCondition(msgspec.Struct, frozen=True):
    """A condition, and whether it holds."""

    condition: str
    metric: str
    label: str
    outcome: GateOutcome  # failed: it holds; unknown: inconclusive; noise: the rise is too large, but may be chance
    base: int | None  # ns, bytes or a count; of several base runs that in the middle, of counts the largest
    head: int | None
    noise: float | None
    sentence: str
    causes: list[GateCause]


_Value = tuple[int, list[int]]  # a number of one run, and its samples


class _Judgement(NamedTuple):
    """One number of both sides under one condition."""

    outcome: GateOutcome
    name: str  # among several, "" for the metric as a whole
    base: int
    head: int
    noise: float | None


def parse_settings(
    fail_on: Sequence[str],
    allow: Sequence[str],
    name: str,
    document: dict[str, Any] | None = None,
    file: str = "",
) -> GateSettings:
    """Return the settings of the table [gate] of a TOML document, then of the command line. Raises WrongGate."""
    table = {} if document is None else _table(document, file)
    allowed = [*_texts(table, "allow", file), *allow]
    if wrong := [word for word in allowed if word not in ALLOWED]:
        raise InvalidGateError(f"{wrong[0]!r} cannot be allowed", next_step=f"What can: {', '.join(ALLOWED)}")
    texts = dict.fromkeys([*_texts(table, "fail_on", file), *fail_on])
    return GateSettings(
        [parse_condition(text) for text in texts], allowed, name or str(table.get("name", ""))
    )


def _table(document: dict[str, Any], file: str) -> dict[str, Any]:
    table = document.get("gate")
    if not isinstance(table, dict):
        raise InvalidGateError(
            "has no table [gate]", file=file, next_step='Write one, with fail_on = ["step>3%"]'
        )
    if wrong := sorted(set(table) - _KEYS):
        raise InvalidGateError(
            f"has {', '.join(wrong)} in [gate]", file=file, next_step=f"There are {', '.join(sorted(_KEYS))}"
        )
    return table


def _texts(table: dict[str, Any], key: str, file: str) -> list[str]:
    values = table.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise InvalidGateError(f"{key} is no list of texts", file=file, next_step=f'Write {key} = ["…"]')
    return values


def parse_condition(text: str) -> Condition:
    """Parse a condition. Raises WrongGate, which names the condition and what is possible."""
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise _wrong(text, "is no condition", "Write one like 'step>3%', 'breaks>0', 'kernel:triton_*>10%'")
    metric, pattern, unit = match["metric"], match["pattern"] or "", match["unit"]
    if metric not in METRICS:
        raise _wrong(text, f"asks for {metric!r}", f"There are {', '.join(METRICS)}")
    if pattern and not METRICS[metric].by_name:
        by_name = ", ".join(name for name, kind in METRICS.items() if kind.by_name)
        raise _wrong(text, f"has a pattern, and {metric} has no names", f"Names have: {by_name}")
    units = _UNITS[METRICS[metric].unit]
    amount = float(match["amount"])
    if unit != "%" and unit not in units and (unit or amount):
        possible = ", ".join(["%", *(name or "none" for name in units)])
        problem = f"has the unit {unit!r}" if unit else "has no unit"
        raise _wrong(text, problem, f"Those of {metric}: {possible}")
    amount *= units.get(unit, 1)
    return Condition(text.strip(), metric, pattern.strip(), match["op"] == ">=", amount, unit == "%")


def _wrong(text: str, problem: str, next_step: str) -> InvalidGateError:
    return InvalidGateError(f"the condition {text!r} {problem}", next_step=next_step)


def format_value(unit: Unit, value: float | None) -> str:
    """Return "13.0 ms", "95.0 MB", "4"; a dash where it is unknown."""
    return "–" if value is None else text_of(unit)(value)


def format_change(unit: Unit, base: float | None, head: float | None) -> str:
    """Return "+550 µs (+4.21 %)" or "equal"; a dash where a side is unknown."""
    return in_words(unit, pair(base, head))[2]


def why_unknown(metric: str, base: Sequence[MeasuredRun], head: MeasuredRun) -> str:
    """Return why a metric is unknown, "" where it is known of all runs."""
    missing = unknown_measure("the baseline was saved without it: save it again")  # by an older version
    sides = [*(("BASE", run) for run in base), ("HEAD", head)]
    measures = [(side, run.measures.get(metric, missing)) for side, run in sides]
    reasons = [f"{side}: {measure.why_unknown}" for side, measure in measures if measure.value is None]
    return "; ".join(dict.fromkeys(reasons))


def middle_run(metric: str, base: Sequence[MeasuredRun]) -> MeasuredRun:
    """Return the run that stands for several: of a count the one with most, otherwise that in the middle."""
    runs = sorted(base, key=lambda run: run.measures[metric].value or 0)
    return runs[-1] if METRICS[metric].noise == "exact" else runs[(len(runs) - 1) // 2]


def judge(condition: Condition, base: Sequence[MeasuredRun], head: MeasuredRun) -> GateCondition:
    """Check a condition; base is one run, or several that did the same."""
    metric, label = condition.metric, METRICS[condition.metric].label
    why = why_unknown(metric, base, head)
    series = {} if why else _values(condition, base, head)
    if not series:
        why = f"not known. {why}" if why else f"no kernel of either side matches {condition.pattern!r}"
        sentence = f"{label}: {why}."
        return GateCondition(condition.text, metric, label, "unknown", None, None, None, sentence, [])
    needs_runs = any(run.measures[metric].needs_runs for run in (*base, head))
    judged = [_judged(condition, name, values, needs_runs, len(series)) for name, values in series.items()]
    worst = min(judged, key=lambda row: _ORDER.index(row.outcome))
    failed = sum(row.outcome == "failed" for row in judged)
    return GateCondition(
        condition=condition.text,
        metric=metric,
        label=label,
        outcome=worst.outcome,
        base=worst.base,
        head=worst.head,
        noise=worst.noise,
        sentence=_sentence(condition, worst, failed, len(base)),
        causes=[] if worst.outcome == "passed" else _causes(condition, middle_run(metric, base), head),
    )


def _values(condition: Condition, base: Sequence[MeasuredRun], head: MeasuredRun) -> dict[str, list[_Value]]:
    """Return the metric of all runs, HEAD last; where it has names, all items that match the pattern, together ("").

    With a pattern also each item that does the same work in all runs: one that is launched more often does what another
    one did. Empty where nothing matches.
    """
    measures = [run.measures[condition.metric] for run in (*base, head)]
    if not METRICS[condition.metric].by_name:
        return {"": [(measure.value or 0, measure.samples) for measure in measures]}
    runs = [_matching(measure.items, condition.pattern) for measure in measures]
    if not any(runs):
        return {}
    names = [""]
    if condition.pattern:
        alike = set.intersection(*({(item.what, item.launches) for item in items} for items in runs))
        names += sorted(name for name, _ in alike)
    return {name: [_summed(items, name, row) for items, row in zip(runs, measures)] for name in names}


def _matching(items: Sequence[MeasuredItem], pattern: str) -> list[MeasuredItem]:
    return [item for item in items if fnmatchcase(item.what, pattern or "*")]


def _summed(items: list[MeasuredItem], name: str, measure: Measure) -> _Value:
    """Return value and samples of all items, or of those of one name: 0 in each step without any.

    A baseline may have been saved without its steps.
    """
    selected = [item for item in items if name in ("", item.what)]
    samples = [sum(step) for step in zip(*(item.samples for item in selected))] or [0] * len(measure.samples)
    return (rounded_median(samples), samples) if samples else (_sum(selected), [])


def _judged(
    condition: Condition, name: str, values: list[_Value], needs_runs: bool, questions: int
) -> _Judgement:
    *base_runs, (head, head_samples) = values
    base_values, kind = [value for value, _ in base_runs], METRICS[condition.metric].noise
    base, chance = max(base_values), None
    if kind != "exact":
        base = sorted(base_values)[(len(base_values) - 1) // 2]
        samples = [] if needs_runs else [samples for _, samples in base_runs]
        model = GATE._replace(chance=GATE.chance / questions)
        chance = noise_of_runs(samples, base_values, [] if needs_runs else head_samples, model)
    outcome: GateOutcome = "failed"
    if not condition.holds(base, head):
        outcome = "passed"
    elif chance is None and kind == "needed":
        outcome = "unknown"
    elif chance is not None and head - base <= chance:
        outcome = "noise"
    return _Judgement(outcome, name, base, head, chance)


def _sentence(condition: Condition, row: _Judgement, failed: int, runs: int) -> str:
    label, unit, *_ = METRICS[condition.metric]
    of = f" ({condition.pattern})" if condition.pattern else ""
    of = f" of {row.name[:_MAX_CHARS]}" if row.name else of
    allowed = f"{condition.amount:g} %" if condition.percent else format_value(unit, condition.amount)
    base, head = format_value(unit, row.base), format_value(unit, row.head)
    change = format_change(unit, row.base, row.head)
    more = f"; so did {plural(failed - 1, 'other')}" if failed > 1 else ""
    chance = "" if row.noise is None else f" (± {format_value(unit, row.noise)})"
    by, also = f" by more than {allowed}" if condition.amount else "", f", and by more than the noise{chance}"
    words: dict[GateOutcome, str] = {
        "failed": f"It rose{by}{also if chance else ''}{more}.",
        "passed": f"No rise{by}.",
        "noise": f"It rose{by}, but within the noise{chance}.",
        "unknown": f"It rose{by}, but {plural(runs, 'run')} of BASE cannot tell whether that is noise. {_MORE_RUNS}.",
    }
    return f"{label}{of}: {base} → {head}, {change}. {words[row.outcome]}"


def _causes(condition: Condition, base: MeasuredRun, head: MeasuredRun) -> list[GateCause]:
    """Return the kernels, breaks and functions that rose most, with their lines."""
    metrics = ("step", "kernel") if condition.metric == "step" else (condition.metric,)
    before, after = (
        grouped(
            _matching([item for name in metrics for item in run.measures[name].items], condition.pattern),
            lambda item: item.key,
        )
        for run in (base, head)
    )
    rises = {key: _sum(items) - _sum(before.get(key, [])) for key, items in after.items()}
    largest = sorted((key for key in rises if rises[key] > 0), key=lambda key: -rises[key])[:MAX_CAUSES]
    return [_cause(condition.metric, before.get(key, []), after[key]) for key in largest]


def _sum(items: Sequence[MeasuredItem]) -> int:
    return sum(item.value for item in items)


def _cause(metric: str, before: list[MeasuredItem], after: list[MeasuredItem]) -> GateCause:
    """Describe a rise, at a line that was not there before if there is one."""
    lines = {item.line for item in before}
    item = max(after, key=lambda item: (item.line not in lines, item.value))
    base, head = _sum(before), _sum(after)
    unit = METRICS[metric].unit
    kind = next((kind.one for name, kind in COUNTS.items() if name == metric), item.what)
    what = item.what if item.what == kind else f"{kind} of {item.what}"
    text = f"{what}: {item.why}" if item.why else what
    rise = f"+{head - base:,}" if unit == "count" else format_change(unit, base, head)
    change = "" if rise == "+1" else f", {rise}"
    where = item.file if item.line is None else f"{item.file}:{item.line}"
    return GateCause(text + change, where, head - base)


def noise_bounds(value: int, samples: Sequence[int]) -> tuple[int, int] | None:
    """Return between which a single step is 99 times of 100; None for fewer than two samples."""
    if (single := spread(samples)) is None:
        return None
    half = round(student_t(len(samples) - 1, GATE.chance) * single)
    return max(0, value - half), value + half
