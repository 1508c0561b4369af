"""The verdict of a gate for a GitHub job summary, a merge request or a chat."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence

from tb_torchcompile_plugin.analysis.compare.gate import GateReport
from tb_torchcompile_plugin.analysis.compare.gate_judge import GateCondition, in_unit
from tb_torchcompile_plugin.analysis.compare.gate_metrics import METRICS
from tb_torchcompile_plugin.cli.gate.text import in_a_line
from tb_torchcompile_plugin.errors import visible
from tb_torchcompile_plugin.logdir.filesystem import is_remote

MOST_BYTES = 1 << 20  # that GitHub shows of a step
_CUT = "\n\nThis is cut off: it was longer than GitHub shows.\n"
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~$@-])")
_MARKS = {"passed": "✅", "failed": "❌", "unknown": "⚠️", "noise": "✅", "not_comparable": "⚠️"}
_WORDS = {"passed": "passed", "failed": "failed", "unknown": "not known", "noise": "passed: noise"}


def markdown(report: GateReport, paths: Sequence[str]) -> str:
    """paths: of BASE and HEAD, as they were given. At most what GitHub shows."""
    text = "\n".join(_lines(report, paths)) + "\n\n"
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= MOST_BYTES:
        return text
    return data[: MOST_BYTES - len(_CUT)].decode("utf-8", "ignore") + _CUT


def _lines(report: GateReport, paths: Sequence[str]) -> Iterator[str]:
    yield f"### {_MARKS[report.outcome]} torch.compile: {escaped(report.name or report.head)}\n"
    yield f"**{escaped(report.verdict)}**\n"
    yield from (f"- {escaped(in_a_line(cause))}" for cause in report.causes)
    if report.conditions:
        yield "\n" + _row(("Condition", "", "Base", "Head", "Noise", "What"))
        yield _row(("---", "---", "---:", "---:", "---:", "---"))
        yield from (_row(map(escaped, _cells(one))) for one in report.conditions)
    yield "\n<details><summary>All numbers</summary>\n"
    yield _row(("Metric", "Base", "Head", "Change"))
    yield _row(("---", "---:", "---:", "---:"))
    yield from (_row(map(escaped, (one.label, one.base, one.head, one.change))) for one in report.figures)
    yield "\n</details>\n"
    yield f"Base: {escaped(', '.join(report.base))}. Head: {escaped(report.head)}. {escaped(report.on)}\n"
    yield from (f"{escaped(note)}\n" for note in report.notes)
    yield "Reproduce it with\n"
    yield from _fenced(_command(report, paths))


def _cells(one: GateCondition) -> tuple[str, ...]:
    unit = METRICS[one.metric].unit
    noise = "" if one.noise is None else f"± {in_unit(unit, one.noise)}"
    outcome = f"{_MARKS[one.outcome]} {_WORDS[one.outcome]}"
    return one.condition, outcome, in_unit(unit, one.base), in_unit(unit, one.head), noise, one.sentence


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escaped(text: str) -> str:
    """As text, whatever stands in it: no markup, no HTML, no second line."""
    one_line = " ".join(visible(text).split())
    plain = one_line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", plain)


def _command(report: GateReport, paths: Sequence[str]) -> str:
    return visible(shlex.join(["tb-torchcompile", "compare", *map(_near, paths), *report.options]))


def _near(path: str) -> str:
    """Seen from here; of a path that leads elsewhere its end alone."""
    if is_remote(path) or not os.path.isabs(path):
        return path
    here = os.path.relpath(path)
    return os.path.basename(path) if here.startswith(os.pardir) else here


def _fenced(code: str) -> tuple[str, ...]:
    """In a fence that nothing in it ends."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", code)), default=0))
    return f"{fence}sh", code.replace("\n", " "), fence
