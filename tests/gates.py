"""Runs that a gate compares, with numbers that a test chooses; and recordings in which one thing is worse."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from compile_records import artifact, line
from tb_torchcompile_plugin.analysis.compare.gate import GateReport, gate, read_settings
from tb_torchcompile_plugin.analysis.compare.measures import (
    METRICS,
    Measure,
    MeasuredItem,
    MeasuredRun,
    rounded_median,
)
from tb_torchcompile_plugin.analysis.runtime.program import ProgramFacts

BREAK = """Graph break in user code at /home/user/train/model.py:12
Graph Break Reason: Failed to trace builtin operator
  Explanation: Dynamo does not know how to trace `print`.

User code traceback:
  File "/home/user/train/model.py", line 12, in forward
    print(x)
"""


def a_run(
    name: str = "run", *, devices: Sequence[str] = (), torch: str = "", ranks: int = 1, **measures: Measure
) -> MeasuredRun:
    """All other metrics are unknown."""
    known = {metric: measures.get(metric, Measure(why_unknown="nobody measured it")) for metric in METRICS}
    return MeasuredRun(name, ProgramFacts(devices=[*devices], torch=torch), ranks, ranks, known)


def timed(*samples: int, items: Sequence[MeasuredItem] = (), needs_runs: bool = False) -> Measure:
    """By step."""
    return Measure(rounded_median([*samples]), [*samples], [*items], needs_runs=needs_runs)


def kernels(**samples: Sequence[int]) -> Measure:
    """By step, of each kernel."""
    items = [
        MeasuredItem(name, value=rounded_median([*one]), samples=[*one], launches=1)
        for name, one in samples.items()
    ]
    return timed(*(sum(step) for step in zip(*samples.values())), items=items)


def count(number: int, *items: MeasuredItem) -> Measure:
    return Measure(number, items=[*items])


def judged(
    base: MeasuredRun | Sequence[MeasuredRun], head: MeasuredRun, *conditions: str, allow: Sequence[str] = ()
) -> GateReport:
    runs = [base] if isinstance(base, MeasuredRun) else base
    return gate(runs, head, read_settings(conditions, allow, ""))


def add_break(folder: Path) -> None:
    """To its log, as torch writes it."""
    _append(folder, line(artifact("dynamo_graph_break_reason", BREAK), pid=424))


def add_recompile(folder: Path) -> None:
    _append(folder, line(artifact("recompile_reasons", json.dumps(["0/0: s == 2.5"]), "0/1"), pid=424))


def slow_down(name: str, times: float) -> Callable[[Path], None]:
    """Every launch of the kernels with this in their name takes so many times as long."""

    def change(folder: Path) -> None:
        (path,) = folder.glob("*.pt.trace.json")
        document: dict[str, Any] = json.loads(path.read_text())
        mine = [one for one in document["traceEvents"] if one.get("cat") == "kernel" and name in one["name"]]
        assert mine
        for event in mine:
            event["dur"] = round(event["dur"] * times, 3)
        path.write_text(json.dumps(document))

    return change


def _append(folder: Path, record: bytes) -> None:
    (log,) = folder.glob("dedicated_log_torch_trace_*.log")
    with log.open("ab") as file:
        file.write(record)
