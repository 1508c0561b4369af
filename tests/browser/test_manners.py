"""What must not surprise a reader: nothing jumps under the pointer, runs out of the window or fills the address."""

import re
from collections.abc import Callable
from urllib.parse import unquote

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from browser.tab import Tab
from traces import Event, launch, memory_event, slice_

pytestmark = pytest.mark.browser

KERNEL = "table[aria-label='Kernels'] tr[data-row='4']"


TOP = "return document.querySelector(arguments[0]).getBoundingClientRect().top"
STAYS = f"const top = function () {{ {TOP} }}; return Math.abs(top(arguments[0]) - arguments[1]) <= 1"
FITS = "const s = document.querySelector(arguments[0]).closest('.scroller'); return s.scrollWidth <= s.clientWidth"


def test_a_row_stays_under_the_pointer_when_its_details_open(tab: Tab) -> None:
    tab.open(run="resnet18", panel="kernels")
    for width in (1440, 1200):
        with tab.sized(width, 750):
            tab.one(KERNEL)
            tab.script("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", KERNEL)
            before = tab.script(TOP, KERNEL)
            ActionChains(tab.driver).move_to_element(tab.one(f"{KERNEL} td:nth-child(2)")).click().perform()
            tab.one("aside")
            tab.until(STAYS, "the row to stay", KERNEL, before)
            tab.until(FITS, "nothing to scroll sideways", KERNEL)
            tab.click("aside button[aria-label='Close']")
            tab.gone("aside")
            tab.until(STAYS, "the row to stay", KERNEL, before)


def test_a_menu_stays_in_the_window(tab: Tab) -> None:
    with tab.sized(900, 750):
        tab.open(run="resnet18", panel="kernels")
        tab.one(KERNEL)
        for block in ("end", "center"):
            button = tab.all("main summary")[0]
            tab.script("arguments[0].scrollIntoView({block: arguments[1]})", button, block)
            button.click()
            inside = """
                const box = document.querySelector('details[open] .menu').getBoundingClientRect();
                return box.top >= 0 && box.bottom <= innerHeight && box.left >= 0;
            """
            tab.until(inside, "the menu to be in the window")
            button.click()


def test_a_menu_that_is_opened_while_its_panel_closes_is_no_error(tab: Tab) -> None:
    """The browser reports that it was opened after the panel has gone; `tab` fails where the console complains."""
    tab.open(run="resnet18", panel="kernels")
    tab.one(KERNEL)
    tab.script("""
        document.querySelector('main summary').click();
        [...document.querySelectorAll("nav[aria-label='Panels'] a")].find((a) => a.text.includes('Memory')).click();
    """)
    tab.wait_text("h1", "Memory")
    tab.gone(KERNEL)


def test_a_gap_is_shown_with_what_is_around_it_and_what_took_it(tab: Tab) -> None:
    tab.open(run="breaks", panel="step")
    tab.click("table[aria-label='Longest gaps'] tr[data-row='0']")
    tab.click("aside a", "Show on timeline")
    tab.text("section[aria-label='Details'] h2")
    address = tab.wait_address(
        "torch_compile.from=", "torch_compile.to=", "torch_compile.range=", "torch_compile.slice="
    )
    start, end = (int(re.search(rf"torch_compile\.{key}=(-?\d+)", address)[1]) for key in ("from", "to"))  # type: ignore[index]
    (gap,) = re.findall(r"torch_compile\.range=(\d+)(?:,|%2C)(\d+)", address)
    assert start < int(gap[0]) < int(gap[1]) < end
    assert re.search(r"torch_compile\.slice=\d+", address), "the slice that took it is chosen"


