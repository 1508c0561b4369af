"""examples/ci: the workflow is YAML, and its shell steps do what they say."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from compile_records import artifact, line

pytestmark = pytest.mark.slow

yaml = pytest.importorskip("yaml")
EXAMPLE = Path(__file__).parents[2] / "examples" / "ci"


def workflow() -> dict[Any, Any]:
    document: dict[Any, Any] = yaml.safe_load((EXAMPLE / "gate.yml").read_text())
    return document


def step(name: str) -> dict[str, Any]:
    steps: list[dict[str, Any]] = workflow()["jobs"]["gate"]["steps"]
    (named,) = [one for one in steps if one.get("name") == name]
    return named


def shell(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """As GitHub runs it. Recordings stand for programs that record."""
    path = f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step(name)["run"]]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def checkout(tmp_path: Path, recording) -> Path:
    """A repository in which `python examples/train.py --logdir` leaves what the recording holds."""
    for name in ("ci", "bin"):
        (tmp_path / name).mkdir()
    shutil.copy(EXAMPLE / "tb_torchcompile.toml", tmp_path / "ci")
    programs = {
        "python": f'[ "$1 $2" = "examples/train.py --logdir" ] && cp -r {recording("resnet18")} "$3"',
        "tb-torchcompile": f'exec {sys.executable} -m tb_torchcompile_plugin.cli "$@"',
    }
    for name, text in programs.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "runs").mkdir()
    return tmp_path


def test_it_runs_for_pull_requests_and_saves_on_demand() -> None:
    assert set(workflow()[True]) == {"pull_request", "workflow_dispatch"}  # YAML 1.1 reads `on` so
    assert "pull_request" in step("Compare")["if"] and "workflow_dispatch" in step("Save the baseline")["if"]
    assert all(("run" in one) != ("uses" in one) for one in workflow()["jobs"]["gate"]["steps"])


def test_its_steps_save_pass_and_fail(checkout: Path) -> None:
    for name in ("Record", "Save the baseline", "Compare"):
        done = shell(name, checkout)
        assert done.returncode == 0, done.stderr
    assert (checkout / "ci" / "base.tbtc").stat().st_size < 10_000
    assert (checkout / "summary.md").read_text().startswith("### ✅ torch.compile: train")

    (log,) = (checkout / "runs" / "head").glob("*.log")
    with log.open("ab") as file:
        file.write(line(artifact("recompile_reasons", '["0/0: s == 2.5"]', "0/1"), pid=424))
    failed = shell("Compare", checkout)
    assert failed.returncode == 3 and "recompile" in (checkout / "summary.md").read_text()
    assert (checkout / "gate.xml").exists()
