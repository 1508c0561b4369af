"""docs/definitions.md as a page: what every number of the tab means, without any other site."""

from __future__ import annotations

import re
from functools import cache

from tensorboard import plugin_util

from tb_torchcompile_plugin.api.bodies import SOURCE, anchor

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


def _with_id(heading: re.Match[str]) -> str:
    level, title = heading.groups()
    return f'<h{level} id="{anchor(title)}">{title}</h{level}>'
