"""`report` in a terminal: one screen, whose first three lines are enough to act on; and what else it can be asked."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recordings import Recording
from tb_torchcompile_plugin.analysis.causes.overview import NOTHING_FASTER
from tb_torchcompile_plugin.api.report import Report, read_report
from tb_torchcompile_plugin.cli.command import main
from tb_torchcompile_plugin.cli.text import NOTHING_IN_A_PART
from terminal import Run, command_line, of_commands, screen_lines

DATA = Path(__file__).parents[1] / "data"
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("remembered")]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return command_line(capsys, "report")


@pytest.fixture(scope="module")
def job(late_job: Callable[[int], Path]) -> Path:
    return late_job(3)


def said(report: Report) -> str:
    return "\n".join(screen_lines(report, ".", 100))


def test_of_a_job_the_rank_and_its_price_come_first(run: Run, job: Path) -> None:
    verdict, *lines = run(job)[1].splitlines()
    assert verdict.startswith("Job of 3 ranks")
    finding, to_do, *rest = (line for line in lines if not line.startswith("    "))
    assert "Rank 1" in finding and "ms" in finding and to_do.startswith("Do: ")
    ranks = rest[rest.index("Ranks (3 of 3; waits are totals over the whole recording)") + 1 :]
    assert re.search(r"Waits for others +Others wait for it", ranks[0])
    assert ranks[1].split()[0] == "1"


def test_of_a_job_the_worker_of_the_compilations_is_named(run: Run, recording: Recording) -> None:
    lines = run(recording("ddp"))[1].splitlines()
    assert "Compiled, on worker rank1" in lines and "Compiled" not in lines
    assert "Compiled" in run(recording("breaks"))[1].splitlines()


def test_the_first_finding_is_never_cut(job: Path) -> None:
    report = read_report(str(job))
    (first, *_) = report.findings
    for width in (60, 80, 100, 120):
        lines = screen_lines(report, ".", width)
        assert first.title in " ".join(" ".join(lines).split())
        assert all(len(line) <= width for line in lines if line not in of_commands(lines))


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_width_of_the_terminal_is_kept(recording: Recording, width: int) -> None:
    lines = screen_lines(read_report(str(recording("breaks"))), "runs", width)
    commands = of_commands(lines)
    assert all(len(line) <= width for line in lines[: -len(commands)])
    assert all(len(line) <= width or line.startswith("  tb-torchcompile ") for line in commands)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_sentence_of_the_screen_is_cut(recording: Recording, width: int) -> None:
    """Nor is a number parted from its unit."""
    lines = screen_lines(read_report(str(recording("breaks"))), "runs", width)
    assert not any("…" in line for line in lines)
    assert not any(re.match(r" *(ms|µs|s|%)\b", line) for line in lines)


def test_the_suggested_commands_work(
    run: Run, recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run(recording("breaks"))[1]
    commands = re.findall(r"^  tb-torchcompile ([^#\n]*)", out, re.MULTILINE)
    assert len(commands) == 5
    for command in commands:
        if "AFTER" not in command:
            assert main(command.split()) == 0, command


def test_a_part_of_a_trace_may_lack_what_is_to_be_changed(
    run: Run, recording: Recording, tmp_path: Path
) -> None:
    """Cut off, an eager ResNet-18 had a critical finding of what its missing half did."""
    text = next(recording("resnet18_eager").glob("*.pt.trace.json")).read_bytes()
    (tmp_path / "x.1.pt.trace.json").write_bytes(text[: len(text) * 6 // 10])
    headline, missing, *lines = run(tmp_path)[1].splitlines()
    assert "→" not in headline and missing.startswith("The trace is cut off") and NOTHING_IN_A_PART in lines


def test_of_several_spans_the_one_with_the_numbers_is_named(
    run: Run, recording: Recording, tmp_path: Path
) -> None:
    text = next(recording("breaks").glob("*.pt.trace.json")).read_bytes()
    for time in (17, 18):
        (tmp_path / f"x.{time}.pt.trace.json").write_bytes(text)
    assert "\nWhere the time of a step goes (mean of 3), in span 1 of 2: GPU" in run(tmp_path)[1]


def test_what_is_cut_before_its_first_event_does_not_blame_the_schedule(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x.1.pt.trace.json").write_text(
        '{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "cpu'
    )
    assert "No findings in the part that could be read" in run(tmp_path)[1]


@pytest.mark.parametrize("number", ["-1", "many"])
def test_a_number_that_is_none(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["report", "/nowhere", "--top", number])
    assert f"argument --top: '{number}' is not a non-negative integer" in capsys.readouterr().err


def test_what_is_only_worth_knowing_is_no_cause(run: Run, recording: Recording) -> None:
    """That CUDA graphs are replayed, or that a cache was bypassed, makes no step slower."""
    assert NOTHING_FASTER not in run(recording("breaks"))[1]
    screen = " ".join(run(recording("4_graphs"))[1].split())
    headline, findings = screen.split("CUDA graphs are replayed", 1)
    assert NOTHING_FASTER in headline and NOTHING_FASTER not in findings


def test_of_several_runs_the_newest_is_shown_and_the_others_are_listed(
    run: Run, recording: Recording, tmp_path: Path
) -> None:
    shutil.copytree(recording("breaks"), tmp_path / "newer")
    assert run(tmp_path)[1].startswith("Host-bound: ")
    shutil.copytree(recording("resnet18"), tmp_path / "older")  # its first finding saves more
    out = run(tmp_path)[1]
    assert out.startswith("Run newer: Host-bound: 6.02 ms per step") and "older: " not in out
    head, row = out.partition("\nOther runs, newest first\n")[2].splitlines()[:2]
    assert head.split()[:2] == ["Run", "Step"] and row.split()[:3] == ["older", "13.0", "ms"]


def test_runs_that_are_not_listed_are_counted_and_can_be_asked_for(
    run: Run, recording: Recording, tmp_path: Path
) -> None:
    for number in range(11):
        (tmp_path / str(number)).mkdir()
        shutil.copy(next(recording("breaks").glob("dedicated_log*")), tmp_path / str(number))
    lines = screen_lines(read_report(str(tmp_path)), "runs", 80)
    assert "Other runs, newest first: 8 of 10 rows" in "\n".join(lines)
    assert "  tb-torchcompile report runs --json --section all_runs  # all runs" in lines


def test_tables_are_printed_for_people_too(run: Run, recording: Recording) -> None:
    assert "0 of" in run(recording("breaks"), "--section", "kernels", "--top", "0")[1]
    status, out, _ = run(recording("breaks"), "--section", "kernels", "--top", "2")
    assert status == 0 and "kernels: 2 of 37 rows, " in out and " columns" in out
    assert out.startswith("run .  worker vm_1027  span 1795230252555613000 ──")


@pytest.mark.parametrize("section", ["findings", "all_runs"])
def test_what_is_left_out_of_a_table_of_all_runs_is_of_all_runs(
    run: Run, recording: Recording, tmp_path: Path, section: str
) -> None:
    for name in ("a", "b"):
        shutil.copytree(recording("breaks"), tmp_path / name)
    (whole,) = cut_tables(run, tmp_path, "--section", section)
    (table,) = cut_tables(run, tmp_path, "--section", section, "--top", "1")
    assert table["rows"] == whole["rows"][:1] and table["omitted"]["rows"] == len(whole["rows"]) - 1
    assert len({row["id"].split("/")[0] for row in whole["rows"]}) == 2


def cut_tables(run: Run, logdir: Path, *arguments: str) -> list[dict[str, Any]]:
    tables: list[dict[str, Any]] = json.loads(run(logdir, "--json", *arguments)[1])["tables"]
    return tables


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--section", "kernel"], "Similar names: kernels"), (["--max-bytes", "10", "--json"], "Allow")],
)
def test_wrong_arguments_are_exit_two(
    run: Run, recording: Recording, arguments: list[str], said: str
) -> None:
    status, out, err = run(recording("breaks"), *arguments)
    assert (status, out, err.count("\n")) == (2, "", 1) and said in err


def test_show_in_a_terminal(recording: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    show = command_line(capsys, "show")
    logdir = recording("breaks")
    (table,) = cut_tables(command_line(capsys, "report"), logdir, "--section", "kernels")
    id = next(row["id"] for row in table["rows"] if "triton_poi" in row["id"])
    status, out, _ = show(id, "--logdir", logdir)
    assert status == 0 and "@triton.jit" in out and "In the tab: #torch_compile" in out
    assert json.loads(show(id, "--logdir", logdir, "--json")[1])["id"] == id
    status, out, err = show(id + "x", "--logdir", logdir)
    assert (status, out) == (2, "") and id in err
    assert show(id, "--logdir", logdir / "nothing")[0] == 1


def test_show_looks_where_everybody_records(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    show = command_line(capsys, "show")
    monkeypatch.chdir(recording("breaks"))
    assert show("./vm_1027/1795230252555613000/steps/ProfilerStep%232")[0] == 0
    (tmp_path / "runs").symlink_to(recording("breaks"))
    monkeypatch.chdir(tmp_path)
    assert show("./vm_1027/1795230252555613000/steps/ProfilerStep%232")[0] == 0


def test_a_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    schema = command_line(capsys, "schema")
    assert "kernels: per span, share of time_us" in schema()[1]
    document: dict[str, Any] = json.loads(schema("--json")[1])
    assert document["sections"]["kernels"]["rows"]["span"] == {"$ref": "#/definitions/Kernel"}
    assert "time_us" in document["definitions"]["Kernel"]["properties"]


def test_a_report_of_nothing_has_no_screen(run: Run, tmp_path: Path) -> None:
    status, out, err = run(tmp_path)
    assert (status, out) == (1, "") and "no trace" in err
    assert isinstance(read_report(str(tmp_path)), Report)
