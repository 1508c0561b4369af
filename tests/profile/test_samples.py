"""Which line ran on a thread at a time, by the handler's samples, and how that names host time."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from mendable import NODE, kinds
from profiles import data_of, profile_with
from tb_torchcompile_plugin.analysis.causes.findings import span_findings
from tb_torchcompile_plugin.analysis.runtime.gpu_idle import idle_culprits
from tb_torchcompile_plugin.analysis.runtime.ledger import calling_sites, ledger
from tb_torchcompile_plugin.compile_log.summary import load, save
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.profile.columns import Intervals
from tb_torchcompile_plugin.profile.model.attribution import culprits
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.samples import (
    ENOUGH,
    SampledLine,
    called_from,
    lines_around,
    lines_of,
    samples,
)
from tb_torchcompile_plugin.reader.compile_data import without_impossible
from traces import AUTOGRAD, BASE_NS, MAIN, PID, Event, frame, in_steps, launch, slice_

METRIC = SampledLine("/home/user/metric.py", 4, "precision", "")
SCORE = SampledLine("/home/user/train.py", 40, "step", "sklearn/metrics/_ranking.py(90): score")
BACKWARD = SampledLine("/home/user/train.py", 30, "step", "torch/_tensor.py(570): backward")


LOOP = SampledLine("/home/user/train.py", 80, "main", "")
OPTIMIZER = SampledLine("/home/user/train.py", 31, "step", "torch/optim/adam.py(200): step")
FORWARD = SampledLine("/home/user/train.py", 29, "step", "model.py(9): forward")


class Row(NamedTuple):
    """Samples of a thread that follow one another; times in µs from the trace's base."""

    start: int
    end: int
    line: SampledLine = METRIC
    samples: int = 1
    thread: int = MAIN
    callers: tuple[SampledLine, ...] = ()  # the outermost first


def summary_of(*rows: Row, pid: int = PID) -> CompileSummary:
    """A summary with these samples."""
    summary = CompileSummary()
    summary.environment.pid = pid
    stored, before = summary.python_samples, 0
    stacks = [
        (*row.callers[:depth], line) for row in rows for depth, line in enumerate((*row.callers, row.line))
    ]
    lines = list(dict.fromkeys(stacks))
    threads = list(dict.fromkeys(row.thread for row in rows))
    stored.threads.extend(threads)
    for line in lines:
        stored.lines.add(**line[-1]._asdict(), caller=lines.index(line[:-1]) + 1 if line[1:] else 0)
    for row in rows:
        start_ns = BASE_NS + 1000 * row.start
        stored.start_ns.append(start_ns - before)
        stored.duration_ns.append(1000 * (row.end - row.start))
        stored.samples.append(row.samples)
        stored.thread.append(threads.index(row.thread))
        stored.line.append(lines.index((*row.callers, row.line)))
        before = start_ns
    return summary


def profile_of(folder: Path, events: list[Event], *rows: Row, pid: int = PID) -> Profile:
    """A profile of these events with these samples, by way of a file."""
    path = str(folder / "w.1.pt.compile.pb")
    save(summary_of(*rows, pid=pid), path)
    return profile_with(folder, events, data_of(without_impossible(load(path))))


def named(
    profile: Profile, *intervals: tuple[int, int], tid: int = MAIN
) -> list[tuple[SampledLine | None, int]]:
    """The line of each interval (µs) of a thread, and in how many samples it was seen."""
    track = next(code for code, track in enumerate(profile.trace.tracks) if track.tid == tid)
    starts, ends = (1000 * np.array(column, np.int64) for column in zip(*intervals))
    found, lines = lines_of(profile, track, Intervals(starts, ends)), profile.of(samples).lines
    pairs = zip(*(column.tolist() for column in found), strict=True)
    return [(lines[line] if line >= 0 else None, count) for line, count in pairs]


THREADS = [slice_("aten::mm", 0, 9_000), slice_("aten::mm", 0, 9_000, tid=AUTOGRAD)]


