"""axe-core in the tab: what a person who does not see, or not well, or has no mouse, would stumble over."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from browser.tab import Tab

SOURCE = Path(__file__).parents[3] / "frontend" / "node_modules" / "axe-core" / "axe.min.js"
# All that a theme changes is colours: tests/house/test_bundle.py.
OF_COLOURS = ("color-contrast", "link-in-text-block")
_RUN = """
    const [within, options, done] = arguments;
    axe.run(within ?? document, { resultTypes: ['violations'], ...options }).then(
        ({ violations }) => done(violations.flatMap(({ id, help, nodes }) => nodes.map(
            ({ target, failureSummary }) => `${id}: ${help}\\n  ${target.join(' ')}\\n  ${failureSummary}`))),
        (error) => done([String(error)]));
"""


@cache
def _source() -> str:
    if not SOURCE.exists():
        pytest.skip("axe-core is not installed; `make frontend-check` installs it, with Node.js")
    return SOURCE.read_text()


def violations(tab: Tab, changed: Sequence[str] = ()) -> list[str]:
    """Each rule that is broken, where and how: what the tab shows now, in its theme of now and in the other one, which
    it is left in: to paint it all once more takes as long as to look at it.

    Of colours, which take most of the time, are looked at only those of what `changed` since the last look, if that
    is said.
    """
    if not tab.script("return 'axe' in window"):
        tab.script(_source())
    others = {"rules": {rule: {"enabled": False} for rule in OF_COLOURS}} if changed else {}
    now = tab.theme()
    then = "light" if now == "dark" else "dark"
    in_this = _run(tab, (), others) + (_of_colours(tab, changed) if changed else [])
    tab.dark(then == "dark")
    return [f"{now}: {one}" for one in in_this] + [f"{then}: {one}" for one in _of_colours(tab, changed)]


def _of_colours(tab: Tab, within: Sequence[str]) -> list[str]:
    return _run(tab, within, {"runOnly": OF_COLOURS})


def _run(tab: Tab, within: Sequence[str], options: dict[str, Any]) -> list[str]:
    context = {"include": [[css] for css in within]} if within else None
    answer: list[Any] = tab.driver.execute_async_script(_RUN, context, options)
    return [str(one) for one in answer]
