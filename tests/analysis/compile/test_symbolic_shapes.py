"""Symbols, what they were fixed to, and what guards them."""

import json
from typing import Any

from compile_records import START_US, envelope, summary_of
from profiles import data_of
from recordings import Recording
from tb_torchcompile_plugin.analysis.compile.recompiles import SymbolicShapes, changed_inputs, symbolic_shapes
from tb_torchcompile_plugin.compile_log.record import Record
from tb_torchcompile_plugin.reader.torch_trace.structured_log import read_log

STACK = [{"line": 78, "name": "g", "filename": 1, "loc": "return secret(x)"}]


def record(kind: str, attempt: int = 0, **details: Any) -> Record:
    return Record({**envelope(kind, {"user_stack": STACK, **details}), "attempt": attempt})


def change(**arguments: Any) -> Record:
    event = {"name": "automatic_dynamic", "ts": START_US, "ph": "i"}
    event["args"] = {"compile_id": "0/0", **arguments}
    return Record(envelope("chromium_event", {}), json.dumps(event))


def shapes(records: list[Record]) -> SymbolicShapes:
    summary = summary_of([Record({"str": ["/train.py", 1]}), *records], readable=True)
    return symbolic_shapes(data_of(summary), 0, "0/0")


SYMBOL = record("create_symbol", symbol="s77", val="16", vr="[2, int_oo]", source="L['x'].size()[0]")
FIXED = record(
    "symbolic_shape_specialization",
    symbol="s77",
    sources=["L['x'].size()[0]", "L['y'].size()[0]"],
    value="7",
    reason="range_refined_to_singleton",
)


def test_a_symbol_has_its_range_and_the_input_it_comes_from() -> None:
    (row,) = shapes([SYMBOL]).symbols
    assert (row.symbol, row.value, row.range, row.source) == ("s77", "16", "[2, int_oo]", "L['x'].size()[0]")
    assert (row.origin, row.file, row.line) == ("asked", "/train.py", 78)


def test_a_symbol_that_only_data_decides() -> None:
    (row,) = shapes([record("create_unbacked_symbol", symbol="u0", vr="[-int_oo, int_oo]")]).symbols
    assert (row.symbol, row.value, row.origin) == ("u0", None, "data")


def test_a_symbol_that_was_fixed_says_why() -> None:
    (row,) = shapes([SYMBOL, FIXED]).symbols
    assert (row.symbol, row.fixed, row.reason) == ("s77", "7", "range_refined_to_singleton")


def test_attempts_that_were_thrown_away_do_not_count() -> None:
    later = record("create_symbol", attempt=1, symbol="s1", val="3")
    assert [row.symbol for row in shapes([SYMBOL, later]).symbols] == ["s1"]


def test_a_guard_that_torch_repeats_is_one() -> None:
    guards = [record("guard_added_fast", expr=expr) for expr in ("Eq(s0, 4)", "s0 < 9", "Eq(s0, 4)")]
    assert [row.expression for row in shapes(guards).guards] == ["Eq(s0, 4)", "s0 < 9"]


def test_an_input_that_became_dynamic() -> None:
    summary = summary_of([change(name="L['x']", reason="size change", cached="8", new="16")], readable=True)
    (row,) = changed_inputs(data_of(summary), (0, "0/0"))
    assert (row.source, row.change, row.before, row.now) == ("L['x']", "size change", "8", "16")


def test_without_source_nothing_names_the_users_variables() -> None:
    records = [SYMBOL, FIXED, change(name="L['x']", reason="size change")]
    records.insert(0, Record({"str": ["/train.py", 1]}))
    data = data_of(summary_of(records, readable=True, source=False))
    answer = symbolic_shapes(data, 0, "0/0")
    (changed,) = changed_inputs(data, (0, "0/0"))
    assert "L['" not in repr((answer, changed))
    assert "secret" not in repr(answer)
    assert answer.symbols[0].value == "16"


def test_the_shapes_of_a_recording(recording: Recording) -> None:
    (log,) = recording("recompiles").glob("*.log")
    data = data_of(read_log(str(log)))
    answer = symbolic_shapes(data, 0, "0/1")
    rows = [(row.symbol, row.value, row.source) for row in answer.symbols]
    assert rows == [("s77", "16", "L['x'].size()[0]"), ("zf72", "1.0", "L['s']")]
    assert [row.expression for row in answer.guards] == ["64*s77 <= 2147483647"]
    values = [(row.source, row.before, row.now) for row in changed_inputs(data, (0, "0/1"))]
    assert values == [("L['x']", "8", "16"), ("L['s']", "0.0", "1.0")]
