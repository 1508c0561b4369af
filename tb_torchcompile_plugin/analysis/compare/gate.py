"""Does a run pass a gate against a baseline: did a metric rise by more than it may, and by more than noise?

Conditions are those of the command line, and of the table [gate] of a TOML file. Inside a run all steps count as one,
as they follow one another; between several baseline runs, up to one more of them. The larger of the two counts (see
`statistics`).
"""

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import zip_longest
from typing import Literal

import msgspec
from msgspec.structs import replace

from tb_torchcompile_plugin.analysis.compare.measures import (
    METRICS,
    Measure,
    MeasuredItem,
    MeasuredRun,
    Unit,
    rounded_median,
)
from tb_torchcompile_plugin.analysis.compare.pairs import Figure, in_words, pair, text_of
from tb_torchcompile_plugin.analysis.formatting import joined_names, plural
from tb_torchcompile_plugin.analysis.runtime.program import differences
from tb_torchcompile_plugin.analysis.statistics import GATE, noise_of_runs, spread
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


class InvalidGateError(UserError):
    """A condition or a setting of the gate that cannot be read: a wrong argument."""


class Condition(msgspec.Struct, frozen=True):
    """How much a metric may rise: `step>3%`, `breaks>0`, `kernel:triton_*>10%`."""

    text: str
    metric: str
    pattern: str  # of kernel names, "" for a metric without
    inclusive: bool  # whether the condition also holds for exactly the amount
    amount: float  # percent of the baseline, or in the metric's unit (ns, bytes, a count)
    percent: bool

    def holds(self, baseline: int, candidate: int) -> bool:
        """Return whether the metric rose by more than it may."""
        bound = self.amount * baseline / 100 if self.percent else self.amount
        rise = candidate - baseline
        return rise > bound or (self.inclusive and rise == bound)


class GateSettings(msgspec.Struct, frozen=True):
    """What a gate checks."""

    conditions: list[Condition]
    allow: list[str]  # of ALLOWED, what does not end the gate
    name: str  # of what is measured, for other programs that read its files


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [gate] of a TOML file."""

    fail_on: list[str] = []
    allow: list[str] = []
    name: str = ""


class _Document(msgspec.Struct, frozen=True):
    gate: _Table


def read_settings(fail_on: Sequence[str], allow: Sequence[str], name: str, file: str = "") -> GateSettings:
    """Return the settings of a TOML file, "" for none, then of the command line. Raises InvalidGateError."""
    table = _read(file) if file else _Table()
    allowed = list(dict.fromkeys([*table.allow, *allow]))
    if wrong := [word for word in allowed if word not in ALLOWED]:
        raise InvalidGateError(
            f"{wrong[0]!r} cannot be allowed", next_step=f"Use one of: {', '.join(ALLOWED)}"
        )
    texts = dict.fromkeys([*table.fail_on, *fail_on])
    return GateSettings([parse_condition(text) for text in texts], allowed, name or table.name)


def _read(file: str) -> _Table:
    try:
        with open(file, "rb") as stream:
            return msgspec.toml.decode(stream.read(), type=_Document).gate
    except OSError as error:
        raise InvalidGateError(
            f"cannot be read ({error.strerror})", file=file, next_step="Check --config"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidGateError(
            f"contains no valid table [gate] ({error})",
            file=file,
            next_step='Add one, for example with fail_on = ["step>3%"]',
        ) from error


def parse_condition(text: str) -> Condition:
    """Parse a condition. Raises InvalidGateError, which names the condition and what is possible."""
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise _wrong(text, "is not valid", "Examples: 'step>3%', 'breaks>0', 'kernel:triton_*>10%'")
    metric, pattern, unit = match["metric"], match["pattern"] or "", match["unit"]
    if metric not in METRICS:
        raise _wrong(text, f"has the unknown metric {metric!r}", f"Use one of: {', '.join(METRICS)}")
    if pattern and not METRICS[metric].by_name:
        by_name = ", ".join(name for name, kind in METRICS.items() if kind.by_name)
        raise _wrong(
            text, f"has a pattern, which {metric} does not support", f"Use a pattern with: {by_name}"
        )
    units = _UNITS[METRICS[metric].unit]
    amount = float(match["amount"])
    if unit != "%" and unit not in units and (unit or amount):
        possible = ", ".join(["%", *(name or "none" for name in units)])
        problem = f"has the unit {unit!r}" if unit else "has no unit"
        raise _wrong(text, problem, f"Units of {metric}: {possible}")
    amount *= units.get(unit, 1)
    return Condition(text.strip(), metric, pattern.strip(), match["op"] == ">=", amount, unit == "%")


def _wrong(text: str, problem: str, next_step: str) -> InvalidGateError:
    return InvalidGateError(f"the condition {text!r} {problem}", next_step=next_step)


MAX_CAUSES = 3  # of one condition, and of a report: a few lines; chosen by eye
_MAX_CHARS = 80  # of a name in a sentence
_MORE_RUNS = "Pass several baseline runs, or save several runs in one baseline file"

Verdict = Literal["passed", "failed", "unknown", "not_comparable"]
GateOutcome = Literal["failed", "unknown", "noise", "passed"]
_ORDER: list[GateOutcome] = ["failed", "unknown", "noise", "passed"]  # worst first


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
    baseline: int | None  # ns, bytes or a count; of several runs that in the middle, of counts the largest
    candidate: int | None
    noise: float | None
    sentence: str
    causes: list[GateCause]


class GateFigure(Figure, frozen=True):
    """A metric on both sides."""

    why_unknown: str


class GateReport(msgspec.Struct, frozen=True):
    """A gate's verdict; differences and unknowns that are allowed count as passed."""

    name: str
    # failed: a condition holds; not_comparable: the runs differ in what they must not; unknown: a condition cannot be
    # checked.
    outcome: Verdict
    verdict: str
    baseline: list[str]
    candidate: str
    on: str
    differences: list[str]
    conditions: list[GateCondition]
    causes: list[GateCause]  # of all conditions that hold
    figures: list[GateFigure]
    notes: list[str]
    options: list[str]  # of the command line that asks the same again


