"""What is printed is never longer than was allowed, and what is left out is counted and can be had."""

import json
import shlex
from typing import Any

import msgspec
import pytest

from recordings import Recording
from tb_torchcompile_plugin.api.answers.bounded import AnswerLimits, Commands, bounded, fitted
from tb_torchcompile_plugin.api.answers.sections import Table, chosen, schema, tables
from tb_torchcompile_plugin.api.report import Report, read_report
from tb_torchcompile_plugin.api.routes import ROUTES
from tb_torchcompile_plugin.cli.command import main
from tb_torchcompile_plugin.errors import WrongArgument

pytestmark = pytest.mark.usefixtures("remembered")

ASK = Commands("runs", "", 10)


@pytest.fixture(scope="module")
def logdir(recording: Recording) -> str:
    return str(recording("breaks"))


@pytest.fixture(scope="module")
def report(logdir: str) -> Report:
    return read_report(logdir)


def cut(report: Report, ask: AnswerLimits) -> tuple[int, dict[str, Any]]:
    """Bytes, and the object."""
    text = msgspec.json.encode(bounded(tables(report), ask, "Step 6.02 ms", ASK))
    return len(text) + 1, json.loads(text)


def of_section(report: Report, section: str) -> Table:
    return next(one for one in tables(report) if one.section == section)


@pytest.mark.parametrize("most", [500, 1000, 2000, 4000, 8000, 20_000, 100_000, 1_000_000])
@pytest.mark.parametrize("sections", [(), ("findings", "steps", "kernels")])
def test_it_fits_and_nothing_is_lost(report: Report, most: int, sections: tuple[str, ...]) -> None:
    size, answer = cut(report, AnswerLimits(sections, None, most))
    mine = [one for one in tables(report) if not sections or one.section in sections]
    left = answer["omitted"] or {"tables": 0, "rows": 0}
    assert size <= most and len(answer["tables"]) + left["tables"] == len(mine)
    for one in answer["tables"]:
        out = one["omitted"]["rows"] if one["omitted"] else 0
        assert len(one["rows"]) + out == one["total"]
    assert sum(one["total"] for one in answer["tables"]) + left["rows"] == sum(len(one.rows) for one in mine)


def test_more_bytes_hold_more_rows(report: Report) -> None:
    rows = [
        sum(len(one["rows"]) for one in cut(report, AnswerLimits((), None, most))[1]["tables"])
        for most in (2000, 8000, 32_000, 1_000_000)
    ]
    assert rows == sorted(set(rows)) and rows[-1] == sum(len(one.rows) for one in tables(report))


def test_the_largest_tables_lose_rows_first(report: Report) -> None:
    _, answer = cut(report, AnswerLimits((), None, 60_000))
    assert answer["omitted"] is None
    sizes = {one["section"]: len(json.dumps(one["rows"])) for one in answer["tables"]}
    whole = [one["section"] for one in answer["tables"] if one["omitted"] is None]
    lost = [one["section"] for one in answer["tables"] if one["omitted"]]
    assert lost and whole and min(sizes[name] for name in lost) > 1000 and "steps" in whole


def test_the_share_is_that_of_the_times_left_out(report: Report) -> None:
    _, answer = cut(report, AnswerLimits(("kernels",), 5))
    (one,) = answer["tables"]
    times = [row.time_us for row in of_section(report, "kernels").rows]  # type: ignore[attr-defined]
    assert one["omitted"]["share"] == pytest.approx(sum(times[5:]) / sum(times), abs=1e-4)
    assert one["omitted"]["share_of"] == "time_us" and one["omitted"]["rows"] == len(times) - 5


