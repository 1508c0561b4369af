"""Drives the tab in a real browser, and knows what the browser saw: console messages and requests.

Whatever is looked for is waited for, in the page itself: a look from there is free, one from here costs a request to
the driver and one of it to the browser.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import quote

from selenium.common.exceptions import (
    ElementClickInterceptedException,
    JavascriptException,
    StaleElementReferenceException,
)
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select

from browser.processes import PATIENCE_S, WINDOW, resize

# TensorBoard's own page says these; no other message is accepted.
KNOWN = ("Multiple instances of Three.js", "fallback to software WebGL")

T = TypeVar("T")

# TensorBoard keeps a frame for each plugin that was opened, and shows one.
FRAME = """[...document.querySelectorAll('iframe')].find(
    one => one.src.includes('torch_compile') && one.checkVisibility())"""
_EMPTY = f"""
    const [page, done] = arguments;
    const frame = location.href.startsWith(page) && {FRAME};
    if (!frame || frame.contentWindow.location.href === 'about:blank') done(frame || null);
    else {{
        frame.addEventListener('load', () => done(frame), {{ once: true }});
        frame.contentWindow.location.replace('about:blank');
    }}
"""
_LOAD = """
    const [frame, address, done] = arguments;
    history.pushState(null, '', address);
    frame.addEventListener('load', () => done(), { once: true });
    frame.contentWindow.location.replace(frame.src);
"""
# The tab hears of it before we do.
_GO = """
    const [place, done] = arguments;
    if (parent.location.hash === place) done();
    parent.addEventListener('hashchange', () => setTimeout(done), { once: true });
    parent.location.hash = place;
"""
_LOOK = """
    const [patience, values, done] = arguments;
    const condition = function () { %s };
    const end = performance.now() + patience;
    const value = () => { try { return condition.apply(null, values); } catch { return null; } };
    const look = () => {
        const now = value();
        if (now || performance.now() > end) done(now || null);
        else setTimeout(look, 20);
    };
    look();
"""
# Visible text with plain spaces (numbers and units have a narrow one between them) and no empty lines.
_TEXT = """
    const textOf = (e) => !e?.checkVisibility({ visibilityProperty: true }) ? ''
        : (e.innerText ?? e.textContent).replace(/[\\u00a0\\u202f\\t ]+/g, ' ').replace(/ ?\\n[\\n ]*/g, '\\n').trim();
"""
_LOADED = "!document.querySelector('header .busy, .reading')"
_CLICKABLE = f"""
    {_TEXT}
    const [css, text] = arguments;
    const seen = e => e.checkVisibility({{ visibilityProperty: true }}) && textOf(e).includes(text);
    const one = [...document.querySelectorAll(css)].find(seen);
    const place = one && JSON.stringify(one.getBoundingClientRect());
    const rests = place === window.placeOfLastLook;
    window.placeOfLastLook = place;
    if (!one || !({_LOADED} || rests)) return null;
    window.arrived = false;
    one.addEventListener('click', () => window.arrived = true, {{ capture: true, once: true }});
    return one;
"""
_ASKED = """
    const all = [...parent.document.querySelectorAll('iframe')];
    const frames = all.map(one => one.contentDocument && one.contentWindow);
    return [parent, ...frames.filter(Boolean)].flatMap(({ performance }) => {
        const names = performance.getEntriesByType('resource').map(one => one.name);
        performance.clearResourceTimings();
        return names;
    });
"""
# Keys that come when the focus is there already go nowhere.
_STOP_AT = """
    const wanted = arguments[0];
    window.stopTabbing?.();
    const stop = (event) => document.activeElement.matches(wanted) && event.preventDefault();
    window.addEventListener('keydown', stop, true);
    window.stopTabbing = () => window.removeEventListener('keydown', stop, true);
"""
_ROWS = """
    const table = [...document.querySelectorAll('table')].find(t => t.ariaLabel === arguments[0]);
    const rows = [...table.querySelectorAll('tbody tr[data-row]')];
    return rows.length && rows.map(tr => [...tr.cells].map(td => td.innerText.trim()));
