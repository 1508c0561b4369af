"""Fields of torch's compilation metrics: what they are about, and which may quote the user's code.

Standard library only: this runs inside training.
"""

from __future__ import annotations

import re

# Dumps of settings.
CONFIG_FIELDS = ("dynamo_config", "inductor_config", "compiler_config", "functorch_config")
SUPPRESS_ERRORS = "config_suppress_errors"
# Of torch from 2.8 on; for older ones it is taken from the settings, where it had another name until torch 2.6.
RECOMPILE_LIMIT = "config_recompile_limit"
RECOMPILE_LIMIT_SET = re.compile(r'"(?:recompile_limit|cache_size_limit)": (\d+)')
CUDAGRAPH_SKIP_REASON = "cudagraph_skip_reason"
CUDAGRAPH_TIME = "runtime_cudagraphify_time_us"
# Lookups in remote caches, by how torch names the cache; each ends in _hit_count or _miss_count.
REMOTE_CACHES = {
    "inductor_fx_remote_cache": "FX graph cache (remote)",
    "aotautograd_remote_cache": "AOTAutograd cache (remote)",
}
# What a row of a compilation counts, by its own name and torch's.
COUNTS = (
    ("line", "co_firstlineno"),
    ("guards", "guard_count"),
    ("graph_ops", "graph_op_count"),
    ("graph_nodes", "graph_node_count"),
    ("graph_inputs", "graph_input_count"),
)
# How long a compilation took, in ns for each unit of the field; the first that is there.
FORWARD_DURATIONS = (
    ("entire_frame_compile_time_s", 1e9),
    ("dynamo_cumulative_compile_time_us", 1e3),
    ("duration_us", 1e3),
)
BACKWARD_DURATIONS = (
    ("backward_cumulative_compile_time_us", 1e3),
    ("duration_us", 1e3),
    ("inductor_compile_time_s", 1e9),
)
# Whose text quotes none of the user's code; numbers never do.
_SAFE = """compile_id frame_key co_name co_filename fail_type fail_user_frame_filename cuda_version triton_version
    python_version pytorch_version remote_cache_version inductor_fx_remote_cache_backend_type"""
SAFE_TEXTS = frozenset(_SAFE.split())
# Fields of torch 2.4 to 2.13, by what they are about.
GROUPS: dict[str, str] = {
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
    "cudagraphs": """cudagraph_skip_reason runtime_cudagraphify_time_us cuda_synchronize_time_us""",
    "settings": """config_suppress_errors config_recompile_limit config_inline_inbuilt_nn_modules dynamo_config
        inductor_config compiler_config functorch_config feature_usage
        inline_inbuilt_nn_modules_candidate inductor_provenance""",
    "versions": """pytorch_version python_version cuda_version triton_version log_format_version""",
}
