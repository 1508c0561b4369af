"""`tb-torchcompile export`: a file that is whole or not there, and what is said of it."""

import os
import subprocess
from pathlib import Path

import pytest

from browser.panels.exported import exported
from recordings import Recording
from terminal import Run, command_line
from traces import slice_, write_trace


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
    assert sorted(tmp_path.iterdir()) == before


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
        (("--worker", "other"), 2, "there is no trace of other. Choose one of (run worker span): . w 1"),
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
