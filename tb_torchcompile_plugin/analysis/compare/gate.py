"""Does a run pass a gate against a base, and what does a reader need to believe the verdict?"""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Literal

import msgspec

from tb_torchcompile_plugin.analysis.compare import gate_judge
from tb_torchcompile_plugin.analysis.compare.gate_judge import GateCause, GateCondition, GateSettings
from tb_torchcompile_plugin.analysis.compare.gate_metrics import METRICS, MeasuredRun
from tb_torchcompile_plugin.analysis.compare.pairs import in_words, pair
from tb_torchcompile_plugin.analysis.formatting import joined_names, plural
from tb_torchcompile_plugin.analysis.runtime.program import differences
from tb_torchcompile_plugin.analysis.statistics import spread

Verdict = Literal["passed", "failed", "unknown", "not_comparable"]


class GateFigure(msgspec.Struct, frozen=True):
    """A metric on both sides, in words: a dash where it is unknown."""

    metric: str
    label: str
    base: str
    head: str
    change: str
    why_unknown: str


class GateReport(msgspec.Struct, frozen=True):
    """A gate's verdict; differences and unknowns that are allowed count as passed."""

    name: str
    # failed: a condition holds; not_comparable: the runs differ in what they must not; unknown: a condition cannot be
    # checked.
    outcome: Verdict
    verdict: str
    base: list[str]
    head: str
    on: str
    differences: list[str]
    conditions: list[GateCondition]
    causes: list[GateCause]  # of all conditions that hold
    figures: list[GateFigure]
    notes: list[str]
    options: list[str]  # of the command line that asks the same again


def gate(base: Sequence[MeasuredRun], head: MeasuredRun, settings: GateSettings) -> GateReport:
    """Judge a run against one base run, or several that did the same."""
    found = dict(_differences(base, head))
    # One script that does more work than before is judged: that is what a gate is for.
    forbidden = [text for kind, text in found.items() if kind not in (*settings.allow, "work")]
    conditions = [gate_judge.judge(row, base, head) for row in settings.conditions if not forbidden]
    failed = [row for row in conditions if row.outcome == "failed"]
    causes = [cause for rank in zip_longest(*(row.causes for row in failed)) for cause in rank if cause]
    outcome, verdict = _verdict(forbidden, conditions, "unknown" in settings.allow)
    fail_on = [("--fail-on", condition.text) for condition in settings.conditions]
    allow = [("--allow", word) for word in dict.fromkeys(settings.allow)]
    return GateReport(
        name=settings.name,
        outcome=outcome,
        verdict=verdict,
        base=[run.name for run in base],
        head=head.name,
        on=", ".join(
            filter(None, (*head.program.devices, head.program.torch and f"torch {head.program.torch}"))
        ),
        differences=[*found.values()],
        conditions=conditions,
        causes=list(dict.fromkeys(causes))[: gate_judge.MAX_CAUSES],
        figures=[_figure(name, base, head) for name in METRICS],
        notes=[*_notes(base, head)],
        options=[word for option in (*fail_on, *allow) for word in option],
    )


def _differences(base: Sequence[MeasuredRun], head: MeasuredRun) -> Iterator[tuple[str, str]]:
    """Yield (what --allow calls it, sentence) where runs differ; what is unknown of a side is no difference."""
    for run in base:
        yield from differences(run.program, head.program, ("BASE", "HEAD"))
    ranks = [f"{run.ranks} of {run.world_size} recorded" for run in (*base, head)]
    if len(set(ranks)) > 1:
        before = joined_names(list(dict.fromkeys(ranks[:-1])))
        yield "world-size", f"Ranks: {before} in BASE, {ranks[-1]} in HEAD."


def _verdict(forbidden: list[str], judged: list[GateCondition], allow_unknown: bool) -> tuple[Verdict, str]:
    """Return the outcome and "Failed: 2 of 5 conditions hold: breaks>0 and step>3%."."""
    if forbidden:
        return "not_comparable", f"Not comparable. {' '.join(forbidden)}"
    failed = [row.condition for row in judged if row.outcome == "failed"]
    unknown = [row.condition for row in judged if row.outcome == "unknown"]
    of = plural(len(judged), "condition")
    unchecked = f"{len(unknown)} of {of} cannot be checked: {joined_names(unknown)}." if unknown else ""
    if failed:
        hold = "holds" if len(failed) == 1 else "hold"
        return "failed", f"Failed: {len(failed)} of {of} {hold}: {joined_names(failed)}. {unchecked}".strip()
    if unknown and not allow_unknown:
        return "unknown", f"Not known: {unchecked}"
    passed = f"Passed: none of {of} holds." if judged else "No conditions were given."
    return "passed", f"{passed} {unchecked}".strip()


def _figure(metric: str, base: Sequence[MeasuredRun], head: MeasuredRun) -> GateFigure:
    unit, label = METRICS[metric].unit, METRICS[metric].label
    measured = [run for run in base if metric in run.measures]
    before = gate_judge.middle_run(metric, measured).measures[metric].value if measured else None
    after = head.measures[metric].value if metric in head.measures else None
    why = gate_judge.why_unknown(metric, base, head)
    return GateFigure(metric, label, *in_words(unit, pair(before, after)), why)


def _notes(base: Sequence[MeasuredRun], head: MeasuredRun) -> Iterator[str]:
    base_steps, head_steps = (
        run.measures["step"].samples if "step" in run.measures else [] for run in (base[0], head)
    )
    if len(base) > 1:
        yield f"Noise is from {plural(len(base), 'run')} of BASE, and from the steps in each run; the larger counts."
    elif spread(base_steps) and spread(head_steps):
        yield (
            f"Noise is from the {len(base_steps)} and {plural(len(head_steps), 'step')} inside one run of each "
            "side: how runs differ from one another they do not tell. Several runs as BASE do."
        )
    if head.ranks > 1:
        yield (
            f"HEAD ran as {plural(head.ranks, 'rank')}: counts are of all ranks together, a step lasts as long as on "
            "the slowest."
        )