_Value = tuple[int, list[int]]  # a number of one run, and its samples


def gate(baseline: Sequence[MeasuredRun], candidate: MeasuredRun, settings: GateSettings) -> GateReport:
    """Judge a run against one baseline run, or several that did the same."""
    found, program = dict(_differences(baseline, candidate)), candidate.program
    # One script that does more work than before is judged: that is what a gate is for.
    forbidden = [text for kind, text in found.items() if kind not in (*settings.allow, "work")]
    conditions = [judge(row, baseline, candidate) for row in settings.conditions if not forbidden]
    failed = [row for row in conditions if row.outcome == "failed"]
    causes = [cause for rank in zip_longest(*(row.causes for row in failed)) for cause in rank if cause]
    outcome, verdict = _verdict(forbidden, conditions, "unknown" in settings.allow)
    fail_on = [("--fail-on", condition.text) for condition in settings.conditions]
    allow = [("--allow", word) for word in settings.allow]
    return GateReport(
        name=settings.name,
        outcome=outcome,
        verdict=verdict,
        baseline=[run.name for run in baseline],
        candidate=candidate.name,
        on=", ".join(filter(None, (*program.devices, program.torch and f"torch {program.torch}"))),
        differences=[*found.values()],
        conditions=conditions,
        causes=list(dict.fromkeys(causes))[:MAX_CAUSES],
        figures=[_figure(name, baseline, candidate) for name in METRICS],
        notes=[*_notes(baseline, candidate)],
        options=[word for option in (*fail_on, *allow) for word in option],
    )


def _differences(baseline: Sequence[MeasuredRun], candidate: MeasuredRun) -> Iterator[tuple[str, str]]:
    """Yield (what --allow calls it, sentence) where runs differ; what is unknown of a side is no difference."""
    for run in baseline:
        yield from differences(run.program, candidate.program)
    before, after = (
        {f"{run.ranks} of {run.world_size} recorded": None for run in runs if run.ranks}
        for runs in (baseline, [candidate])
    )
    if before and after and before != after:
        yield (
            "world-size",
            f"Ranks: {joined_names([*before])} in the baseline, {joined_names([*after])} in the candidate.",
        )


