"""Hypothesis strategies for whatever a trace may hold: all categories, nested and crossing, lasting no time, ids that
come twice, threads and processes of odd names."""

from itertools import chain
from typing import Any

from hypothesis import strategies as st

from traces import MAIN, PID, Event, kernel, launch, slice_

HOST = {
    "cpu_op": (
        *("aten::mm", "aten::empty", "Torch-Compiled Region: 0/0", "Torch-Compiled Region: 1/0"),
        *("## Call CompiledFxGraph fabc ##", "CompiledFunction", "CompiledFunctionBackward"),
        *("TorchDynamo Cache Lookup", "Pregraph bytecode", "entire_frame_compile (dynamo_timed)"),
        *("CachingAutotuner.benchmark_all_configs (dynamo_timed)", "triton_poi_fused_add_0"),
        "cpp_fused_add_0",
    ),
    "python_function": ("nn.Module: Net_0", "nn.Module: OptimizedModule_0", "train.py(3): f", "Python GC"),
    "user_annotation": (
        *("ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#3", "Optimizer.step#Adam.step"),
        *("nccl:all_reduce", "enumerate(DataLoader)#x.__next__", "my label"),
    ),
    "cuda_runtime": ("cudaDeviceSynchronize", "cudaGraphLaunch", "cudaMemcpyAsync"),
    "cuda_driver": ("cuLaunchKernelEx",),
    "overhead": ("Buffer Flush", "Activity Buffer Request"),
    "Trace": ("PyTorch Profiler (0)",),
    "of_tomorrow": ("aten::mm",),
}
GPU = {
    "kernel": ("triton_poi_fused_add_0", "triton_", "sgemm_x", "ncclDevKernel_AllReduce", "mine"),
    "gpu_memcpy": ("Memcpy HtoD",),
    "gpu_memset": ("Memset",),
    "gpu_user_annotation": ("ProfilerStep#1", "my label"),
}
SHAPES: tuple[Any, ...] = ([], [[]], [[4, 4], [4, 4]], [[0, 4], [4, 0]], [[2, 3, 4, 5]] * 3, [[[4], [4]]])
TYPES: tuple[list[str], ...] = ([], ["float", "float"], ["c10::Half"] * 3, ["", "Scalar"], ["TensorList"])
IDS = ("External id", "correlation", "Sequence number", "Fwd thread id", "Python id", "Python parent id")
threads = st.sampled_from([MAIN, MAIN, MAIN + 1, 7])
odd_places = (
    {"pid": -1, "tid": 0},
    {"pid": 7, "tid": 7},
    {"pid": "Spans", "tid": ""},
    {"pid": 2**64, "tid": 1e300},
)
places: st.SearchStrategy[Event] = st.sampled_from([{}] * 5 + [*odd_places])
ids = st.dictionaries(st.sampled_from(IDS), st.integers(0, 3), max_size=3)
devices = st.sampled_from([0, 0, 1])
times = st.sampled_from([0, 0.001, 1, 2.5]) | st.integers(0, 50)


def named(names: dict[str, tuple[str, ...]]) -> st.SearchStrategy[tuple[str, str]]:
    return st.sampled_from([(name, cat) for cat, many in names.items() for name in many])


@st.composite
def host(draw: st.DrawFn) -> list[Event]:
    name, cat = draw(named(HOST))
    args: dict[str, Any] = draw(ids)
    if draw(st.booleans()):
        args = {
            **args,
            "Input Dims": draw(st.sampled_from(SHAPES)),
            "Input type": draw(st.sampled_from(TYPES)),
        }
    return [slice_(name, draw(times), draw(times), cat, draw(threads), **args) | draw(places)]


@st.composite
def gpu(draw: st.DrawFn) -> list[Event]:
    name, cat = draw(named(GPU))
    args: dict[str, Any] = {"cat": cat, "device": draw(devices)}
    if draw(st.booleans()):
        return [kernel(name, draw(times), draw(times), correlation=draw(st.integers(-1, 3)), **args)]
    return launch(name, draw(times), draw(times), draw(times), draw(threads), **args)


@st.composite
def moment(draw: st.DrawFn) -> list[Event]:
    args: dict[str, Any] = {
        "Bytes": draw(st.sampled_from([-10, 10, 512, 0, 10**11])),
        "Addr": draw(st.integers(1, 3)),
    }
    args |= {"Device Type": draw(st.integers(0, 1)), "Device Id": draw(st.integers(-1, 1))}
    if draw(st.booleans()):
        args |= {"Total Allocated": 100, "Total Reserved": draw(st.sampled_from([0, 4096]))}
    event = {"ph": "i", "s": "t", "name": "[memory]", "pid": PID, "tid": MAIN, "ts": draw(times)}
    return [{**event, "args": args}]


@st.composite
def arrow(draw: st.DrawFn) -> list[Event]:
    """From a forward call to its backward."""
    event = {"cat": "fwdbwd", "name": "fwdbwd", "pid": PID, "id": draw(st.integers(0, 2))}
    return [event | {"ph": ph, "tid": draw(threads), "ts": draw(times)} for ph in "sf"]


parts = st.one_of(host(), host(), host(), gpu(), gpu(), moment(), arrow())
traces = st.lists(parts, max_size=25).map(lambda many: [*chain(*many)])
