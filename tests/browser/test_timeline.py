"""The timeline on real recordings, by mouse and by keyboard, in both themes."""

import gzip
import json
import re
from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.actions.wheel_input import ScrollOrigin
from selenium.webdriver.common.keys import Keys

from browser.tab import Tab

pytestmark = pytest.mark.browser

CANVAS = "canvas[role='application']"
DRAWER = "section[aria-label='Details']"
COLORS = """
    const canvas = document.querySelector(arguments[0]);
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d');
    copy.drawImage(canvas, 0, 0);
    const {data} = copy.getImageData(0, 0, canvas.width, canvas.height);
    const byColor = new Map();
    for (let i = 0; i < data.length; i += 4) {
        const color = `${data[i]},${data[i + 1]},${data[i + 2]}`;
        byColor.set(color, (byColor.get(color) ?? 0) + 1);
    }
    return [...byColor].filter(([, n]) => n > (arguments[1] ?? 200)).map(([color]) => color);
"""


STRANGE = """
    const rgb = (text) => text.match(/\\d+/g).map(Number);
    const style = getComputedStyle(document.querySelector('main'));
    const probe = document.body.appendChild(document.createElement('i'));
    const token = (name) => (probe.style.color = style.getPropertyValue(name), rgb(getComputedStyle(probe).color));
    const paper = token('--bg');
    const legend = [...document.querySelectorAll("[aria-label='Colors in view'] .swatch")].map(
        swatch => rgb(getComputedStyle(swatch).backgroundColor));
    const inks = [paper, '--raised', '--line', '--measure', '--warn', '--text', '--muted', '--line-strong'].map(
        name => typeof name === 'string' ? token(name) : name).concat(legend);
    probe.remove();
    const known = inks.flatMap(ink => [0.4, 0.6, 0.8, 1].map(
        share => ink.map((c, i) => c * share + paper[i] * (1 - share))));
    const idle = document.querySelector("[aria-label='Colors in view'] .idle") ? known.slice(-4 * legend.length) : [];
    for (const tint of idle) for (const stripe of [0, 255]) for (let share = 0; share < 0.5; share += 0.01)
        known.push(tint.map(c => c * (1 - share) + stripe * share));
    return arguments[0].filter(text => !known.some(
        color => color.every((c, i) => Math.abs(c - rgb(text)[i]) <= 2)));
"""


def strange(tab: Tab) -> list[str]:
    """Colours of the picture that are no tint of one in its legend. Letters have any of them, but little of each."""
    return list(tab.script(STRANGE, tab.script(COLORS, CANVAS, 800)))


def shown(tab: Tab) -> str:
    """What the picture says of itself, once all of it is there."""
    script = """
        const picture = document.querySelector(arguments[0] + "[aria-busy='false']");
        return document.getElementById(picture.getAttribute('aria-describedby')).textContent;
    """
    return str(tab.until(script, "all that is in view", CANVAS))


def view(tab: Tab) -> tuple[int, int]:
    """From the address, ns."""
    start, end = (re.search(rf"p\.torch_compile\.{key}=(-?\d+)", tab.address()) for key in ("from", "to"))
    assert start and end, tab.address()
    return int(start[1]), int(end[1])


def moved(tab: Tab, before: str) -> tuple[int, int]:
    tab.until("return parent.location.href !== arguments[0]", "another address", before)
    return view(tab)


def open_timeline(tab: Tab, **place: str) -> str:
    tab.open(run="breaks", panel="timeline", **place)
    tab.wait_text("h1", "slices on")
    return shown(tab)


def test_opens_on_the_first_step_with_its_regions_and_breaks(tab: Tab) -> None:
    text = open_timeline(tab)
    tab.wait_text("h1", "In view: 7.09 ms of", "ProfilerStep#2")
    assert "Steps: 1 slice (ProfilerStep#2)." in text
    assert "Compiled regions: 9 slices (0/0 forward" in text  # five nested ones and four of the backward
    assert "Graph breaks: 4 marks (capture.py:26, capture.py:27, capture.py:28 …)." in text
    tab.one(CANVAS).send_keys("]")
    tab.wait_text("h1", "ProfilerStep#3")
    tab.wait(lambda: "Graph breaks: 4 marks" in shown(tab), "the marks of this step")


