"""Imports only ever point one way: names, files and log → reader → profile → analysis → api → plugin | cli.

The writer runs inside the training process and the viewer inside TensorBoard, so each must do without the other's
world: no TensorBoard there, no torch here, and nothing that is broken here may take TensorBoard down.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import tb_torchcompile_plugin
from fresh import in_a_fresh_process, loaded_by

PACKAGE = "tb_torchcompile_plugin"
ROOT = Path(tb_torchcompile_plugin.__file__).parent
REPOSITORY = ROOT.parent

# The flow, from both ends of the logdir to what people see. A room is a folder, or a file at the top.
FLOW = "errors torch_names logdir compile_log reader generated_code profile job analysis api".split()  # noqa: SIM905
SHARED = {"errors", "torch_names", "logdir", "compile_log"}  # all that the writer may know
ENDS = {"writer", "plugin", "cli", "dataframes"}  # nobody imports them
ONLY_IN = {
    "torch": {"writer"},
    "tensorboard": {"plugin"},
    "werkzeug": {"plugin"},
    "rich": {"cli"},
    "pandas": {"dataframes"},
    "pytest": {"writer"},
    "mcp": {"cli"},
    "fsspec": {"logdir"},
}
# What each package of the analysis may import of the others. The files beside them (rows that all share) know none.
ANALYSES = {
    "compile": set(),
    "runtime": {"compile"},
    "timeline": {"compile", "runtime"},
    "causes": {"compile", "runtime"},
    "ranks": {"compile", "runtime", "causes"},
    "compare": {"compile", "runtime", "causes", "ranks"},
}


def may_import(room: str) -> set[str]:
    """The rooms that a room may import, besides itself."""
    if room == "writer":
        return SHARED
    return set(FLOW[: FLOW.index(room)]) if room in FLOW else set(FLOW)


def room_of(module: str) -> str:
    """`tb_torchcompile_plugin.reader.trace.kineto` is in the room `reader`."""
    return module.split(".")[1] if "." in module else ""


def modules() -> dict[str, Path]:
    return {
        ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted(ROOT.rglob("*.py"))
    }


def imports(module: str, path: Path) -> Iterator[str]:
    """Every module that is imported anywhere in the file, also inside functions and for types alone."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute here"
            assert node.module
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else node.module for name in names)


MODULES = modules()
OWN = [module for module in MODULES if module != PACKAGE]  # it imports the public functions on first use


@cache
def imported_by(module: str) -> frozenset[str]:
    return frozenset(imports(module, MODULES[module]))


def arrows() -> dict[str, set[str]]:
    """From each module to those of the package that it imports."""
    return {module: {name for name in imported_by(module) - {module} if name in MODULES} for module in OWN}


def circle(arrows: Mapping[str, Iterable[str]]) -> list[str]:
    """One circle of arrows, [] where there is none."""
    try:
        list(TopologicalSorter(arrows).static_order())
    except CycleError as error:
        return list(error.args[1])
    return []


def test_arrows_point_one_way() -> None:
    wrong = [
        f"{module} imports {imported}"
        for module in OWN
        for imported in imported_by(module)
        if not allowed(room_of(module), imported)
    ]
    assert wrong == []


def allowed(room: str, imported: str) -> bool:
    top = imported.partition(".")[0]
    if imported == PACKAGE:
        return True  # for the version: it loads nothing by itself
    if top == PACKAGE:
        return room_of(imported) in may_import(room) | {room}
    return room in ONLY_IN.get(top, {room})


def test_every_room_has_its_place_in_the_flow() -> None:
    assert {room_of(module) for module in OWN} <= {*FLOW, *ENDS}


def test_no_module_imports_itself_on_a_way_round() -> None:
    assert circle(arrows()) == []


def test_no_folder_imports_itself_on_a_way_round() -> None:
    """As far as folders of one room go: `profile/host` may use `profile/columns.py`, which knows no folder."""
    folders: dict[str, set[str]] = {}
    for module, imported in arrows().items():
        here = folder_of(module)
        folders.setdefault(here, set()).update({folder_of(name) for name in imported} - {here})
    assert circle(folders) == []


def folder_of(module: str) -> str:
    """A file beside folders is a box of its own there."""
    parent = module.rpartition(".")[0]
    has_folders = any(
        path.is_dir() and path.name != "__pycache__" for path in MODULES[module].parent.iterdir()
    )
    return module if has_folders or module == PACKAGE else parent


