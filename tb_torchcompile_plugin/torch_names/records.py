"""Records of torch's compile log: their kinds and keys, the fields of metrics, and timed functions by phase.

Both the compile log and traces name timed functions. Standard library only: this runs inside training.
"""

import re
from typing import Any, Literal, get_args

from tb_torchcompile_plugin.torch_names.patterns import contains, without

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
    """Return the record key of an envelope ("chromium_event"), "" if there is none. Old logs have explicit nulls."""
    for key, value in metadata.items():
        if value is not None and key not in ENVELOPE:
            return key
    return ""


def compile_id_of(metadata: dict[str, Any]) -> str:
    """Return torch's compile id: "0/0", under compiled autograd "!1/2/0" or "!1", "" if there is none."""
    autograd, frame = metadata.get("compiled_autograd_id"), metadata.get("frame_id")
    forward = "" if frame is None else f"{frame}/{metadata.get('frame_compile_id')}"
    if autograd is None:
        return forward
    return f"!{autograd}/{forward}" if forward else f"!{autograd}"


# Fields of torch's compilation metrics.
# Dumps of settings.
CONFIG_FIELDS = ("dynamo_config", "inductor_config", "compiler_config", "functorch_config")
SUPPRESS_ERRORS = "config_suppress_errors"
# Of torch from 2.8 on; for older ones it is taken from the settings, where it had another name until torch 2.6.
RECOMPILE_LIMIT = "config_recompile_limit"
RECOMPILE_LIMIT_SET = re.compile(r'"(?:recompile_limit|cache_size_limit)": (\d+)')
# Not of torch: what the recorder adds to DYNAMO_START, and keeps among the metrics. The class of the module whose call
# is compiled, and how many modules of this class its model has.
MODULE_CLASS, MODULE_COUNT = "module_class", "module_count"
COMPILE_WORKERS = "torch._inductor.async_compile"  # the module that knows their jobs
CUDAGRAPH_SKIP_REASON = "cudagraph_skip_reason"
CUDAGRAPH_TIME = "runtime_cudagraphify_time_us"
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

# Timed functions of torch's compiler, and the phase of a compilation that each belongs to.
Phase = Literal["dynamo", "aot_autograd", "inductor", "triton", "autotune", "cache", "other"]
PHASES: tuple[Phase, ...] = get_args(Phase)

# The whole compilation of a frame, and of a backward that is compiled when it first runs. torch 2.4 and 2.5 used
# the function names; traces until torch 2.10 still do.
FRAME_ROOTS = frozenset({"entire_frame_compile", "_compile.compile_inner"})
BACKWARD_ROOTS = frozenset({"entire_backward_compile", "backward._backward_impl"})
AOT_ROOTS = frozenset({"compile_fx_aot"})  # of a package, where torch gives no compile id
COMPILATIONS = FRAME_ROOTS | BACKWARD_ROOTS | AOT_ROOTS
# A backward may also be compiled inside its frame.
COMPILING_BACKWARD = BACKWARD_ROOTS | {"compile_fx.<locals>.bw_compiler"}
DYNAMO = "dynamo"  # the first mark of a frame's compilation
COMPILE_FILE = "compile_file"  # of Triton or C++, in a worker process
# Calls of the backend: AOTAutograd's own time if it runs inside, any other backend's otherwise.
BACKEND_CALLS = frozenset({"backend_compile", "OutputGraph.call_user_compiler"})
# What is skipped where AOTAutograd's cache hits, but for a backward that is compiled later; and where inductor's does.
AOT_COMPILE = "create_aot_dispatcher_function"
FX_COMPILES = frozenset({"fx_codegen_and_compile", "compile_fx_inner"})
AUTOTUNER = "CachingAutotuner."  # tunes a Triton kernel

# Functions by phase; a `*` stands for any ending.
_FUNCTIONS: dict[Phase, str] = {
    "dynamo": f"""{" ".join(FRAME_ROOTS)} bytecode_tracing build_guards insert_deferred_runtime_asserts
        fullgraph_capture guard_collective compiler_collective get_fake_value TranslationValidator.validate
        compile_attempt_* bytecode_hooks* precompile_*""",
    "aot_autograd": f"""{" ".join(BACKWARD_ROOTS)} create_aot_dispatcher_function
        min_cut_rematerialization_partition aot_* invoke_subgraph_*""",
    "inductor": """joint_graph_passes inductor_compile compile_fx_inner fx_codegen_and_compile code_gen
        codegen_and_compile additional_fake_tensor_prop generate_kernel_code_from_nodes _recursive_* pass.* compile_fx*
        GraphLowering.* Scheduler.* PythonWrapperCodegen.* CppWrapper* fx.bucketing.*""",
    # cpp_wrapper_compile: from torch 2.14 on. The autotuner's that compile are before all of the autotuner's.
    "triton": f"""{COMPILE_FILE} reload_kernel_in_parent PyCodeCache.load_by_key_path AotCodeCompiler.compile
        cpp_wrapper_compile async_compile.* StaticAutotunerFuture.* {AUTOTUNER}slow_precompile* {AUTOTUNER}precompile*
        aoti_compile* aoti_precompile*""",
    "autotune": f"""benchmark_fused_nodes benchmark_codegened_module collective_compute_do_bench {AUTOTUNER}*
        AlgorithmSelectorCache.*""",
    "cache": """inductor_codecache_torch_key TritonBundler.* CacheBase.* FxGraphCache.* AOTAutogradCache.* pgo.*
        GraphPickler.* CompiledArtifact.*""",
    "other": "gc",
}
_PHASE_OF = {name: phase for phase, names in _FUNCTIONS.items() for name in names.split()}
_PHASE_OF_BEGINNING = {name[:-1]: phase for name, phase in _PHASE_OF.items() if name.endswith("*")}
# The templates of an operator are compiled before they are tuned.
compiles_templates = contains(r"_template_precompiling\Z")
tuned_operator = without(r"_template_(?:precompiling|autotuning)\Z")  # `mm` of `mm_template_autotuning`


def phase_of(name: str) -> Phase | None:
    """Return the phase of a timed function, or None where it belongs to the phase of the span around it."""
    if name in _PHASE_OF:
        return _PHASE_OF[name]
    for beginning, phase in _PHASE_OF_BEGINNING.items():
        if name.startswith(beginning):
            return phase
    return "autotune" if tuned_operator(name) != name else None
