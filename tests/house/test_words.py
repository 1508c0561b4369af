"""What a thing is called says what it is: `rows`, `match`, `by_device`, and not that somebody found or told it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
FOLDERS = ("tb_torchcompile_plugin", "tests", "benchmarks", "examples", "scripts", "tools")
WORDS = {"told", "found", "Newest", "MadeOnce", "Opened", "Case", "launch_side"}
WORD = f"(?:{'|'.join(WORDS)})"
DECLARED = re.compile(
    rf"\b(?:const|let|function|class|interface|type|as) {WORD}\b|\({WORD}[,:)]|{{ {WORD}[ ,]"
)


def names_in(tree: ast.AST) -> Iterator[str]:
    """All that a module gives a name, and the keywords that it calls others with."""
    for node in ast.walk(tree):
        for field in ("id", "arg", "attr", "name", "asname"):
            if isinstance(name := getattr(node, field, None), str):
                yield name.rpartition(".")[2].lstrip("_")


def test_python_names_things_for_what_they_are() -> None:
    paths = [path for folder in FOLDERS for path in (REPOSITORY / folder).rglob("*.py")]
    texts = {path: path.read_text() for path in paths if "data" not in path.parts}
    wrong = {
        f"{path.relative_to(REPOSITORY)}: {name}"
        for path, text in texts.items()
        if any(word in text for word in WORDS)  # most need not be parsed
        for name in WORDS.intersection(names_in(ast.parse(text)))
    }
    assert len(paths) > 200 and wrong == set()


def test_the_frontend_names_things_for_what_they_are() -> None:
    folders = [REPOSITORY / "frontend" / name for name in ("src", "tests")]
    paths = [path for top in folders for path in top.rglob("*") if path.suffix in (".ts", ".svelte")]
    wrong = {
        f"{path.relative_to(REPOSITORY)}: {line.strip()}"
        for path in paths
        for line in path.read_text().splitlines()
        if DECLARED.search(line)
    }
    assert len(paths) > 100 and wrong == set()
