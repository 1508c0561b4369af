"""Test gpu_utilization.py: what counts as GPU work, and the identity of a device's time."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profiles import profile_of
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import gpus
from traces import kernel, slice_, write_trace

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def rows(folder, events, **header):
    return gpus(profile_of(write_trace(folder, events, **header)))


def test_overlaps_are_exposed_once(tmp_path):
    events = [
        kernel("triton_poi_fused_add_0", 10, 10),
        kernel(NCCL, 15, 10),
        kernel("Memcpy HtoD (Pinned -> Device)", 24, 6, cat="gpu_memcpy"),
        kernel("triton_poi_fused_add_0", 40, 5),
    ]
    (row,) = rows(tmp_path, events, deviceProperties=[{"id": 0, "name": "NVIDIA H200"}])
    assert (row.device, row.name) == (0, "NVIDIA H200")
    assert (row.span_us, row.busy_us, row.idle_us) == (35, 25, 10)
    assert (row.compute_us, row.exposed_communication_us, row.exposed_memory_us) == (15, 5, 5)


def test_annotations_and_host_ops_that_carry_a_stream_are_not_gpu_work(tmp_path):
    events = [
        kernel("ProfilerStep#2", 0, 100, cat="gpu_user_annotation"),
        slice_("triton_poi_fused_add_0", 0, 100, stream=7, device=0),
        kernel("triton_poi_fused_add_0", 50, 1),
    ]
    (row,) = rows(tmp_path, events)
    assert row.busy_us == row.span_us == 1 and row.name is None


def test_each_device_is_a_row_and_none_without_a_gpu(tmp_path):
    assert rows(tmp_path, [slice_("aten::add", 0, 5)]) == []
    gpus = rows(tmp_path, [kernel("a", 0, 2, device=1), kernel("b", 1, 4, device=0)])
    assert [(row.device, row.busy_us) for row in gpus] == [(0, 4), (1, 2)]


def test_device_properties_may_be_anything(tmp_path):
    for properties in ({"id": 0}, [1, {"id": [1], "name": "x"}], "x", None):
        (row,) = rows(tmp_path, [kernel("a", 0, 2)], deviceProperties=properties)
        assert row.name is None


def test_a_device_that_args_do_not_tell_is_the_process_of_the_event(tmp_path):
    event = kernel("a", 0, 2, device=3)
    del event["args"]["device"]
    assert [row.device for row in rows(tmp_path, [event])] == [3]


kinds = st.sampled_from([("k", "kernel"), (NCCL, "kernel"), ("Memset (Device)", "gpu_memset")])
works = st.lists(st.tuples(kinds, st.integers(0, 60), st.integers(0, 20)), min_size=1)


@given(works)
def test_the_identity_holds_moment_by_moment(tmp_path_factory, works):
    events = [kernel(name, start, dur, cat=cat) for (name, cat), start, dur in works]
    (row,) = rows(tmp_path_factory.mktemp("identity"), events)
    busy: dict[str, set[int]] = {"k": set(), NCCL: set(), "Memset (Device)": set()}
    for (name, _), start, dur in works:
        busy[name] |= set(range(start, start + dur))
    compute, communication, memory = busy.values()
    assert row.compute_us == len(compute)
    assert row.exposed_communication_us == len(communication - compute)
    assert row.exposed_memory_us == len(memory - communication - compute)
    assert np.isclose(row.busy_us + row.idle_us, row.span_us)
