"""Each row of each table has an id that is one word, stays the same, and names that row alone."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordings import Recording
from tb_torchcompile_plugin.api.answers.bounded import Commands
from tb_torchcompile_plugin.api.answers.sections import LEVELS, Address, address, encoded, tables
from tb_torchcompile_plugin.api.answers.show import Logdir
from tb_torchcompile_plugin.api.report import Report, read_report
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.errors import WrongArgument
from traces import kernel, slice_, write_trace

pytestmark = [pytest.mark.usefixtures("remembered"), pytest.mark.slow]

ASK = Commands("runs")
NAMES = st.text(st.characters(), max_size=30)
ODD = ["-", "--", "a/b", "%2F", "a b", "void f<T, 4>(T&&)", "a~2", "ü#?&=", "'\"$(x)`", "\udcff"]


@pytest.fixture(scope="module")
def reports(recording: Recording, late_job: Callable[[int], Path]) -> dict[str, Report]:
    folders = {"job": late_job(3)} | {
        name: recording(name) for name in ("breaks", "max_autotune", "old_logs")
    }
    return {name: read_report(str(folder)) for name, folder in folders.items()}


@given(NAMES, NAMES, NAMES, NAMES)
def test_any_name_survives(run: str, worker: str, span: str, key: str) -> None:
    for made in (Address(run, worker, span, "kernels", key), Address(run, worker, span)):
        assert address(str(made)) == made
        assert shlex.quote(str(made)).strip("'") == str(made) and str(made).isascii()


@pytest.mark.parametrize("name", ODD)
def test_odd_names_survive(name: str) -> None:
    made = Address(name, name, name, "kernels", name)
    assert address(str(made)) == made and shlex.split(str(made)) == [str(made)]


def test_ids_are_read_by_people() -> None:
    assert str(Address("train/a", "vm_1", "17", "compilations", "0/0,0,forward")) == (
        "train%2Fa/vm_1/17/compilations/0/0,0,forward"
    )
    assert str(Address(".", "", "", "by_rank", "3")) == "./-/-/by_rank/3"


@pytest.mark.parametrize("text", ["", "kernels", "./vm", "//", "./vm//kernels/x"])
def test_what_is_no_id_is_said_to_be_none(text: str) -> None:
    with pytest.raises(WrongArgument, match="RUN/WORKER/SPAN"):
        address(text)


@pytest.mark.parametrize("name", ["breaks", "max_autotune", "old_logs", "job"])
def test_every_row_has_an_id_of_its_own(reports: dict[str, Report], name: str) -> None:
    ids = [id for table in tables(reports[name]) for id in table.ids]
    assert len(ids) > 20 and len(set(ids)) == len(ids)
    assert all(str(address(id)) == id for id in ids)


@pytest.mark.parametrize("name", ["breaks", "max_autotune", "old_logs", "job"])
def test_without_ids_the_report_is_what_it_was(reports: dict[str, Report], name: str) -> None:
    plain = msgspec.to_builtins(reports[name])
    seen = json.loads(encoded(reports[name]))
    assert seen != plain and _rows(seen) > 20
    assert _without_ids(seen) == json.loads(msgspec.json.encode(plain))


def _rows(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(map(_rows, inner)) + (isinstance(value, dict) and "id" in value)


def _without_ids(value: Any) -> Any:
    """Ours alone: a fix has another `id`, and ours is its `address`."""
    if isinstance(value, dict):
        ours = "address" if "address" in value else "id"
        return {name: _without_ids(one) for name, one in value.items() if name != ours}
    return list(map(_without_ids, value)) if isinstance(value, list) else value


def test_every_list_of_rows_is_identified(reports: dict[str, Report]) -> None:
    """But for places, and for what is a part of a row."""

    def walk(value: Any, path: str) -> list[str]:
        if isinstance(value, list) and value and isinstance(value[0], dict):
            name = path.rpartition(".")[2]
            if "id" in value[0]:
                return []
            return [m for one in value for m in walk(one, path)] if name in LEVELS else [path]
        if isinstance(value, dict):
            return [missing for name, one in value.items() for missing in walk(one, f"{path}.{name}")]
        return []

    for report in reports.values():
        without = {path.rpartition(".")[2] for path in walk(json.loads(encoded(report)), "")}
        assert without <= {"warnings"}


def test_each_id_leads_back_to_its_row(recording: Recording) -> None:
    logdir = Logdir(Session([("", str(recording("breaks")))]))
    for table in tables(logdir.report()):
        for id, row in zip(table.ids, table.rows):
            if table.section != "kernels" or id == table.ids[0]:  # their launches are looked up
                shown = logdir.show(id, ASK)
                assert (shown.id, shown.section, shown.row) == (id, table.section, row)


def test_ids_are_the_same_the_next_time(recording: Recording, reports: dict[str, Report]) -> None:
    again = read_report(str(recording("breaks")))
    assert [one.ids for one in tables(again)] == [one.ids for one in tables(reports["breaks"])]


def test_a_kernel_of_any_name_is_found_again(tmp_path: Path) -> None:
    names = ["a/b c", "void f<T, 4>(T&&)::{lambda}", "x" * 1500, "x" * 1499 + "y", "~2", "%20"]
    events = [slice_("op", 0, 900)] + [kernel(name, 10 * at, 2) for at, name in enumerate(names, 1)]
    write_trace(tmp_path / "a run", events, "w.1.pt.trace.json")
    logdir = Logdir(Session([("", str(tmp_path))]))
    (table,) = [one for one in tables(logdir.report()) if one.section == "kernels"]
    assert {logdir.show(id, ASK).row.name for id in table.ids} == set(names)
    assert max(map(len, table.ids)) < 200
