"""A profile with everything, loaded in Chromium, wide and narrow."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from tests.measured_profile import full_profile

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

IDLE = "[data-testid=stApp][data-test-script-state=notRunning][data-test-connection-state=CONNECTED]"
OpenPage = Callable[..., Page]
WIDE: ViewportSize = {"width": 1280, "height": 4200}
NARROW: ViewportSize = {"width": 390, "height": 5200}


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_a_full_profile_is_shown_whole(open_page: OpenPage, tmp_path: Path, viewport: ViewportSize) -> None:
    """Verdict, charts with a text for those who do not see them, and no sideways scrolling."""
    file = tmp_path / "everything.json"
    file.write_text(full_profile().model_dump_json(), encoding="utf-8")
    page = open_page("/profiles", viewport=viewport)
    page.locator("input[type=file]").set_input_files(file)
    expect(page.get_by_role("heading", level=2).last).to_have_text("everything-zen3")
    verdict = "In 2 of 3 clean runs from 30% to 70% load the observed p99 lay in the predicted 95 % interval."
    expect(page.get_by_role("listitem").filter(has_text=verdict)).to_be_visible()
    chart = page.locator(".st-key-load_runs_figure")
    expect(chart.locator(".main-svg").first).to_be_visible()
    expect(chart.get_by_role("figure")).to_have_attribute(
        "aria-label", f"Response times under load, observed and predicted. {verdict} 1 doubtful run does not count."
    )
    for section in ("Verified under load", "Time per call", "Where it saturates", "Energy", "Calls after idling"):
        expect(page.get_by_role("heading", level=3, name=section)).to_be_visible()
    expect(page.get_by_text("The machine and its state: 3 facts")).to_be_visible()
    page.wait_for_selector(IDLE)
    width: int = page.evaluate(
        "Math.max(...[document.documentElement, document.querySelector('[data-testid=stMain]')]"
        ".map(element => element.scrollWidth - element.clientWidth))"
    )
    assert width == 0
