"""The script for the minutes in which a GPU is at hand, tried from end to end on a CPU."""

import importlib.util
import os
import subprocess
import sys
import tarfile

import pytest

from advisor.store.paths import ROOT
from advisor.store.profiles import read_profile_file

HANG_S = 400


def gpu_day(*words):
    """Run the script to its end."""
    return subprocess.run(
        [ROOT / "scripts" / "gpu_day.sh", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
        env={**os.environ, "PYTHON": sys.executable},
    )


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs requirements-torch.txt")
def test_what_the_budget_reaches_is_measured_and_the_rest_is_named(tmp_path):
    """A profile with a run under load, a log, and one archive of both."""
    done = gpu_day("--device", "cpu", "--quick", "--budget", "48s", "--label", "here", "--output", tmp_path / "day")
    assert done.returncode == 0, done.stderr
    profile = read_profile_file(tmp_path / "day" / "tiny-fp32-here-pytorch.json")
    assert profile.status == "complete"
    assert profile.runtime.name == "pytorch"
    assert {cell.batch_size for cell in profile.cells} >= {1}
    assert len(profile.load_runs) == 1 or "verify tiny-fp32-here-pytorch: left out" in done.stderr
    assert "tiny-fp32-here-pytorch-compiled: left out" in done.stderr
    with tarfile.open(tmp_path / "day.tar.gz") as archive:
        assert {"day/log.txt", "day/tiny-fp32-here-pytorch.json"} <= set(archive.getnames())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--device", "tpu"), "--device is 'tpu'; allowed: cuda or cpu"),
        (("--budget", "soon"), "--budget is 'soon'; allowed: a time such as 8m or 90s"),
        (("--fast",), "'--fast' is no option"),
    ],
)
def test_what_is_no_option_is_refused(words, sentence):
    """One sentence, before anything is measured."""
    done = gpu_day(*words)
    assert done.returncode == 2
    assert sentence in done.stderr
