"""Which guards must hold before a compiled frame is run again? From torch's own dump of the guard tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis.words import at_line
from tb_torchcompile_plugin.torch_names.graph_breaks import (
    COMPARED,
    TREE_AFTER,
    TREE_COMMENT,
    TREE_ELEMENT,
    TREE_NODE,
    TREE_PLACE,
    TREE_SOURCE,
)


class Guard(msgspec.Struct, frozen=True):
    """One check. `text` is its line as torch wrote it, without the tree's bars.

    kind: "TENSOR_MATCH". source: what is guarded ("L['x']"), None for what is global. user_line: the code that made
    torch guard it, and where that is, None where torch does not say.
    """

    text: str
    kind: str
    source: str | None
    user_line: str | None


class Elements(NamedTuple):
    """The elements of one list or dict that are checked one by one. source: the container. line: "m.py:3", the code
    that made torch guard them; "" where it does not say."""

    source: str
    many: int
    line: str


def most_elements(checks: Iterable[Guard]) -> Elements | None:
    """The container of which most elements are compared with what they were; None without any."""
    elements = [
        (match["container"], check.user_line or "")
        for check in checks
        if check.kind == COMPARED and check.source and (match := TREE_ELEMENT.fullmatch(check.source))
    ]
    if not elements:
        return None
    ((container, count),) = Counter(container for container, _ in elements).most_common(1)
    lines = Counter(line for one, line in elements if one == container)
    where = TREE_PLACE.search(lines.most_common(1)[0][0])
    return Elements(container, count, at_line(where["file"], int(where["line"])) if where else "")


def guards(dump: str) -> list[Guard]:
    """The checks of a `dynamo_cpp_guards_str` payload, in the order in which they are made; [] if it holds none."""
    checks: list[Guard] = []
    sources: dict[int, str | None] = {}
    for depth, label, rest in _nodes(dump):
        if label.endswith("Manager"):
            sources[depth] = _source(rest or "")
            continue
        around = (sources.get(above) for above in range(depth - 1, -1, -1))
        checks.append(_guard(label, rest or "", next(around, None)))
    return checks


def _nodes(dump: str) -> list[tuple[int, str, str | None]]:
    """(depth, label, what follows it): a guard whose text has several lines is one node."""
    nodes: list[list[str]] = []
    for line in dump.splitlines():
        if TREE_NODE.match(line):
            nodes.append([line])
        elif nodes and line.strip() and not line.startswith(TREE_AFTER):
            nodes[-1].append(line)
    matches = [TREE_NODE.match("\n".join(lines)) for lines in nodes]
    return [(len(match["bars"]) // 2, match["label"], match["rest"]) for match in matches if match]


def _source(rest: str) -> str | None:
    match = TREE_SOURCE.search(rest)
    return match["source"] if match else None


def _guard(kind: str, rest: str, source: str | None) -> Guard:
    comment = TREE_COMMENT.split(rest, maxsplit=1)[1:]
    return Guard(
        text=f"{kind}: {rest}" if rest else kind,
        kind=kind,
        source=source,
        user_line=comment[0].strip() if comment else None,
    )
