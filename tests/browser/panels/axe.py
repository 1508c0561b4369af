"""axe-core in the tab: what a person who does not see, or not well, or has no mouse, would stumble over."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from browser.tab import Tab

SOURCE = Path(__file__).parents[3] / "frontend" / "node_modules" / "axe-core" / "axe.min.js"
_RUN = """
    const [rules, done] = arguments;
    const options = { resultTypes: ['violations'], ...(rules.length ? { runOnly: rules } : {}) };
    axe.run(document, options).then(
        ({ violations }) => done(violations.flatMap(({ id, help, nodes }) => nodes.map(
            ({ target, failureSummary }) => `${id}: ${help}\\n  ${target.join(' ')}\\n  ${failureSummary}`))),
        (error) => done([String(error)]));
"""


@cache
def _source() -> str:
    if not SOURCE.exists():
        pytest.skip("axe-core is not installed; `make frontend-check` installs it, with Node.js")
    return SOURCE.read_text()


def violations(tab: Tab, *rules: str) -> list[str]:
    """Each rule that is broken, of these or of all, where and how: what the tab shows now, in its theme of now."""
    if not tab.script("return 'axe' in window"):
        tab.script(_source())
    answer: list[Any] = tab.driver.execute_async_script(_RUN, rules)
    return [str(one) for one in answer]
