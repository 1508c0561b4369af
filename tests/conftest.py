"""Fixtures that every test may use: recordings of real runs, and what is known about them.

Small recordings are committed under tests/data. Larger ones are read from the folder that the environment variable
TB_TORCHCOMPILE_RECORDINGS names; tests that need one of those are skipped where it is not set.
"""

import gc
import json
import os
import re
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterator
from fcntl import LOCK_EX, flock
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from recordings import Recording
from tb_torchcompile_plugin.analysis import finding

DATA = Path(__file__).parent / "data" / "2.11.0"
CXX = Path(__file__).parent / "bin" / "g++"
VARIABLE = "TB_TORCHCOMPILE_RECORDINGS"


# Property tests: the same few examples each time or, with `make thorough`, many new ones. None says how many itself,
# unless each of its examples takes as long as a test.
PATIENT = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # other programs may be to blame
settings.register_profile("brief", PATIENT, max_examples=10, derandomize=True)
settings.register_profile("thorough", PATIENT, max_examples=1000)
settings.load_profile("brief")

# Tests make much that lives as long as they do: looking for cycles in it again and again took a tenth of their time.
gc.set_threshold(1_000_000, 50, 100)

# What torch may leave out here: vector instructions, whose probing takes longer than all else it does, and processes
# and threads that tests side by side would only take from each other.
FRUGAL = {"TORCHINDUCTOR_VEC_ISA_OK": "0", "TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}

# Each of these is run by one process: its tests share a browser, torch, answers or jobs. The one that takes longest is
# the first.
ROOMS = ("tests/browser/", "tests/writer/", "tests/house/test_every_recording.py", "tests/diagnosis/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first. What no test of these needs is not loaded to know them."""
    assert "torch" not in sys.modules, "a module of tests imports torch: each process of tests waits for that"
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    begins = {room: place for place, room in enumerate(ROOMS)}
    items.sort(key=lambda item: (begins.get(_room(item.nodeid), len(begins)), item.path not in slow))


def _room(nodeid: str) -> str:
    """Where a test runs: its room or, of the other rooms, its file. All that runs torch is at home with the writer."""
    file = nodeid.partition("::")[0]
    return "tests/writer/" if _runs_torch(file) else next(filter(file.startswith, ROOMS), file)


@cache
def _runs_torch(file: str) -> bool:
    return bool(re.search("needs_torch|from forked import", (DATA.parents[2] / file).read_text()))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    """Files are shared out whole, in the order of the collection; each of the rooms above as if it were one file."""
    config.option.loadscopereorder = False
    scheduler = LoadFileScheduling(config, log)
    scheduler._split_scope = _room
    return scheduler


def _of_all_processes(factory: pytest.TempPathFactory) -> Path:
    """The folder of this session of tests, whichever of its processes asks."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session", autouse=True)
def _own_folders(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests keep parsed traces and compiled programs apart from the user's.

    What one process of tests has parsed the others need not: they read the same recordings. Tests find inductor's own
    caches empty, but what its C++ compiler makes of a kernel is kept, by this session and the next.
    """
    own = {
        "TB_TORCHCOMPILE_CACHE": str(_of_all_processes(tmp_path_factory) / "parsed"),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path_factory.mktemp("inductor")),
    }
    own["COLUMNS"] = "120"  # pytest-xdist says 80
    if (compiler := shutil.which("g++")) and "CXX" not in os.environ:
        kept: pytest.Cache | None = getattr(pytestconfig, "cache", None)  # none with -p no:cacheprovider
        folder = (kept.mkdir if kept else tmp_path_factory.mktemp)("kernels")
        own |= {"CXX": str(CXX), "REAL_CXX": compiler, "COMPILED_ONCE": str(folder)}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**own, **FRUGAL}.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def remembered() -> Iterator[None]:
    """What is answered of a recording is remembered, as of large traces: for modules that ask one many times, about
    how the answer is shown."""
    from tb_torchcompile_plugin.reader.cache import store

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "WORTH_STORING", 0)
        yield


@pytest.fixture
def torch() -> Iterator[Any]:
    """torch, which has compiled nothing and is not recorded yet, as far as it lets itself be reset."""
    import torch

    from live import fresh_recorder

    with fresh_recorder():
        yield torch


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """`recording("breaks")`: the unpacked folder. It is shared by all tests of the session: do not write to it."""
    folder = _of_all_processes(tmp_path_factory) / "unpacked"
    folder.mkdir(exist_ok=True)

    @cache
    def unpack(name: str) -> Path:
        archive = _archive(name)
        return _made_once(folder / name, lambda part: _extract(archive, part).rename(folder / name))

    return unpack


@pytest.fixture(scope="session")
def late_job(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """`late_job(3)`: traces of so many ranks, of which rank 1 is late. All tests share them: do not write to them."""
    from browser.rank_traces import write_job

    @cache
    def written(ranks: int) -> Path:
        folder = tmp_path_factory.mktemp("job")
        write_job(folder, ranks, steps=3, late=1)
        return folder

    return written


@pytest.fixture(scope="session")
def programs(recording: Recording) -> Any:
    """The programs of the recording `graphs`, by name."""
    from profiles import graph_programs

    return graph_programs(recording("graphs"))


@pytest.fixture(scope="session")
def exported_breaks(tmp_path_factory: pytest.TempPathFactory, recording: Recording) -> Path:
    """The recording `breaks` as one file, with all that `export` puts into it unless it is told otherwise."""
    from tb_torchcompile_plugin.api.export.export import Export
    from tb_torchcompile_plugin.api.session import Session

    def write(part: Path) -> None:
        session = Session([("", str(recording("breaks")))])
        part.write_bytes(b"".join(Export(session, logdir=str(recording("breaks"))).blocks()))
        session.close()
        part.rename(file)

    file = _of_all_processes(tmp_path_factory) / "breaks.html"
    return _made_once(file, write)


def _made_once(path: Path, make: Callable[[Path], object]) -> Path:
    """What the first process of tests that asks for it makes; `make` is given a name of its own to make it under."""
    with path.with_suffix(".lock").open("w") as lock:
        flock(lock, LOCK_EX)
        if not path.exists():
            make(path.with_suffix(".part"))
    return path


@pytest.fixture(scope="session")
def expected() -> Callable[[str], dict[str, Any]]:
    """`expected("breaks")`: the reference numbers of a recording, computed independently of this project."""

    def numbers(name: str) -> dict[str, Any]:
        known: dict[str, dict[str, Any]] = json.loads((DATA / "expected.json").read_text())
        if name not in known:
            known = json.loads((_folder(name) / "expected.json").read_text())
        return known[name]

    return numbers


def _extract(archive: Path, folder: Path) -> Path:
    """What the archive holds, unpacked into a folder; where that is one folder alone, this one."""
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    inner = list(folder.iterdir())
    return inner[0] if len(inner) == 1 else folder


def _archive(name: str) -> Path:
    committed = next(DATA.parent.glob(f"*/{name}/{name}.tar.xz"), None)
    return committed or _existing(_folder(name) / f"{name}.tar.xz")


def _folder(name: str) -> Path:
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"the recording {name!r} is large; set {VARIABLE} to the folder that holds it")
    return Path(folder)


def _existing(archive: Path) -> Path:
    if not archive.exists():
        pytest.skip(f"{VARIABLE} is set, but there is no {archive.name} in it")
    return archive


@pytest.fixture
def exact_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges are those of the cause alone: not widened to what predictions were found to be off."""
    monkeypatch.setattr(finding, "_LEAST_GAIN", 1.0)
    monkeypatch.setattr(finding, "_MOST_GAIN", 1.0)
