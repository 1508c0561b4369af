"""Timed functions of torch's compiler by name, and the phase of a compilation that each belongs to.

Both the compile log and traces name them. Standard library only: this runs inside training.
"""

from __future__ import annotations

from typing import Literal, get_args

Phase = Literal["dynamo", "aot_autograd", "inductor", "triton", "autotune", "cache", "other"]
PHASES: tuple[Phase, ...] = get_args(Phase)

# The whole compilation of a frame, and of a backward that is compiled when it first runs. torch 2.4 and 2.5 used
# the function names; traces until torch 2.10 still do.
FRAME_ROOTS = frozenset({"entire_frame_compile", "_compile.compile_inner"})
BACKWARD_ROOTS = frozenset({"entire_backward_compile", "backward._backward_impl"})
COMPILATIONS = FRAME_ROOTS | BACKWARD_ROOTS
# A backward may also be compiled inside its frame.
COMPILING_BACKWARD = BACKWARD_ROOTS | {"compile_fx.<locals>.bw_compiler"}
DYNAMO = "dynamo"  # the first mark of a frame's compilation
COMPILE_FILE = "compile_file"  # of Triton or C++, in a worker process
# Calls of the backend: AOTAutograd's own time if it runs inside, any other backend's otherwise.
BACKEND_CALLS = frozenset({"backend_compile", "OutputGraph.call_user_compiler"})
AUTOTUNER = "CachingAutotuner."  # tunes a Triton kernel

_EXACT: dict[str, Phase] = {
    "bytecode_tracing": "dynamo",
    "build_guards": "dynamo",
    "insert_deferred_runtime_asserts": "dynamo",
    "fullgraph_capture": "dynamo",
    "guard_collective": "dynamo",
    "compiler_collective": "dynamo",
    "get_fake_value": "dynamo",
    "TranslationValidator.validate": "dynamo",
    "create_aot_dispatcher_function": "aot_autograd",
    "min_cut_rematerialization_partition": "aot_autograd",
    "joint_graph_passes": "inductor",
    "inductor_compile": "inductor",
    "compile_fx_inner": "inductor",
    "fx_codegen_and_compile": "inductor",
    "code_gen": "inductor",
    "codegen_and_compile": "inductor",
    "additional_fake_tensor_prop": "inductor",
    "generate_kernel_code_from_nodes": "inductor",
    COMPILE_FILE: "triton",
    "reload_kernel_in_parent": "triton",
    "PyCodeCache.load_by_key_path": "triton",
    "AotCodeCompiler.compile": "triton",
    "cpp_wrapper_compile": "triton",  # from torch 2.14 on
    "inductor_codecache_torch_key": "cache",
    "benchmark_fused_nodes": "autotune",
    "benchmark_codegened_module": "autotune",
    "collective_compute_do_bench": "autotune",
    "gc": "other",
}
_PREFIXES: tuple[tuple[str, Phase], ...] = (  # longer ones first where they overlap
    ("compile_attempt_", "dynamo"),
    ("bytecode_hooks", "dynamo"),
    ("precompile_", "dynamo"),
    ("aot_", "aot_autograd"),
    ("invoke_subgraph_", "aot_autograd"),
    ("_recursive_", "inductor"),
    ("pass.", "inductor"),
    ("compile_fx", "inductor"),
    ("GraphLowering.", "inductor"),
    ("Scheduler.", "inductor"),
    ("PythonWrapperCodegen.", "inductor"),
    ("CppWrapper", "inductor"),
    ("fx.bucketing.", "inductor"),
    ("async_compile.", "triton"),
    ("StaticAutotunerFuture.", "triton"),
    (f"{AUTOTUNER}slow_precompile", "triton"),
    (f"{AUTOTUNER}precompile", "triton"),
    ("aoti_compile", "triton"),
    ("aoti_precompile", "triton"),
    (AUTOTUNER, "autotune"),
    ("AlgorithmSelectorCache.", "autotune"),
    ("TritonBundler.", "cache"),
    ("CacheBase.", "cache"),
    ("FxGraphCache.", "cache"),
    ("AOTAutogradCache.", "cache"),
    ("pgo.", "cache"),
    ("GraphPickler.", "cache"),
    ("CompiledArtifact.", "cache"),
)
_PRECOMPILING = "_template_precompiling"
_TEMPLATES = (_PRECOMPILING, "_template_autotuning")  # behind the name of an operator


def phase_of(name: str) -> Phase | None:
    """The phase of a timed function, or None where it belongs to the phase of the span around it."""
    if name in FRAME_ROOTS:
        return "dynamo"
    if name in BACKWARD_ROOTS:
        return "aot_autograd"
    if name in _EXACT:
        return _EXACT[name]
    for prefix, phase in _PREFIXES:
        if name.startswith(prefix):
            return phase
    return "autotune" if name.endswith(_TEMPLATES) else None


def tuned_operator(name: str) -> str:
    """The operator whose templates a timed function compiles or tunes: `mm` of `mm_template_autotuning`."""
    ending = next((ending for ending in _TEMPLATES if name.endswith(ending)), "")
    return name.removesuffix(ending)


def compiles_templates(name: str) -> bool:
    """Whether it compiles the templates of an operator, before they are tuned."""
    return name.endswith(_PRECOMPILING)
