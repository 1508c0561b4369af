"""What torch says in prose: graph breaks, recompile reasons, generated code.

None of these texts is a contract upstream, so each function takes what it recognises and leaves the rest empty.
Shapes seen: torch 2.4 to 2.6 ("Reason: …") and 2.7 to 2.13 ("Graph Break Reason: …", hints, a docs link). Standard
library and protobuf only.
"""

from __future__ import annotations

import contextlib
import json
import re
import textwrap

from tb_torchcompile_plugin.compile_log.summary_pb2 import Frame, GeneratedKernel, GraphBreak
from tb_torchcompile_plugin.torch_names import graph_breaks
from tb_torchcompile_plugin.torch_names.artifacts import CPP, TRITON, kernel_definitions
from tb_torchcompile_plugin.torch_names.graph_breaks import STRING
from tb_torchcompile_plugin.torch_names.kernels import Category, category_of, is_generated_name
from tb_torchcompile_plugin.torch_names.python_frames import first_traceback, traceback_frames

# In place of a text that was left out on purpose.
WITHHELD = 'not stored: capture="summary"'


def parse_graph_break(text: str) -> GraphBreak:
    """Parse the text of a `dynamo_graph_break_reason` record, or a key of the `graph_break` counters.

    Fields are empty where torch does not say.
    """
    stacks = [(text.find(head), head) for head in graph_breaks.STACK_HEADS if head in text]
    start, title = min(stacks, default=(len(text), ""))
    head = text[:start]
    parsed = GraphBreak(reason=_reason_of(head), stack=parse_traceback(text[start + len(title) :]))
    if explanation := graph_breaks.EXPLANATION.search(head):
        parsed.explanation = _prose(explanation["text"])
    parsed.hints.extend(_prose(hint["text"]) for hint in graph_breaks.HINT.finditer(head))
    if docs := graph_breaks.DOCS.search(head):
        parsed.docs_url = docs["url"]
    if place := graph_breaks.BREAK_AT.search(head):
        parsed.file, parsed.line = place["file"], int(place["line"])
    elif parsed.stack:
        parsed.file, parsed.line = parsed.stack[-1].file, parsed.stack[-1].line
    return parsed


def _prose(text: str) -> str:
    """Return the first paragraph on one line; what follows it (torch 2.13 quotes code there) keeps its lines."""
    first, _, rest = text.partition("\n\n")
    return "\n".join([" ".join(first.split()), textwrap.dedent(rest).strip()]).strip()


def _reason_of(head: str) -> str:
    """Return one line: the one above "Explanation:" is torch's own name of the break; the first may be a preamble."""
    lines = head.splitlines()
    for above, line in zip(["", *lines], lines, strict=False):
        if line.lstrip().startswith("Explanation:") and above.strip():
            labelled = graph_breaks.REASON.match(above.strip())
            return labelled["reason"].strip() if labelled else above.strip()
    if match := graph_breaks.REASON.search(head):
        return match["reason"].strip()
    return next(
        (line.strip() for line in lines if line.strip() and not graph_breaks.BREAK_AT.search(line)), ""
    )


def parse_traceback(text: str) -> list[Frame]:
    """Return the frames of a Python traceback, outermost first, up to the first line that belongs to none."""
    return [
        Frame(file=frame.file, line=frame.line, function=frame.function, source=frame.source or None)
        for frame in traceback_frames(first_traceback(text))
    ]


def parse_recompile_reasons(payload: str) -> list[str]:
    """Return the reasons of a `recompile_reasons` record: a JSON list, or a bare string if there is only one."""
    text = payload.strip()
    reasons = [text] if text else []
    if text.startswith(("[", '"')):
        with contextlib.suppress(ValueError):
            decoded = json.loads(text)
            reasons = decoded if isinstance(decoded, list) else [decoded]
    return [str(reason).strip() for reason in reasons]


def withhold_source(text: str) -> str:
    """Return a guard or a recompile reason without the user's code; names of variables stay.

    The code follows the `#`, or is in a traceback; strings that the code compares with or looks up are left out, too.
    """
    guard = re.split(r"\s*#|\s*\bUser stack trace:|\n", text, maxsplit=1)[0]
    return STRING.sub(lambda match: match["name"] or "'…'", guard)


def generated_kernels(code: str) -> list[GeneratedKernel]:
    """Return the kernels that inductor's output code defines, in order; calls into libraries are not among them."""
    kernels: dict[str, GeneratedKernel] = {}
    for kernel in kernel_definitions(code):
        category: Category = category_of(kernel.name)
        if kernel.language.startswith(CPP):
            category = "cpp"
        elif kernel.language == TRITON and not is_generated_name(kernel.name):
            category = "triton_user"
        kernels.setdefault(kernel.name, GeneratedKernel(name=kernel.name, category=category))
    return list(kernels.values())
