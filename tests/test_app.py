"""The server as `streamlit run app.py` starts it."""

import json
import urllib.request
from collections.abc import Iterator

import pytest

from advisor import __version__
from tests.server import running_server


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Start the server on a free port, and stop it."""
    with running_server() as address:
        yield address


def test_the_health_route_answers_with_its_own_body(server: str) -> None:
    """The body counts: for a path that it does not know the server sends the page, with status 200 too."""
    with urllib.request.urlopen(f"{server}/healthz", timeout=30) as answer:
        body = json.load(answer)
    assert body == {"status": "ok", "service": "inference-fleet-advisor", "version": __version__}


def test_the_root_serves_the_page(server: str) -> None:
    """A browser gets the application."""
    with urllib.request.urlopen(f"{server}/", timeout=30) as answer:
        page = answer.read().decode()
    assert '<div id="root">' in page