def test_keys_move_and_the_address_brings_back(tab: Tab) -> None:
    open_timeline(tab)
    canvas = tab.one(CANVAS)
    address = tab.address()
    canvas.send_keys("w")
    start, end = moved(tab, address)
    assert 0 < end - start < 7_086_660
    address = tab.address()
    canvas.send_keys("d")
    later = moved(tab, address)
    assert later[0] > start and later[1] - later[0] == pytest.approx(end - start, abs=2)
    address = tab.address()
    canvas.send_keys("0")
    everything = moved(tab, address)
    assert everything[0] < 0 < later[0] and everything[1] == 18719112
    tab.back()
    tab.wait(lambda: view(tab) == later, "the place before")
    tab.wait_text("h1", "In view:")
    text = shown(tab)
    tab.again()
    tab.wait(lambda: shown(tab) == text, "the same picture")


def test_a_kernel_leads_to_its_launch_and_back(tab: Tab) -> None:
    open_timeline(tab)
    tab.one("input[aria-label='Search in the timeline']").send_keys("cuLaunchKernel")
    tab.wait_text("[role='toolbar'] [role='status']", "60 found")
    tab.press(Keys.ENTER)
    tab.wait_text(DRAWER, "Launched 1 kernel")
    tab.wait_text("[role='toolbar'] [role='status']", "1 of 60")
    canvas = tab.one(CANVAS)
    canvas.send_keys("l")
    tab.wait_text(DRAWER, "stream 7, GPU 0")
    tab.wait_text(DRAWER, "Triton pointwise", "grid")
    tab.one(f"{CANVAS}[aria-label*='triton_poi_fused']")
    canvas.send_keys("l")
    tab.wait_text(f"{DRAWER} h2", "cuLaunchKernel")
    canvas.send_keys("n")
    tab.wait_text("[role='toolbar'] [role='status']", "2 of 60")
    canvas.send_keys("m")
    tab.wait_text(DRAWER, "GPU 0 busy")
    canvas.send_keys(Keys.ESCAPE, Keys.ESCAPE)
    tab.gone(DRAWER)


def test_the_mouse_moves_zooms_chooses_and_measures(tab: Tab) -> None:
    open_timeline(tab)
    canvas = tab.one(CANVAS)
    address = tab.address()
    ActionChains(tab.driver).drag_and_drop_by_offset(canvas, -200, 0).perform()
    start, end = moved(tab, address)
    assert start > 317138 and end - start == pytest.approx(7086660, abs=2)
    address = tab.address()
    # Clicked before: the wheel zooms now.
    tab.script("arguments[0].focus({focusVisible: true})", canvas)
    ActionChains(tab.driver).scroll_from_origin(ScrollOrigin.from_element(canvas), 0, -100).perform()
    closer = moved(tab, address)
    assert start < closer[0] < closer[1] < end
    above = -canvas.size["height"] // 2
    ActionChains(tab.driver).move_to_element_with_offset(canvas, 0, above + 60).click().perform()
    tab.wait_text(DRAWER, "Compil")
    ruler = ActionChains(tab.driver).move_to_element_with_offset(
        canvas, -100, -canvas.size["height"] // 2 + 8
    )
    ruler.click_and_hold().move_by_offset(250, 4).release().perform()
    tab.wait_address("p.torch_compile.range=")
    tab.wait_text(DRAWER, "kinds of host slices")


def test_lanes_fold_and_the_list_tells_the_same(tab: Tab) -> None:
    open_timeline(tab)
    tab.click("ul[aria-label='Lanes'] button", "Compiled regions")
    tab.wait_address("p.torch_compile.lanes=0,1f")
    tab.one(CANVAS).send_keys("t")
    tab.rows("Slices in view")  # in the order of time: those that began first
    tab.one("input[aria-label='Search in Slices in view']").send_keys("capture.py:28")
    tab.wait(lambda: len(tab.rows("Slices in view")) < 4, "the found rows")
    assert any(row[0] == "Graph breaks" for row in tab.rows("Slices in view"))


def test_what_is_in_view_is_saved_as_a_trace(tab: Tab, downloads: Path) -> None:
    open_timeline(tab)
    tab.click("summary", "Save")
    tab.click("a", "The visible range as a trace")
    saved = tab.wait(lambda: next(downloads.glob("*.json.gz"), None), "the download")
    trace = json.loads(gzip.decompress(saved.read_bytes()))
    assert any(event["name"] == "ProfilerStep#2" for event in trace["traceEvents"])
    assert tab.outside_requests() == []


