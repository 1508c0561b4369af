"""Test recompiles.py with a span: when, at what price for each call, and how near the limit."""

import pytest

from profiles import data_of, profile_with
from tb_torchcompile_plugin.analysis.compile.recompiles import (
    frame_of,
    frame_versions,
    headline,
    recompile_moments,
    recompiled_frames,
    recompiles,
)
from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.reader.torch_trace.structured_log import read_log
from traces import region, slice_, step

BASE = 1_790_000_000_000_000_000


def compiled(compile_id, start_us, end_us, **fields):
    start, length = BASE + 1000 * start_us, 1000 * (end_us - start_us)
    return pb.Compilation(
        key=pb.CompileKey(compile_id=compile_id), start_ns=start, duration_ns=length, **fields
    )


def call(compile_id, ts, guards):
    return [slice_("TorchDynamo Cache Lookup", ts, guards), region(compile_id, ts + guards + 1, 10)]


def joined(folder, events, summary):
    return recompile_moments(profile_with(folder, events, data_of(summary)))


def test_a_refused_version_is_no_version():
    limit = pb.Failure(type="Unsupported", reason="Dynamo recompile limit exceeded")
    summary = pb.CompileSummary(
        compilations=[compiled("0/0", -50, -10), compiled("0/1", -9, -8, failure=limit)]
    )
    (frame,) = recompiled_frames(data_of(summary))
    assert frame.limit_hit == "0/1" and [row.compile_id for row in frame.versions] == ["0/0"]


def test_a_recompile_is_in_the_step_in_which_it_began(tmp_path):
    rows = [compiled(f"0/{n}", at, at + 5) for n, at in ((1, -5), (2, 30), (3, 120), (4, 999))]
    rows.insert(0, compiled("0/0", -50, -10))
    summary = pb.CompileSummary(
        compilations=rows, recompiles=[pb.Recompile(key=row.key, reasons=["?"]) for row in rows[1:]]
    )
    steps = [step(n, ts, 50) for n, ts in ((1, 0), (2, 50))]
    moments = joined(tmp_path, [*steps, slice_("aten::add", 200, 10)], summary)
    assert [(row.compile_id, row.step, row.when) for row in moments] == [
        ("0/1", None, "5.00 µs before the span"),
        ("0/2", "ProfilerStep#1", "in ProfilerStep#1"),
        ("0/3", None, "120 µs into the span"),
        ("0/4", None, "after the span"),
    ]


def test_calls_of_versions_with_and_without_a_log(tmp_path):
    events = [*call("0/0", 0, 5), *call("0/1", 50, 5), *call("0/1", 100, 5), *call("1/0", 150, 5)]
    rows = [compiled("0/0", -50, -10), compiled("0/1", -9, -8)]
    summary = pb.CompileSummary(compilations=rows, recompiles=[pb.Recompile(key=rows[1].key)])
    logged = profile_with(tmp_path, events, data_of(summary))
    assert [row.calls for row in recompile_moments(logged)] == [2]
    assert headline(logged) == "1 recompile cost 1.00 µs of compile time."
    for profile in (logged, profile_with(tmp_path, events)):
        (frame,) = frame_versions(profile)
        assert [(row.compile_id, row.calls) for row in frame.versions] == [("0/0", 1), ("0/1", 2)]
    assert headline(profile) == "1 function ran in more than one version: it was recompiled."
    assert headline(profile_with(tmp_path, call("0/0", 0, 5))).startswith("Recompiles are unknown")


def test_a_recompile_whose_time_is_not_known_is_kept(tmp_path):
    summary = pb.CompileSummary(recompiles=[pb.Recompile(key=pb.CompileKey(compile_id="0/1"))])
    (moment,) = joined(tmp_path, call("0/1", 0, 5), summary)
    assert (moment.step, moment.when, moment.calls) == (None, None, 1)


def test_the_traces_own_slice_tells_when_better_than_the_logs_clock(tmp_path):
    summary = pb.CompileSummary(compilations=[compiled("0/1", 108, 150)])
    summary.recompiles.add(key=pb.CompileKey(compile_id="0/1"))
    events = [step(1, 0, 100), step(2, 100, 100), slice_("_compile.compile_inner (dynamo_timed)", 95, 40)]
    events.append(slice_("entire_frame_compile_data: compile_id=0/1, x", 96, 0))
    (moment,) = joined(tmp_path, events, summary)
    assert moment.step == "ProfilerStep#1"


def test_a_frame_is_all_of_an_id_but_its_last_number():
    assert [frame_of(name) for name in ("0/0", "12/3", "!1/2/0")] == ["0", "12", "!1/2"]


@pytest.fixture
def log_of(recording):
    return lambda name, pattern="*.log": read_log(str(next(recording(name).glob(pattern))))


def test_the_versions_of_the_recording_and_the_limit_of_torch(log_of):
    (frame,) = recompiled_frames(data_of(log_of("recompiles")))
    assert (frame.frame, frame.function, frame.limit, frame.limit_hit) == ("0", "g", 8, None)
    assert [row.compile_id for row in frame.versions] == ["0/0", "0/1", "0/2", "0/3"]
    assert all(row.duration_s for row in frame.versions)


def test_the_recording_of_two_ranks_recompiled_on_the_first_only(log_of):
    frames = recompiled_frames(data_of(log_of("ddp", "*rank_0*.log")))
    assert [(row.frame, len(row.versions)) for row in frames] == [("0", 2), ("4", 2)]
    assert recompiled_frames(data_of(log_of("ddp", "*rank_1*.log"))) == []


def test_the_version_that_was_compiled_expects_the_new_value():
    rows = [
        pb.Recompile(key=pb.CompileKey(compile_id=f"0/{n}"), reasons=[f"0/{n - 1}: self.scale == {n}"])
        for n in (1, 2)
    ]
    moments = recompiles(data_of(pb.CompileSummary(recompiles=rows)))
    assert [row.change for row in moments] == ["1 → 2", "2 → another"]


def test_what_torch_made_dynamic_names_the_new_value_of_a_guard(log_of):
    first = recompiles(data_of(log_of("recompiles")))[0]
    assert (first.guards[0].source, first.guards[0].old, first.guards[0].new) == ("s", "0.0", "1.0")
    values = [(row.source, row.before, row.now) for row in first.dynamic]
    assert values == [("L['x']", "8", "16"), ("L['s']", "0.0", "1.0")]
