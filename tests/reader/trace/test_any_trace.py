"""Whatever a trace holds, every question about it has an answer, and so has its comparison with another."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles import SPAN_QUESTIONS, ask, profile_with
from tb_torchcompile_plugin.analysis.compare.compare import compare
from tb_torchcompile_plugin.analysis.compare.sides import Sides, side_of
from tb_torchcompile_plugin.analysis.compare.tables import compare_tables
from tb_torchcompile_plugin.logdir.discovery import File, SpanFile
from tb_torchcompile_plugin.profile.compiled.regions import region_calls
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.profile import Profile
from traces import MAIN, PID, Event, kernel, launch, slice_

SPAN = SpanFile("1", File("w.1.pt.trace.json", 0, 0, ""))
HOST = {
    "cpu_op": (
        "aten::mm",
        "aten::empty",
        "Torch-Compiled Region: 0/0",
        "Torch-Compiled Region: 1/0",
        "## Call CompiledFxGraph fabc ##",
        "CompiledFunction",
        "CompiledFunctionBackward",
        "TorchDynamo Cache Lookup",
        "Pregraph bytecode",
        "entire_frame_compile (dynamo_timed)",
        "CachingAutotuner.benchmark_all_configs (dynamo_timed)",
        "triton_poi_fused_add_0",
        "cpp_fused_add_0",
    ),
    "python_function": ("nn.Module: Net_0", "nn.Module: OptimizedModule_0", "train.py(3): f", "Python GC"),
    "user_annotation": (
        "ProfilerStep#1",
        "ProfilerStep#2",
        "ProfilerStep#3",
        "Optimizer.step#Adam.step",
        "nccl:all_reduce",
        "enumerate(DataLoader)#x.__next__",
        "my label",
    ),
    "cuda_runtime": ("cudaDeviceSynchronize", "cudaGraphLaunch"),
}
GPU = {
    "kernel": ("triton_poi_fused_add_0", "triton_", "sgemm_x", "ncclDevKernel_AllReduce", "mine"),
    "gpu_memcpy": ("Memcpy HtoD",),
    "gpu_memset": ("Memset",),
}
SHAPES: tuple[Any, ...] = ([], [[]], [[4, 4], [4, 4]], [[0, 4], [4, 0]], [[2, 3, 4, 5]] * 3, [[[4], [4]]])
TYPES: tuple[list[str], ...] = ([], ["float", "float"], ["c10::Half"] * 3, ["", "Scalar"], ["TensorList"])
threads = st.sampled_from([MAIN, MAIN + 1, 7])
devices = st.sampled_from([0, 0, 1])
times = st.sampled_from([0, 0.001, 1, 2.5]) | st.integers(0, 50)


def named(names: dict[str, tuple[str, ...]]) -> st.SearchStrategy[tuple[str, str]]:
    return st.sampled_from([(name, cat) for cat, many in names.items() for name in many])


@st.composite
def host(draw: st.DrawFn) -> list[Event]:
    name, cat = draw(named(HOST))
    args: dict[str, Any] = draw(
        st.sampled_from([{}, {"Sequence number": 1}, {"Sequence number": 1, "Fwd thread id": 1}])
    )
    if draw(st.booleans()):
        args = {
            **args,
            "Input Dims": draw(st.sampled_from(SHAPES)),
            "Input type": draw(st.sampled_from(TYPES)),
        }
    return [slice_(name, draw(times), draw(times), cat, draw(threads), **args)]


@st.composite
def gpu(draw: st.DrawFn) -> list[Event]:
    name, cat = draw(named(GPU))
    args: dict[str, Any] = {"cat": cat, "device": draw(devices)}
    if draw(st.booleans()):
        return [kernel(name, draw(times), draw(times), correlation=draw(st.sampled_from([-1, 0, 5])), **args)]
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


traces = st.lists(host() | host() | gpu() | moment(), max_size=25).map(lambda many: [*chain(*many)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("any")


def profile(folder: Path, events: list[Event]) -> Profile:
    return profile_with(folder, events)


@given(traces, traces)
def test_every_question_has_an_answer(folder: Path, before: list[Event], after: list[Event]) -> None:
    sides = profile(folder, before), profile(folder, after)
    for question in SPAN_QUESTIONS:
        msgspec.json.encode(ask(sides[0], question))
    compare(*map(side_of, sides))
    compare_tables(Sides(*map(side_of, sides)))


def test_owned_slices_that_last_no_time_own_nothing(folder: Path) -> None:
    """As all that a thread has: old torch counts whole microseconds."""
    region = slice_("Torch-Compiled Region: 0/0", 5, 0)
    made = profile(folder, [region, *launch("triton_poi_fused_add_0", 5, 10, 5)])
    (row,) = made.of(kernel_launches)
    assert row.compile_id.tolist() == [-1] and made.of(region_calls) is not None


def test_a_trace_of_memory_alone(folder: Path) -> None:
    args = {"Bytes": 512, "Addr": 1, "Device Type": 1, "Device Id": 0, "Total Allocated": 512}
    event = {"ph": "i", "s": "t", "name": "[memory]", "pid": PID, "tid": MAIN, "ts": 1, "args": args}
    (row,) = ask(profile(folder, [event]), "memory").owners
    assert (row.operator, row.compile_id, row.allocated_bytes) == (None, None, 512)
