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


_FIELDS = ("kind", "epoch", "compile_id", "function", "ranks", "value")


def test_an_example_has_all_fields_and_the_first_value_of_each() -> None:
    kind = inspect.type_info(ROUTES["rank_differences"].answer)
    own = {"kind": "compilation", "epoch": 0, "value": "compiled"}
    rows = [
        own | {"compile_id": "0/1", "function": "", "ranks": []},
        own | {"compile_id": "0/2", "function": "forward", "ranks": [0, 1, 2]},
    ]
    row = {key: (rows[0] | {"function": "forward", "ranks": [0, 1]})[key] for key in _FIELDS}
    answer = {"sentences": ["One."], "ranks": [0, 1], "differences": rows}
    assert SCRIPT["_example"](kind, [answer], ()) == {**answer, "differences": [row]}
    empty = SCRIPT["_example"](kind, [{**answer, "differences": []}], ())
    assert list(empty["differences"][0]) == list(row) and empty["differences"][0]["function"] == "…"
