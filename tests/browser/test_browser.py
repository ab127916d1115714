"""What a person does with the pages, in Chromium."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import openpyxl
import pytest
from playwright.sync_api import Locator, Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

IDLE = "[data-testid=stApp][data-test-script-state=notRunning][data-test-connection-state=CONNECTED]"
PHONE = {"width": 390, "height": 2600}
OpenPage = Callable[..., Page]
HEADLINE = re.compile(r"Run it on \d+× .+: \$[\d,.]+ a month, p99 [\d,.]+ ms at [\d,.]+ req/s")


def headline(page: Page) -> Locator:
    """Answer to the question, a heading of the second level."""
    return page.locator(".st-key-headline").get_by_role("heading", level=2)


def overflow_px(page: Page) -> int:
    """Pixels that the page is wider than its window."""
    width: int = page.evaluate(
        "Math.max(...[document.documentElement, document.querySelector('[data-testid=stMain]')]"
        ".map(element => element.scrollWidth - element.clientWidth))"
    )
    return width


def download(page: Page, key: str, folder: Path) -> Path:
    """Press a download button and keep the file under its suggested name."""
    with page.expect_download() as waiting:
        page.locator(f".st-key-{key}").get_by_role("button").click()
    path = folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path


def test_the_first_page_answers_without_a_click(open_page: OpenPage) -> None:
    """Headline, four numbers and charts with a text for those who do not see them."""
    page = open_page()
    expect(headline(page)).to_have_text(HEADLINE)
    expect(page.get_by_test_id("stMetric")).to_have_count(4)
    chart = page.locator(".st-key-break_even")
    expect(chart.locator(".main-svg").first).to_be_visible()
    expect(chart.get_by_role("figure")).to_have_attribute("aria-label", re.compile("CPU and GPU fleets"))
    curve = page.locator(".st-key-response_time")
    expect(curve.get_by_role("figure")).to_have_attribute("aria-label", re.compile("^Share of requests slower"))
    expect(page.get_by_role("heading", level=1)).to_have_text("What should we run it on?")
    assert overflow_px(page) == 0


def test_another_routing_is_chosen_simulated_and_kept_in_the_address(open_page: OpenPage) -> None:
    """A router that looks at the queues: the page says that it simulates, and draws the response times."""
    page = open_page("/?rps=20")
    page.locator(IDLE).wait_for()
    page.get_by_text("More: arrivals, routing").click()
    routing = page.get_by_role("combobox", name="Routing")
    # A click waits until the unfolding inputs stand still: while they move, an open list closes again.
    routing.click()
    routing.press_sequentially("least", delay=30)
    page.get_by_role("option", name="least outstanding", exact=True).click()
    expect(page).to_have_url(re.compile(r"routing=least(\+|%20)outstanding"))
    expect(page.get_by_text("The response time is simulated, to ±")).to_be_visible()
    expect(page.get_by_text("to the replica with the fewest outstanding requests")).to_be_visible()
    chart = page.locator(".st-key-response_time")
    expect(chart.locator(".main-svg").first).to_be_visible()
    # While it is drawn anew a chart has each title twice.
    expect(chart.get_by_text("Slower requests (%, log scale)").first).to_be_visible()


def test_an_input_changed_while_planning_is_answered_at_once(open_page: OpenPage) -> None:
    """A long plan says how far it is, and gives way to the next question."""
    page = open_page()
    page.goto(page.url.split("?")[0] + "?rps=4000&routing=least+outstanding")
    expect(page.get_by_text(re.compile(r"Planning for \d+ s: "))).to_be_visible()
    traffic = page.get_by_role("spinbutton", name="Peak traffic (req/s)", exact=True)
    traffic.fill("4")
    traffic.press("Enter")
    expect(headline(page)).to_contain_text("at 4 req/s")


def test_traffic_is_edited_by_keyboard_and_kept_in_the_address(open_page: OpenPage) -> None:
    """A new number and Enter give a new answer; the address holds it, and it survives a change of pages."""
    page = open_page()
    field = page.get_by_role("spinbutton", name="Peak traffic (req/s)", exact=True)
    field.focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("5")
    page.keyboard.press("Enter")
    expect(headline(page)).to_contain_text("at 5 req/s")
    expect(page).to_have_url(re.compile(r"[?&]rps=5(&|$)"))
    page.get_by_role("link", name="Profiles").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Profiles")
    page.get_by_role("link", name="Recommend").click()
    expect(headline(page)).to_contain_text("at 5 req/s")
    expect(field).to_have_value("5")


def test_a_link_reproduces_the_answer(open_page: OpenPage) -> None:
    """Inputs come from the address; a budget too small shows the reason instead of an empty page."""
    page = open_page("/?rps=300&budget=10")
    expect(page.get_by_role("spinbutton", name="Peak traffic (req/s)", exact=True)).to_have_value("300")
    expect(headline(page)).to_have_text("No fleet meets all limits")
    expect(page.get_by_test_id("stAlertContentError")).to_contain_text("over the budget of $10.00")


def test_a_good_file_is_used_although_a_bad_one_came_with_it(
    open_page: OpenPage, profile_files: dict[str, Path]
) -> None:
    """The bad one gets its sentence; the good one's model can be chosen on the other page, and is still there later."""
    page = open_page("/profiles")
    page.locator("input[type=file]").set_input_files([profile_files["good"], profile_files["bad"]])
    expect(page.get_by_test_id("stAlertContentError")).to_have_text(
        re.compile(r"bad\.json: cells\[0\]\.service_mean_s is -1; allowed: greater than 0\.")
    )
    expect(page.get_by_test_id("stAlertContentSuccess")).to_contain_text("our-classifier-zen3 is in use")
    page.get_by_role("link", name="Recommend").click()
    expect(headline(page)).to_have_text(HEADLINE)
    page.wait_for_selector(IDLE)  # a list that opens while the page is still being drawn is closed again
    page.get_by_role("combobox", name="Model").click()
    page.get_by_role("option", name="our-classifier", exact=True).click()
    expect(page).to_have_url(re.compile("model=our-classifier"))
    expect(headline(page)).to_have_text(HEADLINE)
    page.get_by_role("link", name="Profiles").click()
    expect(page.locator(".st-key-mine")).to_contain_text("our-classifier-zen3")


