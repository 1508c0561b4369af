"""`tb-torchcompile export`: a file that is whole or not there, and what is said of it."""

import gzip
import json
import os
import shutil
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from browser.panels.exported import exported
from recordings import Recording
from tb_torchcompile_plugin.logdir.discovery import discover
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.trace.kineto import read_trace
from tb_torchcompile_plugin.torch_names.slices import GPU_CATS, LANE_CAT
from terminal import Run, command_line
from traces import slice_, write_trace

pytestmark = pytest.mark.slow


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return command_line(capsys, "export")


def test_a_file_is_written_and_its_content_listed(run: Run, recording: Recording, tmp_path: Path) -> None:
    file = tmp_path / "new" / "out.html"
    status, out, err = run(recording("breaks"), file, "--budget", "0.5", "--no-code", "--step", "4")
    assert (status, out) == (0, "")
    said = err.splitlines()
    assert said[0].startswith(f"wrote {file}: ") and said[0].endswith(" kB")
    assert any("ProfilerStep#4" in line for line in said)
    assert "  Code and graphs: --no-code" in said
    held = exported(file).contents
    assert [f"  {one['what']}: {one['text']}" for one in held["holds"] + held["left_out"]] == said[1:]
    assert [path.name for path in file.parent.iterdir()] == ["out.html"]


def test_nothing_is_left_where_it_cannot_be_written(run: Run, tmp_path: Path) -> None:
    write_trace(tmp_path, [slice_("aten::mm", 3, 4)])
    (tmp_path / "out.html").mkdir()
    before = sorted(tmp_path.iterdir())
    status, _, err = run(tmp_path, tmp_path / "out.html")
    assert status == 1 and "cannot be written (Is a directory)" in err
    os.mkfifo(pipe := tmp_path.parent / f"{tmp_path.name} pipe")
    assert run(tmp_path, pipe)[0] == 1 and pipe.is_fifo()
    assert sorted(tmp_path.iterdir()) == before


def test_an_exported_step_is_a_run_only_without_its_trace(
    run: Run, recording: Recording, tmp_path: Path
) -> None:
    trace = next(recording("breaks").glob("*.pt.trace.json"))
    original = shutil.copy(trace, tmp_path)
    assert run(tmp_path, tmp_path / "step.json.gz", "--trace")[0] == 0
    for named in (trace.name, "step.json.gz"):
        (listed,), notices = discover(str(tmp_path))
        spans = [span.file.name for worker in listed.workers.values() for span in worker.spans]
        assert (spans, notices) == ([named], [])
        Path(original).unlink(missing_ok=True)


def test_the_next_export_removes_what_a_killed_one_left(run: Run, tmp_path: Path) -> None:
    write_trace(tmp_path, [slice_("aten::mm", 3, 4)])
    gone = subprocess.Popen(["true"])
    gone.wait()
    for pid in (gone.pid, os.getppid()):
        (tmp_path / f"out.html.{pid}.tmp").touch()
    assert run(tmp_path, tmp_path / "out.html")[0] == 0
    assert [path.name for path in tmp_path.glob("*.tmp")] == [f"out.html.{os.getppid()}.tmp"]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("--run", "other"), 2, "there is no run 'other'. Available: '.'"),
        (("--compare", "other"), 2, "there is no run 'other'"),
        (("--worker", "other"), 2, "there is no trace of 'other'. Choose one of (run worker span): . w 1"),
        (("--step", "9"), 2, "there is no step 'ProfilerStep#9'"),
    ],
)
def test_what_is_not_there_is_said_and_nothing_written(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], status: int, said: str
) -> None:
    write_trace(tmp_path, [slice_("aten::mm", 3, 4)])
    answer, out, err = run(tmp_path, tmp_path / "out.html", *arguments)
    assert (answer, out) == (status, "") and said in err
    assert not (tmp_path / "out.html").exists()


@pytest.mark.parametrize("budget", ["nan", "inf", "-1", "much"])
def test_a_budget_is_a_size(run: Run, tmp_path: Path, budget: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        run(tmp_path, tmp_path / "out.html", "--budget", budget)
    assert stopped.value.code == 2


BROKEN = "vm_1.1795230252555613000.pt.trace.json"


def test_where_nothing_can_be_read_there_is_no_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / BROKEN).write_text("nonsense")
    status, out, err = run(tmp_path, tmp_path / "out.html")
    assert (status, out, err.count("\n")) == (1, "", 1) and BROKEN in err
    assert [path.name for path in tmp_path.iterdir()] == [BROKEN]


Spans = list[tuple[str, Decimal, Decimal]]  # name, ts and dur in µs


def spans(events: list[dict[str, Any]], *cats: str) -> Spans:
    return [(one["name"], one["ts"], one["dur"]) for one in events if one.get("cat") in cats]


@pytest.mark.parametrize(("name", "step"), [("breaks", "ProfilerStep#3"), ("ddp", "ProfilerStep#4")])
def test_a_step_as_a_trace_has_the_same_kernels_and_our_lanes(
    run: Run, recording: Recording, tmp_path: Path, name: str, step: str
) -> None:
    """In the file times are decimals of µs: they are compared as such."""
    file = tmp_path / "step.json.gz"
    status, out, err = run(recording(name), "--trace", file)
    assert (status, out) == (0, "") and step in err  # by default the one closest to the mean
    assert run(recording(name), "--trace", tmp_path / "named.json", "--step", step[-1])[0] == 0
    text = gzip.decompress(file.read_bytes())
    assert text == (tmp_path / "named.json").read_bytes()
    events = json.loads(text, parse_float=Decimal)["traceEvents"]
    source = min(recording(name).rglob("*.pt.trace.json*"))
    whole = json.loads(source.read_text(), parse_float=Decimal)["traceEvents"]
    kernels, ours = spans(events, *GPU_CATS), [one for one in events if one.get("cat") == LANE_CAT]
    first, last = (limit(ts for _, ts, _ in kernels) for limit in (min, max))
    assert kernels == [one for one in spans(whole, *GPU_CATS) if first <= one[1] <= last]
    threads = grouped(ours, lambda one: one["tid"])
    of_kernels = [one for tid, lane in threads.items() if tid.startswith("Kernel categories") for one in lane]
    again = [(one["args"]["kernel"], one["ts"], one["dur"]) for one in of_kernels]
    assert sorted(again) == sorted(kernels)
    assert any(":" in line for one in of_kernels for line in one["args"].get("lines", ()))
    assert {"Steps", "Compiled regions", "Idle, GPU 0"} <= {*threads}
    for lane in threads.values():  # Perfetto drops what overlaps on a thread without being nested
        ends: list[Decimal] = []
        for _, ts, dur in sorted(spans(lane, LANE_CAT), key=lambda one: (one[1], -one[2])):
            ends = [end for end in ends if end > ts]
            assert all(ts + dur <= end for end in ends)
            ends.append(ts + dur)
    read = read_trace(str(file))
    assert not read.notices and LANE_CAT not in read.cats
    assert sorted(read.dur[read.select(cat=GPU_CATS)].tolist()) == sorted(
        int(dur * 1000) for *_, dur in kernels
    )
