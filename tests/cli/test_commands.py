"""The command line as people run it: output, files, exit codes."""

import json
import os
import signal
import subprocess
import sys

import openpyxl
import pytest

from advisor.cli import app, queue
from advisor.cli.profile_report import is_doubtful
from advisor.cli.schema import SCHEMAS, schema_text
from advisor.domain.profile import Profile
from advisor.domain.record import parse_record
from advisor.errors import InputError
from advisor.store.paths import DATA, ROOT, SCENARIOS

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
    done = advisor(
        "profile", model, "-o", out, "--name", "mine", "--budget", "15s", "--batches", "1,2", "--quiet", "--force"
    )
    assert "Batch sizes 1, 2" in done.stderr, done.stderr
    profile = parse_record(Profile, out.read_text(), file="mine.json")
    assert done.returncode == (3 if is_doubtful(profile) else 0)
    assert profile.command.startswith("advisor profile mlp.onnx -o mine.json --name mine --budget 15s")
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
        [sys.executable, "-m", "advisor", "profile", str(model), "-o", str(out), "--budget", "60s", "--force"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200"},
        # Whoever runs the tests in the background of a shell has interrupts ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no threads here
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


def test_trace_tells_bursts_and_refuses_models(tmp_path):
    """A trace with bursts gets its table, a verdict with numbers, and exit code 3; without a service time, 0."""
    path = DATA / "traces" / "azure_llm_2023_code.csv"
    done = advisor("trace", path, "--service-ms", "12")
    assert done.returncode == 3, done.stderr
    words = " ".join(done.stdout.split())
    assert "azure_llm_2023_code.csv: 8,819 requests in 3,435.9 s, 2.57 req/s on average." in words
    assert "Index of dispersion" in words
    assert "over 100 services (1.2 s) is 15.2, and 1 for Poisson arrivals: requests come in bursts" in words
    assert "Columns input_tokens, output_tokens are not used" in words
    plain = advisor("trace", path)
    assert plain.returncode == 0
    assert "replayed" not in plain.stdout
    short = tmp_path / "short.csv"
    short.write_text("t_s\n0\n1\n")
    assert "too short" in advisor("trace", short).stdout


def test_trace_refuses_with_one_sentence(tmp_path):
    """A bad row or a service time of 0 ends with exit code 2 and a sentence."""
    path = tmp_path / "bad.csv"
    path.write_text("t_s\n0\nsoon\n")
    done = advisor("trace", path)
    assert done.returncode == 2
    assert done.stderr.startswith("bad.csv: row 3, column t_s is 'soon'; allowed: a finite number")
    done = advisor("trace", path, "--service-ms", "0")
    assert done.stderr.strip() == "--service-ms is 0.0; allowed: a number from 0.001 to 1e+09."


def test_queue_names_model_error_and_warnings():
    """Bursty arrivals at several servers with variable service: an approximation, its error, what to know, the need."""
    done = advisor(
        *("queue", "--rate", "340", "--service-ms", "10", "--servers", "4", "--scv", "2", "--arrival-scv", "4"),
        *("--limit-ms", "80", "--percentile", "95"),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("GI/G/c approximation, p99 within 13% up to 90% load, utilization 85.0%")
    assert "warning: Service times vary much (SCV 2): p99 may be off by 13%." in done.stdout
    assert "servers keep p95 within 80 ms." in done.stdout


def test_the_help_of_queue_names_the_unit_of_times():
    """Every option that is a time says that it is in ms."""
    shown = " ".join(advisor("queue", "--help", env={**os.environ, "COLUMNS": "200"}).stdout.split())
    for words in ("mean service time in ms", "limit of the percentile in ms", "limit of the wait alone in ms"):
        assert words in shown


@pytest.mark.parametrize(
    ("scv", "arrival_scv", "servers", "model"),
    [
        (1, 1, 2, "M/M/c, exact,"),
        (0, 1, 2, "M/D/c, exact,"),
        (0.5, 1, 1, "M/G/1, exact on a lattice,"),
        (0.5, 1, 2, "M/G/c approximation, p99 within 5%"),
        (1, 2, 2, "GI/M/c, exact,"),
        (0, 2, 2, "GI/D/c, exact on a lattice,"),
        (0.5, 2, 1, "GI/G/1, exact on a lattice,"),
        (9, 1, 2, "M/G/c approximation, error not known,"),
    ],
)
def test_queue_takes_the_most_exact_model(scv, arrival_scv, servers, model, capsys):
    """For each pair of variabilities the command names the model that it used and how exact it is."""
    queue.queue(rate=60.0, service_ms=10.0, servers=servers, scv=scv, arrival_scv=arrival_scv)
    assert capsys.readouterr().out.startswith(model)


def test_queue_says_how_many_servers_even_when_overloaded():
    """Overload keeps its exit code, and the number of servers that would do is still given, or that none would."""
    full = advisor("queue", "--rate", "200", "--service-ms", "10", "--limit-ms", "60", "--wait-limit-ms", "5")
    assert full.returncode == 3
    assert "3 servers keep p99 within 60 ms." in full.stdout
    assert "6 servers: 99.8% wait at most 5 ms" in full.stdout
    never = advisor("queue", "--rate", "20", "--service-ms", "10", "--scv", "0", "--limit-ms", "9")
    assert "No number of servers keeps p99 within 9 ms" in never.stdout


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"arrival_scv": 200.0}, "--arrival-scv is 200.0; allowed: a number from 0.02 to 100."),
        ({"percentile": 100.0}, "--percentile is 100.0; allowed: a number above 0 and below 100."),
        ({"servers": 10_001}, "--servers is 10001; allowed: a whole number from 1 to 10,000."),
        ({"limit_ms": float("nan")}, "--limit-ms is nan; allowed: a finite number above 0."),
        ({"limit_ms": 0.0}, "--limit-ms is 0.0; allowed: a finite number above 0."),
        ({"limit_ms": float("inf")}, "--limit-ms is inf; allowed: a finite number above 0."),
        ({"wait_limit_ms": -5.0}, "--wait-limit-ms is -5.0; allowed: a finite number of at least 0."),
        ({"wait_limit_ms": float("nan")}, "--wait-limit-ms is nan; allowed: a finite number of at least 0."),
        ({"scv": 0.0, "wait_limit_ms": 5.0}, "--wait-limit-ms is 5.0; allowed: Poisson arrivals"),
        ({"rate": 3e5, "servers": 4000, "limit_ms": 50.0}, "--rate is 300000.0; allowed: an offered load of at most"),
    ],
)
def test_queue_refuses_with_one_sentence(options, sentence):
    """A value out of range, or a limit that has no model, is refused with a sentence."""
    with pytest.raises(InputError, match=sentence.replace(".", r"\.")):
        queue.queue(**{"rate": 50.0, "service_ms": 10.0, **options})
