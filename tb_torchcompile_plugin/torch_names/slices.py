"""Slices of a trace by kind and by name: what torch, its compiler and Kineto call them.

Everything that asks what a slice is asks here. Labels of torch 2.4 to 2.14, with what differs between them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from tb_torchcompile_plugin.torch_names.records import COMPILATIONS, DYNAMO, phase_of, tuned_operator

# Kinds of slices (`cat`).
Cat = Literal[
    "cpu_op",
    "user_annotation",
    "gpu_user_annotation",
    "python_function",
    "cpu_instant_event",
    "overhead",
    "Trace",
    "kernel",
    "gpu_memcpy",
    "gpu_memset",
    "cuda_runtime",
    "cuda_driver",
    "cuda_sync",
    "hip_runtime",
    "hip_driver",
    "ac2g",
    "fwdbwd",
]
# Those that are told apart where slices are drawn.
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
_OLD_CATS = ("Operator", "Runtime", "Kernel", "Memcpy", "Memset")  # before torch 1.12
TORCH_CATS = frozenset(
    {OPERATOR, LABEL, GPU_LABEL, PYTHON_FUNCTION, OVERHEAD, *GPU_CATS, *RUNTIME_CATS, *_OLD_CATS}
)
MEMORY_MOMENT = "[memory]"  # the moment of an allocation or a free

LOOKUPS = ("TorchDynamo Cache Lookup",)  # of a compiled version whose guards hold
WRAPPERS = ("Pregraph bytecode", "AOTDispatcher Runtime Wrapper Prologue")  # torch before 2.8 has neither
FORWARD_GRAPH = "CompiledFunction"  # a graph that has a backward
BACKWARD_GRAPH = "CompiledFunctionBackward"
DATA_PARALLEL = "DataParallel.forward"
ALL_STEPS = "ProfilerStep*"  # what torch's own tables call all steps together
_ID = r"!?\d+(?:/\d+)+"
_STEP = re.compile(r"ProfilerStep\s*#\s*\d+")
_REGION = re.compile(rf"Torch-Compiled Region\b(?:: (?P<id>{_ID}))?")  # no id before torch 2.6
_GRAPH_CALL = re.compile(r"(?P<call>## Call CompiledFxGraph) (?P<key>\S+) ##")  # from torch 2.11 on
_TIMED = " (dynamo_timed)"
# From torch 2.11 on a timed function is there as `X` too, and as this, of almost no length.
_TIMED_DATA = re.compile(rf"(?P<function>.+?)_data: (?:.*\b)?compile_id=(?P<id>{_ID}|\w+)")
_GARBAGE = re.compile(r"Python GC$|<built-in (?:function|method) collect\b")
_OPTIMIZER = re.compile(r"Optimizer\.(?P<what>step|zero_grad)#")
_DATA_LOADING = re.compile(r"enumerate\(DataLoader\)#|.*\btorch[\\/]utils[\\/]data[\\/]")
_REPLAY = re.compile(r"(?:cuda|cu|hip)GraphLaunch")
_SYNCHRONISES = re.compile(r"(?:cuda|cu|hip)[A-Z]\w*Synchronize$|(?:cuda|hip)Memcpy$|hipMemcpyWithStream$")
# torch's CUDA graph trees (`torch/_inductor/cudagraph_trees.py`): a function is first run to warm up, then recorded,
# then replayed; each set of symbolic sizes is a function of its own.
TREES_MODULE = "torch._inductor.cudagraph_trees"
CONTAINERS = "tree_manager_containers"  # by device, of a thread and of the autograd threads it starts
# Spans of the log, and slices of a trace: getting ready to warm up a new function, and recording one.
NEW_FUNCTION = "cudagraphify.get_container"
RECORDING = "CUDAGraphNode.record"
_CAPTURES = re.compile(r"(?:cuda|hip)StreamBeginCapture")


def step_name(number: int) -> str:
    return f"ProfilerStep#{number}"


def is_step(name: str) -> bool:
    """A step of the profiler's schedule."""
    return _STEP.fullmatch(name) is not None


def is_region(name: str) -> bool:
    """One call of one compiled frame."""
    return _REGION.match(name) is not None


def region_id(name: str) -> str | None:
    """The compile id of a compiled region; None for other slices, and where torch does not tell it."""
    match = _REGION.match(name)
    return match["id"] if match else None


def is_graph_call(name: str) -> bool:
    """One execution of a graph that inductor made."""
    return _GRAPH_CALL.fullmatch(name) is not None


def graph_key(name: str) -> str | None:
    """The key of the graph that is called; None for other slices, and with inductor's caches off."""
    match = _GRAPH_CALL.fullmatch(name)
    return None if match is None or match["key"] == "None" else match["key"]


def without_key(name: str) -> str:
    """A graph call's name that is the same in every run."""
    match = _GRAPH_CALL.fullmatch(name)
    return match["call"] if match else name


def is_forward_graph(name: str) -> bool:
    """One execution of a compiled graph, but for the mark that autograd sets around a backward."""
    return name == FORWARD_GRAPH or is_graph_call(name)


def is_graph(name: str) -> bool:
    """One execution of a compiled graph, whichever back end made it, forward or backward."""
    return name == BACKWARD_GRAPH or is_forward_graph(name)


def timed_function(name: str) -> str | None:
    """The function of torch's compiler that a slice of its own clock is of."""
    return name.removesuffix(_TIMED) if name.endswith(_TIMED) else None


