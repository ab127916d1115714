"""The real server as a subprocess, for tests that talk to it."""

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from advisor.store.paths import ROOT

START_S = 120


@contextmanager
def running_server() -> Iterator[str]:
    """Start `streamlit run app.py` on a free port, give its address once it answers, and stop it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
    silent = subprocess.DEVNULL
    with (
        tempfile.TemporaryDirectory() as cache,  # and not that of the user
        subprocess.Popen(
            command, cwd=ROOT, stdout=silent, stderr=silent, env={**os.environ, "XDG_CACHE_HOME": cache}
        ) as process,
    ):
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


@contextmanager
def running_endpoint() -> Iterator[str]:
    """Start the server of `tests.profiling.endpoint_server` in a process of its own; its address."""
    command = [sys.executable, "-I", str(ROOT / "tests" / "profiling" / "endpoint_server.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()
