"""Every panel, in both themes and in each of its states, without anything that axe-core objects to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from browser.panels.answers import FAILED, READING, answering
from browser.panels.axe import violations
from browser.panels.places import PANELS, fill, place
from browser.processes import Servers
from browser.tab import Tab
from tb_torchcompile_plugin.analysis.findings.rule import Panel

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def everywhere(
    servers: Servers, tmp_path_factory: pytest.TempPathFactory, recording: Callable[[str], Path]
) -> str:
    return servers.start(fill(tmp_path_factory.mktemp("panels"), recording))


@pytest.fixture
def tab(driver: Chrome, everywhere: str) -> Iterator[Tab]:
    it = Tab(driver, everywhere)
    it.leave()
    it.complaints()
    yield it
    assert it.complaints() == []


# All that a theme changes is colours: tests/house/test_bundle.py.
OF_COLOURS = ("color-contrast", "link-in-text-block")


def in_both_themes(tab: Tab) -> list[str]:
    light = violations(tab)
    tab.script("parent.document.body.classList.add('dark-mode')")
    tab.wait(lambda: tab.script("return document.documentElement.dataset.theme") == "dark", "the dark theme")
    dark = violations(tab, *OF_COLOURS)
    tab.script("parent.document.body.classList.remove('dark-mode')")
    return [f"light: {one}" for one in light] + [f"dark: {one}" for one in dark]


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_is_accessible_in_both_themes(tab: Tab, panel: Panel) -> None:
    tab.open(**place(panel))
    tab.wait(lambda: tab.text("h1"), "the sentence of the panel")
    assert in_both_themes(tab) == []
    rows = tab.all("tr[data-row] td")
    if rows:
        tab.script("arguments[0].click()", rows[0])
        tab.wait(lambda: tab.text("aside"), "its details")
        tab.settle()
        assert in_both_themes(tab) == [], "with details"


@pytest.mark.parametrize("panel", ["overview", "timeline", "compare", "runs"])
@pytest.mark.parametrize(("body", "status"), [(READING, 202), (FAILED, 500)], ids=["loading", "failed"])
def test_what_stands_in_the_way_of_a_panel_is_accessible(
    tab: Tab, panel: Panel, body: object, status: int
) -> None:
    with answering(tab.driver, body, status):
        tab.begin(run="resnet18", panel=panel)
        tab.wait(lambda: tab.text("h1") and tab.all(".reading, [role='alert']"), "what is in the way")
        assert in_both_themes(tab) == []
        tab.complaints()  # an answer that fails is one
