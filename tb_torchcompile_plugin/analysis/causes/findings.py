"""What should be changed, in order of what it would bring? One small class per rule; see docs/findings.md."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TypeAlias, TypeVar

import msgspec

from tb_torchcompile_plugin.analysis.causes.compile_rules import COMPILE_RULES, GRAPH_RULES, CudaGraphsSkipped
from tb_torchcompile_plugin.analysis.causes.context import RuleContext
from tb_torchcompile_plugin.analysis.causes.eager_rules import EAGER_RULES, PAYS_RULES
from tb_torchcompile_plugin.analysis.causes.gpu_rules import GPU_RULES, SCALE_RULES
from tb_torchcompile_plugin.analysis.causes.host_rules import HOST_RULES, SETUP_RULES
from tb_torchcompile_plugin.analysis.causes.rule import Rule
from tb_torchcompile_plugin.analysis.causes.scenario import adds_ns, shared_ns
from tb_torchcompile_plugin.analysis.causes.what_if_rules import WHAT_IF_RULES
from tb_torchcompile_plugin.analysis.finding import SEVERITIES, Finding, Predicted
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.compile_data import CompileData

AnyFinding = TypeVar("AnyFinding", bound=Finding)
_Worth: TypeAlias = tuple[bool, bool, float]  # no gain; nobody can act on it; less the gain

SPAN_RULES: tuple[Rule, ...] = (
    *EAGER_RULES,
    *WHAT_IF_RULES,
    *PAYS_RULES,
    *GRAPH_RULES,
    *HOST_RULES,
    *GPU_RULES,
    *SCALE_RULES,
    *SETUP_RULES,
    CudaGraphsSkipped(),
)
# Everything else is about another program, or is what waiting for that rank looks like.
_MOOT = ("profiler_hooks", "anomaly_mode", "late_rank")
# Would make most programs faster, whatever is wrong with them; and what nobody can act on yet.
_UNTOLD = ("nothing",)
_GENERIC = ("launch_bound", "batch", *_UNTOLD)
_OF_RANKS = ("late_rank", "ranks_take_turns")
_OUTDONE_PERCENT = 10.0  # so much more of a step is what all ranks suffer from, not what makes one late
# First from so much of a step on: whoever goes several times on purpose, for memory, wants that; and where gradients
# stay, torch refuses to use CUDA graphs.
_PLAIN, _PLAIN_PERCENT = ("reduced_once", "zeroed_gradients"), 10.0
_BLOCKS = ("nothing_compiled", "frame_given_up")  # advice that would not help before, where nothing prices it
# The same matter, with its price or its root.
_TOLD_BY = {"frame_given_up": "recompile_limit", "profiler_hooks": "recompile_limit"}
_TAKES_TIME = ("operator", "python", "library", "garbage_collection", "data_loading")
_SAME = 0.8  # of two gains, so near to each other and so much of them shared
# From which gain on what a program does beside its model comes first: share of a step, and of what is generic.
_SPECIFIC_PERCENT, _SPECIFIC_SHARE = 15.0, 0.3
RULES: tuple[Rule, ...] = (
    *SPAN_RULES,
    *(rule for rule in COMPILE_RULES if not isinstance(rule, CudaGraphsSkipped)),
)


class Findings(msgspec.Struct, frozen=True):
    """Largest gain first. `rules`: how many looked."""

    findings: list[Finding]
    rules: int


def span_findings(profile: Profile) -> list[Finding]:
    """What one profiled span shows."""
    context = RuleContext(profile, profile.data)
    return _told_once(profile, ranked([finding for rule in SPAN_RULES for finding in rule.look(context)]))


def _told_once(profile: Profile, rows: list[Finding]) -> list[Finding]:
    """Without waits that claim the same time as an operator or a function: it is what took it; and without those that
    are the end of a copy."""
    waits = [row for row in rows if row.rule == "synchronise"]
    causes = [row for row in rows if row.rule in _TAKES_TIME]
    copies = [row for row in rows if row.rule == "copies"]
    repeated = [
        row
        for row in waits
        if any(_same_time(profile, row, other) for other in causes)
        or any(_is_part(profile, row, other) for other in copies)
    ]
    return [row for row in rows if row not in repeated]


def _is_part(profile: Profile, row: Finding, other: Finding) -> bool:
    """Whether the other one saves most of what the one would."""
    if row.fix is None or other.fix is None or row.predicted is None:
        return False
    return adds_ns(profile, row.fix, other.fix) <= (1 - _SAME) * 1000 * _saved_us(row.predicted)


def _saved_us(predicted: Predicted) -> float:
    return predicted.step_us - predicted.after_us


def _same_time(profile: Profile, row: Finding, other: Finding) -> bool:
    """Whether two causes have about the same price, and it is the same time of the host."""
    if row.fix is None or other.fix is None or row.predicted is None or other.predicted is None:
        return False
    less, more = sorted(map(_saved_us, (row.predicted, other.predicted)))
    return less >= _SAME * more and shared_ns(profile, row.fix, other.fix) >= _SAME * 1000 * less


def compile_findings(data: CompileData) -> list[Finding]:
    """What the compile data of a worker shows without a trace."""
    context = RuleContext(None, data)
    return ranked([finding for rule in COMPILE_RULES for finding in rule.look(context)])


def findings(about: Profile | CompileData) -> Findings:
    """What one span and the compile data of its worker show, or that data alone."""
    data = about if isinstance(about, CompileData) else about.data
    compiled = data.of(compile_findings) if data else []
    if isinstance(about, CompileData):
        return Findings(compiled, len(COMPILE_RULES))
    of_span = about.of(span_findings)
    return Findings(ranked([*of_span, *untold(compiled, of_span)]), len(RULES))


def untold(compiled: Iterable[AnyFinding], of_spans: Collection[Finding]) -> list[AnyFinding]:
    """Of what compile data alone shows, what the findings of spans do not tell already."""
    known = {(row.rule, row.row) for row in of_spans}
    hidden = {_TOLD_BY.get(row.rule) for row in of_spans}
    return [row for row in compiled if (row.rule, row.row) not in known and row.rule not in hidden]


def ranked(findings: Iterable[AnyFinding]) -> list[AnyFinding]:
    """Largest predicted gain first; then, where nothing predicts, most time to save and the most severe. What is wrong
    with this program comes before what would make any faster, and what can be mended before what nobody can act on,
    unless that brings several times as much."""
    rows = list(findings)
    generic = max((_gain(row) for row in rows if row.rule in _GENERIC), default=0.0)
    best = max((_gain(row) for row in rows if row.rule not in _MOOT), default=0.0)
    least_percent = max(_SPECIFIC_PERCENT, _SPECIFIC_SHARE * generic)
    return sorted(rows, key=partial(_rank, least_percent, best, _worth_of(rows)))


def merged(runs: Iterable[list[AnyFinding]]) -> list[AnyFinding]:
    """Of several runs, each in its own order: next comes that of the run of which most can still be gained."""
    waiting = [deque(rows) for rows in runs if rows]
    worth = _worth_of([row for queue in waiting for row in queue])
    rows: list[AnyFinding] = []
    while waiting:
        best = min(waiting, key=lambda queue: min(map(worth, queue)))
        rows.append(best.popleft())
        waiting = [queue for queue in waiting if queue]
    return rows


def _worth_of(rows: Iterable[Finding]) -> Callable[[Finding], _Worth]:
    """What tells of each of them how much it is worth to whoever reads it: less comes first."""
    mendable = max((_gain(row) for row in rows if row.rule not in _UNTOLD), default=0.0)

    def worth(row: Finding) -> _Worth:
        gain = _gain(row)
        return not gain, row.rule in _UNTOLD and mendable >= _SPECIFIC_SHARE * gain, -gain

    return worth


def _gain(row: Finding) -> float:
    return row.predicted.gain_percent if row.predicted else 0.0


def _rank(
    least_percent: float, best: float, worth: Callable[[Finding], _Worth], row: Finding
) -> tuple[bool, bool, _Worth, float, int]:
    gain = _gain(row)
    outdone = row.rule in _OF_RANKS and best > gain + _OUTDONE_PERCENT
    first = row.rule not in _GENERIC and gain >= least_percent and not outdone
    first |= row.rule in _PLAIN and gain >= _PLAIN_PERCENT
    first |= row.rule in _BLOCKS and row.predicted is None
    return (
        row.rule not in _MOOT or outdone,
        not first,
        worth(row),
        -(row.saves_us or 0),
        SEVERITIES.index(row.severity),
    )
