"""The examples in docs/http.md are made from the types and from recordings: the page in the tree is what they say."""

import runpy
from pathlib import Path
from typing import Any

import pytest
from msgspec import inspect

from tb_torchcompile_plugin.api.routes import ROUTES

SCRIPT: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "make_http.py"))


@pytest.mark.slow
def test_the_committed_page_is_fresh() -> None:
    page = SCRIPT["TARGET"].read_text()
    assert SCRIPT["generate"](page) == page, "run `make types`"


def test_an_example_has_all_fields_and_the_first_value_of_each() -> None:
    kind = inspect.type_info(ROUTES["rank_differences"].answer)
    group = {"ranks": [0, 1, 2], "value": "compiled"}
    rows = [
        {"kind": "compilation", "epoch": 0, "compile_id": "0/1", "function": "", "groups": []},
        {"kind": "compilation", "epoch": 0, "compile_id": "0/2", "function": "forward", "groups": [group]},
    ]
    row = rows[0] | {"function": "forward", "groups": [group | {"ranks": [0, 1]}]}
    answer = {"ranks": [0, 1], "differences": rows}
    assert SCRIPT["_example"](kind, [answer], ()) == {"ranks": [0, 1], "differences": [row]}
    empty = SCRIPT["_example"](kind, [{"ranks": [0, 1], "differences": []}], ())
    assert list(empty["differences"][0]) == list(row) and empty["differences"][0]["function"] == "…"
