"""The code of a panel comes when the panel is opened, and only then."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from browser.tab import Tab

pytestmark = pytest.mark.browser

LOADED = "return performance.getEntriesByType('resource').map(e => e.name.split('/').pop()).filter(n => /js$/.test(n))"
HEADINGS = """
    window.headings = [];
    new MutationObserver(() => {
        const text = document.querySelector('h1')?.innerText;
        if (text && headings.at(-1) !== text) headings.push(text);
    }).observe(document, { subtree: true, childList: true, characterData: true });
"""


def test_whoever_asks_elsewhere_is_noticed(tab: Tab) -> None:
    """The browser refuses, because TensorBoard told it to, and says so: every test looks at what it says."""
    tab.open(run="breaks")
    tab.script("""
        const elsewhere = (what) => `https://elsewhere.example/${what}`;
        fetch(elsewhere('fetched')).catch(() => undefined);
        navigator.sendBeacon(elsewhere('beacon'));
        document.body.append(Object.assign(new Image(), { src: elsewhere('image') }));
    """)
    said: list[str] = []

    def is_said(what: str) -> bool:
        said.extend(tab.complaints())
        return any(what in text for text in said)

    wanted = ("elsewhere.example/fetched", "elsewhere.example/beacon", "elsewhere.example/image")
    tab.wait(lambda: all(map(is_said, wanted)), "the browser to complain of each")
    assert tab.outside_requests() == ["https://elsewhere.example/image"]
    tab.leave()  # with the image


@contextmanager
def without(tab: Tab, address: str) -> Iterator[None]:
    """As if the server did not have a file."""
    tab.driver.execute_cdp_cmd("Network.enable", {})
    tab.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": [address]})
    try:
        yield
    finally:
        tab.driver.execute_cdp_cmd("Network.disable", {})


def test_an_address_draws_its_panel_and_loads_no_other(tab: Tab) -> None:
    observing = tab.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": HEADINGS})
    tab.load(run="resnet18", panel="step")
    tab.wait_text("h1", "A step takes")
    tab.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", observing)
    # Where the trace has to be read first, it says so.
    headings = [text for text in tab.script("return headings") if not text.startswith("Reading ")]
    assert headings == [tab.script("return document.querySelector('h1').innerText")]
    loaded = set(tab.script(LOADED))
    assert {"common.js", "run.js"} <= loaded
    assert not loaded & {"Overview.js", "Timeline.js", "code.js", "summary.js"}
    tab.click("nav a", "Your code")
    tab.wait_text("h1", "of each step")
    assert "code.js" in tab.script(LOADED)


SHIFTS = """
    window.shifts = [];
    new PerformanceObserver((list) => {
        for (const { value, sources } of list.getEntries()) {
            const moved = sources.map(({ node }) => node).filter((node) => node?.closest?.('.overview'));
            if (moved.length > 0) window.shifts.push([value, ...moved.map((node) => node.outerHTML.slice(0, 99))]);
        }
    }).observe({ type: 'layout-shift', buffered: true });
"""


@pytest.mark.parametrize("run", ["resnet18", "breaks"])
def test_nothing_moves_on_the_overview_after_it_is_painted(tab: Tab, run: str) -> None:
    observing = tab.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": SHIFTS})
    tab.load(run=run)
    tab.wait_text("main", "Environment")
    tab.settle()
    tab.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", observing)
    large = [shift for shift in tab.script("return window.shifts") if shift[0] > 0.001]
    assert not large, "\n".join(map(str, large))


def test_a_panel_that_does_not_come_says_so_and_can_be_asked_for_again(tab: Tab) -> None:
    missing = "The code of this panel could not be loaded."
    with without(tab, "*/run.js"):
        tab.load(run="breaks", panel="memory")
        tab.wait_text("main", missing)
        tab.click("nav a", "Overview")
        tab.wait_text("h1", "6.02 ms per step")
        tab.click("nav a", "Memory")
        tab.wait_text("main", missing)
    tab.click("button", "Try again")
    tab.enter()
    tab.wait_text("h1", "Memory was not recorded.")
    assert all("ERR_BLOCKED" in complaint for complaint in tab.complaints())


WRONG = """
    const asked = window.fetch;
    const headers = { 'Content-Type': 'application/json' };
    window.fetch = (address, ...more) => String(address).startsWith('operators')
        ? Promise.resolve(new Response('{"sentences": 5, "rows": 7}', { headers }))
        : asked(address, ...more);
"""


def test_a_mistake_while_drawing_costs_one_panel(tab: Tab) -> None:
    tab.driver.execute_cdp_cmd("Page.enable", {})
    script = tab.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WRONG})
    tab.load(run="resnet18", panel="operators")
    tab.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)
    tab.wait_text("main", "could not be displayed")
    tab.click("main button", "Try again")
    tab.wait_text("main pre", "TypeError")
    tab.click("nav a", "Kernels")
    tab.wait_text("h1", "launches of")
    tab.leave()
