"""``advisor verify``: a tiny model under real load, what is written, and what is refused."""

import json
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import typer
from typer.testing import CliRunner, Result

from advisor.cli.verify import holds, next_seed, parse_loads, profiled_inputs, verdict, verify_profile
from advisor.domain.profile import Cell, Profile, RuntimeInfo
from advisor.errors import InputError
from advisor.profiling.engines.onnx import OnnxModel
from advisor.profiling.environment import observe_device
from advisor.profiling.example_models import MlpDimensions, build_mlp
from advisor.store.profiles import read_profile_file
from tests.conftest import cpu_profile
from tests.measured_profile import load_run

RUNTIME = RuntimeInfo(name="onnxruntime", version=onnxruntime.__version__)
QUICK = ("--rates", "0.002", "--duration", "1s", "--threads", "1", "--replicas", "1")
"""Some tens of requests per second: a tiny model could answer thousands."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a tiny model and the profile of it that this machine would have, with a made-up service time."""
    path = tmp_path_factory.mktemp("verify")
    onnx.save(build_mlp(MlpDimensions(widths=(16, 8, 4))), path / "tiny.onnx")
    cell = Cell(
        batch_size=1,
        threads=1,
        concurrency=1,
        service_mean_s=1e-5,
        throughput_rps=1e5,
        mean_ci95_frac=0.05,
    )
    profile = cpu_profile({1: 1e-5}).model_copy(
        update={
            "model": OnnxModel(path / "tiny.onnx").model,
            "device": observe_device(),
            "cells": (cell,),
            "runtime": RUNTIME,
        }
    )
    (path / "tiny.json").write_text(profile.model_dump_json(), encoding="utf-8")
    return path


def verify(*arguments: object) -> Result:
    """Run the command."""
    program = typer.Typer()
    program.command("verify")(verify_profile)
    return CliRunner().invoke(program, [str(argument) for argument in arguments])


def changed(folder: Path, name: str, **update: Any) -> Path:
    """Another profile in the folder, with changes."""
    path = folder / f"{name}.json"
    path.write_text(read_profile_file(folder / "tiny.json").model_copy(update=update).model_dump_json(), "utf-8")
    return path


def test_a_run_is_shown_and_added_to_the_profile(folder: Path, tmp_path: Path) -> None:
    """The table has its line, the new file one run more, the old file is as it was, and the code says the verdict."""
    before = (folder / "tiny.json").read_bytes()
    target = tmp_path / "verified.json"
    done = verify(folder / "tiny.json", *QUICK, "-o", target)
    assert done.exit_code in {0, 3}, done.output
    (run,) = read_profile_file(target).load_runs
    assert (done.exit_code == 0) == (run.clean and run.p99.inside)
    assert verdict(run) in done.stdout
    assert all(doubt.split(":")[0] in done.stdout for doubt in run.doubts)
    assert (folder / "tiny.json").read_bytes() == before
    assert "no calls of an idle replica" in done.stderr
    again = verify(target, *QUICK, "--model", folder / "tiny.onnx", "--quiet")
    assert again.exit_code in {0, 3}, again.output
    assert read_profile_file(target).load_runs[0] == run
    assert len(read_profile_file(target).load_runs) == 2


def test_json_is_all_that_standard_output_holds(folder: Path, tmp_path: Path) -> None:
    """The runs, in SI units, as in the file."""
    target = tmp_path / "verified.json"
    done = verify(folder / "tiny.json", *QUICK, "-o", target, "--json")
    (run,) = read_profile_file(target).load_runs
    assert json.loads(done.stdout) == [run.model_dump(mode="json")]


def test_a_dry_run_serves_nothing(folder: Path) -> None:
    """It says what would be done and how long it takes; the file stays as it is."""
    before = (folder / "tiny.json").read_bytes()
    done = verify(folder / "tiny.json", *QUICK, "--dry-run")
    assert done.exit_code == 0
    assert "Saturated throughput 1e+05 requests/s" in done.stderr
    assert "About" in done.stderr
    assert done.stdout == ""
    assert (folder / "tiny.json").read_bytes() == before


def refusal(*arguments: object) -> str:
    """Sentence of the refusal."""
    done = verify(*arguments)
    assert isinstance(done.exception, InputError), done.output
    return str(done.exception)


def test_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    """The bytes have to be those of the profile, and the file has to be there."""
    other = tmp_path / "other.onnx"
    onnx.save(build_mlp(MlpDimensions(widths=(16, 9, 4))), other)
    assert "sha256" in refusal(folder / "tiny.json", "--model", other, "--dry-run")
    alone = tmp_path / "alone.json"
    alone.write_bytes((folder / "tiny.json").read_bytes())
    assert "tiny.onnx, which is neither beside the profile nor here" in refusal(alone, "--dry-run")


def test_another_machine_is_refused_unless_told(folder: Path) -> None:
    """--anyway checks all the same."""
    device = observe_device()
    assert device.cpu is not None
    cpu = device.cpu.model_copy(update={"model": 12345})
    path = changed(folder, "elsewhere", device=device.model_copy(update={"cpu": cpu}))
    assert "the one that was profiled" in refusal(path, "--dry-run")
    assert verify(path, "--dry-run", "--anyway").exit_code == 0


@pytest.mark.parametrize("text", ["", "a", "0", "-0.1", "0.3,,0.5", "50"])
def test_loads_are_fractions(text: str) -> None:
    """Percentages and words are refused."""
    with pytest.raises(InputError, match="--rates"):
        parse_loads(text)


def test_a_profile_of_the_users_samples_needs_them(folder: Path) -> None:
    """Synthetic inputs would be another measurement."""
    profile: Profile = read_profile_file(folder / "tiny.json")
    spec = profile.model.inputs[0].model_copy(update={"fill": "samples given by the user"})
    sampled = profile.model_copy(update={"model": profile.model.model_copy(update={"inputs": (spec,)})})
    with pytest.raises(InputError, match="--inputs"):
        profiled_inputs(sampled, None)


def test_the_inputs_are_those_of_the_profile(folder: Path) -> None:
    """Opened again with the shapes it states, the model has the same inputs."""
    profile = read_profile_file(folder / "tiny.json")
    again = OnnxModel(folder / "tiny.onnx", options=profiled_inputs(profile, None))
    assert again.model.inputs == profile.model.inputs


@pytest.mark.parametrize(("runs", "misses", "verdict_"), [(1, 0, True), (1, 1, True), (4, 1, True), (4, 2, False)])
def test_no_more_misses_than_chance_explains(runs: int, misses: int, verdict_: bool) -> None:
    """A right 95 % interval is missed once in twenty runs: of four runs one may miss, two may not."""
    found = [load_run(0.5, p99_error_frac=2.0 if number < misses else 0.0) for number in range(runs)]
    assert holds(found) == verdict_


def test_without_a_clean_run_nothing_holds() -> None:
    """Doubtful runs are no evidence, wherever their percentile lies."""
    assert not holds([])
    assert not holds([load_run(0.5, doubts=("DRIFT: it moved.",))])


def test_the_default_seed_is_one_that_no_run_has_had(folder: Path) -> None:
    """The same arrivals twice would not be two trials."""
    profile = read_profile_file(folder / "tiny.json")
    runs = tuple(load_run(0.5).model_copy(update={"seed": seed}) for seed in (0, 1, 7))
    assert next_seed(profile) == 0
    assert next_seed(profile.model_copy(update={"load_runs": runs})) == 8
