"""An exported file from disk, the network off: every panel paints, nobody is asked, and the console stays empty."""

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from urllib.parse import quote

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.keys import Keys

from browser.panels.places import JOB, PANELS
from browser.processes import start_browser
from browser.tab import Tab
from recordings import Recording
from tb_torchcompile_plugin.api.export.export import Export
from tb_torchcompile_plugin.api.session import Session
from traces import Event, slice_

pytestmark = pytest.mark.browser

BRIEF = {"timeline_bytes": 300_000}  # most of what takes long to write are details of the timeline
SMALL: tuple[tuple[str, dict[str, int]], ...] = (("breaks", {}), ("jobs", BRIEF))
LARGE = (
    "jobs",
    "resnet18",
    "resnet18_eager",
    "ddp",
    "recompiles",
    "resnet18_compile",
    "densenet_train_815mb",
)
# Of a file with one run and one rank, these say so.
ALONE = {"runs": "Other runs are not included in this file.", "compare": "", "ranks": ""}
OFFLINE = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
ONLINE = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
Write = Callable[..., Path]


class FileTab(Tab):
    """The tab in a file."""

    def leave_what_is_open(self) -> None:
        """With what it said and asked for."""
        self.driver.switch_to.default_content()
        self.driver.get("about:blank")
        self.all_messages(), self.requests()

    def open_file(self, file: Path) -> None:
        self.leave_what_is_open()
        self.driver.get(file.as_uri())
        self.wait(lambda: self.all("header"), "the first paint")
        self.settle()

    def go(self, **place: str) -> None:
        """To another place of the file, by its address alone."""
        where = "run=|worker=|span=|run2="
        base = self.script(
            f"return location.hash.split('&').filter((p, i) => !i || /{where}/.test(p)).join('&')"
        )
        rest = "".join(f"&p.torch_compile.{key}={quote(text)}" for key, text in place.items())
        self.script("location.hash = arguments[0]", base + rest)
        self.wait(lambda: self.all("main h1"), "a heading")
        self.settle()

    def all_messages(self) -> list[str]:
        """Of whatever level."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Addresses that were asked for, but for what the page made itself."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith(("blob:", "data:", "about:"))]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory, downloads: Path) -> Iterator[Chrome]:
    """One that logs requests: a page from disk has no policy of TensorBoard's to complain of them."""
    browser = start_browser(tmp_path_factory.mktemp("profile"), downloads, requests=True)
    yield browser
    browser.quit()


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory, recording: Recording, exported_breaks: Path) -> Write:
    """`write(logdir)`: an exported file, the same one for whoever asks for it again."""

    @cache
    def export(logdir: Path, **chosen: object) -> Path:
        if logdir == recording("breaks") and not chosen:
            return exported_breaks
        file = tmp_path_factory.mktemp("file") / "run.html"
        session = Session([("", str(logdir))])
        with file.open("wb") as target:
            target.writelines(Export(session, logdir=str(logdir), **chosen).blocks())  # type: ignore[arg-type]
        session.close()
        return file

    return export


@pytest.fixture
def tab(driver: Chrome) -> Iterator[FileTab]:
    """Whatever a test does: no message, and no request but that for the file."""
    it = FileTab(driver, "http://nowhere.invalid/")
    it.leave_what_is_open()
    driver.execute_cdp_cmd("Network.enable", {})
    driver.execute_cdp_cmd("Network.emulateNetworkConditions", OFFLINE)
    yield it
    messages, requests = it.all_messages(), it.requests()
    driver.execute_cdp_cmd("Network.emulateNetworkConditions", ONLINE)
    driver.get("about:blank")
    assert messages == []
    assert all(url.startswith("file:") for url in requests)


def folder_of(recording: Recording, name: str) -> Path:
    return recording(name) / JOB if name == "jobs" else recording(name)


