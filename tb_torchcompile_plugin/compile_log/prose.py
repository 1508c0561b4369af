"""What torch says in prose: graph breaks, recompile reasons, generated code. Pure functions on text.

None of these texts is a contract upstream, so each function takes what it recognises and leaves the rest empty.
Shapes seen: torch 2.4 to 2.6 ("Reason: …") and 2.7 to 2.13 ("Graph Break Reason: …", hints, a docs link).
"""

from __future__ import annotations

import json
import re
import textwrap
from dataclasses import dataclass, field
from typing import Any

from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileKey, Frame, GeneratedKernel, ShapeEvent
from tb_torchcompile_plugin.torch_names import graph_breaks
from tb_torchcompile_plugin.torch_names.artifacts import CPP, TRITON, kernel_definitions
from tb_torchcompile_plugin.torch_names.graph_breaks import STRING
from tb_torchcompile_plugin.torch_names.kernels import Category, category_of, is_generated_name
from tb_torchcompile_plugin.torch_names.python_frames import first_traceback, places
from tb_torchcompile_plugin.torch_names.records import CHANGED_SHAPE

# What stands where the text was left out on purpose.
WITHHELD = 'not stored: capture="summary"'


@dataclass
class BreakText:
    """One graph break as torch describes it; empty where it does not say."""

    reason: str = ""
    explanation: str = ""
    hints: list[str] = field(default_factory=list)
    docs_url: str = ""
    file: str = ""
    line: int | None = None
    stack: list[Frame] = field(default_factory=list)


def parse_graph_break(text: str) -> BreakText:
    """The text of a `dynamo_graph_break_reason` record, or a key of the `graph_break` counters."""
    head, stack_text = _split_stack(text)
    parsed = BreakText(reason=_reason_of(head), stack=parse_traceback(stack_text))
    if explanation := graph_breaks.EXPLANATION.search(head):
        parsed.explanation = _prose(explanation["text"])
    parsed.hints = [_prose(hint["text"]) for hint in graph_breaks.HINT.finditer(head)]
    if docs := graph_breaks.DOCS.search(head):
        parsed.docs_url = docs["url"]
    if place := graph_breaks.BREAK_AT.search(head):
        parsed.file, parsed.line = place["file"], int(place["line"])
    elif parsed.stack:
        parsed.file, parsed.line = parsed.stack[-1].file, parsed.stack[-1].line
    return parsed


def _prose(text: str) -> str:
    """The first paragraph on one line; what follows it (torch 2.13 quotes code there) keeps its lines."""
    first, _, rest = text.partition("\n\n")
    return "\n".join([" ".join(first.split()), textwrap.dedent(rest).strip()]).strip()


def _split_stack(text: str) -> tuple[str, str]:
    starts = [(text.find(head), head) for head in graph_breaks.STACK_HEADS if head in text]
    if not starts:
        return text, ""
    start, head = min(starts)
    return text[:start], text[start + len(head) :]


def _reason_of(head: str) -> str:
    """One line. The line above "Explanation:" is torch's own name of the break; the first one may be a preamble."""
    lines = head.splitlines()
    for above, line in zip(["", *lines], lines, strict=False):
        if line.lstrip().startswith("Explanation:") and above.strip():
            return _without_label(above.strip())
    if match := graph_breaks.REASON.search(head):
        return match["reason"].strip()
    return next(
        (line.strip() for line in lines if line.strip() and not graph_breaks.BREAK_AT.search(line)), ""
    )


def _without_label(line: str) -> str:
    match = graph_breaks.REASON.match(line)
    return match["reason"].strip() if match else line


def parse_traceback(text: str) -> list[Frame]:
    """Frames of a formatted Python traceback, outermost first, up to the first line that belongs to none."""
    return [
        Frame(file=place.file, line=place.line, function=place.function, source=place.source or None)
        for place in places(first_traceback(text))
    ]


def parse_recompile_reasons(payload: str) -> list[str]:
    """The reasons of a `recompile_reasons` record: a JSON list, or a bare string where there is only one."""
    text = payload.strip()
    if text[:1] in ("[", '"'):
        try:
            decoded = json.loads(text)
        except ValueError:
            pass
        else:
            return [str(reason).strip() for reason in (decoded if isinstance(decoded, list) else [decoded])]
    return [text] if text else []


def withhold_source(text: str) -> str:
    """A guard or a recompile reason without the user's code, which follows the `#`, or stands in a traceback, and
    without the strings that the code compares with or looks up. Names of variables stay."""
    guard = re.split(r"\s*#|\s*\bUser stack trace:|\n", text, maxsplit=1)[0]
    return STRING.sub(lambda match: match["name"] or "'…'", guard)


def withhold_break_reason(parsed: BreakText) -> str:
    """The reason if it is one of torch's fixed names, which come with an explanation or a link; else a stand-in."""
    return parsed.reason if parsed.docs_url or parsed.explanation else f"Graph break ({WITHHELD})"


def generated_kernels(code: str) -> list[GeneratedKernel]:
    """The kernels that inductor's output code defines, in order; calls into libraries are not among them."""
    kernels: dict[str, GeneratedKernel] = {}
    for kernel in kernel_definitions(code):
        category = _category(kernel.name, kernel.language)
        kernels.setdefault(kernel.name, GeneratedKernel(name=kernel.name, category=category))
    return list(kernels.values())


def _category(name: str, language: str) -> Category:
    if language.startswith(CPP):
        return "cpp"
    if language == TRITON and not is_generated_name(name):
        return "triton_user"
    return category_of(name)


# What torch decides about symbolic shapes, record by record. Standard library and protobuf only.


def shape_event(
    kind: str, details: dict[str, Any], key: CompileKey, attempt: int, stack: list[Frame], *, source: bool
) -> ShapeEvent:
    """A record of one of SHAPE_KINDS. stack: of the user's code. source: keep what names the user's variables."""
    row = ShapeEvent(key=key, attempt=attempt, kind=kind, stack=stack)
    row.symbol = _text(details.get("symbol") or details.get("expr"))
    row.value = _text(details.get("val") or details.get("value"))
    row.range = _text(details.get("vr"))
    if source:
        sources = details.get("source") or details.get("sources")
        row.source = ", ".join(map(str, sources)) if isinstance(sources, list) else _text(sources)
        row.reason = _text(details.get("reason"))
    return row


def change_event(details: dict[str, Any], key: CompileKey, attempt: int, *, source: bool) -> ShapeEvent:
    """An `automatic_dynamic` instant: an input that changed between two calls, so torch made it dynamic.

    `value` is what it is now, `range` what it was before.
    """
    row = ShapeEvent(key=key, attempt=attempt, kind=CHANGED_SHAPE, reason=_text(details.get("reason")))
    row.value, row.range = _text(details.get("new")), _text(details.get("cached"))
    if source:
        row.source = _text(details.get("name"))
    return row


def _text(value: object) -> str:
    return "" if value is None else str(value)
