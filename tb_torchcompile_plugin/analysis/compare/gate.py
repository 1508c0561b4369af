"""A run against a base, under conditions: the verdict, and what a reader needs to believe it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Literal

import msgspec

from tb_torchcompile_plugin.analysis.compare.gate_judge import (
    GateCause,
    GateCondition,
    GateOutcome,
    GateSettings,
    change_in_unit,
    in_unit,
    judge,
    middle_run,
    spread,
    why_unknown,
)
from tb_torchcompile_plugin.analysis.compare.gate_metrics import METRICS, MeasuredRun
from tb_torchcompile_plugin.analysis.formatting import both, plural

Verdict = Literal["passed", "failed", "unknown", "not_comparable"]
_MOST_CAUSES = 3


class GateFigure(msgspec.Struct, frozen=True):
    """A metric on both sides, in words: a dash where it is unknown."""

    metric: str
    label: str
    base: str
    head: str
    change: str
    why_unknown: str


class GateReport(msgspec.Struct, frozen=True):
    """outcome: failed where a condition holds; else not_comparable where the runs differ in what must not; else unknown
    where a condition cannot be checked. Differences and unknowns that are allowed count as passed. causes: of all
    conditions that hold, three at most. options: of the command line that asks the same again."""

    name: str
    outcome: Verdict
    verdict: str
    base: list[str]
    head: str
    on: str
    differences: list[str]
    conditions: list[GateCondition]
    causes: list[GateCause]
    figures: list[GateFigure]
    notes: list[str]
    options: list[str]


def gate(base: Sequence[MeasuredRun], head: MeasuredRun, settings: GateSettings) -> GateReport:
    """base: one run, or several that did the same."""
    differences = dict(_differences(base, head))
    ended = [text for kind, text in differences.items() if kind not in settings.allow]
    conditions = [] if ended else [judge(one, base, head) for one in settings.conditions]
    outcome = _outcome(ended, conditions, "unknown" in settings.allow)
    failed = [one for one in conditions if one.outcome == "failed"]
    every = [cause for one in zip_longest(*(row.causes for row in failed)) for cause in one if cause]
    return GateReport(
        name=settings.name,
        outcome=outcome,
        verdict=_verdict(outcome, conditions, ended),
        base=[one.name for one in base],
        head=head.name,
        on=", ".join(filter(None, (*head.devices, head.torch and f"torch {head.torch}"))),
        differences=[*differences.values()],
        conditions=conditions,
        causes=list(dict.fromkeys(every))[:_MOST_CAUSES],
        figures=[_figure(name, base, head) for name in METRICS],
        notes=[*_notes(base, head)],
        options=_options(settings),
    )


def _options(settings: GateSettings) -> list[str]:
    asked = [("--fail-on", one.text) for one in settings.conditions]
    allowed = [("--allow", one) for one in dict.fromkeys(settings.allow)]
    return [word for pair in (*asked, *allowed) for word in pair]


def _differences(base: Sequence[MeasuredRun], head: MeasuredRun) -> Iterator[tuple[str, str]]:
    """By what --allow calls it; what a side does not tell is no difference."""
    runs = [*base, head]
    asked = {
        "gpu": ("GPU", [", ".join(one.devices) for one in runs]),
        "torch": ("torch", [one.torch for one in runs]),
        "world-size": ("Ranks", [f"{one.ranks} of {one.world_size} recorded" for one in runs]),
    }
    for kind, (label, values) in asked.items():
        if len(set(filter(None, values))) > 1:
            before = both(list(dict.fromkeys(filter(None, values[:-1]))))
            yield kind, f"{label}: {before} in BASE, {values[-1] or 'not known'} in HEAD."


def _outcome(ended: list[str], conditions: list[GateCondition], unknown_allowed: bool) -> Verdict:
    outcomes = {one.outcome for one in conditions}
    if ended:
        return "not_comparable"
    if "failed" in outcomes:
        return "failed"
    return "unknown" if "unknown" in outcomes and not unknown_allowed else "passed"


def _verdict(outcome: Verdict, conditions: list[GateCondition], ended: list[str]) -> str:
    """ "Failed: 2 of 5 conditions hold: breaks>0 and step>3%." """
    by_outcome: dict[GateOutcome, list[str]] = {}
    for one in conditions:
        by_outcome.setdefault(one.outcome, []).append(one.condition)
    failed, unknown = by_outcome.get("failed", []), by_outcome.get("unknown", [])
    what = plural(len(conditions), "condition")
    cannot = f"{len(unknown)} of {what} cannot be checked: {both(unknown)}." if unknown else ""
    if outcome == "not_comparable":
        return f"Not comparable. {' '.join(ended)}"
    if outcome == "failed":
        hold = "holds" if len(failed) == 1 else "hold"
        return f"Failed: {len(failed)} of {what} {hold}: {both(failed)}. {cannot}".strip()
    if outcome == "unknown":
        return f"Not known: {cannot}"
    return " ".join(
        filter(
            None, (f"Passed: none of {what} holds." if conditions else "No conditions were given.", cannot)
        )
    )


def _figure(metric: str, base: Sequence[MeasuredRun], head: MeasuredRun) -> GateFigure:
    unit, label = METRICS[metric].unit, METRICS[metric].label
    known = [one for one in base if metric in one.measures]
    before = middle_run(metric, known).measures[metric].value if known else None
    after = head.measures[metric].value if metric in head.measures else None
    return GateFigure(
        metric,
        label,
        in_unit(unit, before),
        in_unit(unit, after),
        change_in_unit(unit, before, after),
        why_unknown(metric, base, head),
    )


def _notes(base: Sequence[MeasuredRun], head: MeasuredRun) -> Iterator[str]:
    if len(base) > 1:
        yield f"Noise is from {plural(len(base), 'run')} of BASE, and from the steps in each run; the larger counts."
    elif spread(_steps(base[0])) and spread(_steps(head)):
        yield (
            f"Noise is from the {len(_steps(base[0]))} and {plural(len(_steps(head)), 'step')} inside one run of each "
            "side: how runs differ from one another they do not tell. Several runs as BASE do."
        )
    if (ranks := head.ranks) > 1:
        yield (
            f"HEAD ran as {plural(ranks, 'rank')}: counts are of all ranks together, a step lasts as long as on the "
            "slowest."
        )


def _steps(one: MeasuredRun) -> list[int]:
    return one.measures["step"].samples if "step" in one.measures else []
