"""Write the examples in docs/http.md from the types of the answers and from recordings (`make types`).

An example has every field of the type, with the value of the first answer that has one: rows are merged. What no answer
fills keeps the value that the page has, or gets a placeholder. All other text is written by hand. `--check` fails when
the page is not what this would write.
"""

from __future__ import annotations

import json
import re
import runpy
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain, cycle, takewhile
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from tb_torchcompile_plugin.api.routes import ROUTES

TARGET = Path(__file__).parent.parent / "docs" / "http.md"
SNAPSHOT = runpy.run_path(str(Path(__file__).with_name("snapshot.py")))  # asks every route
# By archive the runs of it that are asked, () for all: small ones, which together fill most fields.
RECORDINGS = {
    "2.11.0/handler_breaks": (),
    "2.13.0/everything": (),
    "2.11.0/graphs": ("sizes_dynamic",),
    "2.11.0/jobs": ("python_late_rank", "healthy_ddp"),
}
WIDTH = 140  # of a line of an example
TEXT = 160  # characters of a text
_EXAMPLE = re.compile(r"^```json (\w+)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
_PAIR = 2  # values of a list that an example shows: some are pairs
_FEW = 3  # names of a mapping that an example shows
_LISTS = (inspect.ListType, inspect.VarTupleType)
_STRUCTS = (inspect.StructType, inspect.DataclassType)


def main() -> int:
    """Write the page, or compare it with `--check`."""
    page = TARGET.read_text()
    text = generate(page)
    if "--check" in sys.argv and text != page:
        print(f"{TARGET} is stale: run `make types`", file=sys.stderr)
        return 1
    TARGET.write_text(text)
    return 0


def generate(page: str) -> str:
    """Return the page with the examples of today's answers."""
    samples = recorded()

    def fresh(block: re.Match[str]) -> str:
        name, text = block.groups()
        if name not in ROUTES:
            return block[0]
        kind = inspect.type_info(ROUTES[name].answer)
        example = _example(kind, [*samples[name], json.loads(text)], ())
        return f"```json {name}\n{re.sub(r' +$', '', _laid_out(example, 0), flags=re.MULTILINE)}\n```\n"

    return _EXAMPLE.sub(fresh, page)


def recorded() -> dict[str, list[Any]]:
    """Return all answers about the recordings by route."""
    samples: dict[str, list[Any]] = defaultdict(list)
    archives = SNAPSHOT["recordings"](committed_only=True)
    for name, runs in RECORDINGS.items():
        with SNAPSHOT["unpacked"](archives[name]) as logdir:
            for file in [path for path in logdir.rglob("*") if runs and path.is_file()]:
                if not {*runs} & {*file.parts}:
                    file.unlink()
            answers = takewhile(lambda answer: answer[0].split()[0] in ROUTES, SNAPSHOT["answers"](logdir))
            for answer, body in answers:
                route = answer.split()[0]
                if issubclass(ROUTES[route].answer, msgspec.Struct):
                    rows = map(json.loads, body.split(b"\n"))
                    samples[route] += [row for row in rows if "error" not in row]
    return samples


def _example(kind: inspect.Type, samples: list[Any], within: tuple[Any, ...]) -> Any:
    """Return a value of a type, with all fields. within: the structs around it: none is shown inside itself."""
    if isinstance(kind, inspect.Metadata):
        return _example(kind.type, samples, within)
    filled = [sample for sample in samples if sample not in (None, "", [], {})]
    if isinstance(kind, inspect.UnionType):
        options = [option for option in kind.types if not isinstance(option, inspect.NoneType)]
        is_simple = len(options) == 1 and (filled or isinstance(options[0], _STRUCTS))
        return _example(options[0], filled, within) if is_simple else _short(next(iter(filled), None))
    if isinstance(kind, _STRUCTS):
        names = {field.encode_name: field.type for field in kind.fields}
        values = {name: [row[name] for row in filled if name in row] for name in names}
        return {name: _example(names[name], values[name], (*within, kind.cls)) for name in names}
    if isinstance(kind, _LISTS):
        return _rows(kind.item_type, filled, within)
    if isinstance(kind, inspect.DictType):
        every = list(dict.fromkeys(name for sample in filled for name in sample))
        rows = {name: [row[name] for row in filled if name in row] for name in every[:_FEW]}
        return {_short(name): _example(kind.value_type, values, within) for name, values in rows.items()}
    return _short(next(iter(filled or samples), _placeholder(kind)))


def _rows(kind: inspect.Type, lists: list[list[Any]], within: tuple[Any, ...]) -> list[Any]:
    """Return one row, or the first values of a list of them."""
    rows = [*chain.from_iterable(lists)]
    if isinstance(kind, _STRUCTS):
        if kind.cls in within:
            return []
        inner = [field.encode_name for field in kind.fields if _struct_in(field.type) is kind.cls]
        rows = [node for row in rows for node in _nodes(row, inner)]
    elif rows and not isinstance(rows[0], list | dict):
        return [*map(_short, lists[0][:_PAIR])]
    return [_example(kind, rows, within)]


def _nodes(row: Any, inner: list[str]) -> Iterator[Any]:
    """Yield a row, and the rows of its type in it: nodes of a tree."""
    yield row
    for name in inner:
        for node in row[name]:
            yield from _nodes(node, inner)


def _struct_in(kind: inspect.Type) -> type | None:
    item = getattr(kind, "item_type", None)
    return item.cls if isinstance(item, _STRUCTS) else None


def _placeholder(kind: inspect.Type) -> Any:
    """Return a value of a type without parts."""
    if isinstance(kind, inspect.LiteralType):
        return kind.values[0]
    return {inspect.StrType: "…", inspect.BoolType: False, inspect.IntType: 0, inspect.FloatType: 0.0}.get(
        type(kind)
    )


def _short(value: Any) -> Any:
    """Round numbers and cut texts."""
    if isinstance(value, float):
        return round(value, 3) or float(f"{value:.3g}")
    return f"{value[:TEXT]}…" if isinstance(value, str) and len(value) > TEXT else value


def _laid_out(value: Any, indent: int) -> str:
    """Return JSON in lines of at most `WIDTH` characters, several fields in each."""
    text = json.dumps(value, ensure_ascii=False)
    if len(text) + indent <= WIDTH or not isinstance(value, dict | list):
        return text
    heads = (
        [f"{json.dumps(name, ensure_ascii=False)}: " for name in value] if isinstance(value, dict) else [""]
    )
    items = value.values() if isinstance(value, dict) else value
    lines = [""]
    for head, item in zip(cycle(heads), items):
        first, *others = (head + _laid_out(item, indent + 1) + ", ").splitlines()
        if lines[-1] and (others or indent + len(lines[-1] + first) > WIDTH):
            lines.append("")
        lines[-1] += first
        lines += others
    brackets = "{}" if isinstance(value, dict) else "[]"
    return brackets[0] + "\n ".join(lines).removesuffix(", ") + brackets[1]


if __name__ == "__main__":
    sys.exit(main())
