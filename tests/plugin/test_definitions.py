"""The definitions as a page: whole, safe, and with an anchor for each panel that has a section."""

from __future__ import annotations

import re
from typing import get_args

from served import ROOT, make_client, make_plugin
from tb_torchcompile_plugin.analysis.findings.rule import Panel
from tb_torchcompile_plugin.plugin import definitions

WITHOUT = {"overview", "code"}  # they show numbers of others, or texts as they are


def test_every_panel_with_numbers_has_an_anchor() -> None:
    response = make_client(make_plugin()).get(f"{ROOT}/definitions")
    assert response.status_code == 200 and response.mimetype == "text/html"
    anchors = set(re.findall(r'<h[23] id="(\w+)"', response.get_data(as_text=True)))
    assert set(get_args(Panel)) - WITHOUT <= anchors


def test_the_page_holds_what_the_document_says_and_loads_nothing() -> None:
    page = definitions.page()
    assert "What the numbers mean" in page and "exclusive time of dynamo" in page and "<table>" in page
    assert not re.search(r"<(script|img|iframe)\b", page)
