"""What `show` tells of a kernel, a graph break and a finding; and where the tab shows them."""

from pathlib import Path
from urllib.parse import unquote

import pytest

from recordings import Recording
from tb_torchcompile_plugin.api.answers.bounded import Commands
from tb_torchcompile_plugin.api.answers.sections import Address, Table, tables
from tb_torchcompile_plugin.api.answers.show import _KEYS, _TABLES, Logdir, Shown, fragment
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.errors import WrongArgument
from traces import slice_, write_trace

pytestmark = pytest.mark.usefixtures("remembered")

FRONTEND = Path(__file__).parents[3] / "frontend" / "src"
SPAN = "./vm_1027/1795230252555613000"
ASK = Commands("runs")


@pytest.fixture(scope="module")
def logdir(recording: Recording) -> Logdir:
    return Logdir(Session([("", str(recording("breaks")))]))


def table(logdir: Logdir, section: str) -> Table:
    return next(one for one in tables(logdir.report()) if one.section == section)


def first(logdir: Logdir, section: str) -> Shown:
    return logdir.show(table(logdir, section).ids[0], ASK)


def test_a_finding_says_how_to_verify_it(logdir: Logdir) -> None:
    shown = first(logdir, "findings")
    assert shown.verify and shown.verify.compare == "tb-torchcompile compare runs AFTER"
    assert shown.verify.what_if and shown.verify.what_if.endswith("--fix graph_breaks")
    assert shown.row.evidence["breaks"] == 4 and shown.row.predicted.after_us < 3600


def test_of_several_runs_the_one_that_is_meant_is_compared(recording: Recording, tmp_path: Path) -> None:
    (tmp_path / "a run").symlink_to(recording("breaks"))
    write_trace(tmp_path / "b", [slice_("aten::mm", 0, 5)], "w.1.pt.trace.json")
    both = Logdir(Session([("", str(tmp_path))]))
    (finding, *_) = table(both, "findings").ids
    shown = both.show(finding, ASK)
    assert finding.startswith("a%20run/") and shown.verify
    assert shown.verify.compare == "tb-torchcompile compare runs runs --run 'a run' --run AFTER"


def test_a_finding_leads_to_the_row_it_is_about(logdir: Logdir) -> None:
    (site, *_) = first(logdir, "findings").next
    id = site.split()[2]
    assert id.startswith(f"{SPAN}/graph_break_sites/")
    shown = logdir.show(id, ASK)
    (stack, *_) = [one.stack for one in shown.row.breaks]
    assert shown.row.reason and stack[-1].line == 26 and shown.row.host_us > 400


def test_a_reported_break_leads_to_its_price(logdir: Logdir) -> None:
    shown = first(logdir, "graph_breaks")
    assert shown.row.stack and shown.row.hints
    assert any(f"{SPAN}/graph_break_sites/" in one for one in shown.next)


def test_a_kernel_has_launches_and_source(logdir: Logdir) -> None:
    id = next(id for id in table(logdir, "kernels").ids if "triton_poi" in id)
    shown = logdir.show(id, ASK)
    assert shown.kernel and shown.kernel.source and "@triton.jit" in shown.kernel.source
    assert len(shown.kernel.launches.duration_us) == shown.row.launches > 0
    assert sum(shown.kernel.launches.duration_us) == pytest.approx(shown.row.time_us)


def test_an_unknown_id_is_told_with_those_near_it(logdir: Logdir) -> None:
    id = table(logdir, "kernels").ids[0]
    with pytest.raises(WrongArgument) as error:
        logdir.show(id[:-4], ASK)
    assert id in str(error.value)


def test_the_tab_opens_the_row(logdir: Logdir) -> None:
    shown = first(logdir, "kernels")
    head, *parts = shown.tab.split("&")
    said = dict(unquote(part).removeprefix("p.torch_compile.").split("=", 1) for part in parts)
    assert head == "#torch_compile"
    assert said == {
        "run": ".",
        "worker": "vm_1027",
        "span": "1795230252555613000",
        "panel": "kernels",
        "row": f"kernels:{shown.row.key}",
    }
    (finding, *_) = logdir.report().findings
    assert f"panel=graph_breaks&p.torch_compile.row={'graph_breaks:/home'}" in fragment(
        Address(".", "vm_1027", "1", "findings", "x"), finding
    )


def test_the_tables_that_are_opened_are_the_tabs() -> None:
    texts = "\n".join(path.read_text() for path in (FRONTEND / "panels").rglob("*.svelte"))
    places = (FRONTEND / "links" / "addresses.ts").read_text()
    places += (FRONTEND / "panels" / "step" / "steps.ts").read_text()
    for section in set(_KEYS) - {"by_rank"}:
        name = _TABLES.get(section, section)
        assert f'id="{name}"' in texts or f"'{name}'" in places or f"`{name}:" in places, section
    assert 'id="ranks"' in texts
