"""What was compiled, over time and in full: compile time, compilations, code, comparisons."""

import re
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from browser.tab import Tab
from compile_records import artifact, envelope, line
from tb_torchcompile_plugin.compile_log.record import Record
from tb_torchcompile_plugin.errors import visible

pytestmark = pytest.mark.browser

DRAWER = "aside"
SENTENCE = "h1"
CODE = "[role='region'].lines"
EVIL = "<img src=x onerror=\"document.title='owned'\"></script><script>alert('1')</script> \u001b[31m&amp;"


def seconds(cell: str) -> float:
    """A time of a column in seconds, or with its own unit; 0 for other texts."""
    units = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "": 1.0}
    found = re.search(r"([\d.,]+)[\s\u202f]?(s|ms|µs|)$", cell)
    return float(found[1].replace(",", "")) * units[found[2]] if found else 0.0


def test_compile_time_is_answered_by_phase(tab: Tab) -> None:
    tab.open(run="breaks", panel="compile_time")
    tab.wait_text(SENTENCE, "5 compilations took 4.56 s; 4 backward graphs were compiled on first use")
    rows = {(row[0], row[1]): row for row in tab.rows("Compilations")}
    assert len(rows) == 9
    heads = [text.split("\n")[0].split(",")[0] for text in tab.texts("table[aria-label='Compilations'] th")]
    first = heads.index("Compile time")
    row = [seconds(cell) for cell in rows["0/0", "forward"]]
    phases = row[heads.index("Dynamo") : heads.index("Other") + 1]
    assert sum(phases) == pytest.approx(row[first], rel=0.01)
    assert {row[1] for row in tab.rows("Cache lookups")} >= {"miss"}
    assert tab.rows("Autotuning") and tab.rows("Until the first steady step")


def test_compilations_are_listed_with_their_reasons(tab: Tab) -> None:
    tab.open(run="breaks", panel="compilations")
    tab.wait_text(SENTENCE, "5 compilations: 4 with a graph break, 1 compiled.")
    rows = {row[0]: row for row in tab.rows("Compilations")}
    assert len(rows) == 9 and rows["2/0"][1:3] == ["graph break", "forward after line 27"]
    assert rows["2/0"][-4:] == ["3", "10.8", "260", "3.6"]
    tab.click("table[aria-label='Compilations'] td", "2/0")
    tab.wait_text(f"{DRAWER} h2", "Compilation 2/0")
    tab.wait_text(DRAWER, "Data-dependent branching")


def test_details_have_guards_and_operations(tab: Tab) -> None:
    """Compiled regions were a panel of their own: its address leads here."""
    tab.open(run="breaks", panel="compiled_regions", row="compiled_regions:0/0")
    tab.wait_address("row=compilation:0/0,0,forward")
    for part in ("Operations", "Why Dynamo restarted", "Called from", "Show in Compile time"):
        tab.wait_text(DRAWER, part)
    tab.click(f"{DRAWER} button", "Guard checks")
    tab.wait_text(DRAWER, "TENSOR_MATCH")
    tab.one("input[aria-label='Search in checks']").send_keys("requires_grad=True")
    tab.wait_text(f"{DRAWER} .tools", " of ")


def test_a_closed_drawer_is_no_step_of_the_way_back(tab: Tab) -> None:
    tab.open(run="breaks", panel="compile_time")
    tab.wait_text(SENTENCE, "5 compilations took")
    tab.click("nav a", "Compilations")
    tab.click("table[aria-label='Compilations'] td", "2/0")
    tab.wait_text(f"{DRAWER} h2", "Compilation 2/0")
    tab.press(Keys.ARROW_DOWN, Keys.ESCAPE)
    tab.gone(DRAWER)
    tab.back()
    tab.wait_text(SENTENCE, "5 compilations took")


def test_a_backward_shows_what_is_its_own(tab: Tab) -> None:
    tab.open(run="breaks", panel="compilations", row="compilation:4/0,0,backward")
    tab.wait_text(f"{DRAWER} h2", "Compilation 4/0 backward")
    tab.wait_text(DRAWER, "AOT backward graph")
    tab.settle()
    tab.wait_without(f"{DRAWER} .content", "Guard checks")
    tab.wait_without(f"{DRAWER} .content", "Dynamo graph")


