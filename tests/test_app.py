"""The server as `streamlit run app.py` starts it."""

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from advisor import __version__
from advisor.store.paths import ROOT

START_S = 120


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Start the server on a free port, and stop it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            address = f"http://127.0.0.1:{port}"
            wait_until_up(address, process)
            yield address
        finally:
            process.kill()


def wait_until_up(address: str, process: subprocess.Popen[bytes]) -> None:
    """Return once the server answers; fail when it ends or stays silent."""
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        assert process.poll() is None, "the server ended while it started"
        try:
            with urllib.request.urlopen(f"{address}/_stcore/health", timeout=10):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.2)
    pytest.fail(f"no answer within {START_S} s")


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
