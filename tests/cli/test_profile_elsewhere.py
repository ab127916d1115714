"""``advisor profile`` and ``advisor verify`` on what is no ONNX file: callables and servers, from end to end."""

import json
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from advisor.cli.engine_options import parse_header
from advisor.errors import InputError
from advisor.store.paths import ROOT
from advisor.store.profiles import read_profile_file
from tests.server import running_endpoint

HANG_S = 180
SHORT = ("--batches", "1,2", "--repeats", "2", "--budget", "3s", "--force")
CALLABLE = """
import time
import numpy as np
class Sleeper:
    about = {"precision": "fp32", "runtime": "sleep"}
    def prepare(self, batch_size, rng):
        return np.ones((batch_size, 3), np.float32)
    def __call__(self, item):
        time.sleep(0.002 * len(item))
        return item
"""


def start(folder, *words):
    """Start a command in a folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "advisor", *words],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder, *words):
    """Run a command in a folder to its end; exit code and what it said."""
    with start(folder, *words) as process:
        _, said = process.communicate(timeout=HANG_S)
    return process.returncode, said


@pytest.fixture
def body(tmp_path):
    """A request with three items, in the folder of the test."""
    (tmp_path / "body.json").write_text('{"rows": [[1], [2], [3]]}', encoding="utf-8")
    return ("--body", "body.json", "--batch-at", "rows")


def test_a_callable_is_profiled_and_verified(tmp_path):
    """The profile names module and factory, so that verify finds them; the hash is no reason to doubt."""
    (tmp_path / "sleeper_model.py").write_text(CALLABLE, encoding="utf-8")
    code, said = run(tmp_path, "profile", "sleeper_model:Sleeper", *SHORT)
    assert code in {0, 3}, said
    profile = read_profile_file(tmp_path / "profile.json")
    assert (profile.model.target, profile.model.file) == ("sleeper_model:Sleeper", "sleeper_model.py")
    assert (profile.runtime.name, profile.model.precision) == ("sleep", "fp32")
    assert {cell.threads for cell in profile.cells} == {1}
    assert profile.command.startswith("advisor profile sleeper_model:Sleeper ")
    code, said = run(tmp_path, "verify", "profile.json", "--rates", "0.3", "--duration", "1s", "--replicas", "1")
    assert code in {0, 3}, said
    (load_run,) = read_profile_file(tmp_path / "profile.json").load_runs
    assert load_run.concurrency == 1
    (tmp_path / "sleeper_model.py").write_text(CALLABLE.replace("0.002", "0.003"), encoding="utf-8")
    code, said = run(tmp_path, "verify", "profile.json", "--rates", "0.3", "--duration", "1s")
    assert code == 2
    assert "the file that was profiled, with sha256" in said


def test_a_server_is_profiled_and_verified(tmp_path, body):
    """Callers instead of replicas; what the client costs is a fact; secrets are in no file."""
    secret = ("--header", "Authorization: Bearer s3cret")
    with running_endpoint() as address:
        code, said = run(tmp_path, "profile", f"{address}/echo/4", *body, *secret, *SHORT, "--replicas", "1,2")
        assert code in {0, 3}, said
        profile = read_profile_file(tmp_path / "profile.json")
        verify = ("verify", "profile.json", *body, *secret, "--rates", "0.3", "--duration", "1s")
        code, said = run(tmp_path, *verify)
        assert code in {0, 3}, said
        assert "requests are with the server at a time" in said
    assert profile.model.is_address
    assert {(cell.threads, cell.concurrency) for cell in profile.cells} == {(1, 1), (1, 2)}
    assert all(cell.service_mean_s >= 0.004 and cell.cpu_mean_s is None for cell in profile.cells)
    assert profile.environment["client_round_trip_p50_s"].value > 0
    assert "s3cret" not in (tmp_path / "profile.json").read_text(encoding="utf-8")
    assert len(read_profile_file(tmp_path / "profile.json").load_runs) == 1


def test_a_server_that_goes_away_leaves_a_valid_partial_file(tmp_path, body):
    """One sentence, exit code 1, what was measured, and a journal to go on with."""
    journal = tmp_path / "profile.journal.jsonl"
    with ExitStack() as server:
        address = server.enter_context(running_endpoint())
        words = ("--replicas", "1", "--repeats", "9", "--budget", "60s", "--force")
        with start(tmp_path, "profile", f"{address}/echo/3", *body, *words) as process:
            deadline = time.monotonic() + HANG_S
            while not journal.exists() or journal.read_bytes().count(b'"sample"') < 3:
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.05)
            server.close()
            _, said = process.communicate(timeout=HANG_S)
    assert process.returncode == 1, said
    assert "Traceback" not in said
    profile = read_profile_file(tmp_path / "profile.json")
    assert profile.status == "partial"
    (failed,) = [warning for warning in profile.warnings if warning.startswith("FAILED: ")]
    assert failed in said
    assert "/echo/3: the" in failed
    assert "--resume profile.journal.jsonl" in said
    with journal.open(encoding="utf-8") as lines:
        assert json.loads(next(lines))["start"]["plan"]["placement"]["kind"] == "endpoint"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("status/503/busy", "the server answers with status 503: busy"),
        ("cut", "the server closed the connection before its answer was complete"),
        ("echo/3000", "nothing came for 0.5 s; allow more with --timeout"),
    ],
)
def test_a_server_that_fails_at_once_is_one_sentence(tmp_path, body, path, words):
    """Exit code 1, and no file: nothing was measured."""
    with running_endpoint() as address:
        code, said = run(tmp_path, "profile", f"{address}/{path}", *body, *SHORT, "--timeout", "0.5s")
    assert code == 1
    assert words in said
    assert len(said.strip().splitlines()) == 1
    assert not (tmp_path / "profile.json").exists()


@pytest.mark.parametrize("text", ["Authorization", ": x", "A: b\nC: d"])
def test_a_header_that_is_none_is_refused_without_its_value(text):
    """A value may be a secret even where its form is wrong."""
    with pytest.raises(InputError, match="--header") as caught:
        parse_header(text)
    assert "C: d" not in str(caught.value)
