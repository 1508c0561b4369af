"""Slices of a trace by kind and by name: what torch, its compiler and Kineto call them.

Labels of torch 2.4 to 2.15, with what differs between them.
"""

import re
from collections.abc import Callable, Sequence
from typing import Literal

from tb_torchcompile_plugin.torch_names.patterns import begins, equals, first_group, first_match
from tb_torchcompile_plugin.torch_names.records import COMPILATIONS, DYNAMO, phase_of, tuned_operator

# Kinds of slices (`cat`) that are drawn apart.
OwnCat = Literal["cpu_op", "user_annotation", "python_function", "gpu_user_annotation", "overhead"]
OPERATOR: OwnCat = "cpu_op"
LABEL: OwnCat = "user_annotation"
GPU_LABEL: OwnCat = "gpu_user_annotation"  # a label again, over the GPU work that it launched: no work itself
PYTHON_FUNCTION: OwnCat = "python_function"
OVERHEAD: OwnCat = "overhead"  # the profiler's own work
FORWARD_BACKWARD = "fwdbwd"  # arrows from an operator to its gradient
KERNEL = "kernel"
GPU_CATS = (KERNEL, "gpu_memcpy", "gpu_memset")
RUNTIME_CATS = (
    *("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "xpu_runtime", "mtia_runtime"),
    *("privateuse1_runtime", "privateuse1_driver"),
)
CALL_CATS = (OPERATOR, LABEL)  # of calls: with record_shapes some of torch's operators are labels
PROFILER_CATS = ("Trace", OVERHEAD)
# Among the metadata of an exported trace, which is no run next to its original.
EXPORTED = "tb_torchcompile_plugin.export"
LANE_CAT = "tb_torchcompile_plugin"  # what an exported trace has in addition: this package computes it again
_OLD_CATS = {  # before torch 1.12, with what torch calls them since then
    "Operator": OPERATOR,
    "Runtime": RUNTIME_CATS[0],
    "Kernel": KERNEL,
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
}
TORCH_CATS = frozenset({OPERATOR, LABEL, GPU_LABEL, PYTHON_FUNCTION, OVERHEAD, *GPU_CATS, *RUNTIME_CATS})
MEMORY_MOMENT = "[memory]"  # the moment of an allocation or a free

# Names.
LOOKUPS = ("TorchDynamo Cache Lookup",)  # of a compiled version whose guards hold
WRAPPERS = ("Pregraph bytecode", "AOTDispatcher Runtime Wrapper Prologue")  # torch before 2.8 has neither
FORWARD_GRAPH = "CompiledFunction"  # a graph that has a backward
BACKWARD_GRAPH = "CompiledFunctionBackward"
DATA_PARALLEL = "DataParallel.forward"
ALL_STEPS = "ProfilerStep*"  # what torch's own tables call all steps together
# torch's CUDA graph trees (`torch/_inductor/cudagraph_trees.py`): a function is first run to warm up, then recorded,
# then replayed; each set of symbolic sizes is a function of its own.
TREES_MODULE = "torch._inductor.cudagraph_trees"
CONTAINERS = "tree_manager_containers"  # by device, of a thread and of the autograd threads it starts
# Spans of the log, and slices of a trace.
NEW_FUNCTION = "cudagraphify.get_container"  # before a new function warms up
RECORDING = "CUDAGraphNode.record"  # of one function; torch before 2.11 has the slice of its own clock alone
_ID = r"!?\d+(?:/\d+)+"
_GRAPH_CALL = r"## Call CompiledFxGraph \S+ ##"  # with the graph's key, from torch 2.11 on
_TIMED = r" \(dynamo_timed\)"
_PROFILER_STEP = r"ProfilerStep\s*#\s*\d+"  # of the profiler's schedule
# one batch of prefill and decode: of vLLM's `annotate_profile`, also with details, and of SGLang
_SERVER_STEP = r"execute_(?:\d+_)?(?:context|new)_\d+\S*|step\[\w+ bs=\d+[^\]]*\]"
_BATCH = re.compile(
    r"(?:execute_(?=\d+_context)|step\[\w+ bs=)(\d+)|execute_context_\d+\((\d+)\)_generation_\d+\((\d+)\)"
)
# From torch 2.11 on a timed function is there as `X` too, and as this, of almost no length.
_TIMED_DATA = re.compile(rf"(?P<function>.+?)_data: (?:.*\b)?compile_id=(?P<id>{_ID}|\w+)")

is_profiler_step = equals(_PROFILER_STEP)
is_server_step = equals(_SERVER_STEP)
is_step = equals(rf"{_PROFILER_STEP}|{_SERVER_STEP}")
is_region = begins(r"Torch-Compiled Region\b")  # one call of one compiled frame
# the compile id; torch before 2.6 does not write it
region_id = first_group(rf"(?s:Torch-Compiled Region: ({_ID}).*)")
is_graph_call = equals(_GRAPH_CALL)  # one execution of a graph that inductor made
graph_key = first_group(r"## Call CompiledFxGraph (?!None )(\S+) ##")  # no key with inductor's caches off
# One execution of a compiled graph, but for the mark that autograd sets around a backward.
is_forward_graph = equals(rf"{FORWARD_GRAPH}|{_GRAPH_CALL}")
# One execution of a compiled graph, whichever back end made it, forward or backward.
is_graph = equals(rf"{BACKWARD_GRAPH}|{FORWARD_GRAPH}|{_GRAPH_CALL}")
# Garbage collection: recorded with `record_python_gc_info`, by Python stacks where the program calls it, and by torch's
# compiler, which calls it too.
is_garbage_collection = begins(r"Python GC$|<built-in (?:function|method) collect\b|gc \(dynamo_timed\)\Z")
is_optimizer = begins(r"Optimizer\.(?:step|zero_grad)#")
is_optimizer_step = begins(r"Optimizer\.step#")
is_zero_grad = begins(r"Optimizer\.zero_grad#")  # or giving the gradients back
# Waiting for the next batch, or a function of torch that fetches it.
is_data_loading = begins(r"enumerate\(DataLoader\)#|.*\btorch[\\/]utils[\\/]data[\\/]")
is_on_device = begins(r"Memcpy DtoD|Memset")  # a copy within a GPU, or a fill: work as a kernel does it
is_replay = begins(r"(?:cuda|cu|hip)GraphLaunch")  # of a whole CUDA graph
is_capture = begins(r"(?:cuda|hip)StreamBeginCapture")  # the call that begins to record a CUDA graph
# the size of a batch that a label captures CUDA graphs for: vLLM's `capture_8_FULL`, or `bs=8`
captured_size = first_group(r"(?:capture_|.*\bbs=)(\d+)(?!\d).*")
is_capture_end = begins(r"(?:cuda|hip)StreamEndCapture")
# Whatever of these a trace with CUDA graphs has at least one of.
is_of_cuda_graph = begins(
    rf"(?:cuda|cu|hip)GraphLaunch|(?:cuda|hip)StreamBeginCapture|{re.escape(RECORDING)}|{re.escape(NEW_FUNCTION)}"
)
# The launch of one kernel through the driver, as Triton does it and the libraries mostly do not.
is_driver_launch = begins(r"cuLaunchKernel|hipModuleLaunchKernel")
# A call that returns when the GPU has caught up.
is_synchronisation = begins(r"(?:cuda|cu|hip)[A-Z]\w*Synchronize$|(?:cuda|hip)Memcpy$|hipMemcpyWithStream$")
# A call of the runtime or driver that frees memory.
is_free = begins(r"(?:cuda|cu|hip)(?:Free|HostFree|Mem(?:\w*Free|Release|Unmap))")

CallKind = Literal[
    "launch", "synchronise", "memory_copy", "allocation", "module_load", "graph_capture", "query"
]
# What a call of the CUDA or HIP runtime or driver is for; "query" is whatever is nothing else.
call_kind: Callable[[str], CallKind] = first_match(
    ("synchronise", r"^(?:cuda|cu|hip)(?:\w*Synchronize|Memcpy|MemcpyWithStream)$"),
    ("graph_capture", r"^(?:cuda|cu|hip)(?:Graph(?!Launch)|Stream(?:Begin|End)Capture)"),
    ("launch", r"^(?:cuda|cu|hip)\w*Launch"),
    ("memory_copy", r"^(?:cuda|cu|hip)Mem(?:cpy|set)"),
    ("allocation", r"^(?:cuda|cu|hip)(?:Malloc|Free|Host|Mem)"),
    ("module_load", r"^(?:cuda|cu|hip)(?:Module|Library|Link|FuncGet|FuncSet|Kernel)"),
    default="query",
)
# The function of torch's compiler that a slice of its own clock is of.
timed_function = first_group(rf"(?s:(.*){_TIMED})")
# The whole compilation of a frame, or of a backward that is compiled when it first runs.
is_compilation = equals(rf"(?:{'|'.join(map(re.escape, sorted(COMPILATIONS)))})(?:{_TIMED})?")


def batch_size(name: str) -> int | None:
    """Return the size of the batch of a server's step: tokens (SGLang: requests); None where its name has none."""
    match = _BATCH.match(name)
    return sum(map(int, match.groups("0"))) if match else None


def current_cat(cat: str, name: str) -> str:
    """Return the category that torch gives such a slice since 1.12."""
    return LABEL if cat == "Operator" and is_profiler_step(name) else _OLD_CATS.get(cat, cat)


def step_name(number: int) -> str:
    """Return the name of a step of the profiler's schedule."""
    return f"ProfilerStep#{number}"


def step_number(name: str) -> int:
    """Return the number in the name of such a step."""
    return int(name.rpartition("#")[2])


def is_chosen_label(name: str) -> bool:
    """Whether somebody may have chosen this label: torch's own steps and graph calls are none."""
    return not is_step(name) and not name.startswith("## ")


def without_key(name: str) -> str:
    """Return a graph call's name that is the same in every run."""
    return "## Call CompiledFxGraph" if is_graph_call(name) else name


def compilation_id(name: str) -> str | None:
    """Return the compile id that a slice gives for the compilation around it."""
    match = _TIMED_DATA.match(name) if "compile_id=" in name else None
    return match["id"] if match and match["function"] in COMPILATIONS and match["id"] != "None" else None


def are_compiling(names: Sequence[str]) -> list[bool]:
    """Return for each of a trace's names whether torch's compiler works there: compiles, or tunes at a first run."""
    timed = []
    for name in names:
        data = _TIMED_DATA.match(name) if "compile_id=" in name else None
        timed.append(timed_function(name) or (data and data["function"]))
    functions = {*filter(None, timed), *COMPILATIONS, DYNAMO}
    return [function is not None or name in functions for name, function in zip(names, timed, strict=True)]


def are_autotuning(names: Sequence[str]) -> list[bool]:
    """Return for each of a trace's names whether the compiler benchmarks kernels, or configurations of one, there."""
    return [
        compiles and phase_of(timed_function(name) or name) == "autotune"
        for name, compiles in zip(names, are_compiling(names), strict=True)
    ]


def is_autotuning(name: str) -> bool:
    """Whether torch's compiler chooses between kernels, or between configurations of one."""
    function = timed_function(name)
    return function is not None and phase_of(function) == "autotune"


def tuned_operator_of_slice(name: str) -> str:
    """Return the operator, by torch's name, that a slice of `are_autotuning` chooses for; "" if its name gives none."""
    function = timed_function(name) or name
    operator = tuned_operator(function)
    return operator if operator != function else ""
