"""One name in every room: an analysis, its panel, its section of the definitions, its tests. And no name twice."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

import tb_torchcompile_plugin
from tb_torchcompile_plugin.api.routes import ROUTES
from tb_torchcompile_plugin.api.sheets import is_sheet

PACKAGE = Path(tb_torchcompile_plugin.__file__).parent
REPOSITORY = PACKAGE.parent

PANELS_ALONE = {
    "sheet": "shows what any route says and lists",
    "code": "shows what the compiler wrote, as it is: generated_code, and nothing is counted",
}
ROOMS_ALONE: dict[str, str] = {}
TESTED_ELSEWHERE: dict[str, str] = {}
WITHOUT_DEFINITIONS = {"overview": "numbers of other rooms"}


def rooms_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_dir() and path.name != "__pycache__"}


def panels_in(folder: Path) -> set[str]:
    """Return the names of the folders that hold a panel, whatever group they are in."""
    return {path.parent.name for path in folder.rglob("*.svelte")}


ANALYSES = rooms_in(PACKAGE / "analysis")


def test_every_analysis_has_its_panel() -> None:
    panels = panels_in(REPOSITORY / "frontend" / "src" / "panels")
    sheets = {name for name, route in ROUTES.items() if is_sheet(route.answer)}
    assert not panels & sheets, "a sheet needs no panel of its own"
    assert (panels | sheets & ANALYSES) - PANELS_ALONE.keys() == ANALYSES - ROOMS_ALONE.keys()


def test_every_analysis_is_defined() -> None:
    text = (REPOSITORY / "docs" / "definitions.md").read_text()
    sections = {title.lower().replace(" ", "_") for title in re.findall(r"^## (.+)$", text, re.MULTILINE)}
    assert sections - {"files", "words"} == ANALYSES - WITHOUT_DEFINITIONS.keys()


def test_every_analysis_is_tested_in_its_room() -> None:
    tested = rooms_in(REPOSITORY / "tests" / "analysis")
    assert tested == ANALYSES - TESTED_ELSEWHERE.keys()


@pytest.mark.parametrize(
    "room", sorted(path.parent for path in PACKAGE.rglob("__init__.py")), ids=lambda path: path.name
)
def test_every_room_says_what_it_is_for(room: Path) -> None:
    assert ast.get_docstring(ast.parse((room / "__init__.py").read_text()))


def test_no_two_classes_share_a_name() -> None:
    """But for the messages of the summary, which other rooms turn into rows of the same name."""
    modules = [path for path in PACKAGE.rglob("*.py") if not path.name.endswith("_pb2.py")]
    names = Counter(
        node.name
        for path in modules
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, times in names.items() if times > 1] == []