def test_the_code_panel_opens_what_ran(tab: Tab, add_recording: Callable[[str], str]) -> None:
    """0/0 was compiled first; 0/1 ran 7 times, the others once."""
    tab.open(run=add_recording("recompiles"), panel="compilations")
    (longest,) = [row for row in tab.rows("Compilations") if row[0] == "0/1"][:1]
    assert longest
    tab.click("nav[aria-label='Panels'] a", "Generated code")
    tab.wait_text("h1", "compilation 0/1")


def test_the_list_of_texts_shows_the_one_that_is_open(tab: Tab) -> None:
    inside = """
        const texts = document.querySelector("nav[aria-label='Texts of this compilation']");
        const list = texts.getBoundingClientRect();
        const item = texts.querySelector('.current').getBoundingClientRect();
        return item.top >= list.top && item.bottom <= list.bottom;
    """
    with tab.sized(1400, 550):
        tab.open(run="breaks", panel="generated_code", code="4/0", direction="backward")
        tab.until(inside, "the open text to be in view in its list")


def test_the_name_of_a_template_does_not_fill_the_address(
    tab: Tab, add_run: Callable[[list[Event]], str]
) -> None:
    name = (
        f"void at::native::{'vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, ' * 10}x>"
    )
    tab.open(run=add_run([*launch(name, 0, 1, 9), *launch("other", 10, 11, 5)]), panel="kernels")
    tab.click("table[aria-label='Kernels'] tr[data-row='0']")
    tab.one("aside")
    assert len(tab.address()) < 350
    tab.click("aside a", "on the timeline")
    tab.click("section[aria-label='Details'] a", "Show all launches of this kernel")
    tab.one("aside")
    tab.wait_text("aside", name[:40])
    assert len(tab.address()) < 350


def test_a_few_bytes_are_no_curve(tab: Tab, add_run: Callable[[list[Event]], str]) -> None:
    event = memory_event(5, 12, 12, device=-1, device_type=0)
    tab.open(run=add_run([slice_("aten::add", 0, 20), event]), panel="memory")
    tab.wait_text("main", "CPU: 1 allocation of 12 B in all")
    assert not tab.all("main svg")


CANVAS = "canvas[role='application']"


def test_the_timelines_keys_work_on_arrival(tab: Tab) -> None:
    tab.open(run="breaks", panel="overview")
    tab.click("nav[aria-label='Panels'] a", "Timeline")
    tab.wait_focus(CANVAS)
    before = tab.address()
    tab.press("w")
    tab.wait(lambda: tab.address() != before and "torch_compile.from" in tab.address(), "a nearer view")


def test_idle_time_is_a_lane_and_a_launch_has_its_place(tab: Tab) -> None:
    tab.open(run="breaks", panel="kernels", **{"search.kernels": "triton_poi"})
    tab.click("table[aria-label='Kernels'] tr[data-row='0']")
    tab.click("aside a", "Show the first launch on the timeline")
    tab.wait_text("ul[aria-label='Lanes']", "Idle")
    tab.wait_text("section[aria-label='Details']", "Queue time")
    tab.wait_text("section[aria-label='Details']", "Idle before")
    tab.wait_text("section[aria-label='Details']", "3rd of 9 launches")
    tab.click("section[aria-label='Details'] a", "›")
    tab.wait_text("section[aria-label='Details']", "4th of 9 launches")


def test_a_pin_and_its_note_are_in_the_address(tab: Tab) -> None:
    tab.open(run="breaks", panel="timeline", **{"search.timeline": "aten::add_"})
    tab.click("section[aria-label='Details'] button", "Pin")
    note = tab.one("ul[aria-label='Pinned'] input")
    note.send_keys("look here\t")
    tab.wait(
        lambda: "look%20here" in tab.address() or "look here" in tab.address(), "the note in the address"
    )
    tab.load(run="breaks", panel="timeline", pins=re.sub(r".*pins=([^&]*).*", r"\1", unquote(tab.address())))
    assert tab.one("ul[aria-label='Pinned'] input").get_attribute("value") == "look here"


