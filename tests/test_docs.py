"""What the documents promise is there: targets, commands, variables, links, and the shapes of the routes."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tensorboard.plugins.base_plugin import TBContext

import tb_torchcompile_plugin
from tb_torchcompile_plugin import (
    api,
    cli,
    compile_report,
    errors,
    findings_report,
    gpu_report,
    report,
    step_report,
    timeline_wire,
)
from tb_torchcompile_plugin.analysis import (
    kernel_details,
    timeline,
    timeline_range,
    timeline_search,
    timeline_slice,
)
from tb_torchcompile_plugin.analysis.collectives import Collectives
from tb_torchcompile_plugin.analysis.eager import EagerTime
from tb_torchcompile_plugin.analysis.hot_spots import HotSpots
from tb_torchcompile_plugin.analysis.memory import Memory
from tb_torchcompile_plugin.analysis.modules import Modules
from tb_torchcompile_plugin.analysis.operators import Operators
from tb_torchcompile_plugin.analysis.rank_differences import RankDifferences
from tb_torchcompile_plugin.compare_report import ComparedTables, CompareReport
from tb_torchcompile_plugin.plugin import TorchCompilePlugin

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").glob("*.md")),
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


def listed_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.MULTILINE))


def test_the_first_screen_says_what_to_type() -> None:
    screen = "\n".join(TEXTS["README.md"].splitlines()[:32])
    for needed in ("make demo", "make test", "pip install", "from tb_torchcompile_plugin import", "--logdir"):
        assert needed in screen


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
    for command in set(re.findall(r"tb-torchcompile ([a-z]+)", EVERYTHING)):
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
        assert name in TEXTS["README.md"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_to_files_lead_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", document.read_text()):
        if "://" not in link:
            assert (document.parent / link).exists(), link


def test_every_route_is_documented() -> None:
    flags = argparse.Namespace(logdir="", logdir_spec="")
    routes = {route.lstrip("/") for route in TorchCompilePlugin(TBContext(flags=flags)).get_plugin_apps()}
    documented = set(re.findall(r"^\| `([\w/*.]+)` \| [`–]", TEXTS["http.md"], re.MULTILINE))
    assert documented == routes - {"static/index.js"}


def test_every_error_code_is_documented_with_its_status() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d, ]+) \|", TEXTS["http.md"], re.MULTILINE))
    classes: list[type[errors.UserError]] = [
        errors.UserError,
        *errors.UserError.__subclasses__(),
        api.NoCompileData,
    ]
    assert set(rows) == {kind.code for kind in classes} | {"internal"}
    for kind in classes:
        assert str(kind.status) in rows[kind.code]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("runs", report.Runs),
        ("compile", report.Compile),
        ("compile_time", compile_report.CompileTime),
        ("compilations", compile_report.Compilations),
        ("rank_differences", RankDifferences),
        ("compilation", compile_report.CompilationDetails),
        ("guards", compile_report.GuardChecks),
        ("span", report.Span),
        ("timeline", timeline.TimelineLanes),
        ("window", timeline_wire.WindowHeader),
        ("eager", EagerTime),
        ("operators", Operators),
        ("timeline_slice", timeline_slice.TimelineSlice),
        ("timeline_search", timeline_search.TimelineHits),
        ("timeline_range", timeline_range.TimelineRange),
        ("hot_spots", HotSpots),
        ("collectives", Collectives),
        ("memory", Memory),
        ("modules", Modules),
        ("kernels", kernel_details.Kernels),
        ("kernel", kernel_details.KernelDetails),
        ("gpu_utilization", gpu_report.GpuUtilization),
        ("step_breakdown", step_report.StepReport),
        ("findings", findings_report.Findings),
        ("compare", CompareReport),
        ("compare_tables", ComparedTables),
    ],
)
def test_the_example_of_a_route_has_exactly_the_fields_of_its_type(name: str, kind: type[Any]) -> None:
    """Decoding fills in what the example lacks and drops what the type lacks; then they differ."""
    (text,) = [body for label, body in EXAMPLE.findall(TEXTS["http.md"]) if label == name]
    example = json.loads(text)
    assert msgspec.to_builtins(msgspec.convert(example, kind)) == example


def test_all_examples_are_json() -> None:
    examples = dict(EXAMPLE.findall(TEXTS["http.md"]))
    assert set(examples) == {
        *(
            "runs",
            "compile",
            "compile_time",
            "compilations",
            "rank_differences",
            "compilation",
            "guards",
            "progress",
            "span",
            "error",
        ),
        *("eager", "operators", "kernels", "kernel"),
        *("timeline", "window", "timeline_slice", "timeline_search", "timeline_range"),
        *("hot_spots", "memory", "modules"),
        "gpu_utilization",
        "collectives",
        "step_breakdown",
        "findings",
        *("compare", "compare_tables"),
    }
    for text in examples.values():
        json.loads(text)
