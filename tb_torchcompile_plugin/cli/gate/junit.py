"""The verdict of a gate as JUnit's XML, which GitLab, Jenkins and others show: one test case a condition."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from tb_torchcompile_plugin.analysis.compare.gate import GateReport
from tb_torchcompile_plugin.analysis.compare.gate_judge import GateOutcome
from tb_torchcompile_plugin.cli.gate.text import in_a_line

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
