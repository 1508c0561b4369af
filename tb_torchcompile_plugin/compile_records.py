"""One compile record, and how to tell its kind and its compilation. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ENVELOPE = frozenset(
    {
        "rank",
        "compiled_autograd_id",
        "frame_id",
        "frame_compile_id",
        "attempt",
        "subgraph_name",
        "stack",
        "has_payload",
        "severity",
        "timestamp",
        "pathname",
        "lineno",
        "thread",
        "process",
    }
)
# Kinds that torch 2.4 to 2.13 writes and that this module understands or keeps for later. All others are unknown.
KINDS = frozenset(
    {
        "artifact",
        "chromium_event",
        "str",
        "dynamo_start",
        "dynamo_output_graph",
        "dynamo_cpp_guards_str",
        "dynamo_guards",
        "aot_joint_graph",
        "aot_forward_graph",
        "aot_backward_graph",
        "aot_inference_graph",
        "inductor_pre_grad_graph",
        "inductor_post_grad_graph",
        "inductor_output_code",
        "inductor_input_graph",
        "compilation_metrics",
        "bwd_compilation_metrics",
        "compilation_metrics_runtime",
        "bwd_compilation_metrics_runtime",
        "create_symbol",
        "create_unbacked_symbol",
        "symbolic_shape_specialization",
        "guard_added",
        "guard_added_fast",
        "optimize_ddp_split_graph",
        "optimize_ddp_split_child",
        "describe_storage",
        "describe_tensor",
        "describe_source",
        "link",
        "dump_file",
        "compiled_autograd_graph",
        "graph_dump",
        "expression_created",
        "propagate_real_tensors",
        "propagate_real_tensors_provenance",
        "mismatched_fake_kernel",
        "missing_fake_kernel",
        "guard_on_data_dependent_error",
        "export",
        "exported_program",
        "log_file_version",
        "put_local_code_state",
        "get_local_code_state",
        "put_remote_code_state",
        "get_remote_code_state",
        "get_extra_remote_code_state",
        "cudagraph_skip",  # not of torch: the recorder's own, see writer/recorder.py
    }
)


@dataclass(slots=True)
class Record:
    """One record. thread: the Python thread id, 0 where unknown (a log does not tell).

    damaged: its payload is known to be incomplete, and has been counted as such.
    place: (offset, bytes) of a record of a log, in its content; the text of its payload need not be stored then."""

    metadata: dict[str, Any]
    payload: str | None = None
    thread: int = 0
    damaged: bool = False
    place: tuple[int, int] | None = None


def kind_of(metadata: dict[str, Any]) -> str:
    """The record key of an envelope ("chromium_event"), "" if there is none. Old logs carry explicit nulls."""
    for key, value in metadata.items():
        if value is not None and key not in ENVELOPE:
            return key
    return ""


def compile_id_of(metadata: dict[str, Any]) -> str:
    """The compile id in torch's spelling: "0/0", "!1/2/0" or "!1" under compiled autograd, "" if there is none."""
    autograd, frame = metadata.get("compiled_autograd_id"), metadata.get("frame_id")
    told = "" if frame is None else f"{frame}/{metadata.get('frame_compile_id')}"
    if autograd is None:
        return told
    return f"!{autograd}/{told}" if told else f"!{autograd}"


def nanoseconds(microseconds: float) -> int:
    """Epoch µs of a chromium event → ns. Multiplying the double as a whole would lose 256 ns."""
    whole = int(microseconds)
    time_ns = whole * 1000 + round((microseconds - whole) * 1000)
    if abs(time_ns) >= 1 << 63:
        raise ValueError("no time: it does not fit into 64 bits")
    return time_ns
