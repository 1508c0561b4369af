"""Test memory.py: totals against torch's own table, and single situations by hand."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles import profile_of, profile_with
from tb_torchcompile_plugin.analysis.runtime.memory import _extremes, memory
from traces import memory_event, region, slice_, step, write_trace


def memory_of(folder, events):
    return memory(profile_with(folder, events))


@pytest.mark.parametrize("mode", ["eager_plain", "eager_shapes", "compiled_plain", "compiled_shapes"])
def test_totals_are_those_of_torch(recording, mode):
    """What its rows sum to, with the row for memory that no operator asked for, is what was allocated less freed."""
    folder = recording("key_averages")
    (file,) = folder.glob(f"key_averages_{mode}.*.trace.json")
    table = json.loads((folder / f"key_averages_{mode}.by_name.json").read_text())
    devices = memory(profile_of(file)).devices
    by_device = {str(row.device): row for row in devices}
    for device, field in (("0", "self_device_memory_usage"), ("cpu", "self_cpu_memory_usage")):
        row, whole = by_device[device], sum(torchs[field] for torchs in table)
        assert row.allocated_bytes - row.freed_bytes == whole
        assert row.curve.allocated_bytes[-1] - row.first_bytes == whole


EVENTS = [
    step(4, 0, 100),
    region("3/1", 5, 30),
    slice_("aten::mm", 10, 20),
    slice_("aten::empty", 12, 4),
    memory_event(1, -50, 150, address=0x900),  # allocated before recording began
    memory_event(13, 100, 250, address=0xA00),
    memory_event(40, 700, 950, address=0xB00),
    memory_event(60, -100, 850, address=0xA00),
    memory_event(70, 30, 880, address=0xA00),
]


def test_the_peak_and_who_was_alive_then(tmp_path):
    answer = memory_of(tmp_path, EVENTS)
    assert "aten::mm allocated most of the rest: 100 B" in answer.headline
    (device,) = answer.devices
    assert (device.device, device.peak_bytes, device.peak_us, device.before_bytes) == (0, 950, 40, 150)
    assert (device.first_bytes, device.curve.allocated_bytes[-1]) == (200, 880)
    assert device.peak_reserved_bytes == 4096
    assert (device.allocations, device.allocated_bytes, device.freed_bytes) == (3, 830, 150)
    mm, nobody = sorted(answer.owners, key=lambda row: row.operator or "~")
    assert (mm.operator, mm.compile_id, mm.peak_bytes, mm.kept_bytes) == ("aten::mm", "3/1", 100, 0)
    assert nobody.operator is nobody.compile_id is None
    assert (nobody.peak_bytes, nobody.kept_bytes) == (700, 730)
    assert sum(row.peak_bytes for row in answer.owners) + device.before_bytes == device.peak_bytes


def test_lifetimes_end_with_the_free_at_their_address(tmp_path):
    rows = {row.start_us: row for row in memory_of(tmp_path, EVENTS).allocations}
    assert [rows[at].lifetime_us for at in (13, 40, 70)] == [47, None, None]
    assert [rows[at].at_peak for at in (13, 40, 70)] == [True, True, False]
    assert {row.step for row in rows.values()} == {"ProfilerStep#4"}


def test_nothing_recorded_is_told_from_nothing_allocated(tmp_path):
    answer = memory_of(tmp_path, [slice_("aten::mm", 0, 1)])
    assert not answer.recorded and answer.headline == "Memory was not recorded."
    trace = write_trace(tmp_path, [slice_("aten::mm", 0, 1)], profile_memory=1)
    answer = memory(profile_of(trace))
    assert answer.recorded and answer.devices == []
    assert answer.headline == "Nothing was allocated in this span."


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(-50, 50)), min_size=1, max_size=9000), st.integers(1, 4)
)
def test_every_extreme_is_drawn(steps, factor):
    steps = steps * (9000 // len(steps)) if factor > 1 else steps
    ts = np.cumsum([gap for gap, _ in steps])
    total = np.cumsum([size for _, size in steps])
    kept = _extremes(ts, [total])
    assert len(kept) <= 4 * 600 and (np.diff(kept) > 0).all()
    assert {0, len(ts) - 1, int(total.argmax()), int(total.argmin())} <= set(kept.tolist())


def test_a_stretch_has_its_own_peak_and_only_what_happened_in_it(tmp_path):
    made = profile_with(tmp_path, EVENTS)
    answer = memory(made, (55_000, 71_000))
    (device,) = answer.devices
    assert (device.peak_bytes, device.peak_us, device.first_bytes) == (880, 70, 950)
    assert device.curve.allocated_bytes[-1] == 880
    assert (device.allocations, device.allocated_bytes, device.freed_bytes) == (1, 30, 100)
    (row,) = answer.owners  # what it allocated before the stretch is alive at the peak, but not counted again
    assert (row.operator, row.peak_bytes, row.allocations) == (None, 730, 1)
    assert (row.allocated_bytes, row.kept_bytes) == (30, 30)
    assert [row.start_us for row in answer.allocations] == [70] and answer.all_allocations == 1
    nothing = memory(made, (41_000, 42_000))
    assert nothing.devices == [] and nothing.headline == "Nothing was allocated in this interval."


def test_what_a_stretch_leaves_behind_is_kept_though_it_is_freed_later(tmp_path):
    made = profile_with(tmp_path, EVENTS)
    rows = {row.operator: row for row in memory(made, (0, 50_000)).owners}
    assert (rows["aten::mm"].kept_bytes, rows[None].kept_bytes) == (100, 700)


def test_an_allocation_whose_free_is_lost_has_no_lifetime(tmp_path):
    """The next allocation at its address tells that it was freed, not when."""
    events = [
        memory_event(ts, size, total) for ts, size, total in ((10, 100, 100), (30, 50, 50), (40, -50, 0))
    ]
    rows = memory_of(tmp_path, [slice_("aten::mm", 0, 50), *events]).allocations
    assert [(row.start_us, row.lifetime_us) for row in rows] == [(10, None), (30, 10)]


@given(st.integers(0, 60), st.integers(1, 60))
def test_any_stretch_agrees_with_the_events_in_it(tmp_path_factory, start, length):
    made = profile_with(tmp_path_factory.mktemp("t"), EVENTS)
    answer = memory(made, (1000 * start, 1000 * (start + length)))
    inside = [
        (event["args"]["Bytes"], event["args"]["Total Allocated"])
        for event in EVENTS
        if event["ph"] == "i" and start <= event["ts"] - 0 < start + length
    ]
    assert [row.peak_bytes for row in answer.devices] == (
        [max(total for _, total in inside)] if inside else []
    )
    assert sum(row.allocated_bytes for row in answer.owners) == sum(max(size, 0) for size, _ in inside)
    for row in answer.devices:
        assert sum(owner.peak_bytes for owner in answer.owners) + row.before_bytes == row.peak_bytes


def test_a_graph_is_named_in_short(tmp_path):
    key = "f" * 40
    events = [slice_(f"## Call CompiledFxGraph {key} ##", 0, 30), memory_event(10, 70, 70)]
    assert "Compiled graph ffffffff… allocated most of it" in memory_of(tmp_path, events).headline


def test_the_header_tells_what_a_device_has(tmp_path):
    devices = [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150_110_011_392}, {"id": "?"}, None]
    trace = write_trace(tmp_path, EVENTS, deviceProperties=devices)
    (row,) = memory(profile_of(trace)).devices
    assert row.capacity_bytes == 150_110_011_392
