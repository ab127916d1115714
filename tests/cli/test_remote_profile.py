"""A measurement on another host is one on this machine, except for where it runs: nothing is left there."""

import io
import os
import signal
import subprocess
import sys
import tarfile
import time

import onnx
import pytest
from rich.console import Console

from advisor.cli.remote import profile_on_host
from advisor.cli.remote_files import model_files, write_archive
from advisor.errors import InputError, MeasurementError
from advisor.profiling.example_models import MlpDimensions, build_mlp
from advisor.profiling.journal import read_entries
from advisor.store.profiles import read_profile_file
from tests.cli.sshd import running_sshd

HANG_S = 600
SHORT = ("--batches", "1,2", "--threads", "1", "--repeats", "2", "--budget", "3s", "--force")

# What a command with --host does, in a process of its own so that it can be stopped like one.
DRIVER = """
import sys
from pathlib import Path
from rich.console import Console
from advisor.cli.remote import profile_on_host
folder, *words = sys.argv[1:]
folder = Path(folder)
names = ["tiny.onnx", *(["p.journal.jsonl"] if "--resume" in words else [])]
try:
    code = profile_on_host(
        "box", words, files=[folder / name for name in names], journal=folder / "p.journal.jsonl",
        output=folder / "p.json", python=sys.executable, console=Console(stderr=True, soft_wrap=True),
    )
except KeyboardInterrupt:
    code = 130
sys.exit(code)
"""


@pytest.fixture(scope="module")
def box(tmp_path_factory):
    """Start a host for all tests."""
    with running_sshd(tmp_path_factory.mktemp("box")) as found:
        yield found


@pytest.fixture(autouse=True)
def nothing_is_left(box, monkeypatch):
    """Let ssh know the host, and look for files that a test has left there."""
    monkeypatch.setenv("PATH", box.path)
    yield
    assert list(box.temporary.iterdir()) == []


@pytest.fixture
def model(tmp_path):
    """A classifier that answers in microseconds."""
    path = tmp_path / "tiny.onnx"
    onnx.save(build_mlp(MlpDimensions((16, 8, 4))), path)
    return path


def measure(model, *words, host="box", python=sys.executable, files=()):
    """Measure a model there; exit code and what was shown."""
    shown = io.StringIO()
    code = profile_on_host(
        host,
        [model.name, *words],
        files=[model, *files],
        journal=model.parent / "p.journal.jsonl",
        output=model.parent / "p.json",
        python=python,
        console=Console(file=shown, soft_wrap=True),
    )
    return code, shown.getvalue()


def start(folder, *words):
    """Start the same in a process group of its own, as a shell does."""
    command = [sys.executable, "-c", DRIVER, str(folder), "tiny.onnx", *words]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_for(condition, process=None):
    """Wait until something holds."""
    deadline = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < deadline
        assert process is None or process.poll() is None, process.stderr.read()
        time.sleep(0.02)


def windows_there(box):
    """Windows in the journal of the measurement that runs there."""
    return sum(path.read_bytes().count(b'"sample"') for path in box.temporary.glob("*/files/*.jsonl"))


def is_one_sentence(text):
    """One line that ends in one full stop."""
    return "\n" not in text and text.endswith(".") and ". " not in text


