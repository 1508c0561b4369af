"""What the documents promise is there: targets, commands, variables, links, and the shapes of the routes."""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from tensorboard.plugins.base_plugin import TBContext

import make_docs
import make_types
import tb_torchcompile_plugin
from tb_torchcompile_plugin import errors
from tb_torchcompile_plugin.analysis.timeline.timeline import WindowHeader
from tb_torchcompile_plugin.api.answers.sections import schema
from tb_torchcompile_plugin.api.bodies import terms
from tb_torchcompile_plugin.api.read_queue import Progress
from tb_torchcompile_plugin.api.routes import ROUTES, sheet_types
from tb_torchcompile_plugin.api.session import NoCompileData
from tb_torchcompile_plugin.api.sheets import tables_of
from tb_torchcompile_plugin.cli import command as cli
from tb_torchcompile_plugin.plugin.plugin import TorchCompilePlugin

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
TEXTS = {path.name: path.read_text() for path in DOCUMENTS}
REFERENCE = sorted((ROOT / "docs" / "reference").iterdir())
EVERYTHING = "\n".join(TEXTS.values())
MAKEFILE = (ROOT / "Makefile").read_text()
SOURCES = "\n".join(
    path.read_text()
    for folder in ("tb_torchcompile_plugin", "tests", "scripts")
    for path in (ROOT / folder).rglob("*.py")
)
VARIABLE = re.compile(r"\bTB_TORCHCOMPILE_[A-Z_]*[A-Z]\b")
EXAMPLE = re.compile(r'^```json title="(\w+)"\n(.*?)^```', re.DOTALL | re.MULTILINE)
ROUTES_PAGE = TEXTS["routes.md"]
TABLE_OF_ROUTES = ROUTES_PAGE.partition("## Parameters")[0]
DOCUMENTED = set(re.findall(r"^\| `([\w/*.]+)` \|", TABLE_OF_ROUTES, re.MULTILINE))
EXAMPLES: dict[str, Any] = {
    "runs": ROUTES["runs"].answer,
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
    for extra in set(extras) - {"test", "dev", "docs"}:
        assert f"tb-torchcompile-plugin[{extra}]" in TEXTS["getting-started.md"]


def test_the_readme_is_short() -> None:
    assert len(TEXTS["README.md"].split()) <= 800


def test_the_pictures_are_shown_and_small() -> None:
    pictures = list((ROOT / "docs" / "screenshots").iterdir())
    shown = EVERYTHING + (ROOT / "examples" / "walkthrough" / "README.md").read_text()
    assert [picture.name for picture in pictures if f"screenshots/{picture.name})" not in shown] == []
    assert all(picture.stat().st_size <= 120_000 for picture in pictures)


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
    assert routes - {"static/index.js"} == DOCUMENTED


def test_every_parameter_is_documented() -> None:
    table = ROUTES_PAGE.partition("## Parameters")[2].partition("\n## ")[0]
    parameters = [
        name
        for route in ROUTES.values()
        for parameter in (*route.subject.ids, *route.parameters)
        for name in parameter.names
    ]
    assert set(re.findall(r"`(\w+)`", table)) >= set(parameters)


def test_every_error_code_is_documented_with_its_status() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d, ]+) \|", ROUTES_PAGE, re.MULTILINE))
    classes: list[type[errors.UserError]] = [
        errors.UserError,
        *errors.UserError.__subclasses__(),
        NoCompileData,
    ]
    assert set(rows) == {kind.code for kind in classes} | {"internal"}
    for kind in classes:
        assert str(kind.status) in rows[kind.code]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_has_exactly_the_fields_of_its_type(name: str) -> None:
    """Decoding fills in what the example lacks and drops what the type lacks; then they differ."""
    (text,) = [text for title, text in EXAMPLE.findall(ROUTES_PAGE) if title == name]
    example = json.loads(text)
    assert msgspec.json.decode(msgspec.json.encode(msgspec.convert(example, EXAMPLES[name]))) == example


@pytest.mark.parametrize("page", REFERENCE, ids=lambda path: path.name)
def test_the_reference_is_fresh(page: Path) -> None:
    assert make_docs.generate(page.read_text()) == page.read_text(), "run `make types`"


def test_the_types_of_the_frontend_are_fresh() -> None:
    assert make_types.TARGET.read_text() == make_types.generate(), "run `make types`"


def test_every_field_of_a_section_is_documented() -> None:
    """Also where a section has rows of several types."""
    blocks = re.split(r"^### `(.+)`$", TEXTS["schema.md"], flags=re.MULTILINE)
    text_of = dict(zip(blocks[1::2], blocks[2::2]))
    for name, section in schema().sections.items():
        for about, row in section.rows.items():
            kind = schema().definitions[row["$ref"].rpartition("/")[2]]
            fields = {f"`{field}`" for field in kind["properties"]}
            assert {field for field in fields if field not in text_of[name]} == set(), (name, about)


def test_defaults_of_options_are_filled_in() -> None:
    assert "%(" not in TEXTS["cli.md"]


def test_the_tables_of_all_panels_are_described() -> None:
    """Each column that has a tooltip is in the reference."""
    blocks = " ".join(re.findall(r"<!-- generated: tables (.*) -->", TEXTS["panels.md"])).split()
    words = [word.partition("=") for word in blocks]
    described = {name or source.rpartition(".")[2] for source, _, name in words}
    whole = [source for source, _, _ in words if "." not in source]
    described |= {table.rows for route in whole for table in tables_of(sheet_types()[route])}
    assert {name.partition(".")[0] for name in terms()["columns"]} - described == set()


def test_a_field_is_explained_by_the_comment_next_to_it_or_by_the_docstring() -> None:
    class Row(msgspec.Struct):
        """A row. low, high: the range. other: something else."""

        low: float
        high: float
        time_us: float  # of a step
        # None on the CPU
        gpu_us: float | None
        other: int

    assert make_docs.meanings(Row) == {
        "low": "the range.",
        "high": "the range.",
        "time_us": "of a step",
        "gpu_us": "None on the CPU",
        "other": "something else.",
    }


@pytest.mark.slow
def test_the_site_is_built_and_its_links_lead_somewhere(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert "Getting started" in (tmp_path / "search" / "search_index.json").read_text()