def test_output_code_is_coloured_searched_and_joined_to_the_run(tab: Tab) -> None:
    tab.open(run="breaks", panel="generated_code", code="0/0")
    tab.wait_text(SENTENCE, "Inductor output code (forward) of compilation 0/0, function forward: 266 lines.")
    tab.one(f"{CODE} .keyword")
    search = tab.one("input[aria-label='Search in Inductor output code']")
    search.send_keys("def call")
    tab.one(f"{CODE} mark")
    tab.wait_text(CODE, "def call")
    search.send_keys(Keys.CONTROL, "a")
    search.send_keys(":120", Keys.ENTER)
    tab.wait_address("line=120")
    tab.wait(lambda: tab.text(f"{CODE} .marked").startswith("120"), "the line")
    tab.wait_text("[aria-label='Kernels in this code']", "capture.py:26")
    tab.click("[aria-label='Kernels in this code'] a", "triton_poi_fused_addmm_relu_0")
    tab.wait_address("line=48")
    tab.click("[aria-label='Kernels in this code'] tbody td", "capture.py:26")
    tab.click(f"{DRAWER} a", "Show in Kernels")
    tab.wait(lambda: len(tab.rows("Kernels")) == 1, "the kernel")
    tab.click("tbody td", "triton_poi_fused_addmm_relu_0")
    tab.click(f"{DRAWER} a", "Show the generated code")
    tab.wait_text(CODE, "triton_poi_fused_addmm_relu_0 = async_compile.triton(")


def test_an_address_restores_artifact_and_line(tab: Tab) -> None:
    tab.open(run="breaks", panel="generated_code", code="0/0", direction="backward", line="40")
    tab.wait_text(SENTENCE, "Inductor output code (backward)")
    tab.wait(lambda: tab.text(f"{CODE} .marked").startswith("40"), "the line")
    tab.click("nav[aria-label^='Texts'] a", "AOT joint graph")
    tab.wait_text(SENTENCE, "AOT joint graph")
    tab.again()
    tab.wait_text(SENTENCE, "AOT joint graph")
    tab.go(run="breaks", panel="generated_code", code="0/0", artifact="99999")
    tab.wait_text("main", "a text that this compilation does not have")


def test_two_texts_side_by_side(tab: Tab) -> None:
    tab.open(run="breaks", panel="generated_code", code="0/0")
    tab.click("nav[aria-label^='Texts'] a", "AOT forward graph")
    tab.wait_text(SENTENCE, "AOT forward graph")
    tab.click("summary", "another text")
    tab.click("details a", "AOT backward graph (backward)")
    tab.wait_text(SENTENCE, "0/0 forward: AOT forward graph → 0/0 backward: AOT backward graph: ")
    tab.wait_text(SENTENCE, " lines in 4 places.")
    tab.wait_text("main", "4 changes")
    assert tab.texts(".heads span") == [
        "− 0/0 forward: AOT forward graph",
        "+ 0/0 backward: AOT backward graph",
    ]
    tab.one(".row.changed .differs"), tab.one(".row.added")
    tab.click("a", "Swap sides")
    tab.wait_text(".heads span", "0/0 backward")
    tab.click("a", "Stop comparing")
    tab.wait_text(SENTENCE, "AOT backward graph (backward)")
    tab.click(".presets a", "the previous pass")
    tab.wait_text(SENTENCE, "0/0 forward: AOT joint graph → 0/0 backward: AOT backward graph: ")
    tab.go(run="breaks", panel="generated_code", code="0/0", code2="1/0")
    tab.wait_text("main", "1/0 forward: Inductor output code", "equal lines: show")


def to_the_end(tab: Tab, part: str) -> None:
    """Of the code. What is drawn meanwhile may put it back to where it was."""

    def there() -> bool:
        tab.one(CODE).send_keys(Keys.END)
        return part in tab.text(CODE)

    tab.wait(there, f"{part} at the end of the code")


def write_log(folder: Path, *records: Record) -> Path:
    path = folder / "dedicated_log_torch_trace_x.log"
    path.write_bytes(b"".join(map(line, records)))
    return path


