"""The reference of the panels as a page: whole, safe, and with an anchor for each panel."""

import re
from typing import get_args

import pytest

from served import ROOT, make_client, make_plugin
from tb_torchcompile_plugin.analysis.compile.compilations import Status
from tb_torchcompile_plugin.analysis.finding import Panel
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import Bound
from tb_torchcompile_plugin.analysis.runtime.step_picture import HostCause
from tb_torchcompile_plugin.plugin import plugin as definitions
from tb_torchcompile_plugin.profile.gpu.idle import HostKind
from tb_torchcompile_plugin.profile.model.attribution import HostCauseKind
from tb_torchcompile_plugin.torch_names.kernels import Category
from tb_torchcompile_plugin.torch_names.records import Phase

SETS = {
    "kernel_categories": Category,
    "host_kinds": HostKind,
    "host_causes": HostCause | HostCauseKind,
    "phases": Phase,
    "statuses": Status,
    "bounds": Bound,
}


def test_every_panel_has_an_anchor() -> None:
    response = make_client(make_plugin()).get(f"{ROOT}/definitions")
    assert response.status_code == 200 and response.mimetype == "text/html"
    anchors = set(re.findall(r'<h2 id="([\w-]+)"', response.get_data(as_text=True)))
    assert {panel.replace("_", "-") for panel in get_args(Panel)} == anchors


def test_the_page_has_the_document_and_loads_nothing() -> None:
    page = definitions.page()
    assert "The tab has 16 panels" in page and "Tracing Python bytecode" in page and "<table>" in page
    assert not re.search(r"<(script|img|iframe)\b", page)
    # anchors, and an empty icon
    assert {link[0] for link in re.findall(r'href="([^"]*)"', page)} <= {"#", "d"}


@pytest.mark.parametrize("name", SETS)
def test_every_word_of_the_server_has_its_meaning(name: str) -> None:
    words = make_client(make_plugin()).get(f"{ROOT}/terms").get_json()[name]
    kinds = getattr(SETS[name], "__args__", ())
    assert words.keys() == {one for kind in kinds for one in (get_args(kind) or (kind,))}
    assert all(sentence.strip() for sentence in words.values())
