"""Keep links to files outside of docs/ readable on the site, which does not contain them (a hook of mkdocs).

Where the Markdown is read in the repository they are links. On the site only their text remains.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

_LINK = re.compile(r"\[([^\]]*)\]\((\.\./[^)#]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Return the text of a page with links that lead to other files of the repository as plain text."""
    folder = Path(page.file.abs_src_path).parent
    return _LINK.sub(partial(_without_target, folder, Path(config.docs_dir)), markdown)


def _without_target(folder: Path, docs: Path, link: re.Match[str]) -> str:
    target = (folder / link[2]).resolve()
    is_outside = target.exists() and docs.resolve() not in target.parents
    return link[1] if is_outside else link[0]
