"""Every term opens what it means: by the pointer and by keyboard, and leads to the definitions."""

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from browser.tab import Tab

pytestmark = pytest.mark.browser

MEANING = "[popover]:popover-open"


def test_a_part_of_a_picture_opens_what_it_means_and_the_focus_comes_back(tab: Tab) -> None:
    tab.open(run="breaks")
    mark = "button[aria-label='What idle: guards means']"
    tab.tab_to("figure[aria-label='What GPU 0 did'] [data-door]")
    for _ in range(40):
        if tab.script("return document.activeElement.matches(arguments[0])", mark):
            break
        tab.press(Keys.ARROW_RIGHT)
    tab.press(Keys.ENTER)
    tab.wait_text(
        MEANING, "Cache lookups (guards), pregraph bytecode and runtime wrappers of compiled regions"
    )
    tab.press(Keys.ESCAPE)
    tab.gone(MEANING)
    tab.wait_focus(mark)


_GAP = """
    const [head, mark] = ['.head', '.mark'].map((css) => arguments[0].querySelector(css).getBoundingClientRect());
    return Math.max(head.left - mark.right, mark.left - head.right);
"""


def test_a_column_opens_what_it_means_beside_its_own_button(tab: Tab) -> None:
    tab.open(run="breaks", panel="graph_breaks")
    tab.one("table[aria-label='Graph breaks'] th .mark")
    heads = tab.all("table[aria-label='Graph breaks'] th:has(.mark)")
    mark = heads[0].find_element(By.CSS_SELECTOR, ".mark")
    gaps = [tab.script(_GAP, head) for head in heads]
    assert all(0 <= gap < 12 for gap in gaps), "a mark stands at the words that it explains"
    tab.script("arguments[0].click()", mark)
    tab.text(MEANING)
    assert "sort." not in tab.address()
    tab.click("h1")
    tab.gone(MEANING)


def test_a_meaning_leads_to_the_definitions_of_its_panel(tab: Tab) -> None:
    tab.open(run="breaks", panel="step")
    tab.script("arguments[0].click()", tab.one("figure .mark"))
    address = str(tab.one(f"{MEANING} a").get_attribute("href"))
    assert address.endswith("/definitions#step")
    tab.driver.switch_to.default_content()
    tab.driver.get(address)
    assert tab.driver.find_element(By.CSS_SELECTOR, ":target").text == "Step"


def test_a_word_in_a_table_opens_what_it_means_and_not_its_row(tab: Tab) -> None:
    tab.open(run="resnet18", panel="kernels", **{"search.kernels": "triton_poi"})
    tab.click("summary", "Columns")
    tab.click("details label", "Category")
    tab.click("summary", "Columns")
    tab.script("document.querySelector('td .term').scrollIntoView({ block: 'center', inline: 'center' })")
    tab.click("table[aria-label='Kernels'] .term", "Triton pointwise")
    tab.wait_text(MEANING, "Element-wise kernels that inductor generated")
    assert "torch_compile.row=" not in tab.address()
    tab.script("localStorage.clear()")