def test_both_themes_paint_their_own_colours(tab: Tab) -> None:
    open_timeline(tab)
    regions_and_backward = {"82,153,227", "158,132,199"}
    light = {"255,255,255", *regions_and_backward}
    tab.wait(lambda: light <= set(tab.script(COLORS, CANVAS)), "paper, regions, backward")
    assert strange(tab) == []
    tab.dark()
    tab.wait(
        lambda: {"29,31,34", "87,143,198", "129,108,194"} <= set(tab.script(COLORS, CANVAS)), "the dark ones"
    )
    assert strange(tab) == []
    assert not regions_and_backward & set(tab.script(COLORS, CANVAS))
    tab.dark(False)
    with tab.sized(500, 750):
        tab.until("return document.documentElement.scrollWidth <= innerWidth", "all to be within the window")
        tab.one(CANVAS).send_keys("/", *"Region: 0/0", Keys.ENTER)
        tab.wait_text(DRAWER, "Called from")
        tab.wait(lambda: tab.one(CANVAS).size["height"] > 100, "the picture beside the details")
        tab.wait(lambda: tab.one(DRAWER).size["height"] <= 280, "details that leave room")


def test_lanes_are_reordered_by_hand_and_by_key_hidden_and_filtered(tab: Tab) -> None:
    open_timeline(tab)

    def lanes() -> list[str]:
        return [text.lstrip("▸▾").strip() for text in tab.texts("ul[aria-label='Lanes'] button")]

    first = [
        "Steps",
        "Compiled regions",
        "Graph breaks",
        "Compile phases",
        "Steps on GPU 0",
        "Idle",
        "GPU busy",
    ]
    tab.wait(lambda: lanes()[:8] == [*first, "stream 7"], "the lanes in their order")
    tab.tab_to("ul[aria-label='Lanes'] button")
    tab.press(Keys.TAB)
    ActionChains(tab.driver).key_down(Keys.ALT).send_keys(Keys.ARROW_UP).key_up(Keys.ALT).perform()
    tab.wait(lambda: lanes()[:2] == ["Compiled regions", "Steps"], "the lane to move up")
    tab.press(Keys.ENTER)
    tab.wait_address("p.torch_compile.lanes=1f,0,")
    drag = next(e for e in tab.all("ul[aria-label='Lanes'] li") if "stream 7" in e.text)
    ActionChains(tab.driver).drag_and_drop(drag, tab.all("ul[aria-label='Lanes'] li")[0]).perform()
    tab.wait(lambda: lanes()[:3] == ["stream 7", "Compiled regions", "Steps"], "the lane to be dropped")
    tab.click("summary", "Lanes")
    tab.one("input[aria-label='Filter lanes']").send_keys("thread")
    tab.wait_without("[role='toolbar']", "Steps")
    tab.one("[role='toolbar'] label input[type='checkbox']").click()
    tab.wait(lambda: not any("1027" in lane for lane in lanes()), "the thread to be hidden")
    tab.wait(lambda: "thread 1027" not in shown(tab), "the picture without it")
    tab.click("button", "Reset")
    tab.wait(lambda: lanes()[0] == "Steps" and len(lanes()) == 12, "the lanes as they came")


def test_the_search_goes_around(tab: Tab) -> None:
    open_timeline(tab)
    tab.one(CANVAS).send_keys("/")
    tab.press(*"Region: 3/0")
    status = "[role='toolbar'] [role='status']"
    tab.wait_text(status, "3 found")
    tab.press(Keys.ENTER)
    tab.wait_text(status, "1 of 3")
    tab.wait_text(f"{DRAWER} h2", "Torch-Compiled Region: 3/0")
    places = [tab.text(DRAWER)]
    tab.press(Keys.ESCAPE)
    for number in (2, 3, 1):
        tab.press("n")
        tab.wait_text(status, f"{number} of 3")
        tab.wait(lambda: tab.text(DRAWER) != places[-1] and "Start" in tab.text(DRAWER), "the next hit")
        places.append(tab.text(DRAWER))
    assert places[3] == places[0] and len(set(places)) == 3
    tab.press("p")
    tab.wait_text(status, "3 of 3")
    tab.wait(lambda: tab.text(DRAWER) == places[2], "the last one again")


