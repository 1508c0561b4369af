"""docs/definitions.md word by word: what every number of the tab means, without any other site."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).with_name("definitions.md")
_ROW = re.compile(r"^\| `([\w.]+)` \| (.+) \|$", re.MULTILINE)


@cache
def terms() -> dict[str, dict[str, str]]:
    """What the words of the tab mean: set (a heading below "Words") → word → sentence."""
    words = SOURCE.read_text(encoding="utf-8").partition("\n## Words\n")[2]
    sets = (part.partition("\n") for part in words.split("\n### ")[1:])
    return {anchor(title): dict(_ROW.findall(rows)) for title, _, rows in sets}


def anchor(title: str) -> str:
    """The name of a heading, as panels and routes write theirs."""
    return title.lower().replace(" ", "_")
