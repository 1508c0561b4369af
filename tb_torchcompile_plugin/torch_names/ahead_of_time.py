"""AOTInductor and torch.export: what they write into torch's log, where torch gives no compile id, and into traces.

Their compilations get ids here, `aot/0` and `export/0`, in the order in which they began. Standard library only: this
runs inside training.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from tb_torchcompile_plugin.torch_names.artifacts import (
    AOT_GRAPHS,
    FIRST_GRAPH_TEXTS,
    GRAPH_STAGE,
    WRAPPER_CODE,
    stage_of,
)
from tb_torchcompile_plugin.torch_names.records import OUTPUT_CODE

AOT, EXPORT = "aot", "export"
STRICT_CAPTURE = "fullgraph_capture"  # dynamo's work in a strict export
FAILED_TRACE = "make_fx_fail_partial"  # the graph until tracing raised
EXPORTED_PROGRAM = "exported_program"
IssueKind = Literal[
    "missing fake kernel", "wrong fake kernel", "value of the example used", "value only the data tells"
]
# What draft export would have failed of.
ISSUES: dict[str, IssueKind] = {
    "missing_fake_kernel": "missing fake kernel",
    "mismatched_fake_kernel": "wrong fake kernel",
    "propagate_real_tensors": "value of the example used",
    "propagate_real_tensors_provenance": "value of the example used",
    "guard_on_data_dependent_error": "value only the data tells",
}
_TORCH_EXPORT = re.compile(r"(?:^|[\\/])torch[\\/]export[\\/]\w+\.py$")
_TORCH = re.compile(r"(?:^|[\\/])torch[\\/](?:_?[a-z]\w*[\\/])*\w+\.py$")
# One call of a package that was loaded, as the profiler's stacks name it.
_PACKAGE_CALL = re.compile(
    r"torch[\\/](?:export[\\/]pt2_archive|_inductor[\\/]package)[\\/]_?package\.py\(\d+\): __call__"
)


def is_ahead(compile_id: str) -> bool:
    """Whether torch gave it no id, because it was compiled ahead of time."""
    return compile_id.startswith((f"{AOT}/", f"{EXPORT}/"))


def is_export(compile_id: str) -> bool:
    """Whether it is the id of an export."""
    return compile_id.startswith(f"{EXPORT}/")


def is_package(compile_id: str) -> bool:
    """Whether it is the id of a package of AOTInductor."""
    return compile_id.startswith(f"{AOT}/")


def is_package_call(name: str) -> bool:
    """Whether a slice is one call of a compiled package."""
    return name == "inductor_wrapper_call" or _PACKAGE_CALL.fullmatch(name) is not None


def begins_graph(name: str) -> bool:
    """Whether a text is of a graph that inductor has not written code for."""
    return name in AOT_GRAPHS or name in FIRST_GRAPH_TEXTS


def follows_graph(name: str) -> bool:
    """Whether a text is of the graph that was written before it."""
    return stage_of(name) == GRAPH_STAGE


def is_draft(frame: dict[str, Any]) -> bool:
    """Whether a frame of a record's stack is draft export, which exports again and again until it can."""
    return frame.get("name") == "draft_export"


def is_code(name: str) -> bool:
    """Whether a text is the code of a graph."""
    return name == OUTPUT_CODE or name in WRAPPER_CODE


def export_call(files: Sequence[str]) -> int | None:
    """Of the files of a stack, outermost first: the place of torch.export, which the program calls there."""
    return next((place for place, file in enumerate(files) if _TORCH_EXPORT.search(file)), None)


def torch_call(files: Sequence[str]) -> int | None:
    """The place of the first function of torch's."""
    return next((place for place, file in enumerate(files) if _TORCH.search(file)), None)
