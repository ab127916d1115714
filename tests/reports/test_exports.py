"""Exports: what is written equals what is planned, opens, and runs nothing."""

import csv
import io
import json

import openpyxl
import pytest

from advisor.domain.plan import Infeasible
from advisor.planning import plan
from advisor.reports.excel import result_xlsx
from advisor.reports.sentences import break_even_sentence, headline, why
from advisor.reports.tables import frame_csv, harmless, offers_table, result_csv, result_json
from advisor.store.paths import SCENARIOS
from advisor.store.profiles import read_profiles
from advisor.store.scenarios import read_scenario
from tests.conftest import TODAY, machine, offer, question

PROMISED = {
    "status",
    "headline",
    "fleet",
    "cost_usd_per_month",
    "p99_response_s",
    "workloads",
    "simulation",
    "mip_gap_frac",
    "rejections",
    "evidence",
}


@pytest.fixture(scope="module")
def results(small_catalog, small_profiles):
    """A plan, an infeasible answer and a plan for batch jobs."""
    online = plan(question(rate=30.0, budget_usd_per_month=2000), small_profiles, small_catalog, today=TODAY)
    refused = plan(question(rate=30.0, budget_usd_per_month=60), small_profiles, small_catalog, today=TODAY)
    shipped = read_profiles(SCENARIOS.parents[1] / "profiles")
    jobs = plan(read_scenario(SCENARIOS / "bare-metal-batch.yaml"), shipped, small_catalog, today=TODAY)
    return {"plan": online, "infeasible": refused, "jobs": jobs}


@pytest.mark.parametrize("kind", ["plan", "infeasible", "jobs"])
def test_json_has_the_promised_names(results, kind):
    """Other programs find the same keys whatever the answer."""
    document = json.loads(result_json(results[kind]))
    assert set(document) >= PROMISED
    assert document["headline"] == headline(results[kind])


def test_json_fleet_and_simulation_have_the_promised_fields(results):
    """Fleet lines, workloads and the simulation keep their names."""
    document = json.loads(result_json(results["plan"]))
    assert document["status"] == "plan"
    assert set(document["fleet"][0]) >= {"workload", "machine_type", "offer", "region", "count"}
    assert set(document["workloads"][0]) >= {"workload", "percentile", "limit_s", "value_s", "method"}
    assert set(document["simulation"]) >= {"p99_response_s", "ci95_s", "requests", "passed"}
    assert document["mip_gap_frac"] <= 1e-6
    assert json.loads(result_json(results["infeasible"]))["status"] == "infeasible"


def test_workbook_total_is_the_plan_to_the_cent(results):
    """The workbook opens, its cached total is the plan's cost, and its cells hold formulas."""
    content = result_xlsx(results["plan"])
    cached = openpyxl.load_workbook(io.BytesIO(content), data_only=True)
    formulas = openpyxl.load_workbook(io.BytesIO(content))
    sheet = cached["Recommendation"]
    row = next(row for row in range(1, sheet.max_row + 1) if sheet.cell(row, 1).value == "Total")
    assert sheet.cell(row, 6).value == pytest.approx(results["plan"].cost_usd_per_month, abs=0.005)
    assert str(formulas["Recommendation"].cell(row, 6).value).startswith("=SUM(")
    assert sheet.cell(1, 1).value == headline(results["plan"])
    assert cached.sheetnames == ["Recommendation", "Alternatives", "Break-even", "Evidence", "Rejected"]


def test_workbook_formulas_recompute_their_cached_values(results):
    """Count × price × hours of the cells gives the cached cost."""
    sheet = openpyxl.load_workbook(io.BytesIO(result_xlsx(results["plan"])), data_only=True)["Recommendation"]
    hours = next(sheet.cell(row, 2).value for row in range(1, 6) if sheet.cell(row, 1).value == "Hours per month (h)")
    head = next(row for row in range(1, 12) if sheet.cell(row, 1).value == "Machine")
    for index, line in enumerate(results["plan"].fleet, start=head + 1):
        count, price, cost = (sheet.cell(index, column).value for column in (4, 5, 6))
        assert count * price * hours == pytest.approx(cost, abs=0.01)
        assert count == line.count


@pytest.mark.parametrize("kind", ["plan", "infeasible", "jobs"])
def test_every_answer_has_a_workbook_and_a_csv(results, kind):
    """No answer is without its files, and equal answers give equal bytes."""
    assert result_xlsx(results[kind]) == result_xlsx(results[kind])
    text = result_csv(results[kind]).decode("utf-8-sig")
    assert text.endswith("\r\n")
    assert len(list(csv.reader(io.StringIO(text)))) >= 2


def test_csv_costs_are_the_plan(results):
    """The CSV adds up to the plan's cost."""
    rows = list(csv.DictReader(io.StringIO(result_csv(results["plan"]).decode("utf-8-sig"))))
    assert sum(float(row["Cost (USD/month)"]) for row in rows) == pytest.approx(results["plan"].cost_usd_per_month)


@pytest.mark.parametrize("text", ["=1+1", "+1", "-x", "@SUM(A1)", "\t=1", "＝1", "  =1"])
def test_text_that_looks_like_a_formula_is_made_harmless(text):
    """Spreadsheets run no text of ours."""
    assert harmless(text) == "'" + text
    assert harmless(-5.0) == -5.0


def test_a_formula_as_machine_name_stays_text():
    """A machine named like a formula is text in a CSV."""
    table = offers_table([(machine("=cmd"), offer("=cmd", 1.0))])
    assert b"'=cmd" in frame_csv(table)


def test_headline_says_what_to_run_and_what_it_costs(results):
    """The first sentence names machines, cost, percentile and traffic."""
    sentence = headline(results["plan"])
    assert sentence.startswith("Run it on ")
    assert "a month" in sentence
    assert "p99" in sentence
    assert "30 req/s" in sentence


def test_infeasible_headline_names_the_limit(results):
    """The first sentence names the budget and by how much it is exceeded."""
    assert isinstance(results["infeasible"], Infeasible)
    assert "over the budget of $60.00" in headline(results["infeasible"])


def test_reasons_cover_proof_break_even_and_routing(results):
    """Why: capacity of a machine, proof, interval, break-even, routing."""
    text = " ".join(why(results["plan"]))
    for words in ("sustains", "proven cheapest", "slow end", break_even_sentence(results["plan"].break_even), "random"):
        assert words in text


def test_batch_job_headline_gives_machines_and_hours_of_slack(results):
    """Batch jobs are answered in nodes and hours of slack, option by option."""
    sentence = headline(results["jobs"])
    assert "nodes needed" in sentence
    assert "of slack" in sentence
    assert "too late" in sentence