def test_a_profile_measured_there_is_valid_here(tmp_path):
    """By the command itself: weights beside the model go along, and nothing but the profile comes here."""
    path = tmp_path / "my model.onnx"
    onnx.save(
        build_mlp(MlpDimensions((64, 32, 4))),
        path,
        save_as_external_data=True,
        location="my weights.data",
        size_threshold=0,
    )
    files = model_files(path)
    assert [file.name for file in files] == ["my model.onnx", "my weights.data"]
    there = ("--host", "box", "--host-python", sys.executable, "--output", str(tmp_path / "p.json"))
    done = subprocess.run(
        [sys.executable, "-m", "advisor", "profile", str(path), *there, *SHORT, "--name", "it's $HOME", "--json"],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode in (0, 3), done.stderr
    profile = read_profile_file(tmp_path / "p.json")
    assert profile.status == "complete"
    assert {cell.batch_size for cell in profile.cells} == {1, 2}
    assert profile.model.name == "it's $HOME"
    assert profile.model.size_bytes == sum(file.stat().st_size for file in files)
    assert "--host" not in profile.command
    assert done.stdout == (tmp_path / "p.json").read_text(encoding="utf-8")
    assert "Wrote p.json (complete)" in done.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["my model.onnx", "my weights.data", "p.json"]


def test_weights_that_would_not_lie_beside_the_model_there_are_refused(tmp_path):
    """They are found before anything is sent."""
    path = tmp_path / "big.onnx"
    onnx.save(
        build_mlp(MlpDimensions((64, 32, 4))), path, save_as_external_data=True, location="big.data", size_threshold=0
    )
    (tmp_path / "big.data").unlink()
    with pytest.raises(InputError, match=r"big\.onnx: external data is 'big\.data'"):
        model_files(path)


def test_only_sources_tables_and_the_files_of_the_user_are_sent(model):
    """Neither owners nor folders of this machine go along."""
    stream = io.BytesIO()
    write_archive(stream, [model])
    stream.seek(0)
    with tarfile.open(fileobj=stream) as archive:
        members = archive.getmembers()
    assert {member.name.rpartition(".")[2] for member in members} == {"py", "csv", "onnx"}
    assert {(member.uid, member.gid, member.uname, member.gname, member.mode) for member in members} == {
        (0, 0, "", "", 0o600)
    }
    assert {member.name.split("/")[0] for member in members} == {"code", "files"}


def test_a_dry_run_there_writes_nothing_here(model, tmp_path):
    """The plan is shown."""
    code, shown = measure(model, *SHORT, "--dry-run")
    assert code == 0
    assert "Batch sizes 1, 2; replicas" in shown
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny.onnx"]


@pytest.mark.parametrize(
    ("host", "sentence"),
    [
        ("closed", "closed: ssh cannot connect: .* Connection refused"),
        ("stranger", "stranger: ssh cannot connect: Host key verification failed"),
    ],
)
def test_a_host_that_cannot_be_reached_is_one_sentence_with_the_words_of_ssh(model, host, sentence):
    """Whether nobody listens, or somebody whom ssh does not know."""
    with pytest.raises(MeasurementError, match=sentence) as caught:
        measure(model, *SHORT, host=host)
    assert is_one_sentence(str(caught.value))


@pytest.mark.parametrize(
    ("host", "python", "field"),
    [
        ("-oProxyCommand=touch x", "python3", "--host"),
        ("", "python3", "--host"),
        ("box", "-c", "--host-python"),
        ("box", "venv/bin/python", "--host-python"),
    ],
)
def test_words_that_would_be_taken_for_something_else_are_refused(model, host, python, field):
    """A host is no option of ssh, and an interpreter no path within the folder there."""
    with pytest.raises(InputError, match=f"{field} is"):
        measure(model, *SHORT, host=host, python=python)


def test_two_files_of_one_name_are_refused(model, tmp_path):
    """One would replace the other there."""
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "tiny.onnx"
    other.touch()
    with pytest.raises(InputError, match=r"file is 'tiny\.onnx'"):
        measure(model, files=[other])
    with pytest.raises(InputError, match=r"file is 'x\.npz'; allowed: a file that exists"):
        measure(model, files=[tmp_path / "x.npz"])


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        (f'exec {sys.executable} -S "$@"', r"lacks numpy, .*onnxruntime.*; run there: .* -m pip install"),
        ("cat >/dev/null; echo 3.9", r"is Python 3\.9; name an interpreter of Python 3\.11 or newer"),
        ("echo no such thing >&2; exit 1", r"does not run there \(no such thing\); name an interpreter"),
    ],
)
def test_an_interpreter_that_cannot_measure_is_one_sentence(model, tmp_path, script, sentence):
    """It says what is missing and what to do about it."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    with pytest.raises(MeasurementError, match=sentence) as caught:
        measure(model, *SHORT, python=str(python))
    assert is_one_sentence(str(caught.value))


def test_an_interpreter_that_is_not_there_is_one_sentence(model):
    """A name is looked for in the PATH there."""
    with pytest.raises(MeasurementError, match="box: python-of-nobody does not run there") as caught:
        measure(model, *SHORT, python="python-of-nobody")
    assert is_one_sentence(str(caught.value))


def test_what_the_other_side_refuses_comes_through(model):
    """Its sentence is shown and its exit code returned."""
    model.write_bytes(b"this is not a model")
    assert model_files(model) == (model,)
    code, shown = measure(model, *SHORT)
    assert code == 2
    assert shown.splitlines()[-1] == "model is 'tiny.onnx'; allowed: a file in ONNX format."


def test_ctrl_c_fetches_what_was_measured_and_it_can_be_gone_on_with(model, box, tmp_path):
    """The partial profile and its journal come here; with the journal the measurement is completed there."""
    words = ("--batches", "1,2,4", "--threads", "1", "--repeats", "3", "--budget", "8s", "--force")
    process = start(tmp_path, *words)
    wait_for(lambda: windows_there(box) >= 4, process)
    os.killpg(process.pid, signal.SIGINT)
    _, shown = process.communicate(timeout=HANG_S)
    assert process.returncode == 130, shown
    assert "Traceback" not in shown
    assert read_profile_file(tmp_path / "p.json").status == "partial"
    kept = sum(entry.sample is not None for entry in read_entries(tmp_path / "p.journal.jsonl")[0])
    assert kept >= 4
    process = start(tmp_path, *words, "--resume", "p.journal.jsonl")
    _, shown = process.communicate(timeout=HANG_S)
    assert process.returncode in (0, 3), shown
    assert f"{kept} windows are there" in shown
    assert read_profile_file(tmp_path / "p.json").protocol.sittings == 2
    assert not (tmp_path / "p.journal.jsonl").exists()


def test_ctrl_c_before_the_measurement_leaves_nothing(model, box, tmp_path):
    """Neither here nor there."""
    process = start(tmp_path, *SHORT)
    wait_for(lambda: any(box.temporary.iterdir()), process)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=HANG_S)
    assert process.returncode == 130
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny.onnx"]


def test_a_measurement_does_not_outlive_its_connection(model, box, tmp_path):
    """When this side is killed, the other side stops and removes its folder."""
    process = start(tmp_path, *SHORT[:-2], "3m", "--force")
    wait_for(lambda: windows_there(box) >= 1, process)
    (pid,) = [int(path.read_text()) for path in box.temporary.glob("*/pid")]
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    wait_for(lambda: not any(box.temporary.iterdir()))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_lost_connection_is_one_sentence(model, box, tmp_path):
    """The other side removes its folder by itself, as the server of the connection is gone."""
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\np=$PPID; until grep -q sshd /proc/$p/comm; do p=$(sed -n 's/^PPid:.//p' /proc/$p/status); done\n"
        "kill -9 $p\n"
    )
    python.chmod(0o755)
    with pytest.raises(MeasurementError, match="box: the connection was lost, and the measurement with it") as caught:
        measure(model, *SHORT, python=str(python))
    assert is_one_sentence(str(caught.value))
    wait_for(lambda: not any(box.temporary.iterdir()))


def test_the_journal_of_a_measurement_that_was_killed_there_comes_here(model, box, tmp_path):
    """The sentence says how to go on with it."""
    process = start(tmp_path, *SHORT[:-2], "3m", "--force")
    wait_for(lambda: windows_there(box) >= 2, process)
    (pid,) = [int(path.read_text()) for path in box.temporary.glob("*/pid")]
    os.kill(pid, signal.SIGKILL)
    _, shown = process.communicate(timeout=HANG_S)
    assert "box: the measurement there was killed (exit code 137); go on with --resume p.journal.jsonl." in shown
    assert len(read_entries(tmp_path / "p.journal.jsonl")[0]) >= 3
