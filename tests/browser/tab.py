"""Drives the tab in a real browser, and knows what the browser saw: console messages and requests."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote

from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select

PATIENCE_S = 20.0
# TensorBoard's own page says these; no other message is accepted.
KNOWN = ("Multiple instances of Three.js", "fallback to software WebGL")

T = TypeVar("T")

# TensorBoard keeps a frame for each plugin that was opened, and shows one.
_FRAME = """[...document.querySelectorAll('iframe')].find(
    one => one.src.includes('torch_compile') && one.checkVisibility())"""
_EMPTY = f"""
    const [page, done] = arguments;
    const frame = location.href.startsWith(page) && {_FRAME};
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
# Keys that come when the focus is there already go nowhere.
_STOP_AT = """
    const wanted = arguments[0];
    window.stopTabbing?.();
    const stop = (event) => document.activeElement.matches(wanted) && event.preventDefault();
    window.addEventListener('keydown', stop, true);
    window.stopTabbing = () => window.removeEventListener('keydown', stop, true);
"""


class Tab:
    """The TORCH COMPILE tab of the TensorBoard at `url`."""

    def __init__(self, driver: WebDriver, url: str) -> None:
        self.driver = driver
        self.url = url

    def open(self, query: str = "", **place: str) -> None:
        """Loads the tab anew at a place: `open(run="breaks", panel="kernels")`."""
        self.begin(query, **place)
        self.settle()

    def begin(self, query: str = "", **place: str) -> None:
        """As `open`, without waiting for what is being loaded."""
        parameters = "".join(f"&p.torch_compile.{key}={quote(value)}" for key, value in place.items())
        address = f"#torch_compile{parameters}"
        if frame := self.leave(query):
            self.driver.execute_async_script(_LOAD, frame, address)
        else:
            self.driver.get(f"{self.url}{query}{address}")
        self.enter()

    def leave(self, query: str = "") -> WebElement | None:
        """Ends whatever is shown and may still be asking.

        TensorBoard's page around the tab, by far the dearest part of a load, is kept if it is the one that is wanted:
        the answer is then its empty frame.
        """
        self.driver.switch_to.default_content()
        kept: WebElement | None = self.driver.execute_async_script(_EMPTY, f"{self.url}{query}#torch_compile")
        if not kept:
            self.driver.get("about:blank")
        return kept

    def enter(self) -> None:
        """Into the tab's own document, once it is there."""
        self.driver.switch_to.default_content()
        frame = self.wait(lambda: self.script(f"return {_FRAME}"), "the tab's iframe")
        self.driver.switch_to.frame(frame)
        self.wait(lambda: self.all("header"), "the tab's first paint")

    def settle(self) -> None:
        """Until nothing is being loaded."""
        self.wait(lambda: not self.all("header .busy, .reading"), "everything to be loaded")

    def wait(self, condition: Callable[[], T | None], what: str) -> T:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if value := condition():
                    return value
            except StaleElementReferenceException:
                pass  # redrawn while it was looked at
            assert time.monotonic() < deadline, (
                f"waited {PATIENCE_S:.0f} s for {what}; the tab shows:\n{self.text()}"
            )
            time.sleep(0.05)

    def all(self, css: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def one(self, css: str) -> WebElement:
        return self.wait(lambda: next(iter(self.all(css)), None), css)

    def text(self, css: str = "body") -> str:
        """Visible text with plain spaces (numbers and units have a narrow one between them)."""
        elements = self.all(css)
        return elements[0].text.replace("\u202f", " ") if elements else ""

    def wait_text(self, css: str, part: str) -> None:
        self.wait(lambda: part in self.text(css), f"{part!r} in {css}")

    def click(self, css: str, text: str = "") -> None:
        def clickable() -> WebElement | None:
            return next((e for e in self.all(css) if text in e.text and e.is_displayed()), None)

        self.wait(clickable, f"{css} with {text!r}").click()

    def pick(self, label: str, text: str) -> None:
        self.wait(lambda: text in self.options(label), f"{label} to offer {text}")
        self._select(label).select_by_visible_text(text)
        self.settle()

    def options(self, label: str) -> list[str]:
        return [option.text.replace("\u202f", " ") for option in self._select(label).options]

    def _select(self, label: str) -> Select:
        (label_element,) = [e for e in self.all("header label") if e.text.startswith(label)]
        return Select(label_element.find_element(By.TAG_NAME, "select"))

    def press(self, *keys: str) -> None:
        """Keys go to whatever has the focus."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def tab_to(self, css: str) -> None:
        """By keyboard alone."""
        self.script(_STOP_AT, css)
        for _ in range(20):
            if self.script("return document.activeElement.matches(arguments[0])", css):
                self.script("window.stopTabbing()")
                return
            self.press(Keys.TAB * 10)
        raise AssertionError(f"{css} cannot be reached with the Tab key")

    def rows(self, table: str) -> list[list[str]]:
        """The cells of the rows on screen; `table` is its accessible name."""
        script = """
            const table = [...document.querySelectorAll('table')].find(t => t.ariaLabel === arguments[0]);
            return table ? [...table.querySelectorAll('tbody tr[data-row]')].map(
                tr => [...tr.cells].map(td => td.innerText.trim())) : [];
        """
        return [[str(cell) for cell in row] for row in self.script(script, table)]

    def script(self, text: str, *arguments: object) -> Any:
        return self.driver.execute_script(text, *arguments)

    def address(self) -> str:
        return str(self.script("return parent.location.href"))

    def reload_data(self) -> None:
        """TensorBoard's own reload button."""
        self.driver.switch_to.default_content()
        self.wait(
            lambda: self.driver.find_elements(By.CSS_SELECTOR, ".reload-button:enabled"), "the reload button"
        )
        self.driver.find_element(By.CSS_SELECTOR, ".reload-button").click()
        self.enter()
        self.settle()

    def complaints(self) -> list[str]:
        """Console errors and warnings since the last call."""
        entries: list[dict[str, Any]] = self.driver.get_log("browser")
        messages = [str(e["message"]) for e in entries if e["level"] in ("WARNING", "SEVERE")]
        return [message for message in messages if not any(known in message for known in KNOWN)]

    def outside_requests(self) -> list[str]:
        """Addresses asked for since the last call that are not on our server."""
        entries: list[dict[str, Any]] = self.driver.get_log("performance")
        events = [json.loads(entry["message"])["message"] for entry in entries]
        urls = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in urls if url.startswith(("http", "ws")) and not url.startswith(self.url)]
