"""Why a GPU waits, against a reference that looks at every moment on its own."""

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kineto_helpers import named as rows_named
from profiles import profile_in, profile_with
from recordings import Recording
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import gpus
from tb_torchcompile_plugin.profile.compiled.regions import breaks, frames, region_calls
from tb_torchcompile_plugin.profile.gpu.idle import (
    HOST_KINDS,
    ThreadActivity,
    causes_in,
    causes_of,
    idle_gaps,
)
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from traces import AUTOGRAD, MAIN, compiled_call, kernel, slice_

Moment = tuple[int, int]
RUNTIME = ("cuda_runtime", "cuda_driver")


def cause_of(around: list[tuple[str, str, bool]], in_break: bool) -> str:
    """The first cause that holds of a moment, from name, cat and whether it launches of every slice around it."""
    names = [(name, cat) for name, cat, _ in around]

    def named(*starts: str) -> bool:
        return any(name.startswith(starts) for name, _ in names)

    in_graph = named("CompiledFunction", "## Call CompiledFxGraph ")
    structure = ("CompiledFunction", "## Call", "Torch-Compiled Region")
    in_op = any(cat == "cpu_op" and not name.startswith(structure) for name, cat in names)
    if any(name.endswith("(dynamo_timed)") or "compile_id=" in name for name, _ in names):
        return "compiling"
    if named("nccl:", "c10d::", "record_param_comms") or any("_C._distributed_c10d" in n for n, _ in names):
        return "waiting_for_ranks"
    if any(cat in RUNTIME and name.endswith("Synchronize") for name, cat in names):
        return "waiting_for_gpu"
    if named("enumerate(DataLoader)") or any("torch/utils/data/" in name for name, _ in names):
        return "data_loading"
    if named("TorchDynamo Cache Lookup", "Pregraph bytecode", "AOTDispatcher Runtime Wrapper Prologue"):
        return "guards"
    is_launching = in_graph or any(launches for *_, launches in around)
    if (in_op and is_launching) or any(cat in RUNTIME for _, cat in names):
        return "kernel_launches"
    if in_break and not in_graph:
        return "graph_breaks"
    if in_op:
        return "eager_operators"
    return "python" if names else "unaccounted"


def reference(trace: Trace, broken: dict[int, list[Moment]], device: int, window: Moment) -> dict[str, int]:
    """ns of each cause in the window, moment by moment: no arrays, no unions."""
    rows = range(len(trace))
    launching = set(trace.op_of()[trace.select(cat=("kernel", "gpu_memcpy", "gpu_memset"))].tolist())
    slices = [
        (
            int(trace.ts[r]),
            int(trace.ts[r] + trace.dur[r]),
            trace.names[trace.name[r]],
            trace.cats[trace.cat[r]],
            r in launching,
        )
        for r in rows
    ]
    gpu = sorted(r for r in rows if slices[r][3] in ("kernel", "gpu_memcpy", "gpu_memset"))
    gpu = sorted((r for r in gpu if trace.device[r] == device), key=lambda r: slices[r][0])
    launches = {int(trace.correlation[r]): r for r in reversed(rows) if slices[r][3] in RUNTIME}
    sums: dict[str, int] = dict.fromkeys(HOST_KINDS, 0)
    reach = window[0]
    for r in [*gpu, None]:
        start, end = (slices[r][0], slices[r][1]) if r is not None else (window[1], window[1])
        begin, stop = max(reach, window[0]), min(start, window[1])
        launch = launches.get(int(trace.correlation[r])) if r is not None else None
        if begin < stop:
            track = int(trace.track[launch]) if launch is not None else -1
            split(trace, slices, track, broken.get(track, []), (begin, stop), sums)
        reach = max(reach, end)
    return sums


def split(
    trace: Trace,
    slices: list[tuple[int, int, str, str, bool]],
    track: int,
    broken: list[Moment],
    gap: Moment,
    sums: dict[str, int],
) -> None:
    if track < 0:
        sums["unaccounted"] += gap[1] - gap[0]
        return
    thread = slices[int(trace.track_bounds[track]) : int(trace.track_bounds[track + 1])]
    around = [one for one in thread if one[0] < gap[1] and one[1] > gap[0]]
    edges = [*gap]
    for start, end in [*((one[0], one[1]) for one in around), *broken]:
        edges += [start, end]
    cuts = sorted({edge for edge in edges if gap[0] <= edge <= gap[1]})
    for left, right in pairwise(cuts):
        names = [(name, cat, launches) for start, end, name, cat, launches in around if start <= left < end]
        in_break = any(start <= left < end for start, end in broken)
        sums[cause_of(names, in_break)] += right - left


