"""One name everywhere: a package and its tests, a panel and its folder. And no class name twice."""

import ast
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

import tb_torchcompile_plugin
from tb_torchcompile_plugin.analysis.finding import Panel

PACKAGE = Path(tb_torchcompile_plugin.__file__).parent
REPOSITORY = PACKAGE.parent
PANELS = REPOSITORY / "frontend" / "src" / "panels"


def folders_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_dir() and path.name != "__pycache__"}


def test_every_package_of_the_analysis_has_its_tests() -> None:
    assert folders_in(REPOSITORY / "tests" / "analysis") == folders_in(PACKAGE / "analysis")


def test_every_panel_has_its_folder() -> None:
    assert folders_in(PANELS) == {*get_args(Panel), "sheet"}


@pytest.mark.parametrize(
    "package", sorted(path.parent for path in PACKAGE.rglob("__init__.py")), ids=lambda path: path.name
)
def test_every_package_says_what_it_is_for(package: Path) -> None:
    assert ast.get_docstring(ast.parse((package / "__init__.py").read_text()))


def test_no_two_classes_share_a_name() -> None:
    """But for the messages of the summary, which other packages turn into rows of the same name."""
    modules = [path for path in PACKAGE.rglob("*.py") if not path.name.endswith("_pb2.py")]
    names = Counter(
        node.name
        for path in modules
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, times in names.items() if times > 1] == []
