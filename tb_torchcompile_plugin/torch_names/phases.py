"""Timed functions of torch's compiler by name, and the phase of a compilation that each belongs to.

Both the compile log and traces name them. And what the autotuner of a Triton kernel tells its logger. Standard library
only: this runs inside training.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, get_args

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

_NAMES: dict[Phase, str] = {
    "dynamo": """bytecode_tracing build_guards insert_deferred_runtime_asserts fullgraph_capture guard_collective
        compiler_collective get_fake_value TranslationValidator.validate""",
    "aot_autograd": "create_aot_dispatcher_function min_cut_rematerialization_partition",
    "inductor": """joint_graph_passes inductor_compile compile_fx_inner fx_codegen_and_compile code_gen
        codegen_and_compile additional_fake_tensor_prop generate_kernel_code_from_nodes""",
    # cpp_wrapper_compile: from torch 2.14 on
    "triton": f"""{COMPILE_FILE} reload_kernel_in_parent PyCodeCache.load_by_key_path AotCodeCompiler.compile
        cpp_wrapper_compile""",
    "cache": "inductor_codecache_torch_key",
    "autotune": "benchmark_fused_nodes benchmark_codegened_module collective_compute_do_bench",
    "other": "gc",
}
_BEGINNINGS: dict[Phase, str] = {  # those of triton before those of autotune, which they are longer than
    "dynamo": "compile_attempt_ bytecode_hooks precompile_",
    "aot_autograd": "aot_ invoke_subgraph_",
    "inductor": """_recursive_ pass. compile_fx GraphLowering. Scheduler. PythonWrapperCodegen. CppWrapper
        fx.bucketing.""",
    "triton": f"""async_compile. StaticAutotunerFuture. {AUTOTUNER}slow_precompile {AUTOTUNER}precompile
        aoti_compile aoti_precompile""",
    "autotune": f"{AUTOTUNER} AlgorithmSelectorCache.",
    "cache": "TritonBundler. CacheBase. FxGraphCache. AOTAutogradCache. pgo. GraphPickler. CompiledArtifact.",
}
_EXACT = {name: phase for phase, names in _NAMES.items() for name in names.split()}
_PREFIXES = {beginning: phase for phase, texts in _BEGINNINGS.items() for beginning in texts.split()}
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
    for prefix, phase in _PREFIXES.items():
        if name.startswith(prefix):
            return phase
    return "autotune" if name.endswith(_TEMPLATES) else None


def tuned_operator(name: str) -> str:
    """The operator whose templates a timed function compiles or tunes: `mm` of `mm_template_autotuning`."""
    ending = next((ending for ending in _TEMPLATES if name.endswith(ending)), "")
    return name.removesuffix(ending)


def phase_inside(name: str, function: str, around: Phase | None) -> Phase:
    """Of a timed function; of one that has none of its own the phase of the one around it."""
    return phase_of(name) or phase_of(function) or around or "other"


def phase_of_backend(*, aot: bool) -> Phase:
    """Of one of BACKEND_CALLS, by whether AOTAutograd ran inside of it."""
    return "aot_autograd" if aot else "other"


def compiles_templates(name: str) -> bool:
    """Whether it compiles the templates of an operator, before they are tuned."""
    return name.endswith(_PRECOMPILING)


TUNING_LOGGER = "torch._inductor.runtime.triton_heuristics"
_BENCHMARK = re.compile(r"Benchmark all input configs for (?P<kernel>\S+), get:")
_MEASURED = re.compile(
    r"(?P<config>\w+: .+): (?P<ms>[\d.]+), nreg (?P<registers>\d+), nspill (?P<spills>\d+), #shared-mem (?P<shared>\d+)"
)
_UNSET = re.compile(
    r"(?:num_ctas=1|maxnreg=None|num_buffers_warp_spec=0|num_consumer_groups=0|reg_\w+_warp_spec=0)"
)


class Measured(NamedTuple):
    """One configuration that an autotuner measured. shared: bytes."""

    config: str
    time_us: float
    registers: int
    spills: int
    shared: int


def tuned_kernel(line: str) -> str | None:
    """The kernel that the lines after this one are about."""
    match = _BENCHMARK.fullmatch(line)
    return match["kernel"] if match else None


def measured(line: str) -> Measured | None:
    """What a line of TUNING_LOGGER tells of one configuration."""
    match = _MEASURED.fullmatch(line)
    if match is None:
        return None
    numbers = (int(match[name]) for name in ("registers", "spills", "shared"))
    return Measured(config_text(match["config"]), 1000 * float(match["ms"]), *numbers)


def config_text(text: str) -> str:
    """A configuration as torch's records have it: `XBLOCK=128, num_warps=4, num_stages=1`."""
    parts = text.replace(": ", "=").split(", ")
    return ", ".join(part for part in parts if not _UNSET.fullmatch(part))
