"""What `pip install` gives: the wheel, its content, and a tab in an environment that never saw torch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import demo

ROOT = Path(__file__).parents[2]
PACKAGE = "tb_torchcompile_plugin"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that the source folder stays clean."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / PACKAGE, source / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(target), str(source))
    (built,) = target.glob("*.whl")
    return built


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, timeout=600)


def test_the_wheel_is_pure_and_named(wheel: Path) -> None:
    assert wheel.name == "tb_torchcompile_plugin-0.1.0-py3-none-any.whl"


def test_the_wheel_holds_everything_that_is_needed_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    package = {name for name in names if name.startswith(f"{PACKAGE}/")}
    expected = {
        str(path.relative_to(ROOT))
        for path in (ROOT / PACKAGE).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert package == expected
    assert {
        f"{PACKAGE}/static/index.js",
        f"{PACKAGE}/compile_log/summary.proto",
        f"{PACKAGE}/py.typed",
    } <= package
    assert all(name.startswith(f"{PACKAGE}-0.1.0.dist-info/") for name in names - package)


def test_the_metadata_names_its_parts(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        info = f"{PACKAGE}-0.1.0.dist-info"
        metadata = archive.read(f"{info}/METADATA").decode()
        entry_points = archive.read(f"{info}/entry_points.txt").decode()
    assert f"tb-torchcompile = {PACKAGE}.cli:main" in entry_points
    assert f"torch_compile = {PACKAGE}.plugin.loader:TorchCompileLoader" in entry_points
    required = [
        line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra" not in line
    ]
    assert not [line for line in required if "torch" in line]
    assert "Requires-Dist: protobuf<8,>=6.31.1" in required


@pytest.mark.slow
def test_an_empty_environment_without_torch_shows_the_tab(
    wheel: Path, tmp_path: Path, recording: Callable[[str], Path]
) -> None:
    venv.create(tmp_path / "venv")
    python = str(tmp_path / "venv" / "bin" / "python")
    pip("--python", python, "install", "--no-compile", str(wheel))
    assert subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode != 0

    report = [
        str(tmp_path / "venv" / "bin" / "tb-torchcompile"),
        "report",
        "--json",
        str(recording("breaks")),
    ]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    answer = subprocess.run(report, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment)
    assert len(json.loads(answer.stdout)["runs"]) == 1

    with demo.tensorboard(recording("breaks"), python=python) as (_, address):
        demo.wait_for_tabs(address, {"torch_compile"})
        routes = f"{address}data/plugin/torch_compile/"
        assert b"render" in demo.fetch(f"{routes}static/index.js")
        ids = {"run": ".", "worker": "vm_1027"}
        (run,) = demo.fetch_json(f"{routes}runs")["runs"]
        assert [worker["worker"] for worker in run["workers"]] == ["vm_1027"]
        span = demo.fetch_span(routes, {**ids, "span": "1795230252555613000"})
        assert span["steps"]
