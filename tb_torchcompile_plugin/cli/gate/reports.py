"""Write the verdict of a gate: as text, for a GitHub job summary, as JUnit's XML and in Bencher's metric format."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from xml.etree import ElementTree

from tb_torchcompile_plugin.analysis.compare.gate import GateReport
from tb_torchcompile_plugin.analysis.compare.gate_judge import (
    GateCause,
    GateCondition,
    GateOutcome,
    bounds,
    in_unit,
)
from tb_torchcompile_plugin.analysis.compare.gate_metrics import METRICS, Measure, MeasuredRun
from tb_torchcompile_plugin.cli.text_table import FullText, print_lines, stdout_console, table
from tb_torchcompile_plugin.errors import visible
from tb_torchcompile_plugin.logdir.filesystem import is_remote

MAX_BYTES = 1 << 20  # GitHub's limit for the summary of one step of a job
_CUT = "\n\nThis is cut off: it was longer than GitHub shows.\n"
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~$@-])")
_MARKS = {"passed": "✅", "failed": "❌", "unknown": "⚠️", "noise": "✅", "not_comparable": "⚠️"}
_WORDS = {"passed": "passed", "failed": "failed", "unknown": "not known", "noise": "passed: noise"}
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def print_gate(report: GateReport) -> None:
    """Print the verdict, each condition with its causes, and the numbers of both sides."""
    console = stdout_console(160)
    print_lines(console, report.verdict, f"BASE: {', '.join(report.base)}", f"HEAD: {report.head}")
    print_lines(console, *report.notes, *([f"On {report.on}."] if report.on else []))
    if report.outcome != "not_comparable":
        print_lines(console, *(f"Allowed: {difference}" for difference in report.differences))
    console.print()
    for row in report.conditions:
        print_lines(console, f"{row.outcome:8}{row.condition}")
        print_lines(console, row.sentence, *map(_in_a_line, row.causes), indent=" " * 8)
    console.print()
    columns = "label base head change"
    table(console, "numbers", report.figures, columns, label=lambda row: FullText(row.label))
    for why in dict.fromkeys(row.why_unknown for row in report.figures if row.why_unknown):
        names = ", ".join(row.metric for row in report.figures if row.why_unknown == why)
        print_lines(console, f"Not known of {names}: {why}.")


def _in_a_line(cause: GateCause) -> str:
    """Return such as "train/model.py:12: graph break: Call to print"."""
    return ": ".join(filter(None, (cause.where, cause.text)))


def bmf(report: GateReport, head: MeasuredRun) -> str:
    """Write HEAD's numbers in Bencher's metric format, for a chart over many commits.

    One benchmark; by metric ns, bytes or a count, with bounds where the steps give them, without what is unknown.
    """
    values = {name: _value(measure) for name, measure in head.measures.items() if measure.value is not None}
    return json.dumps({report.name or head.name: values}, indent=2) + "\n"


def _value(measure: Measure) -> dict[str, float | None]:
    low, high = bounds(measure.value or 0, measure.samples) or (None, None)
    fields = {"value": measure.value, "lower_value": low, "upper_value": high}
    return {name: value for name, value in fields.items() if value is not None}


def markdown(report: GateReport, paths: Sequence[str]) -> str:
    """Write a GitHub job summary, a merge request or a chat message.

    paths: of BASE and HEAD, as they were given.
    """
    text = "\n".join(_lines(report, paths)) + "\n\n"
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= MAX_BYTES:
        return text
    return data[: MAX_BYTES - len(_CUT)].decode("utf-8", "ignore") + _CUT


def _lines(report: GateReport, paths: Sequence[str]) -> Iterator[str]:
    yield f"### {_MARKS[report.outcome]} torch.compile: {escaped(report.name or report.head)}\n"
    yield f"**{escaped(report.verdict)}**\n"
    yield from (f"- {escaped(_in_a_line(cause))}" for cause in report.causes)
    if report.conditions:
        yield "\n" + _row(("Condition", "", "Base", "Head", "Noise", "What"))
        yield _row(("---", "---", "---:", "---:", "---:", "---"))
        yield from (_row(map(escaped, _cells(row))) for row in report.conditions)
    yield "\n<details><summary>All numbers</summary>\n"
    yield _row(("Metric", "Base", "Head", "Change"))
    yield _row(("---", "---:", "---:", "---:"))
    yield from (_row(map(escaped, (row.label, row.base, row.head, row.change))) for row in report.figures)
    yield "\n</details>\n"
    yield f"Base: {escaped(', '.join(report.base))}. Head: {escaped(report.head)}. {escaped(report.on)}\n"
    yield from (f"{escaped(note)}\n" for note in report.notes)
    yield "Reproduce it with\n"
    command = shlex.join(["tb-torchcompile", "compare", *map(_relative, paths), *report.options])
    yield from _fenced(visible(command))


def _cells(row: GateCondition) -> tuple[str, ...]:
    unit = METRICS[row.metric].unit
    noise = "" if row.noise is None else f"± {in_unit(unit, row.noise)}"
    outcome = f"{_MARKS[row.outcome]} {_WORDS[row.outcome]}"
    return row.condition, outcome, in_unit(unit, row.base), in_unit(unit, row.head), noise, row.sentence


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escaped(text: str) -> str:
    """Escape a text: no markup, no HTML, no second line."""
    one_line = " ".join(visible(text).split())
    plain = one_line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", plain)


def _relative(path: str) -> str:
    """Return the path relative to the working directory; of a path outside of it the file name alone."""
    if is_remote(path) or not os.path.isabs(path):
        return path
    relative = os.path.relpath(path)
    return os.path.basename(path) if relative.startswith(os.pardir) else relative


def _fenced(code: str) -> tuple[str, ...]:
    """Return the code between fences that nothing in it ends."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", code)), default=0))
    return f"{fence}sh", code.replace("\n", " "), fence


def junit(report: GateReport) -> str:
    """Write JUnit's XML, which GitLab, Jenkins and others show: one test case per condition.

    A condition that holds is a failure, one that cannot be checked an error; without conditions there is one case:
    whether the runs can be compared.
    """
    name = _xml(report.name or report.head)
    suite = ElementTree.Element("testsuite", name=f"torch.compile: {name}")
    for row in report.conditions:
        _add_case(suite, row.condition, row.outcome, row.sentence, "\n".join(map(_in_a_line, row.causes)))
    if not report.conditions:
        outcome: GateOutcome = "unknown" if report.outcome == "not_comparable" else "passed"
        _add_case(suite, "comparable", outcome, report.verdict)
    suite.set("tests", str(len(suite)))
    for kind, count in (("failures", "testcase/failure"), ("errors", "testcase/error")):
        suite.set(kind, str(len(suite.findall(count))))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add_case(
    suite: ElementTree.Element, name: str, outcome: GateOutcome, sentence: str, causes: str = ""
) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname=suite.get("name", ""), name=_xml(name))
    if outcome in ("failed", "unknown"):
        kind = "failure" if outcome == "failed" else "error"
        problem = ElementTree.SubElement(case, kind, message=_xml(sentence))
        problem.text = _xml(f"{sentence}\n{causes}".strip())
    else:
        ElementTree.SubElement(case, "system-out").text = _xml(sentence)


def _xml(text: str) -> str:
    """Return the text without the characters that XML does not allow, escaped or not."""
    return _NOT_XML.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
