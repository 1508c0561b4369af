"""What torch says in prose: graph breaks, recompile reasons, generated code. Pure functions on text.

None of these texts is a contract upstream, so each function takes what it recognises and leaves the rest empty.
Shapes seen: torch 2.4 to 2.6 ("Reason: …") and 2.7 to 2.13 ("Graph Break Reason: …", hints, a docs link).
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field

from tb_torchcompile_plugin.kernel_names import category_of, is_anonymous
from tb_torchcompile_plugin.summary_pb2 import Frame, GeneratedKernel

_BREAK_AT = re.compile(r"Graph break in user code at (?P<file>.+):(?P<line>\d+)")
_REASON = re.compile(r"^(?:Graph Break )?Reason: (?P<reason>.*)$", re.MULTILINE)
_EXPLANATION = re.compile(
    r"^ *Explanation: (?P<text>.*?)(?=^ *Hint: |^ *Developer debug context:|^ *For more |^\S|\Z)", re.M | re.S
)
_HINT = re.compile(
    r"^ *Hint: (?P<text>.*?)(?=^ *Hint: |^ *Developer debug context:|^ *For more |^\S|\Z)", re.M | re.S
)
_DOCS = re.compile(r"please visit: (?P<url>https?://\S+)")
_STACK_HEADS = ("User code traceback:", "from user code:", "User Stack:")
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+), in (?P<function>.*)$')
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
    found = BreakText(reason=_reason_of(head), stack=parse_traceback(stack_text))
    if explanation := _EXPLANATION.search(head):
        found.explanation = _prose(explanation["text"])
    found.hints = [_prose(hint["text"]) for hint in _HINT.finditer(head)]
    if docs := _DOCS.search(head):
        found.docs_url = docs["url"]
    if place := _BREAK_AT.search(head):
        found.file, found.line = place["file"], int(place["line"])
    elif found.stack:
        found.file, found.line = found.stack[-1].file, found.stack[-1].line
    return found


def _prose(text: str) -> str:
    """The first paragraph on one line; what follows it (torch 2.13 quotes code there) keeps its lines."""
    first, _, rest = text.partition("\n\n")
    return "\n".join([" ".join(first.split()), textwrap.dedent(rest).strip()]).strip()


def _split_stack(text: str) -> tuple[str, str]:
    starts = [(text.find(head), head) for head in _STACK_HEADS if head in text]
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
    if match := _REASON.search(head):
        return match["reason"].strip()
    return next((line.strip() for line in lines if line.strip() and not _BREAK_AT.search(line)), "")


def _without_label(line: str) -> str:
    match = _REASON.match(line)
    return match["reason"].strip() if match else line


def parse_traceback(text: str) -> list[Frame]:
    """Frames of a formatted Python traceback, outermost first, up to the first line that belongs to none."""
    frames: list[Frame] = []
    for line in text.splitlines():
        match = _FRAME.match(line)
        if match:
            frames.append(Frame(file=match["file"], line=int(match["line"]), function=match["function"]))
        elif frames and line.startswith("    "):
            if not frames[-1].HasField("source") and line.strip().strip("^~"):
                frames[-1].source = line.strip()
        elif frames:
            break
    return frames


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


# A string in a guard, which may be cut off, or what is quoted but is a name: L['x'], and "tensor 'x' size mismatch".
_STRING = re.compile(
    r"(?P<name>\b[LG]\['\w+'\]|\btensor '|'(?= (?:dispatch|dtype|Tensor|requires_grad|rank|size|stride) ))"
    r"|'(?:\\.|[^'\\])*(?:'|\\?$)|\"(?:\\.|[^\"\\])*(?:\"|\\?$)"
)


def withhold_source(text: str) -> str:
    """A guard or a recompile reason without the user's code, which follows the `#`, or stands in a traceback, and
    without the strings that the code compares with or looks up. Names of variables stay."""
    guard = re.split(r"\s*#|\s*\bUser stack trace:|\n", text, maxsplit=1)[0]
    return _STRING.sub(lambda found: found["name"] or "'…'", guard)


def withhold_break_reason(found: BreakText) -> str:
    """The reason if it is one of torch's fixed names, which come with an explanation or a link; else a stand-in."""
    return found.reason if found.docs_url or found.explanation else f"Graph break ({WITHHELD})"


# `name = async_compile.triton('name', …` and its sisters. A user's own kernel keeps its name in the call, and gets
# a number on the left side. Without unique names the call says `triton_` of all.
_COMPILED = " = async_compile."
_DEFINITION = re.compile(
    r"(?P<variable>\w+) = async_compile\.(?P<kind>\w+)\((?:\s*'(?P<name>[^']+)'|\s*\"(?P<name2>[^\"]+)\")?"
)
_AOT_ID = re.compile(r"# AOT ID: \['(?P<id>[^']*)'\]")


def generated_kernels(code: str) -> list[GeneratedKernel]:
    """The kernels that inductor's output code defines, in order; calls into libraries are not among them."""
    kernels: dict[str, GeneratedKernel] = {}
    for match in _definitions(code):
        kind = match["kind"]
        quoted = match["name"] or match["name2"]
        own = kind == "triton" and quoted and not is_anonymous(quoted)
        name = quoted if own else match["variable"]
        kernels.setdefault(name, GeneratedKernel(name=name, category=_category(name, kind)))
    return list(kernels.values())


def _definitions(code: str) -> Iterator[re.Match[str]]:
    """Those at the beginning of a line. Trying the pattern at each line would take seconds of a large log."""
    at = code.find(_COMPILED)
    while at >= 0:
        if match := _DEFINITION.match(code, code.rfind("\n", 0, at) + 1):
            yield match
        at = code.find(_COMPILED, at + 1)


def _category(name: str, kind: str) -> str:
    if kind.startswith("cpp"):
        return "cpp"
    if kind == "triton" and not name.startswith("triton_"):
        return "triton_user"
    return category_of(name)


def is_backward_code(code: str) -> bool | None:
    """Whether output code belongs to a backward graph; None where its header does not say."""
    match = _AOT_ID.search(code, 0, 4096)
    return match["id"].endswith("_backward") if match else None
