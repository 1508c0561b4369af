"""Pictures of every panel as it looks in Chromium: what `make screenshots` runs.

Light, dark and in a window of 720 px; while it loads; when its answer fails; and of a run that lacks what it shows.
All go into a folder, `runs/screenshots`. What pages show is kept in docs/screenshots: two panels, and the
overview of each run of the walkthrough.
Needs Chromium with chromedriver, and the recordings that are committed.
"""

from __future__ import annotations

import argparse
import base64
import os
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))  # where the browser's helpers are

from browser.panels.answers import FAILED, READING, answering  # noqa: E402
from browser.panels.places import EMPTY, PANELS, fill, place  # noqa: E402
from browser.processes import Servers, resize, start_browser  # noqa: E402
from browser.tab import Tab  # noqa: E402
from tb_torchcompile_plugin.analysis.finding import Panel  # noqa: E402

README = {"overview": "light", "timeline": "dark"}
KEPT = ROOT / "docs" / "screenshots"
HEIGHT, TALLEST = 760, 4000
WALKTHROUGH = ("0_start", "1_precision", "2_loader", "3_check", "4_graphs")


class Look(NamedTuple):
    """In which window, theme and state a panel is looked at."""

    width: int = 1440
    dark: bool = False
    empty: bool = False
    answer: tuple[object, int] | None = None


LOOKS = {
    "light": Look(),
    "dark": Look(dark=True),
    "narrow": Look(width=720),
    "loading": Look(answer=(READING, 202)),
    "error": Look(answer=(FAILED, 500)),
    "empty": Look(empty=True),
}


def main() -> int:
    """Write one picture per panel and look."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "screenshots")
    parser.add_argument("--look", choices=LOOKS, action="append", help="only these")
    parser.add_argument("--panel", choices=PANELS, action="append", help="only these")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with opened(unpack_panels) as tab:
        for look in options.look or LOOKS:
            for panel in options.panel or PANELS:
                print(f"==> {panel}, {look}", flush=True)
                show(tab, panel, LOOKS[look])
                if README.get(panel) == look:
                    keep(tab, KEPT / f"{panel}.webp")
                picture(tab, options.out / f"{panel}_{look}.png")
    if not options.panel or "overview" in options.panel:
        keep_walkthrough()
    return 0


def keep_walkthrough() -> None:
    """Keep the overview of each run of the walkthrough."""
    with opened(unpack_walkthrough) as tab:
        for run in WALKTHROUGH:
            print(f"==> walkthrough, {run}", flush=True)
            resize(tab.driver, 1100, HEIGHT)
            tab.begin("", run=run, panel="overview")
            tab.settle()
            tab.wait(lambda: "Searching" not in tab.text("main"), "the findings")
            keep(tab, KEPT / f"walkthrough_{run}.webp")


def unpack_walkthrough(logdir: Path) -> None:
    """Write all recordings of the walkthrough, so that each run has its baseline."""
    for archive in (ROOT / "tests" / "data" / "walkthrough").glob("*/*.tar.xz"):
        with tarfile.open(archive) as file:
            file.extractall(logdir, filter="data")


def unpack_panels(logdir: Path) -> None:
    """Write what the panels are looked at with."""
    fill(logdir, unpacking_into(logdir.parent))


@contextmanager
def opened(unpack: Callable[[Path], None]) -> Iterator[Tab]:
    """The tab of a TensorBoard on what `unpack` writes, in a browser of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["TB_TORCHCOMPILE_CACHE"] = str(folder / "cache")
        (folder / "logdir").mkdir()
        (folder / "outputs").mkdir()
        unpack(folder / "logdir")
        driver, servers = start_browser(folder / "profile", folder), Servers(folder / "outputs")
        try:
            yield Tab(driver, servers.start(folder / "logdir"))
        finally:
            driver.quit()
            servers.stop_all()


def unpacking_into(folder: Path) -> Callable[[str], Path]:
    """As the tests' fixture of that name: `recording("breaks")`, a folder."""

    def recording(name: str) -> Path:
        if not (target := folder / "recordings" / name).exists():
            (archive,) = (ROOT / "tests" / "data").glob(f"*/{name}/{name}.tar.xz")
            with tarfile.open(archive) as file:
                file.extractall(target, filter="data")
        inner = list(target.iterdir())
        return inner[0] if len(inner) == 1 else target

    return recording


def show(tab: Tab, panel: Panel, look: Look) -> None:
    """The panel as it is looked at, once nothing moves any more."""
    where = {"panel": panel, **EMPTY} if look.empty else place(panel)
    resize(tab.driver, look.width, HEIGHT)
    with answering(tab.driver, *look.answer) if look.answer else nullcontext():
        tab.begin("?darkMode=true" if look.dark else "", **where)
        if not look.answer:
            tab.settle()
        time.sleep(0.7)


def keep(tab: Tab, file: Path) -> None:
    """What is seen without scrolling, small enough to be kept."""
    tab.driver.switch_to.default_content()
    asked = {"format": "webp", "quality": 80}
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(base64.b64decode(tab.driver.execute_cdp_cmd("Page.captureScreenshot", asked)["data"]))
    tab.enter()


def picture(tab: Tab, file: Path) -> None:
    """All of the panel, however tall, within TensorBoard's page."""
    hidden = tab.script("return document.documentElement.scrollHeight - innerHeight")
    size = tab.driver.get_window_size()
    tab.driver.set_window_size(size["width"], min(TALLEST, size["height"] + max(0, hidden)))
    time.sleep(0.5)
    tab.driver.switch_to.default_content()
    tab.driver.save_screenshot(str(file))
    tab.enter()


if __name__ == "__main__":
    sys.exit(main())
