"""The command line as people run it: output, files, exit codes."""

import json
import os
import signal
import subprocess
import sys

import openpyxl
import pytest

from advisor.cli import app
from advisor.cli.schema import SCHEMAS, schema_text
from advisor.domain.profile import Profile
from advisor.domain.record import parse_record
from advisor.store.paths import ROOT, SCENARIOS

HANG_S = 300


def advisor(*arguments, **options):
    """Run ``python -m advisor`` and wait for it."""
    return subprocess.run(
        [sys.executable, "-m", "advisor", *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        cwd=ROOT,
        **options,
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Small example model, built by the command itself."""
    path = tmp_path_factory.mktemp("model") / "mlp.onnx"
    done = advisor("example-model", "mlp", path)
    assert done.returncode == 0, done.stderr
    return path


def test_plan_prints_headline_fleet_reasons_and_verdict(tmp_path):
    """Plan prints the answer and writes the files asked for; all say the same cost."""
    files = {kind: tmp_path / f"out.{kind}" for kind in ("json", "csv", "xlsx")}
    options = [part for kind, path in files.items() for part in (f"--{kind}", path)]
    done = advisor("plan", SCENARIOS / "resnet-online.yaml", *options)
    assert done.returncode == 0, done.stderr
    for words in ("Run it on", "Why", "Simulated with", "Alternatives", "not in the running"):
        assert words in done.stdout
    document = json.loads(files["json"].read_text())
    book = openpyxl.load_workbook(files["xlsx"], data_only=True)
    totals = [row[5].value for row in book["Recommendation"].iter_rows() if row[0].value == "Total"]
    assert totals == [pytest.approx(document["cost_usd_per_month"], abs=0.005)]
    assert files["csv"].read_bytes().startswith(b"\xef\xbb\xbf")


def test_plan_to_standard_output_is_only_json():
    """--json - leaves standard output to the document; overrides change the answer; infeasible ends with 3."""
    done = advisor("plan", SCENARIOS / "resnet-online.yaml", "--set", "budget_usd_per_month=1", "--json", "-")
    assert done.returncode == 3
    assert json.loads(done.stdout)["status"] == "infeasible"


def test_bert_names_the_fastest_cpu():
    """No measured CPU meets 100 ms for BERT-base: the answer says so with its figure."""
    done = advisor("plan", SCENARIOS / "bert-online.yaml", "--json", "-")
    document = json.loads(done.stdout)
    assert done.returncode == 0
    assert "No CPU fleet meets 100 ms" in document["headline"]
    assert document["fastest_idle_cpu_s"] > 0.1


def test_batch_jobs_answer_in_nodes_and_slack():
    """The bare-metal scenario compares CPU hosts with K80 nodes."""
    done = advisor("plan", SCENARIOS / "bare-metal-batch.yaml")
    assert done.returncode == 0
    assert "nodes needed" in done.stdout
    assert "K80" in done.stdout


def test_bad_input_is_one_sentence_and_exit_code_two():
    """A value that does not fit gets a sentence on standard error, no traceback."""
    done = advisor("plan", SCENARIOS / "resnet-online.yaml", "--set", "demand.rate_rps=-1")
    assert done.returncode == 2
    assert done.stderr.strip() == "resnet-online.yaml: demand.rate_rps is -1; allowed: greater than 0."


def test_catalog_lists_offers_cheapest_first():
    """The L4 offers of a region, from the price list."""
    done = advisor("catalog", "--gpu", "L4", "--region", "aws/us-east-1")
    assert done.returncode == 0
    assert "g6.xlarge" in done.stdout
    assert "0.8048" in done.stdout
    assert advisor("catalog", "--gpu", "L5").returncode == 2


def test_queue_answers_by_hand():
    """M/M/1 at 50 % load answers in 2 service times on average; overload is a sentence and exit code 3."""
    done = advisor("queue", "--rate", "50", "--service-ms", "10")
    assert "mean 20 ms" in done.stdout
    full = advisor("queue", "--rate", "200", "--service-ms", "10")
    assert full.returncode == 3
    assert "grows without bound" in full.stdout


def test_profile_writes_a_file_that_the_planner_accepts(model, tmp_path):
    """A profile measured here is valid and can be planned with."""
    out = tmp_path / "mine.json"
    done = advisor("profile", model, "-o", out, "--name", "mine", "--budget", "15s", "--batches", "1,2", "--quiet")
    assert done.returncode in (0, 3), done.stderr
    assert "Batch sizes 1, 2" in done.stderr
    profile = parse_record(Profile, out.read_text(), file="mine.json")
    assert profile.status == "complete"
    assert {cell.batch_size for cell in profile.cells} == {1, 2}


def test_dry_run_measures_nothing(model, tmp_path):
    """--dry-run prints the grid and the time it would take."""
    out = tmp_path / "none.json"
    done = advisor("profile", model, "-o", out, "--dry-run", "--budget", "20s")
    assert done.returncode == 0
    assert "about" in done.stderr
    assert not out.exists()


def test_interrupted_profile_is_partial_and_valid(model, tmp_path):
    """Ctrl-C in the middle leaves a valid partial file and exit code 130."""
    out = tmp_path / "partial.json"
    process = subprocess.Popen(
        [sys.executable, "-m", "advisor", "profile", str(model), "-o", str(out), "--budget", "60s"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200"},
    )
    try:
        seen = 0
        for line in process.stderr:
            seen += "per call" in line
            if seen == 14:
                process.send_signal(signal.SIGINT)
                break
        process.stderr.read()
        assert process.wait(timeout=HANG_S) == 130
    finally:
        process.kill()
        process.stderr.close()
    profile = parse_record(Profile, out.read_text(), file="partial.json")
    assert profile.status == "partial"


def test_missing_model_is_one_sentence(tmp_path):
    """A model file that does not exist ends with exit code 2 and its name."""
    done = advisor("profile", "nowhere.onnx", "-o", tmp_path / "x.json")
    assert done.returncode == 2
    assert "nowhere.onnx" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_schemas_in_the_documents_are_current(name):
    """docs/schema holds what the command writes today."""
    path = ROOT / "docs" / "schema" / f"{name}.schema.json"
    assert path.read_text(encoding="utf-8") == schema_text(SCHEMAS[name])


def test_every_command_is_documented():
    """Each command of the command line stands in the README or the documents, and has help."""
    pages = "\n".join(path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
    for command in app.registered_commands:
        assert f"advisor {command.name}" in pages, command.name
        assert command.callback.__doc__
