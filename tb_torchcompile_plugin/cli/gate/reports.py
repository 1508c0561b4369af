"""The verdict of a gate for a GitHub job summary, a merge request or a chat."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from xml.etree import ElementTree

from rich.console import Console

from tb_torchcompile_plugin.analysis.compare.gate import GateReport
from tb_torchcompile_plugin.analysis.compare.gate_judge import (
    GateCause,
    GateCondition,
    GateOutcome,
    bounds,
    in_unit,
)
from tb_torchcompile_plugin.analysis.compare.gate_metrics import METRICS, Measure, MeasuredRun
from tb_torchcompile_plugin.cli.text_table import Plain, Whole, table
from tb_torchcompile_plugin.errors import visible
from tb_torchcompile_plugin.logdir.filesystem import is_remote

# The verdict of a gate as text.


def print_gate(report: GateReport) -> None:
    """Print the verdict, each condition with its causes, and the numbers of both sides."""
    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 160)
    lines = [report.verdict, f"BASE: {', '.join(report.base)}", f"HEAD: {report.head}"]
    for line in [*lines, *report.notes, *([f"On {report.on}."] if report.on else [])]:
        console.print(Plain(line), soft_wrap=True)
    if report.outcome != "not_comparable":
        for difference in report.differences:
            console.print(Plain(f"Allowed: {difference}"), soft_wrap=True)
    console.print()
    for one in report.conditions:
        console.print(Plain(f"{one.outcome:8}{one.condition}"), soft_wrap=True)
        for line in (one.sentence, *map(in_a_line, one.causes)):
            console.print(Plain(f"        {line}"), soft_wrap=True)
    console.print(*[""][: len(report.conditions)])
    table(
        console,
        "numbers",
        report.figures,
        "label base head change",
        label=lambda row: Whole(row.label),
    )
    for why in dict.fromkeys(row.why_unknown for row in report.figures if row.why_unknown):
        names = ", ".join(row.metric for row in report.figures if row.why_unknown == why)
        console.print(Plain(f"Not known of {names}: {why}."), soft_wrap=True)


def in_a_line(cause: GateCause) -> str:
    """ "train/model.py:12: graph break: Call to print"."""
    return ": ".join(filter(None, (cause.where, cause.text)))


# HEAD's numbers in Bencher's metric format, for a chart over many commits.


def bmf(report: GateReport, head: MeasuredRun) -> str:
    """One benchmark; by metric ns, bytes or a count, with bounds where the steps tell them, without what is unknown."""
    values = {name: _value(one) for name, one in head.measures.items() if one.value is not None}
    return json.dumps({report.name or head.name: values}, indent=2) + "\n"


def _value(one: Measure) -> dict[str, float | None]:
    low, high = bounds(one.value or 0, one.samples) or (None, None)
    known = {"value": one.value, "lower_value": low, "upper_value": high}
    return {name: value for name, value in known.items() if value is not None}


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


# The verdict of a gate as JUnit's XML, which GitLab, Jenkins and others show: one test case a condition.


_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: GateReport) -> str:
    """A condition that holds is a failure, one that cannot be checked an error; without conditions there is one case:
    whether the runs can be compared."""
    name = _xml(report.name or report.head)
    suite = ElementTree.Element("testsuite", name=f"torch.compile: {name}")
    for one in report.conditions:
        _add(suite, one.condition, one.outcome, one.sentence, "\n".join(map(in_a_line, one.causes)))
    if not report.conditions:
        _add(
            suite, "comparable", "unknown" if report.outcome == "not_comparable" else "passed", report.verdict
        )
    for kind, count in (
        ("tests", "testcase"),
        ("failures", "testcase/failure"),
        ("errors", "testcase/error"),
    ):
        suite.set(kind, str(len(suite.findall(count))))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add(
    suite: ElementTree.Element, name: str, outcome: GateOutcome, sentence: str, causes: str = ""
) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname=suite.get("name", ""), name=_xml(name))
    if outcome in ("failed", "unknown"):
        kind = "failure" if outcome == "failed" else "error"
        ElementTree.SubElement(case, kind, message=_xml(sentence)).text = _xml(
            f"{sentence}\n{causes}".strip()
        )
    else:
        ElementTree.SubElement(case, "system-out").text = _xml(sentence)


def _xml(text: str) -> str:
    """Without the characters that XML cannot hold, escaped or not."""
    return _NO_XML.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
