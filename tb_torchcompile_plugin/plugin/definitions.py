"""docs/definitions.md as a page and word by word: what every number of the tab means, without any other site."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from tensorboard import plugin_util

SOURCE = Path(__file__).with_name("definitions.md")
_ROW = re.compile(r"^\| `([\w.]+)` \| (.+) \|$", re.MULTILINE)
_HEADING = re.compile(r"<h([23])>(.*?)</h\1>")
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>What the numbers mean</title>
<link rel="icon" href="data:,">
<style>
  :root {{ color-scheme: light dark; }}
  body {{ max-width: 900px; margin: 0 auto; padding: 16px; font: 15px/1.5 system-ui, sans-serif; }}
  table {{ border-collapse: collapse; }}
  th, td {{ padding: 4px 12px 4px 0; border-bottom: 1px solid #8884; text-align: left; vertical-align: top; }}
  :target {{ text-decoration: underline; }}
</style>
<body>{}</body>
</html>
"""


@cache
def page() -> str:
    """HTML. Each heading has its name as its id, as panels and routes write theirs: `#gpu_utilization`."""
    html = plugin_util.markdown_to_safe_html(SOURCE.read_text(encoding="utf-8"))
    return _PAGE.format(_HEADING.sub(_with_id, html))


@cache
def terms() -> dict[str, dict[str, str]]:
    """What the words of the tab mean: set (a heading below "Words") → word → sentence."""
    words = SOURCE.read_text(encoding="utf-8").partition("\n## Words\n")[2]
    sets = (part.partition("\n") for part in words.split("\n### ")[1:])
    return {_anchor(title): dict(_ROW.findall(rows)) for title, _, rows in sets}


def _with_id(heading: re.Match[str]) -> str:
    level, title = heading.groups()
    return f'<h{level} id="{_anchor(title)}">{title}</h{level}>'


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "_")
