"""Drives the tab in a real browser, and knows what the browser saw: console messages and requests.

Whatever is looked for is waited for, in the page itself: a look from there is free, one from here costs a request to
the driver and one of it to the browser.
"""

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
from browser.tab import in_page

# TensorBoard's own page says these; no other message is accepted.
KNOWN = ("Multiple instances of Three.js", "fallback to software WebGL")

T = TypeVar("T")


class Tab:
    """The TORCH COMPILE tab of the TensorBoard at `url`; `holds`: what is in its logdir now, in whatever words."""

    def __init__(self, driver: WebDriver, url: str, holds: Callable[[], str] = str) -> None:
        self.driver = driver
        self.url = url
        self._holds = holds
        self._asked: list[str] = []

    def open(self, **place: str) -> None:
        """At a place, as if it were loaded there: `open(run="breaks", panel="kernels")`.

        It is loaded only where it was not yet, or knows another logdir: that takes longer than all else a test does.
        """
        if self._is_loaded():
            self.script(in_page.AS_LOADED)
            self._follow(_hash({**place, "panel": _another(place)}), _hash(place))
        else:
            self.load(**place)

    def _is_loaded(self) -> bool:
        self.driver.switch_to.default_content()
        frame = self.script(in_page.HERE, f"{self.url}#torch_compile", self._holds())
        if frame:
            self.driver.switch_to.frame(frame)
        return bool(frame)

    def load(self, query: str = "", **place: str) -> None:
        """Anew, at a place."""
        self.begin(query, **place)
        self.settle()

    def begin(self, query: str = "", **place: str) -> None:
        """As `load`, without waiting for what is being loaded."""
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
        self._follow(address[address.index("#") :])

    def _follow(self, *places: str) -> None:
        self.driver.execute_async_script(in_page.GO, places)
        self.settle()

    def _load(self, query: str, place: str) -> None:
        holds = self._holds()
        if frame := self.leave(query):
            self.driver.execute_async_script(in_page.LOAD, frame, place)
            self.driver.switch_to.frame(frame)
            self.one("header")
        else:
            self.driver.get(f"{self.url}{query}{place}")
            self.enter()
        self.script("window.logdirHeld = arguments[0]", holds)

    def leave(self, query: str = "") -> WebElement | None:
        """Ends whatever is shown and may still be asking.

        TensorBoard's page around the tab, the most expensive part of a load, is kept if it is the one that is wanted:
        the answer is then its empty frame.
        """
        self.driver.switch_to.default_content()
        self._note_requests()
        kept: WebElement | None = self.driver.execute_async_script(
            in_page.EMPTY, f"{self.url}{query}#torch_compile"
        )
        if not kept:
            self.driver.get("about:blank")
        return kept

    def enter(self) -> None:
        """Into the tab's own document, once it is there."""
        self.driver.switch_to.default_content()
        self.driver.switch_to.frame(self.until(f"return {in_page.FRAME}", "the tab's iframe"))
        self.one("header")

    def back(self) -> None:
        """As the browser's button does."""
        self.driver.back()
        self.enter()

    def settle(self) -> None:
        """Until nothing is being loaded."""
        self.until(f"return {in_page.LOADED}", "everything to be loaded")

    def until(self, script: str, what: str, *values: object) -> Any:
        """What a script returns, as soon as that is something; until then it may fail, too."""
        deadline = time.monotonic() + PATIENCE_S
        while (left := deadline - time.monotonic()) > 0:
            try:
                if value := self.driver.execute_async_script(in_page.LOOK % script, 1000 * left, values):
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
            self.until(
                f"{in_page.TEXT} return textOf(document.querySelector(arguments[0]))", f"text in {css}", css
            )
        )

    def texts(self, css: str) -> list[str]:
        """Of all such elements, of which there is one at least."""
        all_of_them = "const all = [...document.querySelectorAll(arguments[0])];"
        script = f"{in_page.TEXT} {all_of_them} return all.length && all.map(textOf)"
        return [str(text) for text in self.until(script, css, css)]

    def wait_text(self, css: str, *parts: str) -> None:
        """Until the first such element shows each of these, wherever lines end."""
        script = f"""{in_page.TEXT}
            const [css, parts] = arguments;
            const oneLine = (text) => text.replace(/\\s+/g, ' ');
            const text = oneLine(textOf(document.querySelector(css)));
            return text && parts.every(part => text.includes(oneLine(part)));
        """
        self.until(script, f"{parts!r} in {css}", css, parts)

    def wait_without(self, css: str, part: str) -> None:
        """Until the first such element says something, and this is no part of it."""
        script = f"""{in_page.TEXT}
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
                self.until(in_page.CLICKABLE, f"{css} with {text!r}", css, text).click()
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
        self.script(in_page.STOP_AT, css)
        for _ in range(20):
            if self.script("return document.activeElement.matches(arguments[0])", css):
                self.script("window.stopTabbing()")
                return
            self.press(Keys.TAB * 10)
        raise AssertionError(f"{css} cannot be reached with the Tab key")

    def rows(self, table: str) -> list[list[str]]:
        """The cells of the rows on screen, once there are some; `table` is its accessible name."""
        return [[str(cell) for cell in row] for row in self.until(in_page.ROWS, f"rows of {table}", table)]

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

    def theme(self) -> str:
        return str(self.script("return document.documentElement.dataset.theme"))

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
        self._asked += self.script(in_page.ASKED)


def _another(place: dict[str, str]) -> str:
    """Than that of the place: what is on the way there, so that nothing is left of what was chosen before."""
    return "modules" if place.get("panel") == "exports" else "exports"


def _hash(place: dict[str, str]) -> str:
    return "#torch_compile" + "".join(
        f"&p.torch_compile.{key}={quote(value)}" for key, value in place.items()
    )
