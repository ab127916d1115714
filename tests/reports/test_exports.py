"""Exports: what is written equals what is planned, opens, and runs nothing."""

import csv
import io
import json

import openpyxl
import pytest

from advisor.domain.plan import Infeasible
from advisor.planning import plan
from advisor.reports.excel import result_xlsx
from advisor.reports.sentences import (
    break_even_sentence,
    headline,
    method_sentence,
    overload_sentence,
    traffic_sentence,
    why,
)
from advisor.reports.tables import (
    distribution_table,
    fleet_table,
    frame_csv,
    harmless,
    limits_csv,
    limits_table,
    offers_table,
    result_csv,
    result_json,
)
from advisor.store.paths import SCENARIOS
from advisor.store.profiles import read_profiles
from advisor.store.scenarios import online_scenario, read_scenario
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
    asked = online_scenario(
        name="test",
        model="net",
        demand={"rate_rps": 30.0},
        sla={"p50_ms": 150, "p99_ms": 200},
        budget_usd_per_month=2000,
    )
    online = plan(asked, small_profiles, small_catalog, today=TODAY)
    refused = plan(question(rate=30.0, budget_usd_per_month=60), small_profiles, small_catalog, today=TODAY)
    shipped = read_profiles(SCENARIOS.parents[1] / "profiles")
    jobs = plan(read_scenario(SCENARIOS / "bare-metal-batch.yaml").scenario, shipped, small_catalog, today=TODAY)
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
    assert cached.sheetnames == [
        "Recommendation",
        "Response time",
        "Distribution",
        "Alternatives",
        "Break-even",
        "Evidence",
        "Rejected",
    ]


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


def test_response_times_of_all_limits_are_the_same_everywhere(results):
    """Page, CSV, workbook and JSON hold one row per limit with the numbers of the plan."""
    made = results["plan"]
    table = limits_table(made)
    assert table["Percentile"].tolist() == ["p99", "p50"]
    assert table["Predicted (ms)"].tolist() == pytest.approx([1000 * a.value_s for a in made.workloads], rel=1e-3)
    assert table["Simulated (ms)"].tolist() == pytest.approx(
        [1000 * found.value_s for found in made.simulation.limits], rel=1e-3
    )
    rows = list(csv.DictReader(io.StringIO(limits_csv(made).decode("utf-8-sig"))))
    assert [float(row["Predicted (ms)"]) for row in rows] == table["Predicted (ms)"].tolist()
    book = openpyxl.load_workbook(io.BytesIO(result_xlsx(made)), data_only=True)
    written = [[cell.value for cell in row] for row in book["Response time"].iter_rows()]
    assert written[0] == list(table.columns)
    assert [row[2] for row in written[1:]] == table["Predicted (ms)"].tolist()
    document = json.loads(result_json(made))
    assert [found["value_s"] for found in document["workloads"]] == [answer.value_s for answer in made.workloads]


def test_the_distribution_falls_and_is_in_the_workbook(results):
    """The later, the fewer requests are slower; the sheet has the rows of the table and a chart."""
    table = distribution_table(results["plan"])
    assert table["Response time (ms)"].is_monotonic_increasing
    assert table["Slower, simulated (%)"].is_monotonic_decreasing
    assert table["Slower, predicted (%)"].between(0, 100).all()
    sheet = openpyxl.load_workbook(io.BytesIO(result_xlsx(results["plan"])))["Distribution"]
    assert sheet.max_row == len(table) + 1


def test_capacity_has_a_planned_a_likely_and_a_best_figure(results):
    """The interval of the profile becomes an interval of the capacity, and the plan takes its lower end."""
    table = fleet_table(results["plan"].fleet)
    planned, likely, best = (
        table[f"{name} (req/s)"] for name in ("Capacity under the limit", "Capacity, likely", "Capacity, at best")
    )
    assert (planned <= likely).all()
    assert (likely <= best).all()


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
    for words in ("sustain", "proven cheapest", "slow end", break_even_sentence(results["plan"].break_even), "random"):
        assert words in text


def test_batch_job_headline_gives_machines_and_hours_of_slack(results):
    """Batch jobs are answered in nodes and hours of slack, option by option."""
    sentence = headline(results["jobs"])
    assert "nodes needed" in sentence
    assert "of slack" in sentence
    assert "too late" in sentence


def test_method_and_traffic_are_put_into_words(results):
    """Whether the response time is exact, and which arrivals it is for."""
    assert method_sentence(results["plan"]).startswith("The response time is computed exactly")
    traffic = results["plan"].traffic
    assert traffic_sentence(results["plan"]) == traffic.reason
    bursts = traffic.model_copy(update={"poisson_machines": 1, "poisson_usd_per_month": 10.0})
    words = traffic_sentence(results["plan"].model_copy(update={"traffic": bursts}))
    assert "1 machine at $10.00 a month would seem enough; this plan has " in words


def test_an_overload_is_a_time_people_can_picture(results):
    """Seconds, minutes or hours of waiting at the peak; in the workbook, too."""
    assert overload_sentence(results["infeasible"]) is None
    late = results["infeasible"].model_copy(update={"overload_delay_s": 5400.0})
    sentence = overload_sentence(late)
    assert "would wait up to 90 min" in sentence
    sheet = openpyxl.load_workbook(io.BytesIO(result_xlsx(late)))["Recommendation"]
    assert sentence in [cell.value for cell in sheet["A"]]