def _verdict(forbidden: list[str], judged: list[GateCondition], allow_unknown: bool) -> tuple[Verdict, str]:
    """Return the outcome and "Failed: 2 of 5 conditions hold (breaks>0 and step>3%)."."""
    if forbidden:
        return "not_comparable", f"Not comparable. {' '.join(forbidden)}"
    failed = [row.condition for row in judged if row.outcome == "failed"]
    unknown = [row.condition for row in judged if row.outcome == "unknown"]
    of = plural(len(judged), "condition")
    unchecked = f"{len(unknown)} of {of} cannot be checked ({joined_names(unknown)})." if unknown else ""
    if failed:
        hold = "holds" if len(failed) == 1 else "hold"
        return "failed", f"Failed: {len(failed)} of {of} {hold} ({joined_names(failed)}). {unchecked}".strip()
    if unknown and not allow_unknown:
        return "unknown", f"Inconclusive: {unchecked}"
    passed = f"Passed: none of {of} holds." if judged else "No conditions were passed."
    return "passed", f"{passed} {unchecked}".strip()


def _figure(metric: str, baseline: Sequence[MeasuredRun], candidate: MeasuredRun) -> GateFigure:
    label, unit, *_ = METRICS[metric]
    value = pair(*(run.measures[metric].value for run in (middle_run(metric, baseline), candidate)))
    why = why_unknown(metric, baseline, candidate)
    return GateFigure(metric, label, *in_words(unit, value), value, why)


def _notes(baseline: Sequence[MeasuredRun], candidate: MeasuredRun) -> Iterator[str]:
    base_steps, head_steps = (run.measures["step"].samples for run in (baseline[0], candidate))
    if len(baseline) > 1:
        runs = plural(len(baseline), "baseline run")
        yield f"The noise is the larger of two: between {runs}, and between the steps of each run."
    elif spread(base_steps) and spread(head_steps):
        yield (
            f"The noise is that of the steps of one run per side ({len(base_steps)} and {len(head_steps)}). Pass "
            "several baseline runs to include the noise between runs."
        )
    if candidate.ranks > 1:
        yield (
            f"The candidate ran on {plural(candidate.ranks, 'rank')}. Counts are sums over all ranks; a step takes as "
            "long as on the slowest rank."
        )


def format_value(unit: Unit, value: float | None) -> str:
    """Return "13.0 ms", "95.0 MB", "4"; a dash where it is unknown."""
    return "–" if value is None else text_of(unit)(value)


def why_unknown(metric: str, baseline: Sequence[MeasuredRun], candidate: MeasuredRun) -> str:
    """Return why a metric is unknown, "" where it is known of all runs."""
    sides = [
        *(("baseline", run.measures[metric]) for run in baseline),
        ("candidate", candidate.measures[metric]),
    ]
    reasons = [f"{side}: {measure.why_unknown}" for side, measure in sides if measure.value is None]
    return "; ".join(dict.fromkeys(reasons))


