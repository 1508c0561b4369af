"""Answers without any text of the user's program, of graphs and of generated code: numbers, names and places stay."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from tb_torchcompile_plugin.analysis.compile.compilation_details import DetailedFailure, Guard
from tb_torchcompile_plugin.analysis.compile.graph_breaks import GraphBreak, GraphBreakSite
from tb_torchcompile_plugin.analysis.runtime.kernels import KernelDetails
from tb_torchcompile_plugin.analysis.runtime.source import ProgramLine
from tb_torchcompile_plugin.generated_code.artifacts import Frame

LEFT_OUT = "left out of this file (--no-code)"
# What torch writes behind a guard, wherever that is told: the line that asked for it, and its stack.
_QUOTED = re.compile(r"\s{2,}# .*", re.DOTALL)


def _nothing(_: Any) -> None:
    return None


# Each field that holds a text of these, and what is left of it.
_FIELDS: dict[type[msgspec.Struct], dict[str, Callable[[Any], object]]] = {
    Frame: {"source": _nothing},
    ProgramLine: {"text": _nothing, "no_text": lambda why: why or f"The text is {LEFT_OUT}"},
    KernelDetails: {"source": _nothing, "graph": _nothing, "has_benchmark": lambda _: False},
    GraphBreak: {"source": _nothing},
    GraphBreakSite: {"source": _nothing},
    DetailedFailure: {"traceback": _nothing},
    Guard: {"user_line": _nothing},
}
# Routes whose answers are nothing else.
CODE_ROUTES = frozenset({"artifact", "code_kernels"})


def without_code(answer: Any) -> Any:
    """The same answer, those texts left out wherever they stand in it."""
    if isinstance(answer, str):
        return _QUOTED.sub("", answer)
    if isinstance(answer, list | tuple):
        return type(answer)(without_code(one) for one in answer)
    if isinstance(answer, dict):
        return {key: without_code(one) for key, one in answer.items()}
    if not isinstance(answer, msgspec.Struct):
        return answer
    left = _FIELDS.get(type(answer), {})
    fields = {name: without_code(getattr(answer, name)) for name in answer.__struct_fields__}
    changed = {name: left[name](value) if name in left else value for name, value in fields.items()}
    return msgspec.structs.replace(answer, **changed)