def test_what_is_next_is_the_whole_table(
    report: Report, logdir: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = of_section(report, "kernels").ids
    argv = ["report", logdir, "--json", "--section", "kernels", "--top", "8", "--max-bytes", "9000"]
    assert main(argv) == 0
    out = capsys.readouterr().out
    (cut_table,) = json.loads(out)["tables"]
    assert len(out.encode()) <= 9000 and [row["id"] for row in cut_table["rows"]] == ids[:8]
    assert main(shlex.split(cut_table["omitted"]["next"])[1:]) == 0
    (whole,) = json.loads(capsys.readouterr().out)["tables"]
    assert [row["id"] for row in whole["rows"]] == ids and whole["omitted"] is None


def test_what_had_no_room_comes_next(logdir: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv, sections = ["report", logdir, "--json", "--max-bytes", "6000"], set()
    while argv:
        assert main(argv) == 0
        out = capsys.readouterr().out
        answer = json.loads(out)
        assert len(out.encode()) <= 6000 and answer["tables"]
        sections |= {one["section"] for one in answer["tables"] if one["rows"]}
        argv = shlex.split(answer["omitted"]["next"])[1:] if answer["omitted"] else []
    assert sections == {one.section for one in tables(read_report(logdir))}


def test_a_row_keeps_its_numbers_and_names_what_is_too_long(report: Report) -> None:
    _, answer = cut(report, AnswerLimits(("graph_break_sites",)))
    row, whole = answer["tables"][0]["rows"][0], of_section(report, "graph_break_sites").rows[0]
    assert row["host_us"] == whole.host_us and row["line"] == 26  # type: ignore[attr-defined]
    assert row["more"] == ["breaks"] and "breaks" not in row


def test_too_few_bytes_are_said_to_be(report: Report) -> None:
    with pytest.raises(WrongArgument) as error:
        cut(report, AnswerLimits((), None, 40))
    least = int(str(error.value).rpartition("at least ")[2].rstrip("."))
    assert cut(report, AnswerLimits((), None, least))[0] <= least


def test_sections_are_those_of_the_answers(report: Report) -> None:
    known = schema().sections
    for table in tables(report):
        rows = known[table.section].rows
        name = rows.get("job") if not table.place.worker and table.place.run else None
        name = (name or next(iter(rows.values())))["$ref"]
        fields = schema().definitions[name.rpartition("/")[2]]["properties"]
        assert set(fields) == set(type(table.rows[0]).__struct_encode_fields__), table.section
    assert {section.route for section in known.values()} - {None} <= set(ROUTES)
    assert {"kernels", "operators", "your_code", "findings", "by_rank"} <= set(known)


def test_a_section_is_all_that_begins_so() -> None:
    names = chosen(["steps", "gpu_utilization"])
    assert names[0] == "steps" and "gpu_utilization.idle_reasons" in names and "kernels" not in names
    with pytest.raises(WrongArgument, match="Similar names: kernels"):
        chosen(["kernel"])


class Answer(msgspec.Struct):
    """Of which the row alone may be too long."""

    id: str
    row: dict[str, Any]
    next: list[str]


@pytest.mark.parametrize("most_bytes", [200, 500, 2000, 9000])
def test_a_field_that_has_no_room_is_named(most_bytes: int) -> None:
    answer = Answer("kernel", {f"field{number}": "x" * 70 for number in range(40)}, ["show"])
    text = fitted(answer, most_bytes)
    assert len(text) <= most_bytes
    said = json.loads(text)
    assert "row" in said or "row" in said["left_out"]


def test_the_largest_list_loses_items_and_small_ones_none() -> None:
    rows = {"launches": [{"number": number, "words": "y" * 20} for number in range(200)], "stack": ["a", "b"]}
    said = json.loads(fitted(Answer("kernel", rows, ["show", "compare"]), 2000))
    kept = len(said["row"]["launches"])
    assert said["cut"] == {"row.launches": f"{kept} of 200"} and kept > 30
    assert said["row"]["stack"] == ["a", "b"] and said["next"] == ["show", "compare"]
    said = json.loads(fitted(Answer("kernel", rows | {"code": "z" * 9000}, []), 2000))
    # one does not lose all to the other
    assert len(said["row"]["launches"]) > 10 and len(said["row"]["code"]) > 500
    assert said["cut"]["row.code"] == f"{len(said['row']['code'])} of 9000"
