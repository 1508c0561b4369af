"""Test source.py: time by line in whole nanoseconds, which sums to the time of all kernels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles import profile_with, spans_in
from tb_torchcompile_plugin.analysis.runtime.kernels import kernel_table
from tb_torchcompile_plugin.analysis.runtime.source import line_times, source
from tb_torchcompile_plugin.analysis.runtime.source_lines import (
    LineLaunches,
    UserLine,
    launch_ns,
    line_launches,
    shares,
)
from tb_torchcompile_plugin.api import report
from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.reader.compile_data import CompileData
from traces import AUTOGRAD, frame, launch, slice_, step

LINES = st.lists(
    st.builds(UserLine, st.sampled_from(["a.py", "b.py"]), st.integers(1, 5)), max_size=4, unique=True
)
KERNELS = st.lists(st.tuples(st.lists(st.integers(0, 2**40), min_size=1, max_size=5), LINES), max_size=6)


def rows_of(answer):
    return {f"{row.file.rpartition('/')[2]}:{row.line}": row for row in answer.rows}


@given(st.lists(st.integers(0, 2**40), min_size=1), st.integers(1, 9))
def test_shares_are_whole_and_sum_to_the_amounts(amounts, parts):
    ns = np.array(amounts, np.int64)
    given_out = shares(ns, parts)
    assert given_out.sum() == ns.sum()
    assert (given_out[:-1] >= given_out[1:]).all() and given_out[0] - given_out[-1] <= len(amounts)


@given(KERNELS, st.booleans())
def test_lines_and_the_unknown_sum_to_all_kernels(tmp_path_factory, kernels, backward):
    """Whatever lines kernels compute together, and however odd their times."""
    events = [event for at in range(3) for event in launch("k", at, at, 1)]
    made = profile_with(tmp_path_factory.mktemp("w"), events)
    (first,) = made.of(line_launches)
    launches = [
        LineLaunches(first.kernel, rows, np.arange(len(ns)), sorted(lines), [], backward)
        for ns, lines in kernels
        for rows in [rows_with(first.rows, ns)]
    ]
    times = line_times(launches, {0: np.full(5, 7)})
    known = {line for _, lines in kernels for line in lines}
    assert set(times.by_line) == known
    assert times.all == sum(sum(ns) for ns, _ in kernels)
    assert times.unknown + sum(row.forward + row.backward for row in times.by_line.values()) == times.all
    assert times.unknown == sum(sum(ns) for ns, lines in kernels if not lines)


def rows_with(rows, ns):
    columns = {name: getattr(rows, name) for name in rows.__struct_fields__}
    return type(rows)(**columns | {"dur": np.array(ns, np.int64)})


@pytest.mark.parametrize("name", ["resnet18", "breaks", "handler_breaks"])
def test_all_kernel_time_is_told_by_line_or_as_unknown(recording, name):
    made = spans_in(recording(name))[0]
    times, answer = line_times(made.of(line_launches), made.of(launch_ns)), made.of(source)
    assert times.all == sum(int(rows.dur.sum()) for rows in made.of(kernel_launches) if rows.device != "cpu")
    assert times.unknown + sum(row.gpu for row in times.by_line.values()) == times.all
    by_line = sum(row.kernel_us or 0 for row in answer.rows)
    assert by_line + answer.unknown_us == pytest.approx(answer.kernel_us)
    assert {part.kernel_row for row in answer.rows for part in row.kernels} <= {
        row.key for row in made.of(kernel_table).rows
    }


def test_a_library_call_and_a_kernel_that_layers_share_count_for_the_line_of_each_call(recording):
    """resnet18: inductor writes one kernel for the batch norms of both lines, cuDNN one for both convolutions."""
    answer = spans_in(recording("resnet18"))[0].of(source)
    rows = rows_of(answer)
    first, second = rows["resnet.py:93"], rows["resnet.py:97"]
    assert (first.text, second.text) == ("out = self.bn1(out)", "out = self.bn2(out)")
    assert first.forward_us == pytest.approx(second.forward_us, rel=0.06)
    convolution = rows["resnet.py:96"]
    assert convolution.forward_us == pytest.approx(142.6, abs=0.05)
    assert convolution.backward_us == pytest.approx(338.7, abs=0.05)
    assert any(line.file.endswith("resnet.py") and line.line == 94 for line in first.shared)
    assert [row.guards for row in rows["resnet.py:284"].guards] == [1282]
    assert rows["resnet.py:284"].kernel_us is None
    assert answer.host_from == "launches"


def test_a_graph_out_of_the_cache_counts_for_the_lines_of_its_own_frame(recording):
    """The two ends of `breaks` have the same graphs: torch compiled them once, and prints the first one's lines."""
    rows = rows_of(spans_in(recording("breaks"))[0].of(source))
    backward = [rows[f"capture.py:{line}"].backward_us for line in (27, 29, 30)]
    assert backward == [pytest.approx(22, abs=1)] * 3
    (broke,) = rows["capture.py:29"].breaks
    assert "builtin" in broke.reason


