"""What a `Trace` offers, on recordings whose numbers are known and on small files written here."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kineto_helpers import named
from recordings import Recording
from tb_torchcompile_plugin.reader.trace.kineto import BytesRead, Track, read_trace
from tb_torchcompile_plugin.torch_names.slices import GPU_CATS
from traces import memory_event, slice_, write_trace

NAMES = ("breaks", "resnet18", "resnet18_eager", "resnet18_compile", "recompiles", "ddp")


@pytest.mark.parametrize("name", NAMES)
def test_recordings(recording: Recording, expected: Callable[[str], dict[str, Any]], name: str) -> None:
    for file, numbers in expected(name)["traces"].items():
        trace = read_trace(str(recording(name) / file))
        gpu = trace.select(cat=GPU_CATS)
        end = trace.ts[gpu] + trace.dur[gpu]
        assert trace.events == numbers["events"]
        assert len(gpu) == numbers["gpu_events"]
        assert len(trace.select(cat="kernel")) == numbers["kernels"]
        assert int(trace.dur[gpu].sum()) == round(numbers["gpu_time_us"] * 1000)
        assert int(end.max() - trace.ts[gpu].min()) == round(numbers["gpu_span_us"] * 1000)
        assert _busy(trace.ts[gpu], end) == round(numbers["busy_us"] * 1000)
        assert not trace.notices


def _busy(start: Any, end: Any) -> int:
    """The union of the intervals, one after the other."""
    total = at = 0
    for begin, stop in sorted(zip(start.tolist(), end.tolist())):
        total += max(0, stop - max(begin, at))
        at = max(at, stop)
    return total


def test_every_kernel_has_its_launch(recording: Recording) -> None:
    trace = read_trace(str(next(recording("resnet18").glob("*.pt.trace.json"))))
    gpu = trace.select(cat=GPU_CATS)
    launch = trace.launch_of()
    assert (launch[gpu] >= 0).all()
    assert {trace.cats[code] for code in trace.cat[launch[gpu]]} == {"cuda_runtime", "cuda_driver"}
    np.testing.assert_array_equal(trace.correlation[launch[gpu]], trace.correlation[gpu])
    assert (np.delete(launch, gpu) == -1).all()
    assert (trace.ts[launch[gpu]] <= trace.ts[gpu]).all()


def test_every_kernel_has_its_op(recording: Recording) -> None:
    trace = read_trace(str(next(recording("resnet18").glob("*.pt.trace.json"))))
    kernels = np.intersect1d(trace.select(cat="kernel"), named(trace, "triton_poi_fused_0"))
    ops = trace.op_of()[kernels]
    assert {trace.names[code] for code in trace.name[ops]} == {"triton_poi_fused_0"}
    assert {trace.cats[code] for code in trace.cat[ops]} == {"cpu_op"}


def test_few_slices_columns_agree_with_args(recording: Recording) -> None:
    trace = read_trace(str(next(recording("resnet18").glob("*.pt.trace.json"))))
    keys = {
        "registers": "registers per thread",
        "shared_memory": "shared memory",
        "occupancy": "est. achieved occupancy %",
        "bytes": "bytes",
        "kernel_num_gb": "kernel_num_gb",
        "kernel_flop": "kernel_flop",
    }
    for column, key in keys.items():
        rows, values = trace.sparse(column)
        assert len(rows) > 30
        assert all(trace.args(row)[key] == value for row, value in zip(rows[::40].tolist(), values[::40]))
    for column, key in {
        "grid": "grid",
        "block": "block",
        "input_dims": "Input Dims",
        "input_types": "Input type",
    }.items():
        rows, codes = trace.sparse(column)
        assert all(
            json.loads(trace.texts[column][code]) == trace.args(row)[key]
            for row, code in zip(rows[::40].tolist(), codes[::40].tolist())
        )
    with pytest.raises(KeyError):
        trace.sparse("colour")


def test_tracks_and_window(recording: Recording) -> None:
    trace = read_trace(str(next(recording("breaks").glob("*.pt.trace.json"))))
    assert any(track.process_name.startswith("python") for track in trace.tracks)
    assert any(track.thread_name.startswith("thread ") for track in trace.tracks)
    for number, (start, end) in enumerate(zip(trace.track_bounds, trace.track_bounds[1:])):
        assert (trace.track[start:end] == number).all()
    profiler = trace.select(cat="Trace")
    assert trace.tracks[trace.track[profiler[0]]].pid == "Spans"
    assert trace.window()[0] > trace.ts[profiler].min()
    assert trace.base_ns == 1790857026000000000
    assert trace.metadata["with_stack"] == 1
    assert "traceEvents" not in trace.metadata


def test_memory_flows_and_labels(tmp_path: Path) -> None:
    where = {"pid": 5, "tid": 6}
    document = [
        *(
            memory_event(ts, size, 90, address=7, reserved=100) | where
            for ts, size in ((3.5, -10), (1.5, 10))
        ),
        {"ph": "s", "cat": "fwdbwd", "name": "fwdbwd", "id": 4, "ts": 1.0, **where},
        {"ph": "f", "cat": "fwdbwd", "name": "fwdbwd", "id": 4, "ts": 2.0, **where},
        {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 9, "ts": 2.0, **where},
        {"ph": "M", "name": "process_name", "args": {"name": "python"}, **where},
        {"ph": "M", "name": "thread_name", "args": {"name": "main"}, **where},
        {"ph": "X", "cat": "cpu_op", "name": "x", "ts": 0, "dur": 9, **where},
    ]
    path = tmp_path / "t.json"
    path.write_text(json.dumps(document))
    trace = read_trace(str(path))
    assert trace.tracks == [Track(5, 6, "python", "main")]
    memory, flows = trace.memory(), trace.flows()
    assert {name: values.tolist() for name, values in memory.items()} == {
        "ts": [1500, 3500],
        "track": [0, 0],
        "memory_bytes": [10, -10],
        "total_allocated": [90, 90],
        "total_reserved": [100, 100],
        "address": [7, 7],
        "device_type": [1, 1],
        "device_id": [0, 0],
    }
    actual = {name: values.tolist() for name, values in flows.items()}
    assert actual == {"ts": [1000, 2000], "track": [0, 0], "id": [4, 4], "start": [True, False]}
    assert trace.phases == {"i": 2, "s": 2, "f": 1, "M": 2, "X": 1}


@pytest.mark.slow
def test_progress_in_this_process(recording: Recording) -> None:
    path = next(recording("breaks").glob("*.pt.trace.json"))
    seen: list[BytesRead] = []
    trace = read_trace(str(path), progress=seen.append, chunk_bytes=1000)
    assert seen[-1] == BytesRead(
        str(path), path.stat().st_size, path.stat().st_size, trace.events, seen[-1].seconds_left
    )


def test_ids_too_large_for_a_table(tmp_path: Path) -> None:
    document = [
        {"ph": "X", "name": "k", "cat": "kernel", "ts": 5, "dur": 1, "args": {"correlation": 2**60}},
        {"ph": "X", "name": "l", "cat": "cuda_runtime", "ts": 1, "dur": 1, "args": {"correlation": 2**60}},
        {"ph": "X", "name": "m", "cat": "kernel", "ts": 6, "dur": 1, "args": {"correlation": 2**60 + 1}},
    ]
    path = tmp_path / "t.json"
    path.write_text(json.dumps(document))
    trace = read_trace(str(path))
    assert [trace.names[code] for code in trace.name] == ["l", "k", "m"]
    assert trace.launch_of().tolist() == [-1, 0, -1]


@pytest.mark.parametrize(
    ("largest", "dtype"), [(2**31 - 1, np.int32), (2**31, np.int64), (-(2**31) - 1, np.int64)]
)
def test_ids_take_half_the_room_where_they_fit(tmp_path: Path, largest: int, dtype: type) -> None:
    path = write_trace(tmp_path, [slice_("a", 1, 1, correlation=largest), slice_("b", 3, 1, correlation=7)])
    trace = read_trace(str(path))
    assert trace.correlation.dtype == dtype
    assert trace.correlation.tolist() == [largest, 7]
    assert trace.launch_of().dtype == np.int32
