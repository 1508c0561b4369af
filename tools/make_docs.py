"""Write the generated parts of docs/reference from the code (`make types`).

A page is written by hand, except for what is between `<!-- generated: BLOCK ARGUMENTS -->` and `<!-- end -->`: there
the function `BLOCK` of this file is called with the arguments. The meaning of a field is the comment next to it in
the source, the meaning of a column is its tooltip (api/words.md).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from inspect import getdoc, getsource, signature
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

import tb_torchcompile_plugin
from make_types import spell
from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.cause import Cause, PricedCause
from tb_torchcompile_plugin.analysis.causes.registry import CAUSES
from tb_torchcompile_plugin.analysis.ranks import job_findings
from tb_torchcompile_plugin.api.answers.sections import rows_in, schema, time_of
from tb_torchcompile_plugin.api.bodies import terms
from tb_torchcompile_plugin.api.report import Report
from tb_torchcompile_plugin.api.routes import ROUTES, Route, sheet_types
from tb_torchcompile_plugin.api.sheets import SheetTable, row_type, tables_of
from tb_torchcompile_plugin.cli.command import command_parser

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
_BLOCK = re.compile(r"(<!-- generated: (\w+)((?: [\w.=]+)*) -->\n).*?(<!-- end -->)", re.DOTALL)
_FIELD = re.compile(r"(\w+): .*?(?:\s{2}# (.*))?$")  # of a class, and the comment next to it
_NAMES = re.compile(r"(?:^|(?<=[.;] ))((?:\w+, )*\w+): ")  # in a docstring: "low, high: the range"


_WHEN_NONE = re.compile(r"(?:^|; )None (?:where|without|on|for)\b[^;]*$")  # of a field, when it is empty
_OTHERS = re.compile(
    r"^[Tt]his and the next \w+: |, as (?:are )?the next \w+$"
)  # a comment for several fields


def main() -> None:
    """Write all pages."""
    for path in FOLDER.glob("*.md"):
        path.write_text(generate(path.read_text()))


def generate(page: str) -> str:
    """Return a page with its blocks as the code of today has them."""

    def fresh(block: re.Match[str]) -> str:
        begin, name, arguments, end = block.groups()
        return f"{begin}\n{BLOCKS[name](*arguments.split()).strip()}\n\n{end}"

    return _BLOCK.sub(fresh, page)


def causes() -> str:
    """Return a table of causes for each family, in the order of evaluation."""
    every = (*CAUSES, *job_findings.CAUSES)
    families = groupby(every, lambda cause: type(cause).__module__)
    return "\n".join(_family(module, list(members)) for module, members in families)


def _family(module: str, members: list[Cause]) -> str:
    question = (sys.modules[module].__doc__ or "").strip().splitlines()[0]
    return f"### {question}\n\n" + _table(
        ("cause", "role", "reported when", "limit"), map(_cause_cells, members)
    )


def _cause_cells(cause: Cause) -> tuple[str, ...]:
    limits = ", ".join(f"`{name}` = {json.dumps(getattr(thresholds, name))}" for name in cause.limits)
    gain = "gain" if isinstance(cause, PricedCause) else "–"
    return f"`{cause.id}`", cause.role, " ".join((getdoc(cause) or "").split()), limits or gain


def tables(*names: str) -> str:
    """Return the columns of tables of the tab: `ROUTE` for all of an answer, `ROUTE.FIELD`, or `ROUTE.FIELD=TABLE`."""
    return "\n".join(part for name in names for part in _tables_of(name))


def _tables_of(name: str) -> Iterator[str]:
    source, _, table_name = name.partition("=")
    route, *fields = source.split(".")
    answer = sheet_types()[route]
    kind, layouts = inspect.type_info(answer), tables_of(answer)
    for field in fields[:-1]:
        kind, layouts = _inner(kind, layouts, field)
    for layout in layouts:
        if not fields or layout.rows == fields[-1]:
            row = row_type(_field_type(kind, layout.rows))
            assert row is not None
            yield _columns(layout, table_name or layout.rows, row.cls)


def _inner(
    kind: inspect.Type, layouts: list[SheetTable], field: str
) -> tuple[inspect.Type, list[SheetTable]]:
    row = row_type(_field_type(kind, field))
    assert row is not None
    return row, next(layout.inner for layout in layouts if layout.rows == field)


def _field_type(kind: inspect.Type, name: str) -> inspect.Field:
    assert isinstance(kind, inspect.StructType)
    return next(field for field in kind.fields if field.name == name)


def _columns(layout: SheetTable, table_name: str, row: type) -> str:
    """Return the columns of one table that are explained, then the names of the others."""
    words, empty, comments = terms()["columns"], terms()["unknowns"], meanings(row)
    rows, others = [], []
    for column in layout.columns:
        name = f"{table_name}.{column.key}"
        why = f"Empty: {_small(empty[name])}" if name in empty else ""
        comment = comments.get(column.key, "")
        meaning = words.get(name) or (_WHEN_NONE.sub("", comment) if why else comment)
        if meaning or why:
            rows.append((column.label, ". ".join(filter(None, (_sentence(meaning), why)))))
        else:
            others.append(column.label)
    return f"**{layout.title}.** {first_sentence(row)}\n\n" + _with_others(
        ("column", "meaning"), rows, others
    )


def words(*sets: str) -> str:
    """Return what the words of the tab mean, by set."""
    return "\n".join(
        _table(("word", "meaning"), ((f"`{word}`", text) for word, text in terms()[name].items()))
        for name in sets
    )


def routes() -> str:
    """Return all routes with their parameters and the type of their answer, by what they are about."""
    by_subject: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for route in ROUTES.values():
        by_subject[route.subject.name].append(_route_cells(route))
    head = ("route", "parameters", "type", "answer")
    return "\n".join(
        f"### About {_SUBJECTS[name]}\n\n{_table(head, rows)}" for name, rows in by_subject.items()
    )


_SUBJECTS = {
    "logdir": "the logdir",
    "run": "a run",
    "worker": "a worker",
    "span": "a span",
    "sides": "two spans",
    "jobs": "two jobs",
}


def _route_cells(route: Route[Any]) -> tuple[str, ...]:
    every = (*route.subject.ids, *route.parameters)
    required, optional = (
        ", ".join(
            f"`{name}`"
            for parameter in every
            if parameter.optional is is_optional
            for name in parameter.names
        )
        for is_optional in (False, True)
    )
    parameters = ", ".join(filter(None, (required, optional and f"optional {optional}"))) or "–"
    function = getattr(route.ask, "func", route.ask)
    split = getattr(route.ask, "keywords", {}).get("split")
    what = (
        re.sub(r"[;,] (?:or )?raises? .*", "", first_sentence(function)).removeprefix("Return ").rstrip(".")
    )
    by = f", by {split.replace('_', ' ')}" if split else ""
    return f"`{route.name}`", parameters, f"`{route.answer.__name__}`", what + by


def answers() -> str:
    """Return the fields of each type of answer."""
    types = dict.fromkeys(
        route.answer for route in ROUTES.values() if issubclass(route.answer, msgspec.Struct)
    )
    return _table(("answer", "fields"), ((f"`{kind.__name__}`", _typed_fields(kind)) for kind in types))


def _typed_fields(kind: type[msgspec.Struct]) -> str:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return ", ".join(f"`{field.encode_name}: {_briefly(spell(field.type, {}))}`" for field in info.fields)


def _briefly(type: str) -> str:
    """Return a type without the words of a long set."""
    return re.sub(r"'\w+'(?: \| '\w+'){3,}", "string", type)


def sections() -> str:
    """Return the sections of `report --json` with the fields of their rows."""
    subjects = {name: section.rows for name, section in schema().sections.items()}
    by_type: dict[str, dict[type[msgspec.Struct], list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, about, kind in rows_in(Report, "logdir", ""):
        if about in subjects[name]:
            by_type[name][kind].append(about)
    return "\n".join(
        f"### `{name}`\n\n" + "\n".join(_rows(name, kind, about) for kind, about in by_type[name].items())
        for name in subjects
    )


def _rows(name: str, kind: type[msgspec.Struct], about: list[str]) -> str:
    """Return the fields of one type of rows of a section."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    comments = meanings(kind)
    table_name = name.rpartition(".")[2]
    rows, others = [], []
    for field in info.fields:
        type = f"`{spell(field.type, {})}`"
        meaning = comments.get(field.name) or terms()["columns"].get(f"{table_name}.{field.name}")
        if meaning:
            rows.append((f"`{field.encode_name}`", type, _sentence(meaning)))
        else:
            others.append(f"`{field.encode_name}`: {type}")
    time = time_of(kind)
    share = f" Shares are of `{time}`." if time else ""
    head = f"Of each {' and '.join(about)}. {first_sentence(kind)}{share}\n\n"
    return head + _with_others(("field", "type", "meaning"), rows, others)