def test_the_line_with_most_of_the_interval(tmp_path: Path) -> None:
    rows = Row(0, 1000, SCORE), Row(1000, 3000, METRIC, 2), Row(3000, 4000, SCORE), Row(4000, 6000, SCORE, 2)
    profile = profile_of(tmp_path, THREADS, *rows)
    assert named(profile, (0, 3500), (3500, 6500), (6500, 9000)) == [(METRIC, 2), (SCORE, 3), (None, 0)]


def test_a_sample_stands_for_the_time_since_the_one_before(tmp_path: Path) -> None:
    """Code that keeps the interpreter lock delays the sample until it returns."""
    profile = profile_of(tmp_path, THREADS, Row(0, 5000, SCORE), Row(5000, 7000, METRIC, 2))
    assert named(profile, (100, 7500)) == [(SCORE, 1)]
    assert named(profile, (4500, 7500)) == [(METRIC, 2)], "0.5 ms of the 5 are in there"


def test_each_thread_has_its_own(tmp_path: Path) -> None:
    rows = Row(0, 2000, METRIC), Row(0, 2000, SCORE, thread=AUTOGRAD), Row(0, 2000, SCORE, thread=7)
    profile = profile_of(tmp_path, THREADS, *rows)
    assert named(profile, (0, 3000)) == [(METRIC, 1)]
    assert named(profile, (0, 3000), tid=AUTOGRAD) == [(SCORE, 1)]
    assert len(profile.of(samples).time) == 2, "a thread that is not in the trace"


def test_without_a_sample_it_is_the_line_of_this_position_in_other_steps(tmp_path: Path) -> None:
    """Two gaps between the same operators, one after the other, in each of three steps."""
    make = [slice_("aten::mm", 1000 + at, 10) for at in (0, 1000, 2000)]
    rows = (
        Row(1500, 1800, SCORE, ENOUGH),  # in the first gap of step 0
        Row(12_200, 12_800, METRIC, ENOUGH),  # in the second gap of step 1
    )
    profile = profile_of(tmp_path, in_steps(*make, every=10_000), *rows)
    gaps = [(10_000 * at + begin, 10_000 * at + begin + 990) for at in range(3) for begin in (1010, 2010)]
    assert named(profile, *gaps) == [(SCORE, ENOUGH), (METRIC, ENOUGH)] * 3
    assert named(profile, (3010, 3020), (40_000, 41_000)) == [(None, 0)] * 2


def test_the_end_of_a_step_is_at_one_position(tmp_path: Path) -> None:
    """It is before the next step, whose name differs."""
    events = in_steps(slice_("aten::mm", 1000, 10), every=10_000)
    profile = profile_of(tmp_path, events, Row(11_500, 13_000, SCORE, ENOUGH))
    assert named(profile, (1010, 10_000), (11_010, 20_000)) == [(SCORE, ENOUGH)] * 2


@pytest.mark.parametrize("samples", [1, ENOUGH - 1])
def test_few_samples_of_another_step_name_nothing(tmp_path: Path, samples: int) -> None:
    """The interval that they are in keeps their line; those of the other steps have none."""
    events = in_steps(slice_("aten::mm", 1000, 10), every=10_000)
    profile = profile_of(tmp_path, events, Row(11_500, 11_500 + 500 * samples, SCORE, samples))
    gaps = (1010, 9000), (11_010, 19_000), (21_010, 29_000)
    assert named(profile, *gaps) == [(None, 0), (SCORE, samples), (None, 0)]


def test_few_samples_of_each_step_are_enough_together(tmp_path: Path) -> None:
    events = in_steps(slice_("aten::mm", 1000, 10), every=10_000)
    rows = [Row(at + 1500, at + 2000, SCORE) for at in (0, 10_000, 20_000)]
    gaps = (1010, 9000), (11_010, 19_000), (21_010, 29_000)
    assert named(profile_of(tmp_path, events, *rows), *gaps) == [(SCORE, 3)] * 3


