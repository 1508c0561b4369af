"""What the documents promise is there: targets, commands, variables, links, and the shapes of the routes."""

import argparse
import json
import re
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from tensorboard.plugins.base_plugin import TBContext

import tb_torchcompile_plugin
from tb_torchcompile_plugin import errors
from tb_torchcompile_plugin.analysis.timeline.timeline import WindowHeader
from tb_torchcompile_plugin.api.read_queue import Progress
from tb_torchcompile_plugin.api.routes import OLD_NAMES, ROUTES, Route
from tb_torchcompile_plugin.api.session import NoCompileData
from tb_torchcompile_plugin.cli import command as cli
from tb_torchcompile_plugin.plugin.plugin import TorchCompilePlugin

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
TEXTS = {path.name: path.read_text() for path in DOCUMENTS}
EVERYTHING = "\n".join(TEXTS.values())
MAKEFILE = (ROOT / "Makefile").read_text()
SOURCES = "\n".join(
    path.read_text()
    for folder in ("tb_torchcompile_plugin", "tests", "scripts")
    for path in (ROOT / folder).rglob("*.py")
)
VARIABLE = re.compile(r"\bTB_TORCHCOMPILE_[A-Z_]*[A-Z]\b")
EXAMPLE = re.compile(r"^```json (\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)

EXAMPLES = dict(EXAMPLE.findall(TEXTS["http.md"]))
DOCUMENTED = dict(re.findall(r"^\| `([\w/*.]+)` \| ([`–][^|]*) \|", TEXTS["http.md"], re.MULTILINE))
ANSWERS = {name: route.answer for name, route in ROUTES.items() if issubclass(route.answer, msgspec.Struct)}
OTHER_EXAMPLES: dict[str, Any] = {
    "window": WindowHeader,
    "progress": dict[Literal["progress"], Progress],
    "error": dict[Literal["error"], errors.ApiErrorBody],
}


def listed_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.MULTILINE))


def test_badges_say_what_is_declared() -> None:
    readme, declared = TEXTS["README.md"], (ROOT / "pyproject.toml").read_text()
    (python,) = re.findall(r"^\[!\[Python ([\d.]+)\+\]\(\S+/python-\1%2B-", readme, re.MULTILINE)
    assert f'requires-python = ">={python}"' in declared
    (licence,) = re.findall(r"^\[!\[([\w-]+)\]\(\S+/license-", readme, re.MULTILINE)
    assert f'license = "{licence}"' in declared and f"license-{licence.replace('-', '--')}-" in readme
    (torch,) = re.findall(r"^\[!\[torch ([\d.]+ … [\d.]+)\]", readme, re.MULTILINE)
    assert f"| handler | torch {torch}." in readme


def test_every_target_that_is_named_exists() -> None:
    named = set(re.findall(r"`make ([a-z-]+)|^    make ([a-z-]+)", EVERYTHING, re.MULTILINE))
    assert {first or second for first, second in named} <= listed_targets() | {"frontend-check"}


def test_every_phony_target_has_a_recipe() -> None:
    (line,) = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    for target in line.split():
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target


def test_every_variable_of_make_that_is_named_exists() -> None:
    for variable in re.findall(r"make [a-z]+ ([A-Z_]+)=", EVERYTHING):
        assert re.search(rf"^{variable} \?=", MAKEFILE, re.MULTILINE), variable


def test_every_command_that_is_named_exists(capsys: pytest.CaptureFixture[str]) -> None:
    for command in set(re.findall(r"tb-torchcompile ([a-z]+(?:-[a-z]+)*)", EVERYTHING)):
        with pytest.raises(SystemExit) as stopped:
            cli.main([command, "--help"])
        assert stopped.value.code == 0
    options = capsys.readouterr().out
    for option in set(re.findall(r"tb-torchcompile .*(--[a-z-]+)", EVERYTHING)):
        assert option in options