def commands() -> str:
    """Return the help of every command."""
    return "\n".join(_command(parser) for parser in _parsers(command_parser()))


def _parsers(parser: argparse.ArgumentParser, help: str = "") -> Iterator[argparse.ArgumentParser]:
    """Yield the commands below a parser, each with its help as its description."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help for choice in action._choices_actions}
            for name, inner in action.choices.items():
                inner.description = inner.description or helps[name]
                yield from _parsers(inner)
            return
    yield parser


def _command(parser: argparse.ArgumentParser) -> str:
    actions = [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]
    rows = [(f"`{_spelled(action)}`", _sentence(_help(parser, action))) for action in actions]
    arguments = " ".join(_spelled(action) for action in actions if not action.option_strings)
    usage = f"{parser.prog} {arguments}".strip() + (
        " [options]" if any(action.option_strings for action in actions) else ""
    )
    notes = "".join(f"\n{group.description}\n" for group in parser._action_groups if group.description)
    description = _sentence(parser.description or "")
    body = "\n" + _table(("argument", "meaning"), rows) if rows else ""
    return f"### `{parser.prog}`\n\n{description}.\n\n    {usage}\n{body}{notes}"


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """Return the help of an argument with its default and other values filled in."""
    return parser._get_formatter()._expand_help(action) if action.help else ""


def _spelled(action: argparse.Action) -> str:
    """Return an argument as it is typed."""
    names = action.metavar or (action.dest if action.nargs != 0 else "")
    value = names if isinstance(names, str) else " ".join(names)
    value = value.upper() if not action.metavar else value
    if action.option_strings:
        return ", ".join(action.option_strings) + (f" {value}" if action.nargs != 0 else "")
    return {"+": f"{value} …", "?": f"[{value}]"}.get(str(action.nargs), value)


def arguments(name: str) -> str:
    """Return the arguments of a public function or class."""
    target = getattr(tb_torchcompile_plugin, name)
    parameters = [each for each in signature(target).parameters.values() if each.kind is not each.VAR_KEYWORD]
    meaning = _documented(getdoc(target) or "", {each.name for each in parameters})
    rows = []
    for each in parameters:
        default = "" if each.default is each.empty else f"`{each.default!r}`"
        rows.append((f"`{each.name}`", default, meaning.get(each.name, _SAME[name]).rstrip(".")))
    return _table(("argument", "default", "meaning"), rows)


_SAME = dict.fromkeys(("profile_steps", "CompileRecorder"), "as in `tensorboard_trace_handler`")
_SAME["tensorboard_trace_handler"] = "as in `torch.profiler.tensorboard_trace_handler`"


@cache
def meanings(kind: type) -> dict[str, str]:
    """Return the meaning of each field of a struct, as documented in the source.

    This is the comment next to the field, otherwise the one above it, otherwise the docstring's `field: ...`.
    """
    known: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            known |= _documented(base.__doc__ or "", {*getattr(base, "__annotations__", {})})
            known |= dict(_commented(textwrap.dedent(getsource(base)).splitlines()))
    return known


def _commented(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    above: list[str] = []
    for line in map(str.strip, lines):
        if line.startswith("# "):
            above.append(line[2:])
            continue
        if (match := _FIELD.fullmatch(line)) and (match[2] or above):
            yield match[1], match[2] or " ".join(above)
        above = []


def _documented(doc: str, names: set[str]) -> dict[str, str]:
    """Return the meanings of names in a docstring: `low, high: the range.`, up to the next name or paragraph."""
    known: dict[str, str] = {}
    for paragraph in re.split(r"\n\s*\n", doc):
        text = " ".join(paragraph.split())
        heads = [match for match in _NAMES.finditer(text) if {*match[1].split(", ")} <= names]
        ends = [*(match.start() for match in heads[1:]), len(text)]
        for match, end in zip(heads, ends):
            known |= dict.fromkeys(match[1].split(", "), text[match.end() : end].strip())
    return known


def first_sentence(target: object) -> str:
    """Return the first sentence of a docstring."""
    text = " ".join((getdoc(target) or "").partition("\n\n")[0].split())
    return _plain(re.split(r"(?<=[.:;])\s+(?=[A-Z]|\w+: )", text)[0].rstrip(":;"))


def _sentence(text: str) -> str:
    """Return the meaning of a field as a sentence without its point."""
    text = _OTHERS.sub("", _plain(text).rstrip("."))
    return text if re.match(r"`|\w+: ", text) else text[:1].upper() + text[1:]


def _small(text: str) -> str:
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


def _plain(text: str) -> str:
    """Replace None by null, as in JSON."""
    return re.sub(r"\bNone\b", "null", text)


def _with_others(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], others: list[str]) -> str:
    """Return a table of what is explained, followed by the names of the others."""
    table = _table(head, rows) if rows else ""
    names = f"{'Also' if rows else head[0].capitalize() + 's'}: {', '.join(others)}.\n" if others else ""
    return "\n".join(filter(None, (table, names)))


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = (head, ("---",) * len(head), *rows)
    return "".join(f"| {' | '.join(map(_cell, cells))} |\n" for cells in lines)


def _cell(text: str) -> str:
    """Escape what Markdown and HTML would read as their own, outside of code."""
    parts = text.replace("|", "\\|").split("`")
    parts[::2] = [part.replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)


BLOCKS: dict[str, Callable[..., str]] = {
    each.__name__: each for each in (causes, tables, words, routes, answers, sections, commands, arguments)
}

if __name__ == "__main__":
    main()