@pytest.mark.parametrize(
    ("name", "chosen"), [*SMALL, *(pytest.param(name, {}, marks=pytest.mark.large) for name in LARGE)]
)
def test_every_panel_of_a_recording_paints(
    tab: FileTab, write: Write, recording: Recording, name: str, chosen: dict[str, int]
) -> None:
    """One visit, each panel by its address."""
    tab.open_file(write(folder_of(recording, name), **chosen))
    assert tab.text("#about-file").startswith("Exported from run “")
    for panel in PANELS:
        tab.go(panel=panel)
        errors = [one.text for one in tab.all("main [role=alert]")]
        if panel not in ALONE:
            assert errors == [], panel
        assert tab.text("main h1") not in ("", "Nothing to show.") or panel == "all_runs", panel


def test_links_lead_inside_the_file_and_back(tab: FileTab, write: Write, recording: Recording) -> None:
    tab.open_file(write(recording("breaks")))
    tab.go(panel="kernels")
    tab.wait(lambda: tab.rows("Kernels"), "kernels")
    tab.click("tbody tr[data-row]")
    tab.wait_text("aside", "Launches")
    address = tab.script("return location.href")
    assert address.startswith("file:") and "row=kernels" in address
    tab.driver.back()
    tab.wait(lambda: not tab.all("aside"), "the drawer to close")
    tab.driver.forward()
    tab.wait_text("aside", "Launches")
    tab.driver.refresh()
    tab.wait_text("aside", "Launches")
    assert tab.script("return location.href") == address


def test_the_timeline_opens_details_and_finds_names(tab: FileTab, write: Write, recording: Recording) -> None:
    tab.open_file(write(recording("breaks")))
    tab.go(panel="timeline", **{"search.timeline": "aten::mm"})
    tab.wait_text("section[aria-label=Details]", "Duration")
    tab.wait_text("main", "1 of ")
    tab.go(panel="timeline", **{"search.timeline": "no such name"})
    tab.wait_text("main", "In this file you can search only for its kernels, operators and compilations")


def test_what_is_left_out_is_said(tab: FileTab, write: Write, recording: Recording) -> None:
    tab.open_file(write(recording("breaks"), code=False, **BRIEF))
    tab.click("#about-file button", "About this file")
    tab.wait_text("dialog", "Code and graphs")
    assert "Contents" in tab.text("dialog") and "The trace" in tab.text("dialog")
    tab.press(Keys.ESCAPE)
    tab.go(panel="generated_code")
    tab.wait_text("main", "Code and graphs are not included in this file (--no-code)")
    tab.wait_text("main", "open the logdir in TensorBoard: tensorboard --logdir ")
    tab.go(panel="timeline")
    tab.click("summary", "Save")
    assert "perfetto" not in tab.text("[role='toolbar']")  # it would open without a trace
    tab.click("a", "The whole trace file")
    tab.wait_text("dialog", "The trace is not included in this file.")
    tab.press(Keys.ESCAPE)


def test_both_themes_and_the_definitions(tab: FileTab, write: Write, recording: Recording) -> None:
    tab.open_file(write(recording("breaks")))
    theme = "return document.documentElement.dataset.theme"
    first = tab.script(theme)
    tab.click("#about-file button", "Light or dark")
    assert {first, tab.script(theme)} == {"light", "dark"}
    tab.click("main button", "?")
    tab.wait(lambda: tab.all("[popover]:popover-open a"), "a meaning")
    own = tab.driver.current_window_handle
    tab.click("[popover] a", "More about this panel")
    (page,) = tab.wait(lambda: set(tab.driver.window_handles) - {own}, "the definitions")
    tab.driver.switch_to.window(page)
    tab.wait_text("body", "Definitions" if tab.all("h1") else "GPU")
    tab.driver.close()
    tab.driver.switch_to.window(own)


def test_the_tab_saves_what_opens_from_disk(
    driver: Chrome, address: str, downloads: Path, add_run: Callable[[list[Event]], str]
) -> None:
    run = add_run([slice_("aten::mm", 3, 4)])
    online = Tab(driver, address)
    online.open(run=run)
    online.click("header summary", "Export HTML")
    online.click("header a", "Save the file")
    file = online.wait(lambda: next(downloads.glob(f"{run}*.html"), None), "the file")
    online.leave()
    saved = FileTab(driver, "http://nowhere.invalid/")
    saved.open_file(file)
    assert f"run “{run}”" in saved.text("#about-file")
    assert "Export HTML" not in [menu.text for menu in saved.all("header summary") if menu.is_displayed()]
    assert saved.all_messages() == []
