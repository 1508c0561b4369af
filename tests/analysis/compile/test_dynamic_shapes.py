"""Which sizes came: against programs that cycle through known ones, and in made-up records."""

from pathlib import Path
from typing import Any

import pytest

from profiles import GraphProgram, data_of, profile_with
from tb_torchcompile_plugin.analysis.causes.findings import findings
from tb_torchcompile_plugin.analysis.compile.dynamic_sizes import DynamicShapeReport, dynamic_shapes
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileKey, CompileSummary
from traces import compiled_call, slice_

SIZE = "L['x'].size()[0]"


def calls(report: DynamicShapeReport) -> dict[int, int | None]:
    return {row.size: row.calls for row in report.sizes if row.handling == "dynamic"}


def test_sizes_are_counted_call_by_call(programs: dict[str, GraphProgram]) -> None:
    """The program cycles through 24, 17, 31, 24, 40, 24, 53, 31; its first two recorded steps are not there."""
    first, later = (profile.of(dynamic_shapes) for profile in programs["varying_batch"].spans)
    assert calls(first) == {31: 3, 24: 5, 40: 2, 53: 1, 17: 1}
    assert sum(count or 0 for count in calls(later).values()) == 6
    (symbol,) = later.symbols
    assert (symbol.symbol, symbol.source, symbol.origin, symbol.line) == ("s77", SIZE, "changed", 43)
    assert later.code == "torch._dynamo.mark_dynamic(x, 0)"


def test_what_is_compiled_for_each_size(programs: dict[str, GraphProgram]) -> None:
    report = programs["static_lengths"].spans[-1].of(dynamic_shapes)
    handling = {row.size: row.handling for row in report.sizes}
    rows = [size for size, how in handling.items() if how == "specialized"]
    assert rows == [17, 24, 31, 33, 40, 65, 72, 90]
    assert handling[50] == "eager", "the ninth, for which the recompile limit left no room"
    row = next(
        row for row in findings(programs["static_lengths"].spans[-1]).findings if row.rule == "dynamic_shapes"
    )
    assert row.code == "torch._dynamo.mark_dynamic(x, 0)" and row.evidence["sizes"] == 9


def test_a_size_that_is_specialised_again_names_its_line(programs: dict[str, GraphProgram]) -> None:
    profile = programs["specialised_length"].spans[-1]
    report = profile.of(dynamic_shapes)
    guard = report.guards[0]
    assert (guard.expression, guard.recompiles) == ("Eq((s77//32), 1) … Eq((s77//32), 5)", 4)
    assert guard.file.endswith("graphs.py") and guard.line == 266
    assert {row.symbol: row.fixed for row in report.symbols} == {"s77": None, "s27": "128"}
    assert sum(count or 0 for count in calls(report).values()) == 4, (
        "two of its six calls fell to versions that ran once"
    )
    row = next(row for row in findings(profile).findings if row.rule == "dynamic_shapes")
    assert row.where == ["graphs.py:266"]


def multiplied(folder: Path, dims: object, summary: CompileSummary) -> DynamicShapeReport:
    """What is said of one compiled product of these dimensions."""
    shapes: dict[str, Any] = {"Input Dims": dims}
    events = [*compiled_call("0/0", (0, 50), (5, 40)), slice_("aten::mm", 10, 5, **shapes)]
    return profile_with(folder, events, data_of(summary)).of(dynamic_shapes)


def test_nothing_is_guessed_of_two_dynamic_sizes(tmp_path: Path) -> None:
    summary = CompileSummary()
    for number, symbol in enumerate(("s1", "s2")):
        event = summary.shape_events.add(kind="create_symbol", symbol=symbol, value="8")
        event.key.compile_id, event.source = "0/0", f"L['x'].size()[{number}]"
    report = multiplied(tmp_path, [[8, 9], [9, 4]], summary)
    assert [row.origin for row in report.symbols] == ["asked"] * 2
    assert report.sizes == ()


def test_without_compile_data_it_is_unknown(tmp_path: Path) -> None:
    report = profile_with(tmp_path, [slice_("aten::mm", 0, 5)], None).of(dynamic_shapes)
    assert report.sentences[0].startswith("Whether sizes are dynamic is unknown")


@pytest.mark.parametrize("dims", [7, [[10**30]], "x"])
def test_sizes_that_no_tensor_has_are_none(tmp_path: Path, dims: object) -> None:
    summary = CompileSummary()
    event = summary.shape_events.add(kind="create_symbol", symbol="s1", value="²", source=SIZE)
    event.key.compile_id = "0/0"
    recompile = summary.recompiles.add(key=CompileKey(compile_id="0/1"))
    recompile.reasons.append("0/0: tensor 'x' size mismatch at index 0. expected s0, actual 4")
    report = multiplied(tmp_path, dims, summary)
    assert report.sizes == () and len(report.symbols) == 1