def test_a_part_of_a_picture_opens_its_list_and_with_shift_the_timeline(tab: Tab) -> None:
    tab.open(run="breaks", panel="step")
    figure = "figure[aria-label='What GPU 0 did']"
    tab.click(f"{figure} button", "Python")
    tab.wait_address("section=ledger", "search.ledger=python")
    tab.open(run="breaks", panel="step")
    tab.click(f"{figure} button", "GEMM")
    tab.wait_address("panel=kernels", "category=gemm")
    tab.go(run="breaks", panel="step")
    tab.wait_text(figure, "GEMM")
    gemm = next(button for button in tab.all(f"{figure} button") if "GEMM" in button.text)
    ActionChains(tab.driver).key_down(Keys.SHIFT).click(gemm).key_up(Keys.SHIFT).perform()
    tab.one(CANVAS)
    tab.wait_address("search.timeline=")


def test_a_picture_is_one_stop_and_arrows_go_from_part_to_part(tab: Tab) -> None:
    tab.open(run="breaks", panel="step")
    figure = "figure[aria-label='What GPU 0 did']"
    tab.tab_to(f"{figure} [data-door]")
    assert len(tab.all(f"{figure} [data-door][tabindex='0']")) == 1
    first = tab.script("return document.activeElement.innerText")
    tab.press(Keys.ARROW_RIGHT)
    tab.until("return document.activeElement.innerText !== arguments[0]", "the next part", first)
    tab.press(Keys.END, Keys.ARROW_LEFT, Keys.ENTER)  # the last is the mark that says what the part means
    tab.wait_address("section=ledger")


def test_an_address_of_before_finds_its_kernel(tab: Tab, add_run: Callable[[list[Event]], str]) -> None:
    """Rows were named by the whole name, of whatever length, and gaps were narrowed by their cause."""
    name = f"void at::native::{'vectorized_elementwise_kernel<4, ' * 10}x>"
    run = add_run([*launch(name, 0, 1, 9), *launch("other", 40, 41, 5)])
    tab.open(run=run, panel="kernels", row=f"kernels:0,{name},,")
    tab.wait_text("aside", name[:40])
    tab.until("return parent.location.href.length < 350", "a short address")
    tab.load(run=run, panel="kernels", row="kernels:0,gone,,")
    tab.wait_text("aside", "which is not in this table")
    tab.load(run=run, panel="step", cause="unaccounted")
    tab.wait_address("section=ledger", "search.ledger=unaccounted")
    tab.until("return !parent.location.href.includes('cause=')", "the cause to leave the address")


def test_a_phase_lists_its_compilations(tab: Tab) -> None:
    tab.open(run="breaks", panel="compile_time")
    tab.click("ul[aria-label='Compile time by phase'] button", "Inductor")
    tab.wait_address("sort.compilations=-inductor_s")
    assert [row[0] for row in tab.rows("Compilations")[:2]] == ["0/0", "2/0"]  # most time in Inductor first
    tab.click("table[aria-label='Compilations'] tbody td", "backward")
    tab.wait_text("aside h2", "Compilation")


def test_a_band_of_memory_is_its_step_and_with_shift_a_moment(
    tab: Tab, add_recording: Callable[[str], str]
) -> None:
    tab.open(run=add_recording("everything"), panel="memory")
    band = "main svg rect[aria-label='ProfilerStep#2']"
    tab.one(band)
    tab.tab_to("main svg [data-door]")
    tab.press(Keys.ARROW_RIGHT)
    tab.wait_focus(band)
    tab.press(Keys.ENTER)
    tab.wait_address("torch_compile.stretch=")
    tab.until(
        "return document.querySelector('.stretch select').selectedOptions[0].text.includes('ProfilerStep#2')",
        "the step in the list",
    )
    ActionChains(tab.driver).key_down(Keys.SHIFT).click(tab.one("main svg")).key_up(Keys.SHIFT).perform()
    tab.one(CANVAS)
