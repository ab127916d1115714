"""``advisor import``: from a CSV of another host to a profile that plans use, or a sentence."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from advisor.catalog import load_catalog
from advisor.cli.devices import find_device
from advisor.cli.import_timings import import_timings
from advisor.errors import InputError
from advisor.store.paths import DATA, ROOT
from advisor.store.profiles import read_profile_file

HANG_S = 300
SPECS = load_catalog(DATA).gpu_specs
HEADER = "batch_size,repeat,start_s,service_s"


@pytest.fixture
def app() -> typer.Typer:
    """Build a program of this one command."""
    program = typer.Typer()
    program.command("import")(import_timings)
    return program


def written(folder: Path, times_s: dict[int, float]) -> Path:
    """Path of a file with five repeats of 26 calls of each batch size, which take turns 1 % above and below a time."""
    rows = [
        f"{batch},{repeat},{100 * repeat + call},{time_s * (1.01 if call % 2 else 0.99):.6f}"
        for batch, time_s in times_s.items()
        for repeat in range(1, 6)
        for call in range(26)
    ]
    path = folder / "k80.csv"
    path.write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    return path


def test_a_k80_file_becomes_a_profile_that_a_plan_runs_on(app: typer.Typer, tmp_path: Path) -> None:
    """The way that docs/old-hosts.md describes: the fleet is of K80 machines, from prices of the catalog."""
    timings = written(tmp_path, {1: 0.020, 4: 0.050, 8: 0.090})
    profile = tmp_path / "k80.json"
    facts = ["--model", "own-net", "--on", "Tesla K80", "--precision", "fp32", "--id", "own-net-k80"]
    done = CliRunner().invoke(app, [str(timings), "-o", str(profile), *facts])
    assert done.exit_code == 0, done.stderr
    assert "Wrote k80.json (imported, own-net on Tesla K80): fastest call 20 ms at batch 1." in done.stderr
    assert "advisor plan SCENARIO.yaml --profile k80.json" in done.stderr
    found = read_profile_file(profile)
    assert (found.device.gpu_id, found.device.gpus, found.evidence.kind) == ("K80", 1, "imported")
    assert [cell.count for cell in found.cells] == [130, 130, 130]
    scenario = tmp_path / "own.yaml"
    scenario.write_text(
        "{schema_version: 1, name: own, model: own-net, demand: {rate_rps: 40}, sla: {p99_ms: 250}, "
        "regions: [aws/us-east-1]}",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "advisor", "plan", str(scenario), "--profile", str(profile), "--json", "-"]
    planned = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, timeout=HANG_S)
    assert planned.returncode == 0, planned.stderr
    plan = json.loads(planned.stdout)
    assert {line["profile_id"] for line in plan["fleet"]} == {"own-net-k80"}
    assert {f"aws/{line['machine_type']}" for line in plan["fleet"]} <= {
        machine.key for machine in load_catalog(DATA).machine_types if machine.gpu_model == "K80"
    }
    assert any("imported profiles are taken as known within ±10%" in sentence for sentence in plan["assumptions"])


def test_facts_of_the_file_do_where_no_option_is_given(app: typer.Typer, tmp_path: Path) -> None:
    """Two rows are doubtful, which exit code 3 says; the profile is written, without folders in its command."""
    timings, profile = tmp_path / "few.csv", tmp_path / "few.json"
    timings.write_text("batch_size,service_s,model,device\n1,0.5,net,nvidia k80\n1,0.5,,\n", encoding="utf-8")
    done = CliRunner().invoke(app, [str(timings), "-o", str(profile)])
    assert done.exit_code == 3
    assert "batch 1, callers 1: UNSETTLED" in done.stderr
    found = read_profile_file(profile)
    assert found.device.gpu_id == "K80"
    assert str(tmp_path) not in profile.read_text(encoding="utf-8")


def test_what_is_no_gpu_is_a_cpu_that_plans_do_not_use(app: typer.Typer, tmp_path: Path) -> None:
    """The command says so and what the file is good for all the same."""
    timings, profile = written(tmp_path, {1: 0.1}), tmp_path / "phone.json"
    done = CliRunner().invoke(app, [str(timings), "-o", str(profile), "--model", "net", "--on", "Snapdragon 888"])
    assert done.exit_code == 0
    assert "Plans do not use a CPU that was not identified" in done.stderr
    device = read_profile_file(profile).device
    assert (device.kind, device.name, device.cpu) == ("cpu", "Snapdragon 888", None)


def test_the_options_go_into_the_profile(app: typer.Typer, tmp_path: Path) -> None:
    """Each of them."""
    timings, profile = written(tmp_path, {1: 0.1}), tmp_path / "p.json"
    options = ["--model", "bert", "--on", "T4", "--machine-type", "g4dn.xlarge", "--precision", "fp16"]
    done = CliRunner().invoke(app, [str(timings), "-o", str(profile), *options, "--sequence-length", "128"])
    assert done.exit_code == 0
    found = read_profile_file(profile)
    assert found.profile_id == "bert-fp16-s128-t4-imported"
    assert (found.device.machine_type, found.model.sequence_length) == ("g4dn.xlarge", 128)


def test_a_file_that_is_missing_and_a_folder_that_is_none_are_refused(app: typer.Typer, tmp_path: Path) -> None:
    """Before anything is read or written."""
    for arguments, words in (
        ([str(tmp_path / "absent.csv"), "-o", str(tmp_path / "p.json")], "timings is 'absent.csv'"),
        ([str(written(tmp_path, {1: 0.1})), "-o", str(tmp_path / "absent" / "p.json")], "a folder that exists"),
    ):
        done = CliRunner().invoke(app, arguments)
        assert isinstance(done.exception, InputError)
        assert words in str(done.exception)


@pytest.mark.parametrize(
    ("text", "gpu_id"),
    [
        ("Tesla K80", "K80"),
        ("K80", "K80"),
        ("NVIDIA Tesla K80", "K80"),
        ("nvidia tesla_k80 GPU", "K80"),
        ("Tesla P100-PCIE-16GB", "P100-PCIe-16GB"),
        ("V100-SXM2-32GB", "V100-SXM2-32GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM-80GB"),
        ("A100 PCIe 40 GB", "A100-PCIe-40GB"),
        ("A10", "A10"),
        ("NVIDIA A10G", "A10G"),
        ("L40S", "L40S"),
        ("GeForce RTX 3090", "RTX3090"),
        ("rtx-4090", "RTX4090"),
        ("NVIDIA H200 NVL", "H200-NVL-141GB"),
    ],
)
def test_a_gpu_is_found_by_the_words_that_people_and_drivers_use(text: str, gpu_id: str) -> None:
    """With or without the maker, in any case, with blanks or hyphens."""
    device = find_device(text, SPECS, None)
    assert (device.kind, device.gpu_id, device.name) == ("gpu", gpu_id, text)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.gpu_id)
def test_every_gpu_is_found_by_its_identifier_and_by_its_name(spec) -> None:
    """None hides behind another."""
    assert find_device(spec.gpu_id, SPECS, None).gpu_id == spec.gpu_id
    assert find_device(spec.name, SPECS, None).gpu_id == spec.gpu_id


@pytest.mark.parametrize("text", ["AMD EPYC 7B13", "Intel Xeon E5-2690 v3", "Snapdragon 888", "Apple M1", "Graviton4"])
def test_a_cpu_is_called_what_the_user_calls_it(text: str) -> None:
    """The machine type goes with it."""
    device = find_device(f" {text} ", SPECS, "p2.xlarge")
    assert (device.kind, device.name, device.gpu_id, device.machine_type) == ("cpu", text, None, "p2.xlarge")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Tesla K40", "K80"),
        ("Radeon VII", "a GPU of data/gpu_specs.csv"),
        ("Quadro P4000", "the closest are"),
        ("GeForce RTX 3080", "RTX3090"),
        ("NVIDIA", "a GPU of data/gpu_specs.csv"),
        ("A100", "one GPU: A100-PCIe-40GB or A100-PCIe-80GB or"),
        (" ", "the name of a GPU or CPU"),
    ],
)
def test_a_gpu_that_is_unknown_or_could_be_several_is_refused(text: str, words: str) -> None:
    """The sentence has the identifiers that come closest."""
    with pytest.raises(InputError) as caught:
        find_device(text, SPECS, None)
    assert words in str(caught.value)
