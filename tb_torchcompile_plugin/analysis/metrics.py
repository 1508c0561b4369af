"""Everything that torch wrote into its compilation metrics, grouped; fields that are new to us among them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tb_torchcompile_plugin.analysis.directions import Direction
from tb_torchcompile_plugin.summary_pb2 import BACKWARD, FORWARD, CompileKey, CompileSummary

# Fields of torch 2.4 to 2.13, by what they are about.
_GROUPS: dict[str, str] = {
    "identity": """compile_id frame_key co_name co_filename co_firstlineno is_forward is_runtime start_time
        start_time_us end_time_us stack_trace recompile_user_contexts""",
    "failure": """fail_type fail_reason fail_user_frame_filename fail_user_frame_lineno exception_stack_trace
        restart_reasons dynamo_time_before_restart_s dynamo_compile_time_before_restart_us""",
    "graph": """graph_op_count graph_node_count graph_input_count graph_node_shapes num_graph_breaks ir_count
        param_numel param_bytes param_count non_compliant_ops compliant_custom_ops has_guarded_code
        possibly_missed_reinplacing_opportunities""",
    "guards": """guard_count shape_env_guard_count guard_latency_us cache_size accumulated_cache_size recompile_reason
        specialize_float tensorify_float_attempt tensorify_float_success tensorify_float_failure""",
    "time": """duration_us entire_frame_compile_time_s backend_compile_time_s inductor_compile_time_s code_gen_time_s
        dynamo_cumulative_compile_time_us aot_autograd_cumulative_compile_time_us
        inductor_cumulative_compile_time_us inductor_code_gen_cumulative_compile_time_us
        backward_cumulative_compile_time_us triton_compile_time_us pre_grad_pass_time_us post_grad_pass_time_us
        joint_graph_pass_time_us gc_time_us distributed_ephemeral_timeout_us structured_logging_overhead_s
        structured_logging_overhead_us""",
    "autotune": """compile_time_autotune_time_us runtime_triton_autotune_time_us triton_kernel_compile_times_us""",
    "cache": """inductor_fx_local_cache_hit_count inductor_fx_local_cache_miss_count inductor_fx_remote_cache_hit_count
        inductor_fx_remote_cache_miss_count inductor_fx_remote_cache_backend_type inductor_fx_remote_cache_hit_keys
        inductor_fx_remote_cache_miss_keys aotautograd_local_cache_hit_count aotautograd_local_cache_miss_count
        aotautograd_remote_cache_hit_count aotautograd_remote_cache_miss_count remote_cache_time_saved_s
        remote_cache_version remote_fx_graph_cache_get_time_ms remote_fx_graph_cache_put_time_ms
        remote_fx_graph_cache_get_time_us remote_fx_graph_cache_put_time_us num_triton_bundles
        pgo_put_remote_code_state_time_us pgo_get_remote_code_state_time_us""",
    "cudagraphs": """cudagraph_skip_reason runtime_cudagraphify_time_us""",
    "settings": """config_suppress_errors config_recompile_limit config_inline_inbuilt_nn_modules dynamo_config
        inductor_config compiler_config functorch_config feature_usage
        inline_inbuilt_nn_modules_candidate inductor_provenance""",
    "versions": """pytorch_version python_version cuda_version triton_version log_format_version""",
}
_GROUP_OF = {name: group for group, names in _GROUPS.items() for name in names.split()}


class Metric(msgspec.Struct, frozen=True):
    """One field. `value` is JSON text. `known`: a field of a torch version that this was made for.

    runtime: written when the compiled code first ran, not while compiling. record: which record of its kind, from 0
    (DDP compiles several backwards for one compile id).
    """

    group: str
    name: str
    value: str
    known: bool
    direction: Direction
    runtime: bool
    record: int


def metrics(summary: CompileSummary, epoch: int, compile_id: str) -> list[Metric]:
    """All fields of all metrics records of one compile id that are not null, record by record, by group, then name."""
    wanted = CompileKey(epoch=epoch, compile_id=compile_id)
    rows: list[Metric] = []
    for runtime, messages in ((False, summary.compilations), (True, summary.runtime_metrics)):
        for code in (FORWARD, BACKWARD):
            mine = [row for row in messages if row.key == wanted and row.direction == code and row.metrics]
            for record, row in enumerate(mine):
                rows += _fields(row.metrics, "backward" if code == BACKWARD else "forward", runtime, record)
    return sorted(rows, key=lambda row: (row.direction == "backward", row.runtime, row.record))


def _fields(values: Mapping[str, str], direction: Direction, runtime: bool, record: int) -> list[Metric]:
    rows = [
        Metric(_GROUP_OF.get(name, "other"), name, value, name in _GROUP_OF, direction, runtime, record)
        for name, value in values.items()
    ]
    order = {group: place for place, group in enumerate(_GROUPS)}
    return sorted(rows, key=lambda row: (order.get(row.group, len(order)), row.name))