def broken_moments(profile: Profile) -> dict[int, list[Moment]]:
    by_track: dict[int, list[Moment]] = {}
    for frame in frames(profile.of(region_calls)):
        for gap in breaks(frame):
            by_track.setdefault(int(profile.trace.track[gap.call.index]), []).append((gap.start, gap.end))
    return by_track


def named(row: Any) -> dict[str, int]:
    return dict(zip(HOST_KINDS, (int(value) for value in row)))


@pytest.mark.parametrize("name", ["breaks", "resnet18", "resnet18_eager"])
def test_every_moment_of_a_recording_gets_the_first_cause_that_holds(recording: Recording, name: str) -> None:
    profile = profile_in(recording(name))
    (device,) = gpus(profile)
    gaps = profile.of(idle_gaps)[0].inner()
    causes = causes_of(gaps, profile.of(ThreadActivity))
    assert np.array_equal(causes.sum(axis=1), gaps.ends - gaps.starts)
    assert causes.sum() / 1000 == device.idle_us
    span = int(gaps.starts[0]), int(gaps.ends[-1])
    assert named(causes.sum(axis=0)) == reference(profile.trace, broken_moments(profile), 0, span)


def test_a_step_gets_its_part_of_the_gaps(recording: Recording) -> None:
    profile = profile_in(recording("breaks"))
    trace, steps = profile.trace, profile.of(StepWindows).rows
    begins, ends = trace.ts[steps], trace.ts[steps] + trace.dur[steps]
    causes = causes_in(profile.of(idle_gaps)[0], profile.of(ThreadActivity), begins, ends)
    for row, begin, end in zip(causes, begins, ends):
        assert named(row) == reference(trace, broken_moments(profile), 0, (int(begin), int(end)))


NAMES = (
    ("aten::mm", "cpu_op"),
    ("triton_poi_fused_add_0", "cpu_op"),
    ("CompiledFunction", "cpu_op"),
    ("## Call CompiledFxGraph abc ##", "user_annotation"),
    ("Torch-Compiled Region: 0/0", "cpu_op"),
    ("TorchDynamo Cache Lookup", "cpu_op"),
    ("Pregraph bytecode", "cpu_op"),
    ("compile_fx_inner (dynamo_timed)", "cpu_op"),
    ("nccl:all_reduce", "user_annotation"),
    ("cudaStreamSynchronize", "cuda_runtime"),
    ("cudaMalloc", "cuda_runtime"),
    ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation"),
    ("torch/utils/data/dataloader.py(733): __next__", "python_function"),
    ("train.py(3): step", "python_function"),
    ("ProfilerStep#2", "user_annotation"),
)
host_slices = st.tuples(
    st.sampled_from(NAMES), st.integers(0, 40), st.integers(0, 25), st.sampled_from([MAIN, AUTOGRAD])
)
# (start, duration, device, launched from: thread and time, or no launch in the trace)
gpu_events = st.tuples(
    st.integers(0, 50),
    st.integers(0, 8),
    st.integers(0, 1),
    st.none() | st.tuples(st.sampled_from([MAIN, AUTOGRAD]), st.integers(0, 40)),
)


def made(folder: Path, host: Iterable[Any], gpu: Iterable[Any]) -> Profile:
    events = [slice_(name, ts, dur, cat, tid) for (name, cat), ts, dur, tid in host]
    for correlation, (ts, dur, device, launch) in enumerate(gpu, 1):
        events.append(kernel("k", ts, dur, device=device, correlation=correlation))
        if launch:
            tid, at = launch
            events.append(slice_("cuLaunchKernel", at, 2, "cuda_driver", tid, correlation=correlation))
    return profile_with(folder, events)


@given(st.lists(host_slices, max_size=12), st.lists(gpu_events, min_size=1, max_size=8))
def test_causes_are_those_of_every_moment(
    tmp_path_factory: pytest.TempPathFactory, host: Any, gpu: Any
) -> None:
    profile = made(tmp_path_factory.mktemp("causes"), host, distinct_starts(gpu))
    trace, work = profile.trace, profile.of(gpu_work)
    broken = broken_moments(profile)
    first, last = trace.window()
    begins, ends = np.array([first, first + 7000]), np.array([last, max(first + 7000, last - 5000)])
    for device in np.unique(work.device):
        gaps = profile.of(idle_gaps)[int(device)]
        assert named(causes_of(gaps, profile.of(ThreadActivity)).sum(axis=0)) == reference(
            trace, broken, int(device), (first, last)
        )
        for row, begin, end in zip(causes_in(gaps, profile.of(ThreadActivity), begins, ends), begins, ends):
            assert named(row) == reference(trace, broken, int(device), (int(begin), int(end)))


