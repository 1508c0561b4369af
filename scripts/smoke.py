"""Whether archives can be used: each in an empty environment of each Python that is here. `make dist` runs it.

python scripts/smoke.py dist/*.whl dist/*.tar.gz --python python3.10 python3.13
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from urllib.parse import urlencode

import demo

ROOT = Path(__file__).resolve().parent.parent
RECORDING = ROOT / "tests" / "data" / "2.11.0" / "breaks" / "breaks.tar.xz"
MINORS = range(10, 15)


class NotUsable(Exception):
    """Something that was installed does not do what it should; the text says what."""


def main() -> int:
    """Try each archive on each Python."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archives", type=Path, nargs="+")
    parser.add_argument("--python", nargs="*", help="default: python3.10 … python3.14, those that are here")
    arguments = parser.parse_args()
    pythons = arguments.python or [sys.executable, *(f"python3.{minor}" for minor in MINORS)]
    try:
        for version, python in by_version(pythons).items():
            for archive in arguments.archives:
                demo.say(f"{archive.name} on Python {version} ...")
                try_out(python, archive)
    except (NotUsable, demo.DemoFailed) as error:
        print(f"Not usable: {error}", file=sys.stderr)
        return 1
    return 0


def by_version(pythons: list[str]) -> dict[str, str]:
    """Return one interpreter per version; a name may have none, even if there is a launcher of that name."""
    versions: dict[str, str] = {}
    for python in filter(shutil.which, pythons):
        asked = [python, "-c", "import platform; print(platform.python_version())"]
        answer = subprocess.run(asked, capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            versions.setdefault(answer.stdout.strip(), python)
    return versions


def try_out(python: str, archive: Path) -> None:
    """Installs an archive into an empty environment, and looks at a recording with it."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        with tarfile.open(RECORDING) as recorded:
            recorded.extractall(work / "runs", filter="data")
        installed = install(python, archive, work)
        _imports_no_torch(installed, work)
        _reports(installed, work / "runs", work)
        _shows_the_tab(installed, work / "runs")


def install(python: str, archive: Path, work: Path) -> str:
    """The interpreter of a new environment that holds an archive and what it requires."""
    subprocess.run([python, "-m", "venv", "--without-pip", str(work / "venv")], check=True)
    installed = str(work / "venv" / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", installed, "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--no-compile", str(archive.resolve())], check=True, timeout=900)
    return installed


def _imports_no_torch(installed: str, work: Path) -> None:
    there = subprocess.run([installed, "-c", "import torch"], capture_output=True, check=False, cwd=work)
    if there.returncode == 0:
        raise NotUsable("torch was installed, too")


def _reports(installed: str, logdir: Path, work: Path) -> None:
    command = [str(Path(installed).with_name("tb-torchcompile")), "report", "--json", str(logdir)]
    environment = {**os.environ, "XDG_CACHE_HOME": str(work / "cache")}
    answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd=work, env=environment)
    if len(json.loads(answer.stdout)["runs"]) != 1:
        raise NotUsable("report --json does not hold the one run")


def _shows_the_tab(installed: str, logdir: Path) -> None:
    with demo.tensorboard(logdir, python=installed) as (_, address):
        demo.wait_for_tabs(address, {"torch_compile"})
        routes = f"{address}data/plugin/torch_compile/"
        if b"render" not in demo.fetch(f"{routes}static/index.js"):
            raise NotUsable("static/index.js is not the entry module")
        run = demo.only(demo.fetch_json(f"{routes}runs")["runs"], "run")
        worker = demo.only(run["workers"], "worker")
        (span,) = worker["spans"]
        ids = {"run": run["run"], "worker": worker["worker"], "span": span["span"]}
        if not demo.fetch_span(routes, ids)["steps"]:
            raise NotUsable(f"no steps in the recording: {urlencode(ids)}")


if __name__ == "__main__":
    sys.exit(main())
