"""One server and one Chromium for all tests of this folder, and a page that watches itself."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, expect, sync_playwright

from advisor.store.paths import PROFILES
from tests.server import running_server

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HANG_S = 120
IDLE = "[data-testid=stApp][data-test-script-state=notRunning][data-test-connection-state=CONNECTED]"
DESK: ViewportSize = {"width": 1280, "height": 1500}
OpenPage = Callable[..., Page]


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """Start the server on a free port, and stop it."""
    with running_server() as address:
        yield address


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Launch Chromium; without it the tests are skipped, except in continuous integration."""
    if not Path(CHROMIUM).exists():
        if os.environ.get("CI") == "true":
            pytest.fail("Chromium is missing; continuous integration installs it: apt-get install chromium")
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def context(server: str, browser: Browser) -> Iterator[BrowserContext]:
    """Share what the browser keeps in its cache; each tab is a session of its own for the server.

    One visit warms both up: the first page ever loads libraries and compiles.
    """
    shared = browser.new_context(viewport=DESK, accept_downloads=True)
    shared.set_default_timeout(HANG_S * 1000)
    expect.set_options(timeout=HANG_S * 1000)
    page = shared.new_page()
    page.goto(server)
    page.locator(".st-key-headline").wait_for()
    page.close()
    yield shared
    shared.close()


@pytest.fixture
def open_page(server: str, context: BrowserContext) -> Iterator[OpenPage]:
    """Give a function that opens a page; at the end no page may have broken the rules.

    No request leaves the server's own origin, no script fails, no exception is shown.
    """
    pages: list[Page] = []
    problems: list[str] = []

    def watch(url: str) -> None:
        if not url.startswith(("data:", "blob:")) and urlsplit(url).netloc != urlsplit(server).netloc:
            problems.append(f"request to {url}")

    def open_it(path: str = "/", *, viewport: ViewportSize = DESK) -> Page:
        page = context.new_page()
        pages.append(page)
        page.set_viewport_size(viewport)
        page.on("request", lambda request: watch(request.url))
        page.on("websocket", lambda channel: watch(channel.url))
        page.on("pageerror", lambda error: problems.append(f"script error: {error}"))
        page.goto(server + path)
        page.get_by_role("heading", level=1).wait_for()
        page.wait_for_selector(IDLE)
        return page

    yield open_it
    for page in pages:
        problems += [f"exception shown: {box.inner_text()}" for box in page.get_by_test_id("stException").all()]
        page.close()
    assert problems == []


@pytest.fixture(scope="session")
def profile_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write a good profile of a model that is not shipped, and one with a negative time."""
    folder = tmp_path_factory.mktemp("uploads")
    document = json.loads((PROFILES / "resnet50-fp32-zen3-onnxruntime.json").read_text(encoding="utf-8"))
    document["profile_id"], document["model"]["name"] = "our-classifier-zen3", "our-classifier"
    good, bad = folder / "good.json", folder / "bad.json"
    good.write_text(json.dumps(document), encoding="utf-8")
    document["cells"][0]["service_mean_s"] = -1
    bad.write_text(json.dumps(document), encoding="utf-8")
    return {"good": good, "bad": bad}
