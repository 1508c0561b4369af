"""The tab on real recordings: selectors, lists, drawer, addresses, themes, export."""

from collections.abc import Callable
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from browser.panels.places import PANELS
from browser.tab import Tab
from traces import Event, launch, slice_

pytestmark = pytest.mark.browser

SENTENCE = "h1"
DRAWER = "aside"


def test_overview_says_the_result_in_numbers(tab: Tab) -> None:
    tab.open(run="breaks")
    tab.wait_text(SENTENCE, "6.02 ms per step")
    assert tab.text(SENTENCE) == (
        "Host-bound: 6.02 ms per step, GPU busy 2.52 %. 4 graph breaks, the most expensive at capture.py:26, "
        "cost about 2.4 ms per step. Without them, a step would take about 3.6 ms (2.8–3.9) instead of 6.02 ms."
    )
    tab.wait_text("[aria-label='Counts']", "compiled", "cache hits")
    assert " ".join(tab.text("[aria-label='Counts']").replace("?", "").split()) == (
        "Mean of 3 steps 86.4 % of GPU time compiled 5 compilations, 4.56 s 4 graph breaks 0 recompiles "
        "cache hits 2/14 no break-even"
    )
    tab.one("figure[aria-label='Steps']")
    tab.wait_text("figure", "GEMM 103 µs")
    tab.wait_text("footer", "torch 2.11.0")


def test_steps_sum_to_their_wall_time_and_lead_to_the_timeline(tab: Tab) -> None:
    tab.open(run="breaks")
    tab.click("figure[aria-label='Steps'] button")  # a column of the overview
    tab.wait_text("h1", "A step takes 6.02 ms. The GPU is busy for 152 µs (2.52 %)")
    tab.wait_text("main", "1 slow step: ProfilerStep#2 (no single cause recorded).")
    assert [row[0] for row in tab.rows("Steps")] == ["ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"]
    tab.wait_text(DRAWER, "kernel launches 3.53 ms", "= 7.09 ms")
    tab.click("aside a", "Show on timeline")
    tab.wait_address(
        "p.torch_compile.panel=timeline&p.torch_compile.from=0&p.torch_compile.range=317138,7403798"
    )


def test_a_host_that_runs_ahead_does_not_tell_how_long_a_step_is(
    add_run: Callable[[list[Event]], str], tab: Tab
) -> None:
    """The same number on each panel."""
    events = [slice_(f"ProfilerStep#{at}", 10 * at, 10, "user_annotation") for at in range(3)]
    for at in range(3):
        events += launch("nvjet_gemm", 10 * at + 1, 5 + 100 * at, 100)
    run = add_run(events)
    tab.open(run=run)
    for panel in ("overview", "step"):
        tab.go(run=run, panel=panel)
        tab.wait_text("h1", "100 µs")
    tab.go(run=run, panel="step")
    tab.wait_text("h1", "A step takes 100 µs. The GPU is busy for 100 µs (100 %).")
    tab.go(run=run, panel="timeline")
    tab.wait_text("ul[aria-label='Lanes']", "Steps on GPU 0")


def test_steps_of_one_name_are_all_drawn(add_run: Callable[[list[Event]], str], tab: Tab) -> None:
    """Traces that somebody put together have steps of each name twice."""
    events = [
        slice_(f"ProfilerStep#{at % 200}", 100 * at, 80 + 19 * (at == 300), "user_annotation")
        for at in range(400)
    ]
    run = add_run([*events, slice_("aten::mm", 3, 4)])
    tab.open(run=run)
    for panel in ("overview", "step"):
        tab.go(run=run, panel=panel)
        tab.one("figure[aria-label='Steps']")
        tab.wait_count("figure[aria-label='Steps'] button", 100)  # of four steps each
    assert tab.one("table[aria-label='Steps']").get_attribute("aria-rowcount") == "401"
    tab.wait_text("main", "1 slow step: ProfilerStep#100")


MOVED = {
    "step_breakdown": ("step", ""),
    "gpu_utilization": ("step", "idle"),
    "python": ("your_code", "functions"),
    "cuda_graphs": ("compilations", "cuda_graphs"),
    "dynamic_shapes": ("recompiles", "shapes"),
    "what_if": ("findings", "what_if"),
    "pays": ("compare", "payback"),
    "code": ("generated_code", ""),
    "startup": ("compile_time", ""),
}


def test_the_first_screen_needs_no_scrolling(tab: Tab) -> None:
    tab.open(run="breaks")
    with tab.sized(1440, 900):
        tab.wait_text("main", "Why GPU 0 was idle")
        place = "document.querySelector('[aria-label=\"Why GPU 0 was idle\"]').getBoundingClientRect()"
        tab.until(f"return {place}.bottom < innerHeight", "the end of the first screen to be in view")
        tab.tab_to("ul[aria-label='Why GPU 0 was idle'] button")
        tab.press(Keys.ENTER)
        tab.wait_address("panel=step", "section=idle")


