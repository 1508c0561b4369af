"""Which guards must hold before a compiled frame is run again? From torch's own dump of the guard tree."""

from __future__ import annotations

import msgspec

from tb_torchcompile_plugin.torch_names.guards import TREE_AFTER, TREE_COMMENT, TREE_NODE, TREE_SOURCE


class Guard(msgspec.Struct, frozen=True):
    """One check. `text` is its line as torch wrote it, without the tree's bars.

    kind: "TENSOR_MATCH". source: what is guarded ("L['x']"), None for what is global. user_line: the code that made
    torch guard it, and where that is, None where torch does not say.
    """

    text: str
    kind: str
    source: str | None
    user_line: str | None


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
