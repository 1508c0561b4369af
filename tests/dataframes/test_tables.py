"""`load` has what `report --json` has, row by row."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fresh import loaded_by
from tb_torchcompile_plugin import load
from tb_torchcompile_plugin.cli.command import main
from tb_torchcompile_plugin.dataframes import Tables
from tb_torchcompile_plugin.errors import UserError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("remembered")]

DOCUMENT = Path(__file__).parents[2] / "docs" / "guides" / "export.md"
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def runs(recording: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logdir") / "runs"
    folder.mkdir()
    for name in ("resnet18", "resnet18_eager"):
        (folder / name).symlink_to(recording(name))
    return folder


@pytest.fixture(scope="module")
def tables(runs: Path) -> Tables:
    """Of these runs: change nothing in them."""
    return load(str(runs))


def lists_in(node: dict[str, Any], ids: dict[str, Any], path: str = "") -> Iterator[tuple[str, Rows]]:
    """Every list of objects in a JSON object, with the name that its table should have."""
    for key, value in node.items():
        if (
            isinstance(value, list)
            and value
            and isinstance(value[0], dict)
            and key not in ("workers", "spans")
        ):
            yield path + key, [{**ids, **row} for row in value]
        elif isinstance(value, dict) and key != "compile":
            yield from lists_in(value, ids, f"{path}{key}_")


def test_every_list_of_the_report_is_a_table(
    runs: Path, tables: Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(runs), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    expected: dict[str, Rows] = {name: report[name] for name in ("all_runs", "findings")}
    for run in report["runs"]:
        for name, rows in lists_in(run, {"run": run["run"]}):
            expected.setdefault(name, []).extend(rows)
        for worker in run["workers"]:
            ids = {"run": run["run"], "worker": worker["worker"]}
            nodes = [(span, ids | {"span": span["span"]}) for span in worker["spans"]]
            start = {"startup": worker["startup"]} if worker["startup"] else {}
            for node, where in [*nodes, (worker["compile"] or {}, ids), (start, ids)]:
                for name, rows in lists_in(node, where):
                    expected.setdefault(name, []).extend(rows)
    assert {name for name, frame in tables.items() if len(frame)} == {
        *expected,
        "spans",
        "workers",
        "compile",
    }
    assert len(expected) >= 19
    for name, rows in expected.items():
        table = tables[name].astype(object).where(tables[name].notna(), None)
        assert list(table.columns) == list(rows[0]), name
        assert table.to_dict("records") == rows, name


def test_single_values_are_tables_too(tables: Tables) -> None:
    assert tables.spans.set_index("run").events.to_dict() == {"resnet18": 7364, "resnet18_eager": 11213}
    assert tables["compile"].set_index("run").source.to_dict() == {"resnet18": "torch_trace"}
    assert list(tables.workers.columns) == ["run", "worker", "rank"]


def test_tables_without_rows_have_their_columns(recording: Callable[[str], Path]) -> None:
    (trace,) = recording("resnet18_eager").glob("*.trace.json")
    tables = load(str(trace))
    assert tables.graph_breaks.empty and {"run", "worker", "reason", "file", "line"} <= {*tables.graph_breaks}
    assert "graph_breaks" in dir(tables) and "operators=" in repr(tables)
    with pytest.raises(AttributeError, match="no table 'kernel'"):
        _ = tables.kernel


def test_what_was_read_in_part_has_a_row_of_warnings(
    recording: Callable[[str], Path], tmp_path: Path
) -> None:
    (trace,) = recording("resnet18").glob("*.trace.json")
    (tmp_path / trace.name).write_bytes(trace.read_bytes()[:100_000])
    (row,) = load(str(tmp_path)).warnings.to_dict("records")
    assert row["worker"] == "vm_424" and "cut off" in row["problem"]


def test_the_verdict_is_what_the_tab_opens_with(tables: Tables, recording: Callable[[str], Path]) -> None:
    lines = tables.verdict.splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["resnet18 vm_424", "resnet18_eager vm_1119"]
    (trace,) = recording("resnet18").glob("*.trace.json")
    alone = load(str(trace)).verdict
    assert alone.startswith("Host-bound: 13.0 ms per step") and "\n" not in alone


def test_two_runs_are_compared(tables: Tables) -> None:
    compared = tables.compare("resnet18_eager", "resnet18")
    assert compared.verdict.startswith("No clear difference: the mean step takes 13.0 ms instead of 13.6 ms")
    step = compared.figures.set_index("name").loc["step_us"]
    assert step.value_delta == pytest.approx(step.value_candidate - step.value_baseline)
    assert {"time_us_baseline", "time_us_candidate", "launches_delta"} <= {*compared.kernels}
    assert compared.compilations.empty
    assert {"duration_s_baseline", "duration_s_candidate", "duration_s_delta", "outcome"} <= {
        *compared.compilations
    }
    with pytest.raises(UserError, match="nowhere"):
        tables.compare("nowhere", "resnet18")


def test_a_comparison_has_the_same_columns_with_rows_and_without(tables: Tables) -> None:
    some, none = tables.compare("resnet18_eager", "resnet18"), tables.compare("resnet18", "resnet18")
    assert {name: [*some[name]] for name in some} == {name: [*none[name]] for name in none}


def test_a_relative_logdir_is_compared_from_anywhere(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs.parent)
    known = load(runs.name)
    monkeypatch.chdir("/")
    assert known.compare("resnet18_eager", "resnet18").verdict


def test_a_notebook_shows_verdict_findings_and_tables(tables: Tables) -> None:
    shown = tables._repr_html_()
    assert tables.verdict.splitlines()[0] in shown and tables.findings.title[0] in shown
    assert "<code>kernels</code>" in shown
    assert "&lt;b&gt;" in Tables({}, "<b>")._repr_html_()


def test_errors_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="no trace, compile summary or TORCH_TRACE log"):
        load(str(tmp_path))
    with pytest.raises(UserError, match="no such file or folder"):
        load(str(tmp_path / "nowhere"))
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install 'tb-torchcompile-plugin\[pandas\]'"):
        load(str(tmp_path))


def test_naming_it_loads_neither_pandas_nor_torch() -> None:
    assert not loaded_by("from tb_torchcompile_plugin import load") & {"pandas", "torch", "tensorboard"}


def test_the_recipes_run(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(runs.parent)
    names: dict[str, Any] = {}
    recipes = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
    assert len(recipes) == 6
    for recipe in recipes:
        exec(recipe, names)
    assert "convolution" in capsys.readouterr().out
    sums = names["parts"].groupby(["run", "step"]).time_us.sum()
    pd.testing.assert_series_equal(
        sums, names["tables"].step_steps.set_index(["run", "step"]).wall_us, check_names=False
    )
