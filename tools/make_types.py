"""Write frontend/src/api/types.ts from the objects that the server answers (`make types`).

One schema, two languages: the TypeScript interfaces are generated from the msgspec structs.
`--check` fails when the file in the tree is not what this would write.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec import inspect

from tb_torchcompile_plugin.analysis.timeline.timeline import WindowHeader
from tb_torchcompile_plugin.api.bodies import Download
from tb_torchcompile_plugin.api.read_queue import Progress
from tb_torchcompile_plugin.api.routes import ROUTES, Route
from tb_torchcompile_plugin.errors import ApiErrorBody

TARGET = Path(__file__).parent.parent / "frontend" / "src" / "api" / "types.ts"
BESIDES = (WindowHeader, Progress, ApiErrorBody)  # what is no answer by itself
PLAIN: dict[type, str] = {str: "string", bytes: "ArrayBuffer"}
_STRUCTS = (inspect.StructType, inspect.DataclassType)
_LISTS = (inspect.ListType, inspect.VarTupleType)
PRINT_WIDTH = 110  # of frontend/.prettierrc
HEADER = "// Made by tools/make_types.py from the routes and structs of the server. Do not edit.\n"


def main() -> int:
    """Write the file, or compare it with `--check`."""
    text = generate()
    if "--check" in sys.argv:
        if TARGET.read_text() != text:
            print(f"{TARGET} is stale: run `make types`", file=sys.stderr)
            return 1
        return 0
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(text)
    return 0


def generate() -> str:
    """Return the interfaces of all answers and their parts, and the named unions, by name; then each route's answer."""
    reached: list[inspect.Type] = []
    answers = [route.answer for route in ROUTES.values() if issubclass(route.answer, msgspec.Struct)]
    for root in (*answers, *BESIDES):
        _reach(inspect.type_info(root), reached)
    structs = {kind.cls.__name__: kind for kind in reached if isinstance(kind, _STRUCTS)}
    bases = (base for kind in structs.values() for base in kind.cls.__mro__ if base is not object)
    unions = _unions({base.__module__ for base in bases if base.__module__ in sys.modules})
    words = {kind.values for kind in reached if isinstance(kind, inspect.LiteralType)}
    declared = {name: _interface(kind, unions) for name, kind in structs.items()}
    declared |= {name: _union(name, values) for values, name in unions.items() if values in words}
    subjects = dict.fromkeys(_about(route) for route in ROUTES.values())
    every = f"export interface Answers extends {', '.join(subjects)} {{}}\n"
    parts = [*(declared[name] for name in sorted(declared)), *map(_answers, subjects), every]
    return HEADER + "".join(f"\n{part}" for part in parts)


def _about(route: Route[Any]) -> str:
    return f"About{route.subject.name.capitalize()}"


def _answers(subject: str) -> str:
    """Return the answers about one kind of subject, by route, without downloads, which the browser saves."""
    routes = [route for route in ROUTES.values() if _about(route) == subject and route.answer is not Download]
    fields = "".join(_field(route.name, PLAIN.get(route.answer, route.answer.__name__)) for route in routes)
    return f"export interface {subject} {{\n{fields}}}\n"


def _reach(kind: inspect.Type, reached: list[inspect.Type]) -> None:
    if kind in reached:
        return
    reached.append(kind)
    if isinstance(kind, inspect.Metadata):
        inner = [kind.type]
    elif isinstance(kind, _STRUCTS):
        inner = [field.type for field in kind.fields]
    elif isinstance(kind, inspect.DictType):
        inner = [kind.key_type, kind.value_type]
    elif isinstance(kind, _LISTS):
        inner = [kind.item_type]
    else:
        inner = list(kind.types) if isinstance(kind, inspect.UnionType) else []
    for each in inner:
        _reach(each, reached)


def _unions(modules: set[str]) -> dict[tuple[Any, ...], str]:
    """Return the names that modules give to sets of words, sorted as by msgspec."""
    named: dict[str, tuple[Any, ...]] = {}
    for module in modules:
        for name, value in vars(sys.modules[module]).items():
            if get_origin(value) is Literal:
                words = tuple(sorted(get_args(value)))
                if named.setdefault(name, words) != words:
                    raise SystemExit(f"{name} means two things: give each a name of its own")
    return {words: name for name, words in sorted(named.items())}


def _interface(kind: inspect.StructType | inspect.DataclassType, unions: dict[tuple[Any, ...], str]) -> str:
    fields = "".join(_field(field.encode_name, spell(field.type, unions)) for field in kind.fields)
    return f"export interface {kind.cls.__name__} {{\n{fields}}}\n"


def _union(name: str, words: tuple[Any, ...]) -> str:
    """Format as prettier does: on one line, on the next one, or on one per word."""
    options = [f"'{word}'" for word in words]
    line = " | ".join(options)
    for text in (f"export type {name} = {line};\n", f"export type {name} =\n  {line};\n"):
        if max(map(len, text.splitlines())) <= PRINT_WIDTH:
            return text
    return f"export type {name} =" + "".join(f"\n  | {option}" for option in options) + ";\n"


def _field(name: str, spelled: str) -> str:
    """As prettier lays it out: a union that is too long for a line has a line for each option."""
    line = f"  {name}: {spelled};\n"
    if len(line) <= PRINT_WIDTH + 1 or " | " not in spelled:
        return line
    return f"  {name}:" + "".join(f"\n    | {option}" for option in spelled.split(" | ")) + ";\n"


def spell(kind: inspect.Type, unions: dict[tuple[Any, ...], str]) -> str:
    """The TypeScript for a type."""
    if isinstance(kind, inspect.Metadata):
        return spell(kind.type, unions)
    if isinstance(kind, _STRUCTS):
        return kind.cls.__name__
    if isinstance(kind, _LISTS):
        item = spell(kind.item_type, unions)
        return f"({item})[]" if " | " in item and not item.endswith("[]") else f"{item}[]"
    if isinstance(kind, inspect.DictType):
        record = f"Record<{spell(kind.key_type, unions)}, {spell(kind.value_type, unions)}>"
        return f"Partial<{record}>" if isinstance(kind.key_type, inspect.LiteralType) else record
    if isinstance(kind, inspect.UnionType):
        return " | ".join(spell(option, unions) for option in kind.types)
    if isinstance(kind, inspect.LiteralType):
        return unions.get(kind.values) or " | ".join(f"'{value}'" for value in kind.values)
    plain = {
        inspect.StrType: "string",
        inspect.IntType: "number",
        inspect.FloatType: "number",
        inspect.BoolType: "boolean",
        inspect.NoneType: "null",
        inspect.AnyType: "unknown",
    }
    return plain[type(kind)]


if __name__ == "__main__":
    sys.exit(main())
