"""What `pip install` gives: the wheel, its content, and a tab in an environment that never saw torch."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import smoke

pytestmark = pytest.mark.slow

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
    assert wheel.name == "tb_torchcompile_plugin-0.2.0-py3-none-any.whl"


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
    assert all(name.startswith(f"{PACKAGE}-0.2.0.dist-info/") for name in names - package)


def test_the_metadata_names_its_parts(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        info = f"{PACKAGE}-0.2.0.dist-info"
        metadata = archive.read(f"{info}/METADATA").decode()
        entry_points = archive.read(f"{info}/entry_points.txt").decode()
    assert f"tb-torchcompile = {PACKAGE}.cli:main" in entry_points
    assert f"torch_compile = {PACKAGE}.plugin.loader:TorchCompileLoader" in entry_points
    assert f"torchcompile = {PACKAGE}.writer.pytest_plugin" in entry_points.partition("[pytest11]")[2]
    required = [
        line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra" not in line
    ]
    assert not [line for line in required if "torch" in line]
    assert "Requires-Dist: protobuf<8,>=6.31.1" in required


def test_the_licences_of_what_the_bundle_holds_go_with_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        folder = f"{PACKAGE}-0.2.0.dist-info/licenses"
        ours = archive.read(f"{folder}/LICENSE").decode()
        theirs = archive.read(f"{folder}/{PACKAGE}/static/licenses.md").decode()
    assert "BSD 3-Clause" in ours
    assert re.search(r"^## svelte - [\d.]+ \(MIT\)$", theirs, re.MULTILINE)


@pytest.mark.slow
def test_an_empty_environment_without_torch_shows_the_tab(wheel: Path) -> None:
    smoke.try_out(sys.executable, wheel)
