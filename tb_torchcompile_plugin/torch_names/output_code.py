"""Inductor's output code and printed graphs, as text: what defines a kernel, calls one, and says where it is from.

The comments are no contract of torch: what is not there is not known. Standard library only: this runs inside training.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tb_torchcompile_plugin.torch_names.kernels import is_anonymous
from tb_torchcompile_plugin.torch_names.operators import ATEN

# In the comment above a kernel, and in its source.
TEXT_OPENS = re.compile(r"[rR]?('''|\"\"\")")
FUSED = re.compile(r"^# .*?Source Nodes: \[(.*?)\], Original ATen: \[(.*?)\]", re.MULTILINE)
FUSED_NODE = re.compile(r"^#\s+%(\w+) :(?!.*PlaceHolder\[)", re.MULTILINE)
_NUMBER = r":\s*([0-9.]+(?:e[+-]?\d+)?)"
NUM_GB = re.compile(r"'kernel_num_gb'" + _NUMBER)
FLOP = re.compile(r"'kernel_flop'" + _NUMBER)
WRITTEN_AT = re.compile(r"^# Original path: (.+):(\d+)$", re.MULTILINE)
HARNESS = re.compile(r"^def (get_args|call|benchmark_all_configs)\(", re.MULTILINE)
# Inductor's own benchmark of a kernel.
TUNING_SETTING = re.compile(r"('max_autotune(?:_pointwise)?': )(?:True|False)")
BENCHMARKED = re.compile(r"return (\w+)\.benchmark_all_configs\(")
# In a C++ kernel: a loop over vectors, and one that OpenMP's threads share.
VECTORS = re.compile(r"\bat::vec::")
PARALLEL = re.compile(r"#pragma omp parallel\b(?:.*\bnum_threads\((\d+)\))?")
# In the body: a call, and above it the nodes that it is of.
BODIES = ("\ndef call(", "\nclass Runner", "::run_impl(")
CALL = re.compile(
    r"^\s+(?:(?P<result>\w+) = )?(?:extern_kernels\.(?P<extern>\w+)|torch\.ops\.(?P<space>\w+)\.(?P<op>\w+)\.\w+"
    r"|(?P<kernel>\w+)\.run|(?:AOTI_TORCH_ERROR_CODE_CHECK\()?aoti_torch_(?:cpu|cuda|xpu)_(?P<shim>\w+)"
    r"|(?=.*;$)(?:call_)?(?P<cpp_kernel>(?:triton|cpp)_\w+))\((?P<arguments>.*)$"
)
CALLED = re.compile(r"^\s+(\w+)(?:\.run)?\(")
BUFFER = re.compile(r"\bbuf\d+\b")
CALL_NODES = re.compile(r"^\s+(?:#|//) .*?Source Nodes: \[(.*?)\](?:, Original ATen: \[(.*?)\])?")
# In a printed graph: a node, and above it the user's line.
NODE_PLACE = re.compile(r"^\s*# (?:Annotation: .*? )?File: (.+):(\d+) in (.*?), code: (.*)$")
NO_PLACE = re.compile(r"^\s*# (?:Annotation: .*? )?No stacktrace")
NODE = re.compile(r'^\s*(\w+)(?:: ".*?")? = ')
# Its inputs with their shapes, and words of its statements; what AOTAutograd calls the inputs of the graph before.
INPUT = re.compile(r'(?P<name>\w+): "(?P<shape>[^"\]]*\]?)[^"]*"')
WORD = re.compile(r"\w+")
PRIMAL = re.compile(r"\bprimals_(\d+)\b")
_STATE = re.compile(r"[lL]_(?P<root>\w+?)_(?:modules_(?P<path>\w+?)_)?(?:parameters|buffers)_\w+_")
_ROOTS = ("self", "fn")  # what torch calls the module that is compiled
_COMPILED = " = async_compile."
_DEFINITION = re.compile(
    r"(?P<variable>\w+) = async_compile\.(?P<language>\w+)\("
    r"(?:\s*'(?P<name>[^'\n]+)'|\s*\"(?P<name2>[^\"\n]+)\")?"
)
_AOT_ID = re.compile(r"# AOT ID: \['(?P<id>[^']*)'\]")
TRITON, CPP = "triton", "cpp"
_CPP_INCLUDE = "#include <torch/csrc/inductor/"  # at the head of each text in C++
# AOTInductor keeps the source of a Triton kernel in a comment.
_EMBEDDED = re.compile(r"/\*\s*async_compile\.(?P<language>\w+)\(\s*'(?P<name>\w+)',\s*(?=r?''')")
_CPP_KERNEL = re.compile(r'^extern "C"\s+void\s+(?P<name>(?:cpp|\w*_cpp)_fused\w*)\([^;{]*\{', re.MULTILINE)
_CPP_ENDS = "\n}\n"


class KernelDefinition(NamedTuple):
    """`variable = async_compile.triton('name', …` or a sister. language: inductor's. opened: behind the bracket."""

    name: str
    variable: str
    language: str
    start: int
    opened: int


