"""counts.py: the numbers of the panels, and what came after an earlier summary."""

import pytest

from tb_torchcompile_plugin.analysis.compile.graph_breaks import count_sites
from tb_torchcompile_plugin.analysis.compile.recompiles import recompiles
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.compile_log.counts import COUNTS, counted_rows, summary_since
from tb_torchcompile_plugin.compile_log.summary_pb2 import BACKWARD, CompileKey, CompileSummary
from tb_torchcompile_plugin.generated_code.output_code import generated_kernels


def numbers(summary):
    rows = {name: counted_rows(summary, name) for name in COUNTS}
    return {name: None if one is None else sum(row.number for row in one) for name, one in rows.items()}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "breaks",
            {"breaks": 4, "skipped": 0, "recompiles": 0, "graphs": 5, "kernels": 20, "cache_misses": 12},
        ),
        (
            "resnet18",
            {"breaks": 0, "skipped": 0, "recompiles": 0, "graphs": 1, "kernels": 76, "guards": 1282},
        ),
        ("recompiles", {"breaks": 0, "recompiles": 3, "graphs": 4, "kernels": 15, "guards": 288}),
    ],
)
def test_recordings_are_counted_as_their_panels_count(recording, name, expected):
    session = Session([("", str(recording(name)))])
    (run,) = session.runs().runs
    data = session.compile_data(run.run, run.workers[0].worker)
    counts = numbers(data.summary)
    assert {one: counts[one] for one in expected} == expected
    assert counts["breaks"] == data.of(count_sites) and counts["recompiles"] == len(data.of(recompiles))
    assert counts["kernels"] == sum(len(row.kernels) for row in data.of(generated_kernels))


def a_frame(compile_id, epoch=0, **fields):
    return {
        "key": CompileKey(compile_id=compile_id, epoch=epoch),
        "function": "f",
        "file": "m.py",
        "line": 3,
        **fields,
    }


def test_what_torch_does_not_say_is_not_zero():
    summary = CompileSummary()
    assert numbers(summary) == dict.fromkeys(COUNTS, 0) | {"cache_misses": None}
    summary.compilations.add(**a_frame("0/0", graph_ops=2, guards=5))
    summary.compilations.add(**a_frame("1/0", recovered=True))
    counts = numbers(summary)
    assert (counts["graphs"], counts["guards"], counts["breaks"]) == (None, None, 0)


def test_a_frame_without_a_graph_counts_as_none():
    summary = CompileSummary()
    summary.compilations.add(**a_frame("0/0", graph_ops=2, guards=5))
    summary.compilations.add(**a_frame("1/0"))
    counts = numbers(summary)
    assert (counts["graphs"], counts["guards"]) == (1, 5)


def test_a_frame_that_torch_gave_up_is_skipped_and_has_no_guards():
    summary = CompileSummary()
    summary.compilations.add(**a_frame("0/0")).failure.reason = "graph break in loop\nmore"
    (row,) = counted_rows(summary, "skipped") or []
    assert (row.what, row.why, row.file, row.line) == ("f", "graph break in loop", "m.py", 3)
    assert numbers(summary)["guards"] == 0


@pytest.mark.parametrize(
    ("version", "skipped"), [("2.6.0", None), ("2.8.0+cu128", None), ("2.11.0+cpu", 0), ("3.0", 0), ("", 0)]
)
def test_a_torch_that_writes_no_record_of_skipped_frames_skipped_none_or_some(version, skipped):
    summary = CompileSummary()
    summary.environment.torch_version = version
    summary.compilations.add(**a_frame("0/0", graph_ops=2, guards=5))
    assert numbers(summary)["skipped"] == skipped
    summary.compilations.add(**a_frame("1/0")).failure.reason = "recompile limit reached"
    assert numbers(summary)["skipped"] == 1


def test_a_function_that_dynamo_left_alone_is_skipped():
    earlier, now = CompileSummary(), CompileSummary()
    for start_ns in (1, 2, 3):  # more than is kept
        earlier.compiler_calls.add(kind="compile", subject="h", start_ns=start_ns)
    earlier.compiler_calls.add(kind="disabled", subject="f", start_ns=4)
    now.compiler_calls.extend(earlier.compiler_calls[2:])
    now.compiler_calls.add(kind="dispatch_mode", subject="g", reason="FlopCounterMode", file="m.py", line=3)
    now.compiler_calls.add(kind="compile", subject="h", start_ns=6)
    assert numbers(now)["skipped"] == 2
    del now.compiler_calls[0]  # of 257 calls the recorder keeps 256
    (row,) = counted_rows(summary_since(now, earlier), "skipped") or []
    assert (row.what, row.why, row.line) == ("g", "FlopCounterMode", 3)


def test_attempts_that_break_at_one_line_are_one_break():
    summary = CompileSummary()
    for compile_id in ("0/0", "0/1"):
        summary.graph_breaks.add(key=CompileKey(compile_id=compile_id), reason="print", file="m.py", line=7)
    assert numbers(summary)["breaks"] == 1


def test_after_an_earlier_summary_only_what_came_later_counts():
    earlier = CompileSummary()
    earlier.compilations.add(**a_frame("0/0", guards=5, graph_ops=1))
    earlier.graph_breaks.add(key=CompileKey(compile_id="0/0"), reason="print", file="m.py", line=7)
    now = CompileSummary()
    now.CopyFrom(earlier)
    assert numbers(summary_since(now, earlier))["guards"] == 0
    now.compilations.add(**a_frame("0/0", direction=BACKWARD)).cache.add(cache="fx_graph", result="miss")
    now.compilations.add(**a_frame("0/0", epoch=1, guards=7, graph_ops=1))
    now.graph_breaks.add(key=CompileKey(compile_id="0/0", epoch=1), reason="print", file="m.py", line=7)
    counts = numbers(summary_since(now, earlier))
    assert (counts["guards"], counts["breaks"], counts["cache_misses"]) == (7, 1, 1)


def test_what_came_later_is_of_the_same_torch():
    """Of torch 2.8 no skipped frames are unknown, of a part of what it compiled, too."""
    summary = CompileSummary()
    summary.environment.torch_version = "2.8.0"
    assert counted_rows(summary_since(summary, CompileSummary()), "skipped") is None