def test_variables_are_documented_and_nothing_else_is() -> None:
    assert set(VARIABLE.findall(EVERYTHING)) == set(VARIABLE.findall(SOURCES))


def test_public_names_are_documented() -> None:
    for name in set(tb_torchcompile_plugin.__all__) - {"__version__"}:
        assert name in TEXTS["getting-started.md"]


def test_every_extra_is_documented() -> None:
    declared = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2]
    extras = re.findall(r"^(\w+) = \[", declared.partition("\n[")[0], re.MULTILINE)
    for extra in set(extras) - {"test", "dev"}:
        assert f"tb-torchcompile-plugin[{extra}]" in TEXTS["getting-started.md"]


def test_the_readme_is_short() -> None:
    assert len(TEXTS["README.md"].split()) <= 800


def test_the_pictures_are_shown_and_small() -> None:
    pictures = list((ROOT / "docs" / "screenshots").iterdir())
    assert all(f"screenshots/{picture.name})" in EVERYTHING for picture in pictures)
    assert TEXTS["README.md"].count("](docs/screenshots/") == 1
    assert len(pictures) == 2 and sum(picture.stat().st_size for picture in pictures) <= 200_000


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_to_files_lead_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", document.read_text()):
        if "://" not in link:
            assert (document.parent / link).exists(), link


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_to_headings_lead_somewhere(document: Path) -> None:
    for file, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", document.read_text()):
        text = (document.parent / file).read_text() if file else document.read_text()
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        names = {re.sub(" +", "-", re.sub(r"[^\w -]", "", heading)).lower() for heading in headings}
        assert anchor in names | set(re.findall(r'<a id="([^"]+)"></a>', text)), f"{file}#{anchor}"


def test_every_route_is_documented() -> None:
    flags = argparse.Namespace(logdir="", logdir_spec="")
    routes = {route.lstrip("/") for route in TorchCompilePlugin(TBContext(flags=flags)).get_plugin_apps()}
    assert set(DOCUMENTED) == routes - {"static/index.js", *OLD_NAMES}


@pytest.mark.parametrize("route", ROUTES.values(), ids=lambda route: route.name)
def test_the_parameters_of_a_route_are_documented(route: Route[Any]) -> None:
    """Required ones first, then "optional" and the others."""
    required, _, optional = DOCUMENTED[route.name].partition("optional")
    parameters = (*route.subject.ids, *route.parameters)
    for text, known in ((required, False), (optional, True)):
        names = [name for one in parameters if one.optional is known for name in one.names]
        assert sorted(re.findall(r"`(\w+)`", text)) == sorted(names)


def test_every_error_code_is_documented_with_its_status() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d, ]+) \|", TEXTS["http.md"], re.MULTILINE))
    classes: list[type[errors.UserError]] = [
        errors.UserError,
        *errors.UserError.__subclasses__(),
        NoCompileData,
    ]
    assert set(rows) == {kind.code for kind in classes} | {"internal"}
    for kind in classes:
        assert str(kind.status) in rows[kind.code]


@pytest.mark.parametrize("name", [*ANSWERS, *OTHER_EXAMPLES])
def test_the_example_of_a_route_has_exactly_the_fields_of_its_type(name: str) -> None:
    """Decoding fills in what the example lacks and drops what the type lacks; then they differ. A route whose answer is
    like that of another one may do without an example."""
    kind = OTHER_EXAMPLES.get(name) or ANSWERS[name]
    alike = [name, *(other for other, answer in ANSWERS.items() if answer is kind)]
    (text,) = [EXAMPLES[other] for other in alike if other in EXAMPLES][:1]
    example = json.loads(text)
    assert msgspec.json.decode(msgspec.json.encode(msgspec.convert(example, kind))) == example


def test_all_examples_are_of_something() -> None:
    assert set(EXAMPLES) <= {*ANSWERS, *OTHER_EXAMPLES}
