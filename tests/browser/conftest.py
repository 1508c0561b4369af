"""A real TensorBoard and a real Chromium for the tests of the tab."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from browser.processes import Servers, start_browser
from browser.tab import Tab
from recordings import Recording
from traces import Event, write_trace

RECORDINGS = ("breaks", "resnet18", "resnet18_eager")


@pytest.fixture(scope="session")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory, downloads: Path) -> Iterator[Chrome]:
    browser = start_browser(tmp_path_factory.mktemp("profile"), downloads)
    yield browser
    browser.quit()


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    all_of_them = Servers(tmp_path_factory.mktemp("tensorboards"))
    yield all_of_them
    all_of_them.stop_all()


@pytest.fixture(scope="session")
def logdir(tmp_path_factory: pytest.TempPathFactory, recording: Recording) -> Path:
    """A logdir of the committed recordings that tests may write to."""
    folder = tmp_path_factory.mktemp("logdir")
    for name in RECORDINGS:
        shutil.copytree(recording(name), folder / name)
    return folder


@pytest.fixture
def added(logdir: Path) -> Iterator[Path]:
    """The folder of a run, which is beside the recordings as long as the test lasts."""
    folder = logdir / "added"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def add_run(added: Path) -> Callable[[list[Event]], str]:
    """`add_run(events)`: the name of that run, which holds them then."""

    def write(events: list[Event]) -> str:
        write_trace(added, events)
        return added.name

    return write


@pytest.fixture(scope="module")
def add_recording(logdir: Path, recording: Recording) -> Iterator[Callable[[str], str]]:
    """`add_recording("ddp")`: its name, by which it is beside the others as long as the module's tests last."""
    added: list[Path] = []

    def link(name: str) -> str:
        if not (logdir / name).exists():
            (logdir / name).symlink_to(recording(name))
            added.append(logdir / name)
        return name

    yield link
    for path in added:
        path.unlink()


@pytest.fixture(scope="session")
def address(servers: Servers, logdir: Path) -> str:
    return servers.start(logdir)


def _listed(logdir: Path) -> str:
    return str(sorted((str(path), path.lstat().st_mtime_ns) for path in logdir.rglob("*")))


@pytest.fixture
def tab(driver: Chrome, address: str, logdir: Path) -> Iterator[Tab]:
    """The tab. Whatever a test does, nothing may complain in the console and nothing may be asked for elsewhere."""
    it = Tab(driver, address, lambda: _listed(logdir))
    it.complaints(), it.outside_requests()  # of whoever used the browser before
    yield it
    assert it.complaints() == []
    assert it.outside_requests() == []