def distinct_starts(gpu: list[Any]) -> list[Any]:
    """Two events that begin at once have two next launches: which one counts is not said."""
    return list({(event[0], event[2]): event for event in gpu}.values())


def test_causes_by_hand(tmp_path: Path) -> None:
    """One gap from 10 to 100 µs, launched by the main thread at 90."""
    host = [
        (("ProfilerStep#2", "user_annotation"), 0, 105, MAIN),
        (("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation"), 12, 10, MAIN),
        (("compile_fx_inner (dynamo_timed)", "cpu_op"), 20, 10, MAIN),
        (("aten::mul", "cpu_op"), 40, 10, MAIN),
        (("cudaStreamSynchronize", "cuda_runtime"), 42, 3, MAIN),
        (("CompiledFunction", "cpu_op"), 60, 40, MAIN),
        (("triton_poi_fused_add_0", "cpu_op"), 85, 10, MAIN),
        (("aten::add", "cpu_op"), 0, 200, AUTOGRAD),
    ]
    profile = made(tmp_path, host, [(0, 10, 0, (MAIN, 0)), (100, 5, 0, (MAIN, 90))])
    (row,) = causes_of(profile.of(idle_gaps)[0].inner(), profile.of(ThreadActivity)) / 1000
    assert {name: us for name, us in zip(HOST_KINDS, row.tolist()) if us} == {
        "data_loading": 8,
        "compiling": 10,
        "waiting_for_gpu": 3,
        "eager_operators": 7,
        "kernel_launches": 10,
        "python": 52,
    }


def test_a_launch_that_is_not_in_the_trace_is_nobodys(tmp_path: Path) -> None:
    host = [(("aten::mul", "cpu_op"), 0, 50, MAIN)]
    profile = made(tmp_path, host, [(0, 10, 0, None), (30, 5, 0, None)])
    (row,) = causes_of(profile.of(idle_gaps)[0].inner(), profile.of(ThreadActivity))
    assert named(row)["unaccounted"] == 20_000


def of_id(number: int) -> dict[str, Any]:
    return {"External id": number}


def test_an_operator_that_launches_does_so_in_eager_and_in_compiled_code(tmp_path: Path) -> None:
    """Of 90 µs before a launch: eager operators, two of which launch, and one in a graph. Nothing breaks."""
    host = [
        slice_("aten::add", 12, 10, **of_id(7)),
        slice_("aten::view", 25, 5),
        *compiled_call("0/0", (30, 60), (32, 6)),
        slice_("aten::mul", 42, 5, **of_id(8)),
        slice_("aten::view", 50, 5),
        *compiled_call("1/0", (60, 25), (62, 20)),
        slice_("aten::mm", 65, 10, **of_id(9)),
        slice_("cudaLaunchKernel", 92, 2, "cuda_runtime", correlation=5),
    ]
    launched = [kernel("k", 200 + at, 1, **of_id(id_)) for at, id_ in enumerate((7, 8, 9))]
    profile = profile_with(tmp_path, [*host, *launched, kernel("k", 300, 1, correlation=5)])
    (add,) = rows_named(profile.trace, "aten::add")
    start, track = profile.trace.ts[add] - 12_000, np.array([profile.trace.track[add]], np.int64)
    (row,) = profile.of(ThreadActivity).split(np.array([start]), np.array([start + 100_000]), track) / 1000
    times = {name: us for name, us in zip(HOST_KINDS, row.tolist()) if us}
    assert times == {
        "kernel_launches": 10 + 5 + 10 + 2,
        "eager_operators": 5 + 5,
        "python": 40,
        "unaccounted": 23,
    }


def test_between_the_graphs_of_a_broken_frame_what_does_not_launch_is_the_break(recording: Recording) -> None:
    profile = profile_in(recording("breaks"))
    (track,) = profile.of(ThreadActivity).breaks
    breaks = profile.of(ThreadActivity).breaks[track]
    rows = profile.of(ThreadActivity).split(breaks.starts, breaks.ends, np.full(len(breaks.starts), track))
    times = dict(zip(HOST_KINDS, rows.sum(axis=0).tolist()))
    assert sum(times.values()) == breaks.total_ns
    assert times["graph_breaks"] > 0 and times["kernel_launches"] > 0
    assert times["eager_operators"] == times["python"] == times["unaccounted"] == 0
