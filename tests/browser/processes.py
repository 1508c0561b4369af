"""TensorBoard and Chromium as processes of their own: for the tests of the tab, and for measuring it."""

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.chrome.webdriver import WebDriver

# Cheaper than the whole browser, which opens windows that nobody sees.
SHELL = "chromium-headless-shell"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # One process draws TensorBoard, whatever it showed before: a new one for each page costs half a second.
    "--disable-site-isolation-trials",
    "--disable-features=SpareRendererForSitePerProcess",
    # Tests go from place to place faster than a page is let otherwise.
    "--disable-ipc-flooding-protection",
    # No page lives as long as an optimizing compiler needs to be worth its while.
    "--js-flags=--no-opt --no-maglev",
    # Whoever asks for another server gets none.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
# What a page has for itself.
WINDOW = (1400, 850)

# Of everything that is waited for. Long: where it is reached nothing works, and a machine may have other things to do.
PATIENCE_S = 60.0

ALONE = (str(Path(__file__).with_name("tensorboard_alone.py")),)
WITH_ALL_PLUGINS = ("-m", "tensorboard.main")


def find(*names: str) -> str:
    program = next((path for name in names if (path := shutil.which(name))), None)
    if not program:
        pytest.skip(f"no {names[0]} here; Debian: apt-get install chromium chromium-driver")
    return program


def start_browser(profile: Path, downloads: Path, requests: bool = False) -> Chrome:
    """Chromium with an empty profile, which logs what its pages say; requests: also all that it asks for, which makes
    each load dearer."""
    options = _options(profile, requests)
    # Said twice: the shell does not know the first, and the driver, which does, at times puts it over the second.
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    browser = Chrome(options=options, service=Service(find("chromedriver")))
    behavior = {"behavior": "allow", "downloadPath": str(downloads)}
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", behavior)
    browser.set_script_timeout(2 * PATIENCE_S)
    resize(browser, *WINDOW)
    return browser


def _options(profile: Path, requests: bool) -> ChromeOptions:
    options = ChromeOptions()
    shell = shutil.which(SHELL)
    options.binary_location = shell or find("chromium", "chromium-browser", "google-chrome")
    for flag in (*FLAGS, f"--user-data-dir={profile}", *(() if shell else ["--headless=new"])):
        options.add_argument(flag)
    if shell:
        options.set_capability("browserName", "chrome-headless-shell")
    logs = {"browser": "ALL", **({"performance": "ALL"} if requests else {})}
    options.set_capability("goog:loggingPrefs", logs)
    return options


def resize(browser: WebDriver, width: int, height: int) -> None:
    """To a page of this size: the whole browser has a frame around it, the shell has none."""
    frame = browser.execute_script("return top.outerHeight - top.innerHeight")
    browser.set_window_size(width, height + frame)


class Servers:
    """TensorBoards, by their addresses."""

    def __init__(self, outputs: Path) -> None:
        self._outputs = outputs
        self._running: dict[str, subprocess.Popen[str]] = {}

    def start(self, logdir: Path, program: Sequence[str] = ALONE) -> str:
        """The address of a new TensorBoard of this logdir."""
        output = self._outputs / f"{len(self._running)}.txt"
        command = [sys.executable, *program, "--logdir", str(logdir), "--port", "0"]
        with output.open("w") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, text=True)
        address = _address(output, process)
        self._running[address] = process
        return address

    def pid(self, address: str) -> int:
        """Of one of them."""
        return self._running[address].pid

    def stop(self, address: str) -> None:
        self._running[address].terminate()
        self._running[address].wait(timeout=PATIENCE_S)

    def stop_all(self) -> None:
        for address in self._running:
            self.stop(address)
        for output in self._outputs.glob(
            "*.txt"
        ):  # what TensorBoard says of answers that it holds to be unsafe
            assert "security_validator" not in output.read_text()


def _address(output: Path, process: subprocess.Popen[str]) -> str:
    deadline = time.monotonic() + 2 * PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        if match := re.search(r"http://\S+:(\d+)/", output.read_text()):
            return f"http://127.0.0.1:{match[1]}/"
        time.sleep(0.1)
    raise AssertionError(f"TensorBoard did not start:\n{output.read_text()}")