def analysis_of(module: str) -> str:
    """The package of the analysis that a module belongs to, "" for the files next to them."""
    parts = module.split(".")
    return parts[2] if len(parts) > 3 else ""


def test_the_analysis_flows_from_compile_to_compare() -> None:
    """At most twelve arrows between six packages, and the files next to them import none of these."""
    inside = [module for module in OWN if room_of(module) == "analysis"]
    arrows = {
        (analysis_of(module), analysis_of(imported))
        for module in inside
        for imported in imported_by(module)
        if room_of(imported) == "analysis" and analysis_of(imported)
    }
    wrong = {(here, there) for here, there in arrows if there not in ANALYSES.get(here, set()) | {here}}
    assert wrong == set()
    assert len([arrow for arrow in arrows if arrow[0] != arrow[1]]) <= 12


def test_the_package_alone_loads_neither_world() -> None:
    assert not loaded_by(f"import {PACKAGE}") & {"torch", "tensorboard", "numpy", "google", "msgspec"}


def test_the_viewer_loads_no_torch() -> None:
    loaded = loaded_by(f"import {PACKAGE}.plugin.loader, {PACKAGE}.plugin.plugin, {PACKAGE}.cli.command")
    assert not {"torch", "mcp"} & loaded
    assert {"tensorboard", "msgspec"} <= loaded


@pytest.mark.torch
def test_the_writer_loads_no_tensorboard() -> None:
    statement = f"from {PACKAGE} import tensorboard_trace_handler, CompileRecorder"
    assert not loaded_by(statement) & {"tensorboard", "werkzeug", "msgspec", "isal", "rich", "platformdirs"}


def test_public_names_are_found_and_others_are_not() -> None:
    assert set(tb_torchcompile_plugin.__all__) <= set(dir(tb_torchcompile_plugin))
    with pytest.raises(AttributeError, match="no attribute 'tensorboard_trace_handle'"):
        _ = tb_torchcompile_plugin.tensorboard_trace_handle


BROKEN = [
    ("msgspec", "ImportError"),
    ("msgspec", "OSError"),
    ("isal", "ImportError"),
    ("tb_torchcompile_plugin.compile_log.summary_pb2", "ImportError"),
    ("tb_torchcompile_plugin.compile_log.summary_pb2", "SystemError"),
]
# TensorBoard is imported once, and started in a fork for each case: nothing of ours is loaded before that.
START_TENSORBOARD = """
import argparse, builtins, logging, os, sys
from tensorboard import default
from tensorboard.backend import application
from werkzeug.test import Client

class Provider:
    def list_plugins(self, *_, **__): return []

class Broken:
    def __init__(self, name, error): self.name, self.error = name, error

    def find_spec(self, name, *_):
        if name == self.name:
            raise getattr(builtins, self.error)("this installation is broken")

def start():
    flags = argparse.Namespace(
        logdir="", logdir_spec="", path_prefix="", samples_per_plugin={}, window_title="", generic_data="false",
        db=None)
    ours = [loader for loader in default.get_dynamic_plugins() if "torchcompile" in loader.__module__]
    app = application.TensorBoardWSGIApp(flags, ours, data_provider=Provider())
    print(len(ours), *Client(app).get("/data/plugins_listing").get_json())

assert not {"tb_torchcompile_plugin", "msgspec"} & set(sys.modules)
for case in CASES:
    if not os.fork():
        for name in [name for name in sys.modules if name.partition(".")[0] == "isal"]:
            del sys.modules[name]  # which TensorBoard imports, too
        sys.meta_path.insert(0, Broken(*case))
        start()
        break
    assert os.wait()[1] == 0
"""


@pytest.fixture(scope="module")
def tabs() -> dict[tuple[str, str], str]:
    """By what breaks and how, "" where nothing does: how many loaders of ours there are, and the tabs."""
    cases = [*BROKEN, ("", "")]
    printed = in_a_fresh_process(START_TENSORBOARD.replace("CASES", repr(cases)))
    return dict(zip(cases, printed.splitlines(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("broken", "error"), BROKEN)
def test_a_broken_import_costs_the_tab_and_nothing_else(
    tabs: dict[tuple[str, str], str], broken: str, error: str
) -> None:
    """The finder stands for a missing package, a binary of another system, a half-finished installation."""
    assert tabs[broken, error] == "1"


@pytest.mark.slow
def test_an_unbroken_installation_has_the_tab(tabs: dict[tuple[str, str], str]) -> None:
    assert tabs["", ""] == "1 torch_compile"