def test_every_panel_is_in_view_and_old_addresses_lead_to_the_new_place(tab: Tab) -> None:
    tab.open(run="breaks")
    names = "return [...document.querySelectorAll('nav a')].map(a => a.innerText.replace('\\n', ' '))"
    tab.wait(lambda: "Graph breaks 4" in tab.script(names), "the number of problems")
    assert [name.rstrip(" 0123456789") for name in tab.script(names)] == [
        *("Overview", "Findings", "Compare", "All runs", "Step", "Timeline", "Memory", "Your code"),
        *("Kernels", "Operators", "Compile time", "Compilations", "Graph breaks", "Recompiles"),
        "Generated code",
    ]
    for old, (panel, section) in MOVED.items():
        tab.load(run="breaks", panel=old)
        tab.wait_address(f"panel={panel}", *([f"section={section}"] if section else []))
        tab.wait_text("nav [aria-current=page]", panel.replace("_", " ").capitalize())


def test_the_panels_by_keyboard(tab: Tab) -> None:
    tab.load(run="breaks")
    tab.script("document.activeElement.blur()")
    tab.press(Keys.TAB)
    tab.until("return document.activeElement.innerText === 'Skip to the panel'", "the way to the panel")
    tab.press(Keys.ENTER)
    tab.wait_focus("main *")
    tab.script("document.querySelector('nav a').focus()")
    tab.press(Keys.ARROW_DOWN, Keys.ENTER)
    tab.wait_text("main", "findings, most important first")
    assert tab.all("nav [tabindex]") == []


def test_selectors_move_and_back_returns(tab: Tab) -> None:
    tab.open(run="breaks")
    tab.pick("Run", "resnet18")
    tab.wait_text(SENTENCE, "13.0 ms per step")
    tab.wait_address("p.torch_compile.run=resnet18&p.torch_compile.worker=vm_424&p.torch_compile.span=")
    tab.back()
    tab.wait_text(SENTENCE, "6.02 ms per step")


def test_counts_open_their_list_and_rows_their_details(tab: Tab) -> None:
    tab.open(run="breaks")
    tab.click("[aria-label='Counts'] a", "graph breaks")
    tab.wait_text(SENTENCE, "4 graph break sites")
    lines = [row[0] for row in tab.rows("Graph breaks")]
    assert lines == [f"…/capture.py:{line}" for line in (26, 29, 28, 27)]  # the most expensive first
    tab.wait_text(SENTENCE, "cost about 2.4 ms")
    breaks = [text.split()[0] for text in tab.texts("figure ol li.break")]
    assert breaks == [":26", ":27", ":28", ":29"]

    tab.click("tbody td", "capture.py:28")
    tab.wait_text(DRAWER, "if b.sum() > 0")
    parts = ("Data-dependent branching", "torch.cond", "capture.py:28", "Compilation 2/0", "3 of 4")
    tab.wait_text(DRAWER, *parts)
    assert tab.one(f"{DRAWER} a[target='_blank']").get_attribute("href") == (
        "https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0170.html"
    )
    tab.click(f"{DRAWER} a", "Compilation 2/0")
    tab.wait_text(f"{DRAWER} h2", "Compilation 2/0")
    tab.back()
    tab.wait_text(DRAWER, "if b.sum() > 0")


def test_keyboard_alone_is_enough(tab: Tab) -> None:
    tab.open(run="breaks", panel="graph_breaks")
    tab.tab_to("table")
    tab.press(Keys.ARROW_DOWN, Keys.ENTER)
    tab.wait_text(DRAWER, "1 of 4")
    tab.press(Keys.ARROW_DOWN)
    tab.wait_text(DRAWER, "2 of 4")
    tab.press(Keys.END)
    tab.wait_text(DRAWER, "4 of 4")
    tab.press(Keys.ENTER)
    tab.wait_focus("[class^='content']")
    tab.press(Keys.ESCAPE)
    tab.gone(DRAWER)
    tab.wait_focus("table")
    tab.press("?")
    tab.wait_text("header details[open] .menu", "move through the rows")


def test_an_address_restores_everything(tab: Tab) -> None:
    place = {"run": "resnet18", "panel": "kernels", "category": "triton_reduction", "row": "", "span": ""}
    tab.load(**place, **{"search.kernels": "fused batch", "sort.kernels": "name"})
    names = [row[0] for row in tab.rows("Kernels")]
    assert len(names) > 1
    assert all(name.startswith("triton_red") and "batch" in name for name in names)
    assert tab.one("input[aria-label='Search in Kernels']").get_attribute("value") == "fused batch"

    tab.click("tbody td", names[1])
    tab.wait_text(f"{DRAWER} h2", names[1])
    address = tab.address()
    tab.driver.get("about:blank")
    tab.driver.get(address)  # through TensorBoard's page, as somebody opens it who was sent it
    tab.enter()
    tab.wait_text(f"{DRAWER} h2", names[1])
    tab.wait(lambda: [row[0] for row in tab.rows("Kernels")] == names, "the same rows")


