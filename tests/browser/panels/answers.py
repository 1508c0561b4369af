"""What the server answers, replaced before the tab asks: it stays away, it is still reading, or it fails."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from selenium.webdriver.chrome.webdriver import WebDriver

# Of which runs there are is asked first: without that there is no panel.
_REPLACED = """
    const asked = window.fetch;
    window.fetch = (address, ...more) => {
        const route = String(address).split('?')[0];
        if (['runs', 'reading'].includes(route) || !/^\\w+$/.test(route)) return asked(address, ...more);
        const headers = { 'Content-Type': 'application/json' };
        return Promise.resolve(new Response(JSON.stringify(%s), { status: %d, headers }));
    };
"""
READING = {
    "progress": {
        "stage": "reading",
        "file": "resnet18/vm_424.1795230236326796082.pt.trace.json",
        "bytes_read": 312_000_000,
        "bytes_total": 815_000_000,
        "events": 1_204_000,
        "seconds_left": 7.0,
        "queue_position": 0,
    }
}
FAILED = {
    "error": {
        "code": "unreadable",
        "message": "This trace is not valid JSON from byte 51200 on.",
        "file": "resnet18/vm_424.1795230236326796082.pt.trace.json",
        "next_step": "Record it anew: the process that wrote it may have been killed.",
    }
}


@contextmanager
def answering(driver: WebDriver, body: object, status: int) -> Iterator[None]:
    """Each document that is loaded meanwhile gets this answer to every question but which runs there are."""
    source = {"source": _REPLACED % (json.dumps(body), status)}
    driver.execute_cdp_cmd("Page.enable", {})
    script = driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", source)
    try:
        yield
    finally:
        driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)
