"""Every picture of every panel is a door: what is drawn opens its list, by keyboard as by the pointer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.keys import Keys

from browser.panels.answers import FAILED, answering
from browser.panels.places import PANELS, fill, place
from browser.processes import Servers
from browser.tab import Tab
from tb_torchcompile_plugin.analysis.findings.rule import Panel

pytestmark = pytest.mark.browser

_PICTURES = """
    const drawn = '.stack > span, .fill, .column, .swatch, svg rect, svg circle, canvas';
    const inside = (e) => e.closest('table, aside, .drag') === null;
    const parts = [...document.querySelectorAll('main :is(' + drawn + ')')].filter(inside);
    return parts.filter(e => !e.closest('a, button, [role=button], [role=application], .door')
        && !e.closest('li')?.querySelector('a, button')
        && !e.closest('.part')?.querySelector('a, button')).map(e => e.outerHTML.slice(0, 200));
"""
_DOORS = """
    const all = [...document.querySelectorAll('main [data-door]:not(.mark)')]
        .filter(e => e.closest('table, aside') === null);
    const firsts = all.filter((e, i) => i === 0 || e.parentNode.closest('figure, ul, ol, svg')
        !== all[i - 1].parentNode.closest('figure, ul, ol, svg'));
    const lasts = all.filter((e, i) => e.parentNode.closest('figure, ul, ol, svg')
        !== all[i + 1]?.parentNode.closest('figure, ul, ol, svg'));
    return [...new Set([...firsts, ...lasts])].map(e => all.indexOf(e));
"""
_FOCUS = """
    const all = [...document.querySelectorAll('main [data-door]:not(.mark)')]
        .filter(e => e.closest('table, aside') === null);
    all[arguments[0]]?.focus();
    return document.activeElement === all[arguments[0]];
"""
_CANVASES = "main canvas[role='application']"


@pytest.fixture(scope="module")
def everywhere(
    servers: Servers, tmp_path_factory: pytest.TempPathFactory, recording: Callable[[str], object]
) -> str:
    return servers.start(fill(tmp_path_factory.mktemp("doors"), recording))  # type: ignore[arg-type]


@pytest.fixture
def tab(driver: Chrome, everywhere: str) -> Iterator[Tab]:
    it = Tab(driver, everywhere)
    it.leave()
    it.complaints()
    yield it
    assert it.complaints() == []


def back(tab: Tab, address: str) -> None:
    """To the panel as it was, without loading the tab anew."""
    tab.script("parent.location.hash = arguments[0]", address.partition("#")[2])
    tab.settle()


@pytest.mark.parametrize("panel", [panel for panel in PANELS if panel != "timeline"])
def test_whatever_is_drawn_opens_something(tab: Tab, panel: Panel) -> None:
    tab.open(**place(panel))
    tab.wait(lambda: tab.text("h1"), "the sentence of the panel")
    tab.settle()
    assert tab.script(_PICTURES) == []
    address = tab.address()
    for door in tab.script(_DOORS):
        tab.wait(lambda door=door: tab.script(_FOCUS, door), f"the focus on door {door}")  # type: ignore[misc]
        what = tab.script("return document.activeElement.outerHTML.slice(0, 200)")
        tab.press(Keys.ENTER)
        tab.wait(lambda: tab.address() != address, f"{what} to open something")
        back(tab, address)
    for i in range(len(tab.all(_CANVASES))):
        tab.wait(lambda i=i: len(tab.all(_CANVASES)) > i, "the picture")  # type: ignore[misc]
        tab.script("arguments[0].focus()", tab.all(_CANVASES)[i])
        tab.press(Keys.ARROW_DOWN, Keys.ENTER)
        tab.wait(lambda: tab.address() != address, "a place in a picture to open something")
        back(tab, address)


@pytest.mark.parametrize("panel", ["runs", "ranks", "compare", "kernels"])
def test_an_error_is_told_once(tab: Tab, panel: Panel) -> None:
    with answering(tab.driver, FAILED, 500):
        tab.begin(**place(panel))
        tab.wait_text("[role='alert']", "This trace is not valid JSON")
        tab.settle()
        assert len(tab.all("[role='alert']")) == 1 and tab.text("h1")
        tab.complaints()  # an answer that fails is one
