"""``advisor doctor``: what it prints and how it ends."""

import io
import json

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from advisor.cli.doctor import as_document, doctor, is_fit, print_findings, verdict
from advisor.profiling.doctor import Finding

STEAL = Finding("STEAL", "ok", "the hypervisor gave 0.0% of the CPU time to others", None)
GOVERNOR = Finding(
    "GOVERNOR",
    "warning",
    "powersave: the clock follows the load",
    "sudo cpupower frequency-set -g performance; afterwards back with -g powersave",
)
LOAD = Finding("OTHER_LOAD", "error", "other processes kept 1.00 CPUs busy for 2.0 s [x]", "stop them")


@pytest.fixture
def app() -> typer.Typer:
    """Build a program of this one command."""
    program = typer.Typer()
    program.command("doctor")(doctor)
    return program


def printed(*findings: Finding, no_gpu: str | None = None) -> str:
    """Give the text in a terminal of 80 columns."""
    stream = io.StringIO()
    print_findings(findings, Console(file=stream, width=80, highlight=False, markup=False), no_gpu=no_gpu)
    return stream.getvalue()


def test_a_fit_machine_has_no_list_of_remedies():
    """The verdict says all, beside why no card was looked at."""
    text = printed(STEAL, no_gpu="NVML lists no card")
    assert "Fit to be measured.\n" in text
    assert "No GPU was looked at: NVML lists no card.\n" in text
    assert "What to do" not in text


def test_commands_can_be_copied_whole():
    """A remedy stands on one line, however narrow the terminal; the table keeps to 80 columns."""
    text = printed(STEAL, GOVERNOR, LOAD)
    assert f"  GOVERNOR: {GOVERNOR.remedy}\n" in text
    assert max(len(line) for line in text.splitlines() if line.startswith(("┃", "│", "└"))) <= 80


def test_evidence_is_printed_as_it_is():
    """Brackets are text and no mark-up."""
    assert "[x]" in printed(LOAD)


def test_the_verdict_names_what_speaks_against_it():
    """An error outweighs a warning."""
    assert verdict([STEAL]) == "Fit to be measured."
    assert verdict([STEAL, GOVERNOR]) == "Can be measured, with doubts: GOVERNOR."
    assert verdict([GOVERNOR, LOAD]) == "Not fit to be measured now: GOVERNOR, OTHER_LOAD."
    assert [is_fit([STEAL]), is_fit([GOVERNOR]), is_fit([LOAD])] == [True, False, False]


def test_json_holds_every_finding():
    """Programs get what people see."""
    document = json.loads(as_document([STEAL, LOAD], no_gpu=None))
    assert (document["fit"], document["no_gpu"]) == (False, None)
    assert [finding["code"] for finding in document["findings"]] == ["STEAL", "OTHER_LOAD"]
    assert document["findings"][0]["remedy"] is None


def test_the_exit_code_says_whether_this_machine_is_fit(app: typer.Typer):
    """0 when nothing speaks against it, 3 when something does; JSON alone is on standard output."""
    done = CliRunner().invoke(app, ["--seconds", "0.5", "--json"])
    document = json.loads(done.stdout)
    levels = {finding["level"] for finding in document["findings"]}
    assert document["fit"] == (levels == {"ok"})
    assert done.exit_code == (0 if document["fit"] else 3)


def test_the_table_is_the_default(app: typer.Typer):
    """It names every code, with the verdict below."""
    done = CliRunner().invoke(app, ["--seconds", "0.5"])
    assert all(code in done.stdout for code in ("OTHER_LOAD", "STEAL", "GOVERNOR", "MEMORY"))
    assert "measured" in done.stdout
    assert done.exit_code in {0, 3}


def test_a_look_too_short_is_refused(app: typer.Typer):
    """The counters advance in ticks; the usage error has exit code 2."""
    assert CliRunner().invoke(app, ["--seconds", "0.01"]).exit_code == 2