@pytest.fixture
def evil(added: Path) -> Path:
    """The log of a run whose names, reasons and graphs try to be more than text, with a graph of megabytes."""
    stack = [{"line": 3, "name": EVIL, "filename": 0, "loc": EVIL}]
    graph = "\n".join(f'    x{i} = "{EVIL}"  # {EVIL}' for i in range(30_000))
    reason = f"Graph break in user code at /tmp/{EVIL}/a.py:3\nReason: {EVIL}\nUser code traceback:\n"
    metrics = {"compile_id": "0/0", "co_name": EVIL, "co_filename": f"/tmp/{EVIL}/a.py", "co_firstlineno": 3,
               "fail_type": EVIL, "fail_reason": EVIL, EVIL: EVIL, "entire_frame_compile_time_s": 1.0,
               "start_time": 1795230217.5, "restart_reasons": [EVIL]}  # fmt: skip
    return write_log(
        added,
        Record({"str": [f"/tmp/{EVIL}/a.py", 0]}),
        Record(envelope("dynamo_start", {"stack": stack})),
        Record(envelope("dynamo_output_graph", {"sizes": {}}), graph),
        artifact(EVIL, EVIL),
        artifact("dynamo_graph_break_reason", reason),
        Record(envelope("compilation_metrics", metrics)),
    )


def test_text_of_a_log_stays_text(tab: Tab, evil: Path) -> None:
    run = evil.parent.name
    tab.open(run=run, panel="compilations", row="compilation:0/0,0,forward")
    tab.wait_text("table[aria-label='Compilations']", "<script>alert('1')</script>")
    tab.wait_text(DRAWER, "<img src=x onerror")
    tab.go(run=run, panel="graph_breaks")
    tab.wait(
        lambda: any("<script>" in cell for row in tab.rows("Graph breaks") for cell in row), "the reason"
    )
    tab.go(run=run, panel="compile_time")
    tab.wait(lambda: any("<script>" in cell for row in tab.rows("Compilations") for cell in row), "the name")
    tab.go(run=run, panel="generated_code", code="0/0")
    tab.wait_text(SENTENCE, "30,000 lines")
    tab.one(f"{CODE} .string, {CODE} .comment")
    to_the_end(tab, "x29999 = ")
    tab.wait_text(CODE, "<script>alert('1')</script>")
    assert len(tab.all(f"{CODE} .line")) < 200
    tab.go(run=run, panel="generated_code", code="0/0", code2="0/0")
    tab.wait_text(SENTENCE, ": no line differs.")
    assert tab.script("return parent.document.title + document.title").find("owned") < 0
    assert tab.script("return document.querySelectorAll('img, script:not([src])').length") <= 1


def test_texts_of_no_compilation_are_there_even_if_nothing_was_compiled(tab: Tab, added: Path) -> None:
    """As torch.export leaves them, which writes no compile id."""
    write_log(added, Record({"exported_program": {}}, f"ExportedProgram: {visible(EVIL)}"))
    tab.open(run=added.name, panel="compilations")
    tab.wait_text(SENTENCE, "No compilations")
    tab.wait_text("main ul", "Exported program")
    (link,) = [a for a in tab.all("main li a") if "Exported program" in a.text]
    fetched = "const [link, done] = arguments; fetch(link.href).then((r) => r.text()).then(done)"
    assert tab.driver.execute_async_script(fetched, link) == f"ExportedProgram: {visible(EVIL)}"


def test_an_output_code_of_3_mb_with_its_kernels_is_a_page_of_few_elements(tab: Tab, added: Path) -> None:
    kernel = (
        "triton_poi_fused_{0} = async_compile.triton('triton_poi_fused_{0}', '''\n"
        + "    # pad\n" * 80
        + "''')"
    )
    code = "\n".join(kernel.format(number) for number in range(4_000))
    assert len(code) > 3_000_000
    write_log(
        added,
        Record(envelope("dynamo_start", {"stack": []})),
        Record(envelope("inductor_output_code", {"filename": "/tmp/a.py"}), code),
    )
    tab.open(run=added.name, panel="generated_code", code="0/0")
    tab.wait_text("main", "4,000 rows")
    tab.wait_text(CODE, "triton_poi_fused_0 = ")
    to_the_end(tab, "328000")
    assert tab.script("return document.querySelectorAll('*').length") < 2500


def test_long_texts_with_little_in_common_are_compared(tab: Tab, evil: Path) -> None:
    """And in one column where two do not fit."""
    other = "\n".join(f"    y{i} = {i % 7}" if i % 10 else "    return" for i in range(20_000))
    with evil.open("ab") as log:
        log.write(line(Record(envelope("inductor_pre_grad_graph", {}), other)))
    with tab.sized(600, 750):
        tab.open(run=evil.parent.name, panel="generated_code", code="0/0")
        tab.click("summary", "Compare with")
        tab.click("details a", "After pre-grad passes (forward)")
        tab.wait_text(SENTENCE, "−30,000 +20,000 lines in 1 place.")
        tab.one(".row.removed")
        assert not tab.all(".row.changed")