def is_compilation(name: str) -> bool:
    """The whole compilation of a frame, or of a backward that is compiled when it first runs."""
    return (timed_function(name) or name) in COMPILATIONS


def compilation_id(name: str) -> str | None:
    """The compile id that a slice tells of the compilation around it."""
    match = _timed_data(name)
    return match["id"] if match and match["function"] in COMPILATIONS and match["id"] != "None" else None


def compiling(names: Sequence[str]) -> list[bool]:
    """Of each of a trace's names, whether it is torch's compiler at work: compiling, or tuning at a first run."""
    functions_of_names = [
        timed_function(name) or ((data := _timed_data(name)) and data["function"]) for name in names
    ]
    functions = {*filter(None, functions_of_names), *COMPILATIONS, DYNAMO}
    return [
        function is not None or name in functions
        for name, function in zip(names, functions_of_names, strict=True)
    ]


def autotuning(names: Sequence[str]) -> list[bool]:
    """Of each of a trace's names, whether the compiler benchmarks there what it chooses from: kernels, or
    configurations of one."""
    return [
        compiles and phase_of(timed_function(name) or name) == "autotune"
        for name, compiles in zip(names, compiling(names), strict=True)
    ]


def _timed_data(name: str) -> re.Match[str] | None:
    return _TIMED_DATA.match(name) if "compile_id=" in name else None


def is_autotuning(name: str) -> bool:
    """torch's compiler choosing between kernels, or between configurations of one."""
    function = timed_function(name)
    return function is not None and phase_of(function) == "autotune"


def tuned(name: str) -> str:
    """What a slice of `autotuning` chooses for: an operator by torch's name; "" where its name does not tell."""
    function = timed_function(name) or name
    operator = tuned_operator(function)
    return operator if operator != function else ""


def is_collection(name: str) -> bool:
    """Garbage collection: recorded with `record_python_gc_info`, by Python stacks where the program calls it, and by
    torch's compiler, which calls it too."""
    return _GARBAGE.match(name) is not None or timed_function(name) == "gc"


def is_optimizer(name: str) -> bool:
    """What torch says an optimizer does: its step, or setting gradients to zero."""
    return _OPTIMIZER.match(name) is not None


def is_optimizer_step(name: str) -> bool:
    match = _OPTIMIZER.match(name)
    return match is not None and match["what"] == "step"


def is_zeroing(name: str) -> bool:
    """An optimizer setting gradients to zero, or giving them back."""
    match = _OPTIMIZER.match(name)
    return match is not None and match["what"] == "zero_grad"


def is_data_loading(name: str) -> bool:
    """Waiting for the next batch, or a function of torch that fetches it."""
    return _DATA_LOADING.match(name) is not None


def is_replay(name: str) -> bool:
    """The launch of a whole CUDA graph."""
    return _REPLAY.match(name) is not None


def is_on_device(name: str) -> bool:
    """A copy within a GPU, or a fill: work as a kernel does it."""
    return name.startswith(("Memcpy DtoD", "Memset"))


def is_recording(name: str) -> bool:
    """torch recording one function as a CUDA graph. torch before 2.11 has the slice of its own clock alone."""
    return name == RECORDING


def is_preparation(name: str) -> bool:
    """torch getting ready to run a function that it is to record: before it warms up."""
    return name == NEW_FUNCTION


def is_capture(name: str) -> bool:
    """The call that begins to record a CUDA graph."""
    return _CAPTURES.match(name) is not None


def is_driver_launch(name: str) -> bool:
    """The launch of one kernel through the driver, as Triton does it and the libraries mostly do not."""
    return name.startswith(("cuLaunchKernel", "hipModuleLaunchKernel"))


def is_synchronisation(name: str) -> bool:
    """A call that comes back when the GPU has caught up."""
    return _SYNCHRONISES.match(name) is not None


def is_chosen_label(name: str) -> bool:
    """Whether somebody may have chosen this label: torch's own steps and graph calls are none."""
    return not is_step(name) and not name.startswith("## ")


# Calls into the CUDA and HIP runtimes and drivers: what each is for, by its name.


CallKind = Literal[
    "launch", "synchronise", "memory_copy", "allocation", "module_load", "graph_capture", "query"
]

_CALLS: dict[CallKind, re.Pattern[str]] = {
    "synchronise": re.compile(r"(?:cuda|cu|hip)(?:\w*Synchronize|Memcpy|MemcpyWithStream)$"),
    "graph_capture": re.compile(r"(?:cuda|cu|hip)(?:Graph(?!Launch)|Stream(?:Begin|End)Capture)"),
    "launch": re.compile(r"(?:cuda|cu|hip)\w*Launch"),
    "memory_copy": re.compile(r"(?:cuda|cu|hip)Mem(?:cpy|set)"),
    "allocation": re.compile(r"(?:cuda|cu|hip)(?:Malloc|Free|Host|Mem)"),
    "module_load": re.compile(r"(?:cuda|cu|hip)(?:Module|Library|Link|FuncGet|FuncSet|Kernel)"),
}
_GIVES_BACK = re.compile(r"(?:cuda|cu|hip)(?:Free|HostFree|Mem(?:\w*Free|Release|Unmap))")


def call_kind(name: str) -> CallKind:
    """What a call of the runtime or driver is for: whatever is nothing else asks for something."""
    return next((kind for kind, pattern in _CALLS.items() if pattern.match(name)), "query")


def gives_back(name: str) -> bool:
    """Whether a call of the runtime or driver gives memory back."""
    return bool(_GIVES_BACK.match(name))
