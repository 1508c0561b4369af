"""Records of torch's compile log by kind, and the keys around what they say. Standard library only."""

from __future__ import annotations

from typing import Any

ARTIFACT = "artifact"  # its own name says what it is: torch_names/artifacts.py
CHROMIUM_EVENT = "chromium_event"  # marks of spans, and instants
FILE_NAME = "str"  # a file name by number
DYNAMO_START = "dynamo_start"
METRICS = "compilation_metrics"
BACKWARD_METRICS = "bwd_compilation_metrics"
# When the code first ran.
RUNTIME_METRICS = ("compilation_metrics_runtime", "bwd_compilation_metrics_runtime")
OUTPUT_CODE = "inductor_output_code"
DUMP = "graph_dump"  # a text of a name of its own
INFERENCE_GRAPH = "aot_inference_graph"
CUDAGRAPH_SKIP = "cudagraph_skip"  # not of torch: the recorder's own, see writer/recorder.py
SYMBOLS = ("create_symbol", "create_unbacked_symbol")
SPECIALIZATION = "symbolic_shape_specialization"
SHAPE_GUARDS = ("guard_added", "guard_added_fast")
SHAPE_KINDS = (*SYMBOLS, SPECIALIZATION, *SHAPE_GUARDS)
DESCRIBER = "describer_id"  # of what describes the inputs: one for each set of fake tensors
CHANGED_SHAPE = "automatic_dynamic"  # an instant: an input that changed between two calls was made dynamic
SUBGRAPH = "subgraph_name"
PAYLOAD_MD5 = "has_payload"
ID_FIELDS = ("compiled_autograd_id", "frame_id", "frame_compile_id")
_AROUND = "rank attempt stack severity timestamp pathname lineno thread process"
ENVELOPE = frozenset({*ID_FIELDS, SUBGRAPH, PAYLOAD_MD5, *_AROUND.split()})
# Kinds that torch 2.4 to 2.13 writes and that are understood, or kept for later. All others are unknown.
_KEPT = """dynamo_output_graph dynamo_cpp_guards_str dynamo_guards aot_joint_graph aot_forward_graph aot_backward_graph
    inductor_pre_grad_graph inductor_post_grad_graph inductor_input_graph optimize_ddp_split_graph
    optimize_ddp_split_child describe_storage describe_tensor describe_source link dump_file
    compiled_autograd_graph graph_dump expression_created propagate_real_tensors
    propagate_real_tensors_provenance mismatched_fake_kernel missing_fake_kernel guard_on_data_dependent_error
    export exported_program log_file_version put_local_code_state get_local_code_state put_remote_code_state
    get_remote_code_state get_extra_remote_code_state"""
KINDS = frozenset(
    {
        *(ARTIFACT, CHROMIUM_EVENT, FILE_NAME, DYNAMO_START, METRICS, BACKWARD_METRICS, *RUNTIME_METRICS),
        *(OUTPUT_CODE, INFERENCE_GRAPH, CUDAGRAPH_SKIP, *SHAPE_KINDS, *_KEPT.split()),
    }
)


def kind_of(metadata: dict[str, Any]) -> str:
    """The record key of an envelope ("chromium_event"), "" if there is none. Old logs carry explicit nulls."""
    for key, value in metadata.items():
        if value is not None and key not in ENVELOPE:
            return key
    return ""


def compile_id_of(metadata: dict[str, Any]) -> str:
    """The compile id in torch's spelling: "0/0", "!1/2/0" or "!1" under compiled autograd, "" if there is none."""
    autograd, frame = metadata.get("compiled_autograd_id"), metadata.get("frame_id")
    forward = "" if frame is None else f"{frame}/{metadata.get('frame_compile_id')}"
    if autograd is None:
        return forward
    return f"!{autograd}/{forward}" if forward else f"!{autograd}"