def middle_run(metric: str, baseline: Sequence[MeasuredRun]) -> MeasuredRun:
    """Return the run that stands for several: of a count the one with most, otherwise that in the middle."""
    runs = sorted(baseline, key=lambda run: run.measures[metric].value or 0)
    return runs[-1] if METRICS[metric].noise == "exact" else runs[(len(runs) - 1) // 2]


def judge(condition: Condition, baseline: Sequence[MeasuredRun], candidate: MeasuredRun) -> GateCondition:
    """Check a condition; baseline is one run, or several that did the same."""
    metric, label = condition.metric, METRICS[condition.metric].label
    why = why_unknown(metric, baseline, candidate)
    series = {} if why else _values(condition, baseline, candidate)
    if not series:
        why = f"unknown ({why})" if why else f"no kernel on either side matches {condition.pattern!r}"
        return GateCondition(
            condition.text, metric, label, "unknown", None, None, None, f"{label}: {why}.", []
        )
    needs_runs = any(run.measures[metric].needs_runs for run in (*baseline, candidate))
    judged = [_judged(condition, name, values, needs_runs, len(series)) for name, values in series.items()]
    worst = min(judged, key=lambda row: _ORDER.index(row.outcome))
    others = sum(row.outcome == "failed" for row in judged) - 1
    if others > 0:
        worst = replace(worst, sentence=f"{worst.sentence[:-1]}, as did {plural(others, 'other')}.")
    causes = [] if worst.outcome == "passed" else _causes(condition, middle_run(metric, baseline), candidate)
    return replace(worst, causes=causes)


def _values(
    condition: Condition, baseline: Sequence[MeasuredRun], candidate: MeasuredRun
) -> dict[str, list[_Value]]:
    """Return the metric of all runs, the candidate last; of one with names, all items that match together ("").

    With a pattern also each item that does the same work in all runs: one that is launched more often does what another
    one did. Empty where nothing matches.
    """
    measures = [run.measures[condition.metric] for run in (*baseline, candidate)]
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
) -> GateCondition:
    """Judge one number of both sides. name: of the item that it is of, "" for the metric as a whole."""
    *base_runs, (candidate, head_samples) = values
    base_values, (label, unit, kind, *_) = [value for value, _ in base_runs], METRICS[condition.metric]
    baseline, noise = max(base_values), None
    if kind != "exact":
        baseline = sorted(base_values)[(len(base_values) - 1) // 2]
        samples = [] if needs_runs else [samples for _, samples in base_runs]
        model = GATE._replace(chance=GATE.chance / questions)
        noise = noise_of_runs(samples, base_values, [] if needs_runs else head_samples, model)
    allowed = f"{condition.amount:g} %" if condition.percent else format_value(unit, condition.amount)
    by = f" by more than {allowed}" if condition.amount else ""
    chance = "" if noise is None else f" (± {format_value(unit, noise)})"
    outcome: GateOutcome = "failed"
    by_noise = f"{' and' if by else ''} by more than the noise{chance}" if chance else ""
    words = f"Increased{by}{by_noise}."
    if not condition.holds(baseline, candidate):
        outcome, words = "passed", f"Did not increase{by}."
    elif noise is None and kind == "needed":
        runs = plural(len(base_runs), "baseline run")
        outcome = "unknown"
        words = f"Increased{by}, but {runs} cannot show whether this is noise. {_MORE_RUNS}."
    elif noise is not None and candidate - baseline <= noise:
        outcome, words = "noise", f"Increased{by}, but within the noise{chance}."
    of = f" of {name[:_MAX_CHARS]}" if name else f" ({condition.pattern})" if condition.pattern else ""
    before, after, change = in_words(unit, pair(baseline, candidate))
    sentence = f"{label}{of}: {before} → {after}, {change}. {words}"
    return GateCondition(
        condition.text, condition.metric, label, outcome, baseline, candidate, noise, sentence, []
    )


def _causes(condition: Condition, baseline: MeasuredRun, candidate: MeasuredRun) -> list[GateCause]:
    metrics = ("step", "kernel") if condition.metric == "step" else (condition.metric,)
    before, after = (
        grouped(
            _matching([item for name in metrics for item in run.measures[name].items], condition.pattern),
            lambda item: item.key,
        )
        for run in (baseline, candidate)
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
    baseline, candidate = _sum(before), _sum(after)
    unit = METRICS[metric].unit
    kind = next((kind.one for name, kind in COUNTS.items() if name == metric), item.what)
    what = item.what if item.what == kind else f"{kind} of {item.what}"
    text = f"{what}: {item.why}" if item.why else what
    rise = f"+{candidate - baseline:,}" if unit == "count" else in_words(unit, pair(baseline, candidate))[2]
    change = "" if rise == "+1" else f", {rise}"
    where = item.file if item.line is None else f"{item.file}:{item.line}"
    return GateCause(text + change, where, candidate - baseline)