def test_the_files_hold_what_the_page_shows(open_page: OpenPage, tmp_path: Path) -> None:
    """Cost to the cent in Excel and JSON; formulas carry their values, so that every reader sees numbers."""
    page = open_page("/?rps=500")
    cost = page.get_by_test_id("stMetricValue").first.inner_text()
    answer = headline(page).inner_text()
    path = download(page, "xlsx", tmp_path)
    assert re.fullmatch(r"fleet_resnet50-online_\d{4}-\d\d-\d\d\.xlsx", path.name)
    values = openpyxl.load_workbook(path, data_only=True)["Recommendation"]
    formulas = openpyxl.load_workbook(path)["Recommendation"]
    assert values["A1"].value == answer
    row = next(cell.row for cell in values["A"] if cell.value == "Total")
    assert f"${values.cell(row, 6).value:,.2f}" == cost
    assert str(formulas.cell(row, 6).value).startswith("=SUM(")
    document = json.loads(download(page, "json", tmp_path).read_text(encoding="utf-8"))
    assert f"${document['cost_usd_per_month']:,.2f}" == cost


def test_a_phone_needs_no_sideways_scrolling(open_page: OpenPage) -> None:
    """At 390 px both pages fit, and the headline starts on the first screen."""
    page = open_page(viewport=PHONE)
    expect(headline(page)).to_be_visible()
    assert overflow_px(page) == 0
    expect(page.locator(".st-key-response_time .main-svg").first).to_be_visible()
    box = headline(page).bounding_box()
    assert box is not None
    assert box["y"] < 844
    page.get_by_text("More: arrivals, routing").click()
    page.get_by_role("combobox", name="Arrivals").click()
    page.get_by_role("option", name="recorded trace", exact=True).click()
    page.get_by_role("combobox", name="Trace").click()
    page.get_by_role("option", name="sample: LLM for code", exact=True).click()
    expect(headline(page)).to_contain_text("at 2.57 req/s")
    page.wait_for_selector(IDLE)
    assert overflow_px(page) == 0
    page.goto(page.url.split("?")[0].rstrip("/") + "/profiles")
    expect(page.get_by_role("heading", level=1)).to_have_text("Profiles")
    page.wait_for_selector(IDLE)
    assert overflow_px(page) == 0
