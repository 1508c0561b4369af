"""A finding: what to change, where, and what it would save."""

from typing import Literal, TypeAlias

import msgspec

from tb_torchcompile_plugin.analysis import thresholds

Severity = Literal["info", "warning", "critical"]
Panel = Literal[
    "overview",
    "findings",
    "compare",
    "all_runs",
    "step",
    "timeline",
    "memory",
    "ranks",
    "your_code",
    "kernels",
    "operators",
    "compile_time",
    "compilations",
    "graph_breaks",
    "recompiles",
    "generated_code",
]
# What a finding leads to in a panel: its sections, tabs and tables, the main one first.
SECTIONS: dict[Panel, tuple[str, ...]] = {
    "all_runs": ("runs",),
    "compare": ("payback",),
    "step": ("ledger", "steps", "idle", "idle_reasons", "collectives"),
    "memory": ("memory_owners",),
    "ranks": ("job_collectives", "late", "ranks"),
    "your_code": ("your_code", "functions", "modules"),
    "kernels": ("kernels",),
    "operators": ("operators",),
    "compile_time": ("startup", "compilations", "autotune"),
    "compilations": ("compilation", "regions", "cuda_graphs", "exports"),
    "graph_breaks": ("graph_breaks", "eager"),
    "recompiles": ("recompiles", "shapes"),
}
# How a cause relates to the others of a program; causes/findings.py orders findings by it.
Role = Literal[
    "blocking",  # until it is fixed, other advice is about another program, or would not help
    "specific",  # this program does it in addition to its model
    "generic",  # its fix would make most programs faster, whatever is wrong with this one
    "symptom",  # not actionable by itself
]
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info")
Evidence: TypeAlias = dict[str, float | int]


class Predicted(msgspec.Struct, frozen=True):
    """A step now and after a fix (µs), unprofiled where that is known."""

    step_us: float
    after_us: float
    low_us: float  # low, high: the range of after_us where the change is uncertain
    high_us: float
    gain_percent: float  # of the step

    @property
    def gain_us(self) -> float:
        """How much shorter the step is."""
        return self.step_us - self.after_us

    @property
    def least_gain_percent(self) -> float:
        """The gain at the upper end of the range (percent of a step)."""
        return 100 * (1 - self.high_us / self.step_us)


# Four in five of 73 fixes that were measured brought between these shares of the predicted gain (docs/benchmarks.md).
_LEAST_GAIN, _MOST_GAIN = 0.85, 1.3
# Of the predicted step at least this is left: 1.3 times a large gain may be more than there is.
_LEAST_LEFT = 0.4


def prediction(step_ns: float, *after_ns: float) -> Predicted:
    """Return the change from a step now to the first of `after_ns`; the others widen its range.

    The range is never narrower than what such predictions were found to be off.
    """
    now, after = step_ns / 1000, after_ns[0] / 1000
    gain = max(now - after, 0.0)
    low = min(*after_ns, 1000 * max(now - _MOST_GAIN * gain, _LEAST_LEFT * after)) / 1000
    high = max(*after_ns, 1000 * (now - _LEAST_GAIN * gain)) / 1000 if gain else max(after_ns) / 1000
    saved_percent = 100 * (1 - after / now) if now else 0.0
    return Predicted(now, after, min(low, after), high, saved_percent)


class Finding(msgspec.Struct, frozen=True):
    """Something to change."""

    rule: str
    severity: Severity
    title: str  # a sentence with a verb and a number
    evidence: Evidence  # numbers, with their units in their names
    saves_us: float | None  # of the profiled time, at most; None where unknown
    panel: Panel  # where it is shown
    row: str | None  # "table:key" in the panel, None where no row shows it; then `section` does
    next_step: str
    predicted: Predicted | None = None  # None where no model predicts it
    where: list[str] = []  # lines, operators or kernels
    section: str = ""  # of `SECTIONS`
    fix: str | None = None  # its id in What if
    code: str | None = None  # the part of the next step that can be pasted
    role: Role = "specific"
    advised: bool = True  # False: considered, and would not help yet; the title states why

    @property
    def asks_for_change(self) -> bool:
        """Whether it makes a step slower, as opposed to being informative."""
        return self.predicted is not None or self.severity != "info"


def severity_of(share: float | None) -> Severity:
    """Return the severity of a possible gain, in percent of a step."""
    if share is None or share < thresholds.warning_percent:
        return "info"
    return "warning" if share < thresholds.critical_percent else "critical"
