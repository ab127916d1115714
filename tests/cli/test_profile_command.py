"""``advisor profile`` as it is used: killed and gone on with, and never over somebody's measurement."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import onnx
import pytest

from advisor.cli.profile_report import is_doubtful
from advisor.profiling.example_models import MlpDimensions, build_mlp
from advisor.profiling.journal import read_entries
from tests.conftest import cpu_profile

HANG_S = 120


@pytest.fixture
def model(tmp_path):
    """A classifier that answers in microseconds."""
    path = tmp_path / "tiny.onnx"
    onnx.save(build_mlp(MlpDimensions((16, 8, 4))), path)
    return path


def command(folder, *arguments):
    """Command line of a measurement on whatever machine this is."""
    chosen = ["--batches", "1,2,4", "--threads", "1", "--repeats", "3", "--budget", "10s", "--force", *arguments]
    return [
        sys.executable,
        "-m",
        "advisor",
        "profile",
        str(folder / "tiny.onnx"),
        "-o",
        str(folder / "p.json"),
        *chosen,
    ]


def run(folder, *arguments):
    """Run it to its end."""
    return subprocess.run(command(folder, *arguments), capture_output=True, text=True, timeout=HANG_S, check=False)


def windows(path):
    """Cell, turn and start of every window in a journal."""
    samples = [entry.sample for entry in read_entries(path)[0] if entry.sample is not None]
    return [
        ((sample.batch_size, sample.threads, sample.concurrency), sample.anchor, sample.repeat.started_s)
        for sample in samples
    ]


def test_a_killed_measurement_loses_and_doubles_nothing(model, tmp_path):
    """After SIGKILL every whole window is in the final profile once, and every cell has its repeats."""
    journal = tmp_path / "p.journal.jsonl"
    process = subprocess.Popen(command(tmp_path), stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + HANG_S
    while not journal.exists() or journal.read_bytes().count(b'"sample"') < 5:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "p.json").exists()
    kept = windows(journal)
    assert len(kept) >= 5
    done = run(tmp_path, "--resume", str(journal))
    assert done.returncode in (0, 3), done.stderr
    assert f"{len(kept)} windows are there" in done.stderr
    profile = json.loads((tmp_path / "p.json").read_text())
    found = Counter(
        ((cell["batch_size"], cell["threads"], cell["concurrency"]), repeat["started_s"])
        for cell in profile["cells"]
        for repeat in cell["repeats"]
    )
    assert profile["protocol"]["sittings"] == 2
    assert set(found.values()) == {1}
    assert all((cell, started_s) in found for cell, _, started_s in kept)
    for cell in profile["cells"]:
        # On a machine so busy that the time ran out a cell may have fewer, and says so.
        assert len(cell["repeats"]) >= 3 or cell["warnings"][0].startswith("FEW_REPEATS: "), cell["warnings"]
    assert not journal.exists()


def test_a_journal_that_is_there_is_not_overwritten(model, tmp_path):
    """The sentence says how to go on with it, and nothing is measured."""
    journal = tmp_path / "p.journal.jsonl"
    journal.write_text("precious\n")
    refused = run(tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "--resume p.journal.jsonl" in refused.stderr
    assert journal.read_text() == "precious\n"


def test_the_profile_goes_to_standard_output_when_asked(model, tmp_path):
    """Nothing else does."""
    done = run(tmp_path, "--json", "--quiet")
    assert done.returncode in (0, 3), done.stderr
    assert json.loads(done.stdout) == json.loads((tmp_path / "p.json").read_text())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--threads", "0"], "--threads is '0'; allowed: whole numbers from 1"),
        (["--replicas", "two"], "--replicas is 'two'; allowed: whole numbers from 1"),
        (["--budget", "soon"], "--budget is 'soon'; allowed: a time such as 90s"),
        (["--watts", "100"], "--idle-watts is missing"),
        (["--watts", "100", "--idle-watts", "200"], "--idle-watts is 200.0; allowed: 0 to 100"),
        (["--resume", "nothing.jsonl", "--dry-run"], "--dry-run is 'given with --resume'; allowed: one of the two"),
        (["--resume", "nothing.jsonl"], "--resume is 'nothing.jsonl'; allowed: a journal file that exists"),
    ],
)
def test_bad_options_are_one_sentence(model, tmp_path, arguments, sentence):
    """Exit code 2, and no file is left behind."""
    refused = run(tmp_path, *arguments)
    assert refused.returncode == 2
    assert sentence in refused.stderr.splitlines()[-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny.onnx"]


def test_watts_that_the_user_gives_are_marked_as_an_estimate(model, tmp_path):
    """Power lies between idle and busy, and the profile says whose figures they are."""
    done = run(tmp_path, "--watts", "100", "--idle-watts", "20")
    assert done.returncode in (0, 3), done.stderr
    profile = json.loads((tmp_path / "p.json").read_text())
    assert {cell["power_method"] for cell in profile["cells"]} == {"user_watts"}
    assert all(cell["energy"]["is_estimate"] for cell in profile["cells"])
    assert all(20 <= cell["power_w"] <= 100.0001 for cell in profile["cells"])
    assert profile["idle_power"]["before_w"] == 20


def test_notes_are_no_doubts():
    """What was left out or is too little for a percentile says nothing against the numbers that are there."""
    profile = cpu_profile({1: 0.01})
    assert not is_doubtful(profile)
    noted = profile.model_copy(update={"warnings": ("BUDGET: batch 32 was left out.", "FIXED_BATCH: one size only.")})
    assert not is_doubtful(noted)
    assert is_doubtful(profile.model_copy(update={"warnings": ("DRIFT: it became slower.",)}))
    cell = profile.cells[0].model_copy(update={"warnings": ("UNSETTLED: known to 9 % only.",)})
    assert is_doubtful(profile.model_copy(update={"cells": (cell,)}))
