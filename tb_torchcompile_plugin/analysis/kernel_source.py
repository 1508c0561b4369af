"""Which kernels does an output code define, and what does it say of each?

Inductor writes `NAME = async_compile.triton('NAME', '''source''')`, and above it a comment that names the operators and
the nodes of the graph that were fused. The comments are no contract of torch: what is not there is not known.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tb_torchcompile_plugin.kernel_names import is_anonymous

_DEFINITION = re.compile(r"^(\w+) = async_compile\.(\w+)\(", re.MULTILINE)
_QUOTED = re.compile(r"\s*(?:'([^'\n]+)'|\"([^\"\n]+)\"),")
_SOURCE = re.compile(r"[rR]?('''|\"\"\")")
_ORIGINAL = re.compile(r"^# .*?Source Nodes: \[(.*?)\], Original ATen: \[(.*?)\]", re.MULTILINE)
_NODE = re.compile(r"^#\s+%(\w+) :(?!.*PlaceHolder\[)", re.MULTILINE)
_NUMBER = r":\s*([0-9.]+(?:e[+-]?\d+)?)"
_NUM_GB = re.compile(r"'kernel_num_gb'" + _NUMBER)
_FLOP = re.compile(r"'kernel_flop'" + _NUMBER)
_PATH = re.compile(r"^# Original path: (.+):(\d+)$", re.MULTILINE)
_HARNESS = re.compile(r"^def (get_args|call|benchmark_all_configs)\(", re.MULTILINE)


@dataclass(frozen=True)
class Definition:
    """One kernel of an output code.

    name: what the GPU calls it, or would with unique names. language: inductor's word for what compiles it ("triton",
    "cpp_pybinding", …). line: of the definition, from 1. aten_ops: "aten.relu". source_nodes: of the user's graph;
    nodes: of the graph after post-grad passes. path: file and line of a kernel that the user wrote. num_gb, flop: what
    inductor computed for one launch; None where it was not asked to.
    """

    name: str
    language: str
    line: int
    source: str
    aten_ops: list[str] = field(default_factory=list)
    source_nodes: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    path: tuple[str, int] | None = None
    num_gb: float | None = None
    flop: float | None = None

    @property
    def has_benchmark(self) -> bool:
        """Whether inductor wrote its own benchmark beside the kernel: TORCHINDUCTOR_BENCHMARK_KERNEL=1."""
        return len(set(_HARNESS.findall(self.source))) == 3


def definitions(code: str) -> dict[str, Definition]:
    """The kernels that an output code defines, by name, in order. Of a name that is defined twice the first counts."""
    found: dict[str, Definition] = {}
    for match in _DEFINITION.finditer(code):
        if match[2] != "wait":
            definition = _definition(code, match)
            found.setdefault(definition.name, definition)
    return found


@dataclass(frozen=True)
class Call:
    """One call in the body of an output code.

    operator: "aten::mm" of a library call, else None. kernel: the variable of a generated kernel. source_nodes: from
    the comment above it. buffers: names among its arguments and results.
    """

    operator: str | None
    kernel: str | None
    source_nodes: list[str]
    buffers: frozenset[str]


_CALL = re.compile(
    r"^\s+(?:(?P<result>\w+) = )?(?:extern_kernels\.(?P<extern>\w+)|torch\.ops\.(?P<space>\w+)\.(?P<op>\w+)\.\w+"
    r"|(?P<kernel>\w+)\.run)\((?P<arguments>.*)$"
)
_BUFFER = re.compile(r"\bbuf\d+\b")
_INDENTED = re.compile(r"^\s+# .*?Source Nodes: \[(.*?)\]")


def calls(code: str) -> list[Call]:
    """The calls of kernels and of libraries in the body of an output code, in order."""
    found: list[Call] = []
    nodes: list[str] = []
    body = max(code.rfind("\ndef call("), code.rfind("\nclass Runner"), 0)
    for line in code[body:].splitlines():
        comment = _INDENTED.match(line)
        if comment:
            nodes = _listed(comment[1])
        elif match := _CALL.match(line):
            operator = f"aten::{match['extern']}" if match["extern"] else None
            operator = f"{match['space']}::{match['op']}" if match["op"] else operator
            found.append(Call(operator, match["kernel"], nodes, frozenset(_BUFFER.findall(line))))
    return found


def _definition(code: str, match: re.Match[str]) -> Definition:
    language = match[2]
    quoted = _QUOTED.match(code, match.end())
    called = (quoted[1] or quoted[2]) if quoted and language == "triton" else ""
    name = called if called and not is_anonymous(called) else match[1]
    source = _source(code, match)
    comment = "\n".join(reversed(list(_comment_above(code, match.start()))))
    original = _ORIGINAL.search(comment)
    return Definition(
        name=name,
        language=language,
        line=code.count("\n", 0, match.start()) + 1,
        source=source,
        aten_ops=_listed(original[2]) if original else [],
        source_nodes=_listed(original[1]) if original else [],
        nodes=list(dict.fromkeys(_NODE.findall(comment))),
        path=(path[1], int(path[2])) if (path := _PATH.search(comment)) else None,
        num_gb=_number(_NUM_GB, source),
        flop=_number(_FLOP, source),
    )


def _source(code: str, match: re.Match[str]) -> str:
    """The text between the quotes; of a definition without a text, its own line."""
    line_end = code.find("\n", match.end())
    line_end = len(code) if line_end < 0 else line_end
    opening = _SOURCE.search(code, match.end(), line_end)
    closing = code.find(opening[1], opening.end()) if opening else -1
    if not opening or closing < 0:
        return code[match.start() : line_end]
    try:
        text = ast.literal_eval(code[opening.start() : closing + 3])
    except (SyntaxError, ValueError):
        text = code[opening.end() : closing]
    return str(text).strip("\n") + "\n"


def _comment_above(code: str, end: int) -> Iterator[str]:
    """The lines of the comment that ends there, last one first."""
    while end > 0:
        start = code.rfind("\n", 0, end - 1) + 1
        line = code[start : end - 1]
        if not line.startswith("#"):
            return
        yield line
        end = start


def _listed(text: str) -> list[str]:
    return [part for part in (item.strip() for item in text.split(",")) if part]


def _number(pattern: re.Pattern[str], source: str) -> float | None:
    found = pattern.search(source)
    return float(found[1]) if found else None