def test_sorting_and_searching(tab: Tab) -> None:
    tab.open(run="resnet18", panel="kernels")
    launches = [int(row[3]) for row in tab.rows("Kernels")]
    tab.click("th button", "Launches")
    tab.wait_address("sort.kernels=-launches")
    sorted_launches = [int(row[3]) for row in tab.rows("Kernels")]
    assert sorted_launches == sorted(sorted_launches, reverse=True) != launches
    tab.one("input[aria-label='Search in Kernels']").send_keys("no such kernel")
    tab.wait_text("main", "No row matches")
    tab.click("button", "Clear the search")
    tab.wait(lambda: len(tab.rows("Kernels")) > 10, "all rows again")


def test_a_category_bar_narrows_the_kernels(tab: Tab) -> None:
    tab.open(run="resnet18", panel="kernels")
    tab.click("button.bar", "Triton persistent reduction")
    tab.wait_text(SENTENCE, "launches of")
    tab.wait(lambda: {row[0][:11] for row in tab.rows("Kernels")} == {"triton_per_"}, "its kernels alone")
    tab.click("button", "Triton persistent reduction ✕")
    tab.wait(lambda: len({row[0][:11] for row in tab.rows("Kernels")}) > 1, "all categories")


def test_a_kernel_leads_to_its_graph_its_source_and_the_timeline(tab: Tab) -> None:
    """Opened by its row: nodes of the graph, highlighted source, and links to the graph's text and to a launch."""
    tab.open(run="resnet18", panel="kernels", **{"search.kernels": "legit_functional_relu_12"})
    row = "table[aria-label='Kernels'] tr[data-row] td"
    tab.wait_text(row, "relu_12")
    # Tables that come later move the row: a click by its place could miss it.
    tab.script(f'document.querySelector("{row}").click()')
    tab.wait_text("aside", "Nodes in the compiled graph")
    tab.wait_text("aside", "torch.ops.aten.relu.default")
    tab.one("aside .code .keyword")
    tab.click("aside a", "Show in the graph")
    tab.wait_text(SENTENCE, "After post-grad passes (forward)")
    tab.text(".marked")
    tab.back()
    tab.click("aside a", "Show the first launch on the timeline")
    tab.wait_text("main", "Show all launches of this kernel")


def test_columns_can_be_chosen_and_are_remembered(tab: Tab) -> None:
    tab.open(run="resnet18", panel="kernels")
    width = len(tab.rows("Kernels")[0])
    tab.click("summary", "Columns")
    tab.click("details label", "Graph key")
    tab.wait(lambda: len(tab.rows("Kernels")[0]) == width + 1, "one column more")
    tab.again()
    assert len(tab.rows("Kernels")[0]) == width + 1
    tab.script("localStorage.clear()")


def test_csv_holds_every_row(tab: Tab, downloads: Path) -> None:
    tab.open(run="breaks", panel="compile_time")
    tab.wait_text(SENTENCE, "5 compilations took")
    tab.click("button", "CSV")
    file = downloads / "torch_compile_compilations.csv"
    tab.wait(lambda: file.exists(), "the download")
    lines = file.read_text().splitlines()
    assert lines[0].startswith("compile_id,direction,duration_s,function,dynamo_s")
    assert len(lines) == 10
    assert lines[1].startswith("0/0,forward,2.41")


def test_follows_the_theme_live(tab: Tab) -> None:
    tab.open(run="breaks")
    paper = "return getComputedStyle(document.body).backgroundColor"
    light = tab.script(paper)
    tab.dark()
    assert tab.script(paper) != light
    tab.dark(False)
    assert tab.script(paper) == light
    tab.load("?darkMode=true", run="breaks")
    assert tab.script("return document.documentElement.dataset.theme") == "dark"


def test_another_tab_and_back_keeps_the_place(tab: Tab) -> None:
    tab.open(run="resnet18", panel="kernels")
    tab.driver.switch_to.default_content()
    tab.script("location.hash = 'timeseries'")
    tab.until("return document.querySelector('metrics-dashboard')", "another tab")
    tab.script("location.hash = 'torch_compile'")
    tab.enter()
    tab.wait_text(SENTENCE, "1,050 launches")
    tab.wait_address("p.torch_compile.panel=kernels")


def test_a_trace_without_compile_data_says_how_to_get_it(tab: Tab) -> None:
    tab.open(run="resnet18_eager")
    tab.wait_text("main", "This worker has a trace, but no compile data.")
    tab.wait_text("main", "from tb_torchcompile_plugin import tensorboard_trace_handler")
    tab.click("nav a", "Compile time")
    tab.wait_text(SENTENCE, "No compile data.")
    tab.click("nav a", "Graph breaks")
    tab.wait_text(SENTENCE, "Graph breaks are unknown")
    tab.wait_text("main", "What runs eagerly", "ConvolutionBackward0")


def test_no_panel_scrolls_sideways_in_a_narrow_window(tab: Tab) -> None:
    with tab.sized(500, 750):
        tab.open(run="breaks")
        for panel in PANELS:
            fixed = {"run": "resnet18", "fixes": "cuda_graphs"}
            tab.go(panel=panel, **(fixed if panel == "findings" else {"run": "breaks"}))
            tab.wait_text(SENTENCE, "With 1 fix" if panel == "findings" else "")
            tab.settle()
            assert tab.script("return document.documentElement.scrollWidth <= innerWidth"), panel
