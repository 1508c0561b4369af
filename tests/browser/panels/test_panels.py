"""Every panel: axe-core objects to nothing in either theme, and whatever is drawn is a door, by keyboard too.

The tab is loaded once, with axe-core, and each panel shown once for all that is looked at in it.
"""

from collections.abc import Iterator

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.keys import Keys

from browser.panels.answers import FAILED, READING, answering
from browser.panels.axe import violations
from browser.panels.places import PANELS, place
from browser.tab import Tab
from tb_torchcompile_plugin.analysis.finding import Panel

pytestmark = pytest.mark.browser

# Pictures that are no doors.
_PICTURES = """
    const drawn = '.stack > span, .fill, .column, .swatch, svg rect, svg circle, canvas';
    const inside = (e) => e.closest('table, aside, .drag, [role=progressbar]') === null;
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
    return document.activeElement === all[arguments[0]] && document.activeElement.outerHTML.slice(0, 200);
"""
_CANVASES = "main canvas[role='application']"


@pytest.fixture(scope="module")
def tab(driver: Chrome, everywhere: str) -> Iterator[Tab]:
    it = Tab(driver, everywhere)
    it.leave()
    it.complaints(), it.outside_requests()  # of whoever used the browser before
    it.open(**place("overview"))
    yield it
    it.dark(False)


@pytest.fixture(autouse=True)
def _quiet(tab: Tab) -> Iterator[None]:
    yield
    assert tab.complaints() == []
    assert tab.outside_requests() == []


@pytest.fixture(scope="module", params=PANELS)
def shown(tab: Tab, request: pytest.FixtureRequest) -> Panel:
    """A panel that is there, for all tests of it."""
    panel: Panel = request.param
    tab.go(**place(panel))
    return panel


def test_a_panel_is_accessible_in_both_themes(tab: Tab, shown: Panel) -> None:
    tab.text("h1")
    tab.settle()
    assert violations(tab) == []
    rows = tab.all("tr[data-row] td")
    if rows:
        tab.script("arguments[0].click()", rows[0])
        tab.text("aside")
        tab.settle()
        assert violations(tab, changed=["aside", "[aria-selected='true']"]) == [], "with details"


def test_whatever_is_drawn_opens_something(tab: Tab, shown: Panel) -> None:
    if shown == "timeline":
        return  # all of its picture is one thing to choose in: tests/browser/test_timeline.py
    tab.go(**place(shown))
    tab.text("h1")
    tab.settle()
    assert tab.script(_PICTURES) == []
    address = tab.address()
    for door in tab.script(_DOORS):
        what = tab.until(_FOCUS, f"the focus on door {door}", door)
        tab.press(Keys.ENTER)
        leads_on(tab, address, what)
    for i in range(len(tab.all(_CANVASES))):
        tab.until(
            "return document.querySelectorAll(arguments[0]).length > arguments[1]",
            "the picture",
            _CANVASES,
            i,
        )
        tab.script("arguments[0].focus()", tab.all(_CANVASES)[i])
        tab.press(Keys.ARROW_DOWN, Keys.ENTER)
        leads_on(tab, address, f"a place in picture {i}")


def leads_on(tab: Tab, address: str, what: str) -> None:
    """And back to the panel as it was, without loading the tab anew."""
    tab.until("return parent.location.href !== arguments[0]", f"{what} to open something", address)
    tab.go_back_to(address)


@pytest.mark.parametrize("panel", ["overview", "timeline", "compare", "runs"])
def test_a_panel_that_is_loading_is_accessible(tab: Tab, panel: Panel) -> None:
    with answering(tab.driver, READING, 202):
        tab.begin(run="resnet18", panel=panel)
        tab.one(".reading")
        tab.text("h1")
        assert violations(tab) == []


@pytest.mark.parametrize("panel", ["overview", "timeline", "compare", "runs", "ranks", "kernels"])
def test_a_panel_that_failed_is_accessible_and_says_so_once(tab: Tab, panel: Panel) -> None:
    with answering(tab.driver, FAILED, 500):
        tab.begin(**place(panel))
        tab.wait_text("[role='alert']", "This trace is not valid JSON")
        tab.settle()
        tab.text("h1")
        assert violations(tab) == []
        assert len(tab.all("[role='alert']")) == 1
        tab.complaints()  # an answer that fails is one