def kernel_definitions(code: str) -> Iterator[KernelDefinition]:
    """Those at the beginning of a line, and those of a text in C++. Trying the pattern at each line would take seconds
    of a large log.

    A user's own kernel keeps its name in the call, and gets a number on the left side. Without unique names the call
    says `triton_` of all.
    """
    at = code.find(_COMPILED)
    while at >= 0:
        start = code.rfind("\n", 0, at) + 1
        if match := _DEFINITION.match(code, start):
            called = match["name"] or match["name2"]
            own = called and match["language"] == TRITON and not is_anonymous(called)
            name = called if own else match["variable"]
            yield KernelDefinition(
                name, match["variable"], match["language"], start, code.index("(", start) + 1
            )
        at = code.find(_COMPILED, at + 1)
    if is_cpp(code):
        yield from _in_cpp(code)


def is_cpp(code: str) -> bool:
    """Whether it is what AOTInductor writes, or inductor's wrapper in C++."""
    return _CPP_INCLUDE in code[:2000]


def _in_cpp(code: str) -> Iterator[KernelDefinition]:
    for match in _EMBEDDED.finditer(code):
        name = match["name"]
        yield KernelDefinition(name, name, match["language"], match.start(), match.end())
    for match in _CPP_KERNEL.finditer(code):
        yield KernelDefinition(match["name"], match["name"], CPP, match.start(), match.end())


def cpp_body(code: str, kernel: KernelDefinition) -> str:
    """The text of a function in C++, as it stands there."""
    end = code.find(_CPP_ENDS, kernel.opened)
    return code[kernel.start : end + len(_CPP_ENDS) if end >= 0 else len(code)]


def has_comment(call: re.Match[str]) -> bool:
    """Whether the comment above a call is its own: above a C++ kernel in C++ stands what an earlier call is of."""
    return not (call["cpp_kernel"] or "").startswith(CPP)


def called_kernel(call: re.Match[str]) -> str | None:
    """The variable of a generated kernel that is called."""
    return call["kernel"] or call["cpp_kernel"]


def state_path(name: str) -> str | None:
    """The path of the module whose parameter or buffer an input of a captured graph is, "" of the compiled one itself;
    None for other inputs. Of several modules that a function was given, the path begins with the variable."""
    match = _STATE.fullmatch(name)
    if match is None:
        return None
    path = (match["path"] or "").replace("_modules_", ".")
    return path if match["root"] in _ROOTS else f"{match['root']}.{path}".rstrip(".")


def is_backward_code(code: str) -> bool | None:
    """Whether output code belongs to a backward graph; None where its header does not say."""
    match = _AOT_ID.search(code, 0, 4096)
    return match["id"].endswith("_backward") if match else None


def called_operator(call: re.Match[str]) -> str | None:
    """The operator of a library call, `aten::mm`, as a trace names it."""
    if call["op"]:
        return f"{call['space']}::{call['op']}"
    if call["shim"]:
        return f"{ATEN}{call['shim'].removesuffix('_out')}"
    return f"{ATEN}{call['extern']}" if call["extern"] else None