def test_by_keyboard_alone_from_a_slice_to_its_compilation_and_back(tab: Tab) -> None:
    open_timeline(tab)
    tab.tab_to(CANVAS)
    tab.press("/", *"triton_poi_fused_addmm_relu_0", Keys.ENTER)
    tab.wait_text(f"{DRAWER} h2", "triton_poi_fused_addmm_relu_0")
    tab.press(Keys.ENTER)  # the first one is the call on the host
    tab.wait_text(DRAWER, "Triton pointwise")
    tab.press(Keys.ESCAPE)
    tab.wait_focus(CANVAS)
    tab.press("z")
    tab.wait_without("h1", "In view: 7.09 ms")
    tab.press("l")
    tab.wait_text(f"{DRAWER} h2", "cuLaunchKernel")
    tab.press(Keys.ARROW_UP)
    tab.wait_without(f"{DRAWER} h2", "cuLaunchKernel")
    tab.press(Keys.ARROW_DOWN, Keys.ENTER)
    tab.until("return document.activeElement.ariaLabel", "the details to have the focus")
    tab.tab_to(f"{DRAWER} a[href*='compilations']")
    tab.press(Keys.ENTER)
    tab.wait_address("panel=compilations")
    tab.back()
    tab.wait_text(DRAWER, "Launched 1 kernel")


@pytest.mark.parametrize(
    ("panel", "row", "title"),
    [
        ("compiled_regions", "1/0", "Torch-Compiled Region: 1/0"),
        ("operators", "aten::mm", "aten::mm"),
        ("kernels", "sum_threshold_backward_0", "triton_red_fused_sum_threshold_backward_0"),
    ],
)
def test_rows_of_tables_lead_to_their_slices(tab: Tab, panel: str, row: str, title: str) -> None:
    tab.open(run="breaks", panel=panel)
    tab.one("tbody tr[data-row]")
    tab.click("tbody tr[data-row]", row)
    tab.click("a[href*='panel=timeline']", "on the timeline" if panel == "kernels" else "On the timeline")
    tab.wait_text(f"{DRAWER} h2", title)
    tab.one(f"{CANVAS}[aria-label*='{title}']")


PERFETTO = """
    const page = document.body.appendChild(document.createElement('iframe')).contentWindow;
    window.opened = [];
    window.messages = [];
    window.open = (address) => (opened.push(address), page);
    page.postMessage = (message, origin) => {
        messages.push([message.perfetto ? message.perfetto.title : message, origin]);
        if (message === 'PING' && messages.length > 2)
            dispatchEvent(new MessageEvent('message', {data: 'PONG', origin, source: page}));
        if (message.perfetto) window.handed = [...new Uint8Array(message.perfetto.buffer)];
    };
"""


def test_perfetto_is_handed_what_is_in_view_and_only_after_a_click(tab: Tab) -> None:
    """Its page is played by another one: a test asks nobody outside."""
    open_timeline(tab)
    tab.script(PERFETTO)
    tab.click("summary", "Save")
    tab.wait_text("[role='toolbar']", "Nothing is uploaded")
    assert tab.script("return [opened.length, messages.length]") == [0, 0]
    tab.click("button", "Open in ui.perfetto.dev")
    tab.wait_text("[role='toolbar']", "Opened.")
    assert tab.script("return opened") == ["https://ui.perfetto.dev"]
    messages = tab.script("return messages")
    assert messages[0] == ["PING", "https://ui.perfetto.dev"]
    assert messages[-1] == ["breaks vm_1027", "https://ui.perfetto.dev"]
    trace = json.loads(gzip.decompress(bytes(tab.script("return handed"))))
    names = {event["name"] for event in trace["traceEvents"]}
    assert "ProfilerStep#2" in names and "ProfilerStep#4" not in names
    tab.leave()  # with what was put in place of the browser's own


def test_idle_time_is_hatched_in_the_picture_and_its_legend(tab: Tab) -> None:
    open_timeline(tab)
    tab.one("[aria-label='Colors in view'] .swatch.idle")
    tab.wait_text("[aria-label='Colors in view']", "Idle: ")
    hatched = {swatch.value_of_css_property("background-color") for swatch in tab.all(".swatch.idle")}
    assert hatched and "repeating-linear-gradient" in str(
        tab.script(
            "return getComputedStyle(document.querySelector('.swatch.idle'), '::after').backgroundImage"
        )
    )
