"""What the processes of a run compile now, by their status files: catalog.py, session.py, watch.py."""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace

import pytest

from tb_torchcompile_plugin.api.report import read_report
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.cli import main, watch
from tb_torchcompile_plugin.logdir.compile_status import CompileStatus, host_name

STATUS = CompileStatus(
    host=host_name(),
    pid=os.getpid(),
    rank=None,
    updated_s=0.0,  # since `write`
    seconds=41.2,
    compilations=3,
    compile_id="0/1",
    frame="forward (train.py:58)",
    direction="backward",
    phase="inductor",
    attempt=1,
    kernels_done=12,
    kernels=40,
    autotuning="",
)
DATA = Path(__file__).parents[1] / "data"
WORDS = "forward (train.py:58), 0/1 backward, inductor, 41 s, Triton kernels 12 of 40"


def write(folder: Path, status: CompileStatus) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"w.{status.pid}.pt.compiling"
    text = json.dumps(asdict(replace(status, updated_s=time.time() + status.updated_s)))
    file.write_bytes(text.replace("BYTE", "\xff").encode("latin-1"))
    return file


def gone() -> int:
    """The id of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


def listed(folder: Path) -> list[tuple[str, str]]:
    session = Session([("", str(folder))])
    runs = [(run.run, run.compiling) for run in session.runs().runs]
    assert [(row.run, row.compiling) for row in session.all_runs("").rows] == runs
    session.close()
    return runs


@pytest.mark.parametrize(
    ("change", "is_shown"),
    [
        ({}, True),
        ({"updated_s": -60.0}, False),
        ({"pid": gone()}, False),
        ({"pid": gone(), "host": "another"}, True),
        ({"pid": "a word"}, False),
        ({"frame": "BYTE"}, False),
    ],
)
def test_a_process_is_shown_while_it_compiles(
    tmp_path: Path, change: dict[str, object], is_shown: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "a", replace(STATUS, **change))  # type: ignore[arg-type]  # one field of any type
    assert listed(tmp_path) == ([("a", f"Compiling now: {WORDS}")] if is_shown else [])
    assert main(["watch", str(tmp_path), "--once"]) == 0
    assert (WORDS in capsys.readouterr().out) == is_shown


def test_of_several_processes_the_longest_is_named(tmp_path: Path) -> None:
    write(tmp_path, STATUS)
    write(tmp_path, replace(STATUS, pid=os.getppid(), rank=1, seconds=60.0, kernels=None, attempt=2))
    words = "forward (train.py:58), 0/1 backward, inductor, attempt 2, 60 s; 1 more process"
    assert listed(tmp_path) == [(".", f"Compiling now: {words}")]


def test_a_run_with_other_files_keeps_them(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    copytree(DATA / "cases" / "suppress_errors" / "run", folder)
    before = read_report(str(tmp_path))
    write(folder, STATUS)
    assert listed(tmp_path) == [("run", f"Compiling now: {WORDS}")]
    assert read_report(str(tmp_path)) == before


def test_watch_prints_a_line_for_each_change_and_ends_quietly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, STATUS)
    tuning = replace(STATUS, phase="autotune", autotuning="mm 8x8")
    changes = iter([STATUS, tuning])

    def sleep(seconds: float) -> None:
        if (change := next(changes, None)) is None:
            raise KeyboardInterrupt
        write(tmp_path, change)

    monkeypatch.setattr(watch, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    assert main(["watch", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    first, second = printed.out.splitlines()
    assert WORDS in first and "autotune of mm 8x8" in second and printed.err == ""