"""


class Tab:
    """The TORCH COMPILE tab of the TensorBoard at `url`."""

    def __init__(self, driver: WebDriver, url: str) -> None:
        self.driver = driver
        self.url = url
        self._asked: list[str] = []

    def open(self, query: str = "", **place: str) -> None:
        """Loads the tab anew at a place: `open(run="breaks", panel="kernels")`."""
        self.begin(query, **place)
        self.settle()

    def begin(self, query: str = "", **place: str) -> None:
        """As `open`, without waiting for what is being loaded."""
        self._load(query, _hash(place))

    def again(self) -> None:
        """Loads the tab anew where it is: what the address does not keep is gone."""
        _, _, place = self.address().partition("#")
        self._load("", f"#{place}")
        self.settle()

    def go(self, **place: str) -> None:
        """To a place as by a link of the tab, without loading it anew."""
        self.go_back_to(_hash(place))

    def go_back_to(self, address: str) -> None:
        self.driver.execute_async_script(_GO, address[address.index("#") :])
        self.settle()

    def _load(self, query: str, place: str) -> None:
        if frame := self.leave(query):
            self.driver.execute_async_script(_LOAD, frame, place)
            self.driver.switch_to.frame(frame)
            self.one("header")
        else:
            self.driver.get(f"{self.url}{query}{place}")
            self.enter()

    def leave(self, query: str = "") -> WebElement | None:
        """Ends whatever is shown and may still be asking.

        TensorBoard's page around the tab, by far the dearest part of a load, is kept if it is the one that is wanted:
        the answer is then its empty frame.
        """
        self.driver.switch_to.default_content()
        self._note_requests()
        kept: WebElement | None = self.driver.execute_async_script(_EMPTY, f"{self.url}{query}#torch_compile")
        if not kept:
            self.driver.get("about:blank")
        return kept

    def enter(self) -> None:
        """Into the tab's own document, once it is there."""
        self.driver.switch_to.default_content()
        self.driver.switch_to.frame(self.until(f"return {FRAME}", "the tab's iframe"))
        self.one("header")

    def back(self) -> None:
        """As the browser's button does."""
        self.driver.back()
        self.enter()

    def settle(self) -> None:
        """Until nothing is being loaded."""
        self.until(f"return {_LOADED}", "everything to be loaded")

    def until(self, script: str, what: str, *values: object) -> Any:
        """What a script returns, as soon as that is something; until then it may fail, too."""
        deadline = time.monotonic() + PATIENCE_S
        while (left := deadline - time.monotonic()) > 0:
            try:
                if value := self.driver.execute_async_script(_LOOK % script, 1000 * left, values):
                    return value
            except JavascriptException as error:  # the document was left while it was looked at
                if "unloaded" not in str(error):
                    raise
        raise AssertionError(self._waited(what))

    def wait(self, condition: Callable[[], T | None], what: str) -> T:
        """As `until`, for what the page alone does not know."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if value := condition():
                    return value
            except StaleElementReferenceException:
                pass  # redrawn while it was looked at
            assert time.monotonic() < deadline, self._waited(what)
            time.sleep(0.05)

    def _waited(self, what: str) -> str:
        shown = self.script("return document.body.innerText")[:3000]
        return f"waited {PATIENCE_S:.0f} s for {what}; at {self.address()} the tab shows:\n{shown}"

    def all(self, css: str) -> list[WebElement]:
        """Those that there are now, and be it none."""
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def one(self, css: str) -> WebElement:
        element: WebElement = self.until("return document.querySelector(arguments[0])", css, css)
        return element

    def gone(self, css: str) -> None:
        self.until("return !document.querySelector(arguments[0])", f"{css} to go", css)

    def text(self, css: str = "body") -> str:
        """Of the first such element, once it says something: visible text, with plain spaces and no empty lines."""
        return str(
            self.until(f"{_TEXT} return textOf(document.querySelector(arguments[0]))", f"text in {css}", css)
        )

    def texts(self, css: str) -> list[str]:
        """Of all such elements, of which there is one at least."""
        all_of_them = "const all = [...document.querySelectorAll(arguments[0])];"
        script = f"{_TEXT} {all_of_them} return all.length && all.map(textOf)"
        return [str(text) for text in self.until(script, css, css)]

    def wait_text(self, css: str, *parts: str) -> None:
        """Until the first such element shows each of these, wherever lines end."""
        script = f"""{_TEXT}
            const [css, parts] = arguments;
            const oneLine = (text) => text.replace(/\\s+/g, ' ');
            const text = oneLine(textOf(document.querySelector(css)));
            return text && parts.every(part => text.includes(oneLine(part)));
        """
        self.until(script, f"{parts!r} in {css}", css, parts)

    def wait_without(self, css: str, part: str) -> None:
        """Until the first such element says something, and this is no part of it."""
        script = f"""{_TEXT}
            const text = textOf(document.querySelector(arguments[0]));
            return text && !text.includes(arguments[1]);
        """
        self.until(script, f"{css} without {part!r}", css, part)

    def wait_count(self, css: str, count: int) -> None:
        """Until there are as many such elements."""
        script = "return document.querySelectorAll(arguments[0]).length === arguments[1]"
        self.until(script, f"{count} of {css}", css, count)

    def wait_address(self, *parts: str) -> str:
        """The address, once each of these is in it."""
        script = (
            "return arguments[0].every(part => parent.location.href.includes(part)) && parent.location.href"
        )
        return str(self.until(script, f"{parts!r} in the address", parts))

    def wait_focus(self, css: str) -> None:
        self.until("return document.activeElement.matches(arguments[0])", f"the focus on {css}", css)

    def click(self, css: str, text: str = "") -> None:
        """The first such element with this text, once it is there and rests."""

        def clicked() -> bool:
            try:
                self.until(_CLICKABLE, f"{css} with {text!r}", css, text).click()
            except ElementClickInterceptedException:
                return False  # something moved in between
            # It may also move while the pointer is pressed, and then the click is another one's or nobody's.
            # A document that came anew knows of no click.
            return bool(self.script("return window.arrived !== false"))

        self.wait(clicked, f"{css} with {text!r} to lie bare")

    def pick(self, label: str, text: str) -> None:
        self.wait(lambda: text in self.options(label), f"{label} to offer {text}")
        self._select(label).select_by_visible_text(text)
        self.settle()

    def options(self, label: str) -> list[str]:
        script = "return [...arguments[0].options].map(one => one.text.replace('\\u202f', ' '))"
        return [str(option) for option in self.script(script, self._select(label)._el)]

    def _select(self, label: str) -> Select:
        script = """
            const labels = [...document.querySelectorAll('header label')];
            return labels.find(one => one.innerText.startsWith(arguments[0]))?.querySelector('select');
        """
        return Select(self.until(script, f"the select of {label}", label))

    def press(self, *keys: str) -> None:
        """Keys go to whatever has the focus."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def tab_to(self, css: str) -> None:
        """By keyboard alone."""
        self.one(css)
        self.script(_STOP_AT, css)
        for _ in range(20):
            if self.script("return document.activeElement.matches(arguments[0])", css):
                self.script("window.stopTabbing()")
                return
            self.press(Keys.TAB * 10)
        raise AssertionError(f"{css} cannot be reached with the Tab key")

    def rows(self, table: str) -> list[list[str]]:
        """The cells of the rows on screen, once there are some; `table` is its accessible name."""
        return [[str(cell) for cell in row] for row in self.until(_ROWS, f"rows of {table}", table)]

    def script(self, text: str, *arguments: object) -> Any:
        return self.driver.execute_script(text, *arguments)

    def address(self) -> str:
        return str(self.script("return parent.location.href"))

    @contextmanager
    def sized(self, width: int, height: int) -> Iterator[None]:
        """In a window whose page has this size."""
        resize(self.driver, width, height)
        try:
            self.until("return parent.innerWidth === arguments[0]", f"a window {width} wide", width)
            yield
        finally:
            resize(self.driver, *WINDOW)

    def dark(self, on: bool = True) -> None:
        """TensorBoard's theme, as its own switch sets it."""
        self.script("parent.document.body.classList.toggle('dark-mode', arguments[0])", on)
        theme = "dark" if on else "light"
        self.until(
            "return document.documentElement.dataset.theme === arguments[0]", f"the {theme} theme", theme
        )

    def reload_data(self) -> None:
        """TensorBoard's own reload button."""
        self.driver.switch_to.default_content()
        self.one(".reload-button:enabled").click()
        self.enter()
        self.settle()

    def complaints(self) -> list[str]:
        """Console errors and warnings since the last call."""
        entries: list[dict[str, Any]] = self.driver.get_log("browser")
        messages = [str(e["message"]) for e in entries if e["level"] in ("WARNING", "SEVERE")]
        return [message for message in messages if not any(known in message for known in KNOWN)]

    def outside_requests(self) -> list[str]:
        """Addresses asked for since the last call that are not on our server.

        What TensorBoard's policy of content forbids is a complaint, too, and is never asked for.
        """
        self._note_requests()
        asked, self._asked = self._asked, []
        return [url for url in asked if url.startswith(("http", "ws")) and not url.startswith(self.url)]

    def _note_requests(self) -> None:
        """Before the documents that made them are left. A log of the browser's would cost a fifth of all it does."""
        self._asked += self.script(_ASKED)


def _hash(place: dict[str, str]) -> str:
    return "#torch_compile" + "".join(
        f"&p.torch_compile.{key}={quote(value)}" for key, value in place.items()
    )