@pytest.mark.parametrize(("samples", "line"), [(2, METRIC), (3, SCORE)])
def test_few_samples_give_way_to_those_at_this_position_in_all_steps(
    tmp_path: Path, samples: int, line: SampledLine
) -> None:
    events = in_steps(slice_("aten::mm", 1000, 10), every=10_000)
    rows = Row(1500, 2400, SCORE, samples), Row(11_500, 16_500, METRIC, 5), Row(21_500, 26_500, METRIC, 5)
    profile = profile_of(tmp_path, events, *rows)
    assert named(profile, (1010, 9000), (11_010, 19_000), (21_010, 29_000))[0][0] == line


def test_a_line_calls_what_it_calls_most_of_the_time(tmp_path: Path) -> None:
    rows = Row(0, 1000, SCORE._replace(called="")), Row(1000, 5000, SCORE, 4)
    profile = profile_of(tmp_path, THREADS, *rows)
    assert named(profile, (0, 6000)) == [(SCORE, 5)]


def test_another_process_or_no_samples(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = profile_of(tmp_path / "other", THREADS, Row(0, 1000), pid=PID + 1)
    assert named(other, (0, 9000)) == [(None, 0)]
    assert named(profile_with(tmp_path, THREADS, data_of(CompileSummary())), (0, 9000)) == [(None, 0)]
    assert named(profile_with(tmp_path, THREADS), (0, 9000)) == [(None, 0)]


def around(profile: Profile, *times: int, tid: int = MAIN) -> list[SampledLine | None]:
    """The lines that samples show around these times (µs) of a thread."""
    track = next(code for code, track in enumerate(profile.trace.tracks) if track.tid == tid)
    moments, lines = 1000 * np.array(times, np.int64), profile.of(samples).lines
    return [
        lines[line] if line >= 0 else None
        for line in lines_around(profile, np.full(len(times), track), moments).tolist()
    ]


def forward_and_metric(every: int = 10_000) -> list[Event]:
    """Steps in which a forward of 4 ms launches three operators, and a metric of 4 ms none."""
    make = [slice_("aten::mm", at, 1000) for at in (500, 2000, 3500)]
    return in_steps(*make, slice_("aten::sum", 9000, 500), every=every)


def test_between_two_samples_of_a_line_it_is_that_line(tmp_path: Path) -> None:
    """Also where the samples are of other steps."""
    rows = [Row(0, 600, FORWARD), Row(5000, 6000), Row(10_000, 14_400, FORWARD), Row(20_000, 28_000)]
    profile = profile_of(tmp_path, forward_and_metric(), *rows)
    assert around(profile, 1000, 12_000, 22_100, 7000, 16_500) == [FORWARD] * 3 + [METRIC] * 2
    assert around(profile, 300, 4800, 8500, 40_000) == [None] * 4, "before, between two lines, after, outside"


def test_between_samples_of_two_lines_it_is_the_line_that_calls_both(tmp_path: Path) -> None:
    callers = LOOP, SCORE
    lines = [METRIC._replace(line=4 + number % 2) for number in range(4)]
    rows = [Row(1000 * at, 1000 * at + 1000, line, callers=callers) for at, line in enumerate(lines)]
    rows.append(Row(5000, 8000, FORWARD, callers=(LOOP,)))
    assert around(profile_of(tmp_path, forward_and_metric(), *rows), 1500, 3500) == [SCORE] * 2


def test_a_line_of_the_step_counts_for_what_it_calls(tmp_path: Path) -> None:
    """Two lines in a function that the step calls, 4 ms each of 10; another line of the step has the last 2 ms."""
    lines = [METRIC._replace(line=4 + number % 2) for number in range(8)]
    rows = [
        Row(1000 * at, 1000 * at + 1000, line, callers=(LOOP, SCORE)) for at, line in enumerate(sorted(lines))
    ]
    rows += [Row(8000 + at, 8000 + at + 400, FORWARD, callers=(LOOP,)) for at in (0, 400, 800, 1200)]
    events = in_steps(*(slice_(f"aten::op{at}", 500 * at, 480) for at in range(20)), every=10_000)
    profile = profile_of(tmp_path, events, *rows)
    assert profile.of(called_from)[METRIC.file, 4] == (SCORE.file, SCORE.line)
    assert profile.of(called_from)[FORWARD.file, FORWARD.line] == (FORWARD.file, FORWARD.line)
    first = calling_sites(profile)[0]
    assert (first.file, first.line) == (SCORE.file, SCORE.line)
    assert first.time_us > 6000 > max(site.time_us for site in profile.of(ledger).sites)


def test_the_line_of_the_loop_names_nothing(tmp_path: Path) -> None:
    rows = [Row(0, 1000, LOOP), Row(1000, 2000, FORWARD, callers=(LOOP,)), Row(2000, 4000, LOOP, 2)]
    profile = profile_of(tmp_path, forward_and_metric(), *rows)
    assert around(profile, 1500, 2500, 3500) == [None] * 3


def test_one_line_in_all_samples_is_that_of_the_step(tmp_path: Path) -> None:
    rows = [Row(0, 1000, FORWARD, callers=(LOOP,)), Row(2000, 4000, FORWARD, callers=(LOOP,))]
    assert around(profile_of(tmp_path, forward_and_metric(), *rows), 1500, 3500) == [FORWARD] * 2


def test_a_thread_without_samples_works_for_the_one_that_has_them(tmp_path: Path) -> None:
    events = [*forward_and_metric(), slice_("aten::mm", 2500, 100, tid=AUTOGRAD)]
    rows = [Row(0, 1000, FORWARD), Row(2000, 4000, FORWARD)]
    assert around(profile_of(tmp_path, events, *rows), 2500, tid=AUTOGRAD) == [FORWARD]


def test_steps_that_run_something_else_in_between(tmp_path: Path) -> None:
    """The place of a time is by the slices that the steps share."""
    events = [*forward_and_metric(), *(slice_("aten::item", 11_600 + 20 * at, 10) for at in range(9))]
    rows = [Row(0, 600, FORWARD), Row(20_000, 24_000, FORWARD)]
    assert around(profile_of(tmp_path, events, *rows), 12_500, 11_700) == [FORWARD] * 2


@pytest.mark.parametrize(
    ("column", "value"),
    [("line", 9), ("thread", 9), ("samples", 0), ("start_ns", -(1 << 61)), ("line", None)],
)
def test_columns_that_cannot_be_are_taken_out_and_counted(column: str, value: int | None) -> None:
    summary = summary_of(Row(0, 1000), Row(1000, 2000, SCORE))
    if value is None:
        del getattr(summary.python_samples, column)[-1]
    else:
        getattr(summary.python_samples, column)[-1] = value
    assert not without_impossible(summary).HasField("python_samples")
    assert sum(summary.records.unreadable.values()) == 1


def test_a_caller_that_is_stored_after_its_line_is_none() -> None:
    summary = summary_of(Row(0, 1000, callers=(LOOP,)))
    summary.python_samples.lines[0].caller = 1
    assert not without_impossible(summary).HasField("python_samples")


# -- host time in which nothing was recorded ----------------------------------------------------------------------


def steps() -> list[Event]:
    """Three steps of 10 ms: nothing recorded for 8, then an operator that launches."""
    make = [slice_("aten::mm", 8000, 500), *launch("k", 8100, 8200, 10)]
    return in_steps(*make, every=10_000)


def test_it_is_the_sampled_line(tmp_path: Path) -> None:
    begins = 0, 10_000, 20_000
    rows = sorted(
        [Row(at + 1000, at + 6000, SCORE) for at in begins] + [Row(at + 6000, at + 7000) for at in begins]
    )
    profile = profile_of(tmp_path, steps(), *rows)
    found = profile.of(culprits)
    names = {(row.cause, row.name, row.file, row.line) for row in found.culprits}
    score = ("library", f"{SCORE.called} (sampled)", SCORE.file, SCORE.line)
    assert score in names and not any(name.startswith("precision") for _, name, _, _ in names)
    idle = {(row.cause, row.file, row.line): row.idle_us for row in idle_culprits(profile)}
    assert idle["library", SCORE.file, SCORE.line] >= 8000
    plain = idle_culprits(profile_with(tmp_path / "plain", steps()))
    assert sum(row.idle_us for row in plain) == pytest.approx(sum(idle.values())), "only the names change"
    assert not any(row.file for row in plain)


def test_without_a_called_function_it_is_python(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, steps(), *(Row(at + 1000, at + 6000) for at in (0, 10_000, 20_000)))
    found = {(row.cause, row.name): row for row in profile.of(culprits).culprits}
    assert found["python", "precision (sampled)"].line == METRIC.line


def test_what_was_recorded_keeps_its_name(tmp_path: Path) -> None:
    events = [*steps(), frame("train.py(3): log", 100, 7800)]
    profile = profile_of(tmp_path, events, Row(1000, 6000, SCORE))
    assert "train.py(3): log" in {row.name for row in profile.of(culprits).culprits}
    assert SCORE.file not in {row.file for row in profile.of(culprits).culprits}


def test_while_another_thread_launches_it_is_the_line_of_the_thread_before(tmp_path: Path) -> None:
    """autograd's thread has not begun, and the one that called it waits."""
    make = [*launch("k", 100, 200, 10), *launch("k", 8000, 8100, 10, tid=AUTOGRAD)]
    rows = [Row(at + 1000, at + 7000, BACKWARD, 3) for at in (0, 10_000, 20_000)]
    profile = profile_of(tmp_path, in_steps(*make, every=10_000), *rows)
    names = {row.name for row in profile.of(culprits).culprits}
    assert f"{BACKWARD.called} (sampled)" in names


def test_what_a_library_launches_is_part_of_its_time(tmp_path: Path) -> None:
    """A metric from 1 to 8 of 10 ms, of which its operators take 3."""
    make = [*launch("k", 100, 200, 10), *launch("last", 9000, 9100, 10)]
    for at in (2000, 4000, 6000):
        make += [slice_("aten::eq", at, 1000), *launch("eq", at + 500, at + 600, 10)]
    rows = [
        row
        for at in (0, 10_000, 20_000)
        for row in (
            Row(at, at + 900, FORWARD),
            Row(at + 900, at + 7500, SCORE, 5),
            Row(at + 7500, at + 9500, METRIC),
        )
    ]
    profile = profile_of(tmp_path, in_steps(*make, every=10_000), *rows)
    (found,) = [row for row in span_findings(profile) if row.title.startswith("sklearn computes metrics")]
    assert found.where == ["train.py:40"] and found.predicted
    assert found.predicted.after_us < 10_000 - 6000 < found.predicted.high_us


def test_what_a_closure_launches_is_not_the_optimizers(tmp_path: Path) -> None:
    """Norms that are logged before the optimizer's own kernel, as Lightning's hooks do."""
    make = [slice_("Optimizer.step#AdamW.step", 500, 9000, "user_annotation")]
    make += [slice_(NODE, 600, 400, tid=AUTOGRAD), *launch("k", 700, 800, 10, tid=AUTOGRAD)]
    for at in range(2000, 7000, 200):
        make += [slice_("aten::norm", at, 100), *launch("norm", at + 50, at + 60, 10)]
    make += launch("adam", 9000, 9100, 10)
    rows = [
        Row(10_000 * step + begin, 10_000 * step + end, line, 4, callers=(LOOP,))
        for step in range(3)
        for begin, end, line in ((0, 1200, FORWARD), (1400, 7200, SCORE), (7600, 9800, OPTIMIZER))
    ]
    assert "fused_optimizer" not in kinds(profile_of(tmp_path, in_steps(*make, every=10_000), *rows))
    unsampled = profile_with(tmp_path / "unsampled", in_steps(*make, every=10_000))
    assert "fused_optimizer" in kinds(unsampled)
