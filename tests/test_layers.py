"""Imports only ever point left: shared → writer | reader → analysis → report → api → plugin | cli.

The writer runs inside the training process and the viewer inside TensorBoard, so each must do without the other's
world: no TensorBoard there, no torch here, and nothing that is broken here may take TensorBoard down.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tb_torchcompile_plugin

PACKAGE = "tb_torchcompile_plugin"
ROOT = Path(tb_torchcompile_plugin.__file__).parent

# What each room may import of the package, besides itself. Modules at the top that are not named here are shared.
MAY_IMPORT: dict[str, set[str]] = {
    "shared": set(),
    "writer": {"shared"},
    "reader": {"shared"},
    "analysis": {"shared", "reader"},
    "report": {"shared", "reader", "analysis"},
    "api": {"shared", "reader", "analysis", "report"},
    "plugin": {"shared", "reader", "report", "api"},
    "cli": {"shared", "reader", "report", "api"},
    "tables": {"shared", "report", "api"},
}
ROOM_OF = {
    "report": "report",
    "compile_report": "report",
    "timeline_wire": "report",
    "findings_report": "report",
    "gpu_report": "report",
    "step_report": "report",
    "compare_report": "report",
    "compile_answers": "api",
    "timeline_answers": "api",
    "compare_answers": "api",
    "api": "api",
    "catalog": "api",
    "made_once": "api",
    "readings": "api",
    "reports": "api",
    "span_answers": "api",
    "kernel_search": "api",
    "loader": "plugin",
    "logdir_flags": "plugin",
    "plugin": "plugin",
    "responses": "plugin",
    "cli": "cli",
    "text": "cli",
    "cli_kernel": "cli",
    "text_kernel": "cli",
    "text_findings": "cli",
    "text_gpu": "cli",
    "text_steps": "cli",
    "text_regions": "cli",
    "text_table": "cli",
    "cli_compare": "cli",
    "text_compare": "cli",
}
ONLY_IN = {
    "torch": {"writer"},
    "tensorboard": {"plugin"},
    "werkzeug": {"plugin"},
    "rich": {"cli"},
    "pandas": {"tables"},
}


def room_of(module: str) -> str:
    """`tb_torchcompile_plugin.reader.kineto` is in the room `reader`."""
    _, _, inner = module.partition(".")
    top, _, rest = inner.partition(".")
    return top if rest or top in MAY_IMPORT else ROOM_OF.get(top, "shared")


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        yield ".".join(parts), path


def imports(module: str, path: Path) -> Iterator[str]:
    """Every module that is imported anywhere in the file, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute here"
            assert node.module
            inside = node.module == PACKAGE
            yield from ((f"{PACKAGE}.{alias.name}" for alias in node.names) if inside else [node.module])


def in_a_fresh_process(code: str) -> str:
    """Run `code` and return what it prints."""
    command = [sys.executable, "-W", "ignore", "-c", code]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.strip()


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that are loaded after `statement`."""
    code = f"import sys\n{statement}\nprint(*(name for name in sys.modules if '.' not in name))"
    return set(in_a_fresh_process(code).split())


@pytest.mark.parametrize(("module", "path"), [pytest.param(*pair, id=pair[0]) for pair in modules()])
def test_arrows_point_left(module: str, path: Path) -> None:
    if module == f"{PACKAGE}.__init__":  # it names the public functions, and imports them on first use
        return
    room = room_of(module)
    for imported in imports(module, path):
        top = imported.partition(".")[0]
        if top == PACKAGE:
            assert room_of(imported) in MAY_IMPORT[room] | {room}, f"{module} imports {imported}"
        assert room in ONLY_IN.get(top, {room}), f"{module} imports {imported}"


def test_the_package_alone_loads_neither_world() -> None:
    assert not loaded_by(f"import {PACKAGE}") & {"torch", "tensorboard", "numpy", "google", "msgspec"}


def test_the_viewer_loads_no_torch() -> None:
    loaded = loaded_by(f"import {PACKAGE}.loader, {PACKAGE}.plugin, {PACKAGE}.cli")
    assert "torch" not in loaded
    assert {"tensorboard", "msgspec"} <= loaded


@pytest.mark.torch
def test_the_writer_loads_no_tensorboard() -> None:
    statement = f"from {PACKAGE} import tensorboard_trace_handler, CompileRecorder"
    assert not loaded_by(statement) & {"tensorboard", "werkzeug", "msgspec", "isal", "rich", "platformdirs"}


def test_public_names_are_found_and_others_are_not() -> None:
    assert set(tb_torchcompile_plugin.__all__) <= set(dir(tb_torchcompile_plugin))
    with pytest.raises(AttributeError, match="no attribute 'tensorboard_trace_handle'"):
        _ = tb_torchcompile_plugin.tensorboard_trace_handle


START_TENSORBOARD = """
import argparse, logging
from tensorboard import default
from tensorboard.backend import application
from werkzeug.test import Client

class Provider:
    def list_plugins(self, *_, **__): return []

flags = argparse.Namespace(
    logdir="", logdir_spec="", path_prefix="", samples_per_plugin={}, window_title="", generic_data="false", db=None)
ours = [loader for loader in default.get_dynamic_plugins() if "torchcompile" in loader.__module__]
app = application.TensorBoardWSGIApp(flags, ours, data_provider=Provider())
print(len(ours), *Client(app).get("/data/plugins_listing").get_json())
"""


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        ("msgspec", "ImportError"),
        ("msgspec", "OSError"),
        ("isal", "ImportError"),
        ("tb_torchcompile_plugin.summary_pb2", "ImportError"),
        ("tb_torchcompile_plugin.summary_pb2", "SystemError"),
    ],
)
def test_a_broken_import_costs_the_tab_and_nothing_else(broken: str, error: str) -> None:
    """The finder stands for a missing package, a binary of another system, a half-finished installation."""
    finder = f"""
import sys
class Broken:
    def find_spec(self, name, *_):
        if name == {broken!r}:
            raise {error}("this installation is broken")
sys.meta_path.insert(0, Broken())
"""
    assert in_a_fresh_process(finder + START_TENSORBOARD) == "1"


def test_an_unbroken_installation_has_the_tab() -> None:
    assert in_a_fresh_process(START_TENSORBOARD) == "1 torch_compile"