def test_outside_of_compiled_code_a_function_counts_as_a_whole(tmp_path):
    """By stacks; the backward of what it called is its own, on the host as on the GPU."""
    forward = slice_("aten::mm", 20, 20) | {"args": {"Sequence number": 4, "Fwd thread id": 0}}
    backward = slice_("MmBackward0", 300, 50, tid=AUTOGRAD)
    backward["args"] = {"Sequence number": 4, "Fwd thread id": 1}
    events = [step(1, 0, 500), frame("app/model.py(17): forward", 10, 40), forward, backward]
    events += [*launch("gemm", 25, 200, 11), *launch("gemm", 310, 400, 7, tid=AUTOGRAD)]
    events += launch("k", 490, 495, 2)
    answer = source(profile_with(tmp_path, events))
    (row,) = answer.rows
    assert (row.key, row.function, row.whole_function) == ("app/model.py:17", "forward", True)
    assert (row.forward_us, row.backward_us, row.host_us, answer.unknown_us) == (11, 7, 90, 2)
    assert (answer.host_from, row.text) == ("stacks", None)
    assert row.why_no_text == "Python stacks record functions, not their text"


def test_a_call_that_launches_several_kernels_is_shared_out_among_them(tmp_path):
    call, first = launch("a", 10, 100, 5)
    events = [call | {"dur": 0.005}, first, *[first | {"ts": at} for at in (120, 140)]]
    (ns,) = profile_with(tmp_path, events).of(launch_ns).values()
    assert sorted(ns.tolist()) == [1, 2, 2]


@pytest.mark.parametrize("events", [[], [slice_("aten::mm", 0, 1)], launch("k", 0, 5, 3)])
def test_without_compile_data_and_stacks_no_line_is_known(tmp_path, events):
    answer = source(profile_with(tmp_path, events))
    assert answer.rows == [] and answer.headline.startswith("No line of your program was recorded")
    assert answer.unknown_us == answer.kernel_us == (3 if len(events) > 1 else 0)


def test_with_stacks_alone_the_costliest_function_is_named(tmp_path):
    events = [frame("train.py(5): main", 0, 100), slice_("aten::mm", 20, 20)]
    answer = source(profile_with(tmp_path, events))
    assert answer.headline.startswith("main (train.py:5) takes 100 µs of host time in this span.")


def test_a_file_that_stacks_name_by_its_end_is_the_one_of_the_compile_data(recording):
    made = spans_in(recording("handler_breaks"))[0]
    assert len({row.file for row in made.of(source).rows}) == 1


COMPILED = pb.Compilation(
    key=pb.CompileKey(compile_id="0/0"),
    function="f",
    file="/u/train.py",
    line=3,
    guards=5,
    stack=[pb.Frame(file="/u/train.py", line=3, function="f")],
)


@pytest.mark.parametrize(
    ("source_of", "capture", "why"),
    [
        ("summary", "full", "Its file could not be read when the summary was written"),
        ("summary", "summary", 'capture="summary" stores no text of the program'),
        ("torch_trace", "", "torch’s log has no text of this line. The trace handler records it"),
    ],
)
def test_a_line_without_text_says_why(tmp_path, source_of, capture, why):
    summary = pb.CompileSummary(compilations=[COMPILED], environment=pb.Environment(capture=capture))
    made = profile_with(tmp_path, [step(1, 0, 50)], CompileData(summary, source_of, ""))
    (row,) = source(made).rows
    assert (row.text, row.why_no_text) == (None, why)


def test_what_a_failed_guard_quotes_is_the_text_of_its_line(tmp_path):
    stack = 'User stack trace:\n  File "/u/train.py", line 4, in f\n    x * s'
    reason = f"0/0: s == 0.0  # x * s  # u/train.py:4 in f\n{stack}"
    key = pb.CompileKey(compile_id="0/1")
    summary = pb.CompileSummary(
        compilations=[COMPILED], recompiles=[pb.Recompile(key=key, reasons=[reason.replace("\\\n", "\n")])]
    )
    made = profile_with(tmp_path, [step(1, 0, 50)], CompileData(summary, "summary", ""))
    row = rows_of(source(made))["train.py:4"]
    assert (row.text, row.why_no_text, len(row.recompiles)) == ("x * s", None, 1)


def test_a_report_has_the_hottest_lines_with_their_sentence(recording, monkeypatch):
    known = spans_in(recording("handler_breaks"))[0].of(source)
    monkeypatch.setattr(report, "_LINES", 3)
    (run,) = report.read_report(str(recording("handler_breaks"))).runs
    (span,) = run.workers[0].spans
    assert isinstance(span, report.SpanReport)
    assert [row.key for row in span.your_code] == [row.key for row in known.rows[:3]]
    assert span.headlines["your_code"] == known.headline
