"""A job in the terminal: first, with its ranks folded to a line each; and as tables of pandas."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import many_ranks
from browser.rank_traces import LATE_US
from recordings import Recording
from tb_torchcompile_plugin import load
from tb_torchcompile_plugin.cli.command import main
from traces import slice_, write_trace

pytestmark = pytest.mark.slow

PLANTED = many_ranks.Planted(rank=37, host=2, pair=3)


@pytest.fixture(scope="module")
def job(late_job: Callable[[int], Path]) -> Path:
    return late_job(3)


def test_the_job_is_first_and_its_ranks_fold(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(job), "--full"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "findings" and "  The tables of one rank: --rank N" in lines
    title = next(n for n, line in enumerate(lines) if line.startswith("by_rank"))
    at = next(n for n, line in enumerate(lines) if n > title and line.startswith("Rank "))
    assert lines[at].split()[:3] == ["Rank", "Communication", "Transfer"]
    assert [row.split()[0] for row in lines[at + 1 : at + 4]] == ["0", "1", "2"]
    assert "15.1 ms" in lines[at + 1] and "30.0 ms" in lines[at + 2] and "7.80 ms" in lines[at + 2]
    assert any(line.split()[:1] == ["nothing"] for line in lines)
    assert not any("  span " in line for line in lines if line.startswith("run "))


def test_what_ranks_compiled_differently_has_a_table(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(recording("jobs") / "lone_recompile"), "--full"]) == 0
    assert any(line.startswith("ranks.differences") for line in capsys.readouterr().out.splitlines())


def test_one_rank_unfolds(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(job), "--rank", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (place,) = [line for line in lines if line.startswith("run ") and "  span " in line]
    assert place.startswith("run .  worker rank1  span 1795000000000000001 ")
    assert "  rank1.1795000000000000001.pt.trace.json" in lines


def test_a_rank_that_is_not_there_is_a_wrong_argument(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(job), "--rank", "7"]) == 2
    assert "there is no rank 7: available: 0, 1, 2" in capsys.readouterr().err
    write_trace(tmp_path, [slice_("aten::mm", 0, 5)])
    assert main(["report", str(tmp_path), "--rank", "0"]) == 2
    assert "there is no job of several ranks" in capsys.readouterr().err


def test_without_a_job_nothing_folds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_trace(tmp_path, [slice_("aten::mm", 0, 5)])
    assert main(["report", str(tmp_path), "--full"]) == 0
    out = capsys.readouterr().out
    assert "  span " in out and "--rank N" not in out


def test_tables_are_those_of_the_json(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(job), "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    tables = load(str(job))
    for table, field in (
        ("job_ranks", "by_rank"),
        ("job_waits", "waits"),
        ("job_collectives", "collectives"),
        ("job_steps", "steps"),
        ("job_late", "late"),
    ):
        rows = [{"run": ".", **row} for row in run["job"][field]]
        assert all(row["id"].startswith(f"./-/-/{field}/") for row in rows)
        frame = tables[table].astype(object).where(tables[table].notna(), None)
        assert frame.to_dict("records") == rows and rows, table
    (late,) = tables.job_late.to_dict("records")
    assert late["rank"] == 1 and late["causes"][0]["excess_us"] == 3 * LATE_US
    assert tables.job.ranks.to_list() == [3]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    many_ranks.write_job(folder / "run", 72, PLANTED)
    return folder


def test_many_ranks_fit_one_screen(many: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(many)]) == 0
    verdict, *lines = capsys.readouterr().out.splitlines()
    finding, to_do, *rest = (line for line in lines if not line.startswith("    "))
    assert verdict.startswith("Job of 72 ranks, ") and "Rank 37 is the straggler" in finding
    assert to_do.startswith("Do: ") and len(rest) < 57
    head = rest.index("Ranks (5 of 72; waits are totals over the whole recording)") + 1
    assert rest[head].split()[:2] == ["Rank", "Host"] and rest[head + 1].split()[0] == "37"


def test_a_job_of_many_ranks_is_read_from_its_digests(many: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(many), "--full"]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0] == "findings" and "Rank 37 is the straggler" in lines[1]
    assert "\nby_rank: 12 of 64 rows" in out
    assert len(lines) < 170 and "  span " not in out


def test_the_json_of_many_ranks_is_bounded_and_all_is_there_for_the_asking(
    many: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(many), "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert len(run["job"]["by_rank"]) == 64 and run["job"]["left_out"]["by_rank"] == 8
    assert len(run["job"]["map"]["ranks"]) == 72 and run["workers"] == []
    assert main(["report", str(many), "--json", "--all"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert len(run["job"]["by_rank"]) == 72 and set(run["job"]["left_out"].values()) == {0}
    assert len(load(str(many)).job_ranks) == 72
    assert main(["report", str(many), "--rank", "99"]) == 2
    assert "no rank 99" in capsys.readouterr().err
