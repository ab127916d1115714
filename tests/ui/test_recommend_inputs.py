"""Inputs that say how requests come, how they are routed, and what else must hold."""

import json
import re

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from advisor.errors import InputError
from advisor.ui.arrivals import week_of
from tests.ui.test_pages import MAIN, TIMEOUT_S, own_profile, recommend, said

pytestmark = pytest.mark.xdist_group("pages")
FEW = {"rps": "5"}
WEEK = " ".join(str(100 + 60 * (8 <= hour % 24 < 18)) for hour in range(168))


def table(page: AppTest, column: str) -> pd.DataFrame:
    """Find the first table with this column."""
    return next(shown.value for shown in page.dataframe if column in shown.value.columns)


def test_routing_is_that_of_the_plan() -> None:
    """Another router gives another plan, found by another method, and both are said."""
    page = recommend(rps="20")
    assert "Requests are routed at random" in said(page)
    assert table(page, "Method")["Method"].tolist() == ["exact"]
    page.selectbox(key="routing").select("least outstanding").run()
    assert not page.exception
    assert "Requests are routed to the replica with the fewest outstanding requests" in said(page)
    assert "The response time is " in said(page)


def test_batch_wait_and_further_limits_are_planned_with() -> None:
    """Each limit has its row, predicted and simulated within it; the wait is among the assumptions."""
    page = recommend(rps="200", batch_wait="20", p50="150", p999="900")
    assert "waits up to 20 ms for a full batch" in said(page)
    limits = table(page, "Percentile")
    assert limits["Percentile"].tolist() == ["p99.9", "p99", "p50"]
    assert limits["Limit (ms)"].tolist() == [900, 250, 150]
    assert (limits["Predicted (ms)"] <= limits["Limit (ms)"]).all()
    assert (limits["Simulated (ms)"] <= limits["Limit (ms)"]).all()


@pytest.mark.parametrize(
    ("inputs", "shown", "words"),
    [
        ({"arrivals": "more or less even gaps", "scv": "2.0"}, {"scv"}, "squared coefficient of variation of 2"),
        (
            {"model": "minilm", "arrivals": "bursts", "ratio": "3", "burst": "1"},
            {"ratio", "share", "burst"},
            "the rate is 3 times that between",
        ),
        ({"arrivals": "daily swing"}, {"swing", "period"}, "sized for Poisson arrivals at the highest rate"),
    ],
)
def test_each_kind_of_arrivals_shows_its_inputs_alone(inputs: dict[str, str], shown: set[str], words: str) -> None:
    """The address chooses, the other kinds' inputs are not there, and the traffic of the plan is said."""
    page = recommend(**FEW, **inputs)
    of_kinds = {"scv", "ratio", "share", "burst", "swing", "period"}
    assert {field.key for field in page.number_input if field.key in of_kinds} == shown
    assert words in said(page)
    assert page.header[0].value.startswith("Run it on ")


def test_a_trace_with_bursts_needs_no_less_than_poisson_and_says_so() -> None:
    """The shipped sample at its own rate: statistics, the reason for replaying it, and the two fleets."""
    page = recommend(arrivals="recorded trace", trace="sample: LLM for code")
    words = said(page)
    assert "8,819 requests in 57.3 min, 2.57 req/s on average; SCV of the gaps between requests 173" in words
    assert table(page, "Index of dispersion")["Window (s)"].tolist() == [1, 10, 60, 300]
    assert "requests come in bursts" in words
    seeming = re.search(
        r"For independent requests .+?, (\d+) machines? at \$([\d.,]+) a month would seem enough", words
    )
    assert seeming is not None
    fleet = table(page, "Count")
    assert fleet["Count"].sum() >= int(seeming[1])
    assert fleet["Cost (USD/month)"].sum() > float(seeming[2].replace(",", ""))
    assert fleet["Traffic (req/s)"].sum() == pytest.approx(2.57, abs=0.02)
    assert "at its own mean rate, 2.57 req/s" in page.info[0].value.replace("\\", "")
    page.toggle(key="trace_rate").set_value(False)
    page.number_input(key="rps").set_value(3).run()
    assert table(page, "Count")["Traffic (req/s)"].sum() == pytest.approx(3, abs=0.02)


def test_a_bad_trace_is_one_sentence_and_the_last_good_one_stays() -> None:
    """Without a file the plan is for Poisson arrivals; a bad file changes nothing but a sentence."""
    page = recommend(**FEW, arrivals="recorded trace")
    assert page.info[0].value.startswith("Upload a trace, or choose a sample.")
    assert "(Poisson)" in said(page)
    upload(page, "bad.csv", b"t_s\n0\nsoon\n")
    assert len(page.error) == 1
    assert page.error[0].value.replace("\\", "").startswith("bad.csv: row 3, column t_s is 'soon'; allowed: a finite")
    assert page.header[0].value.startswith("Run it on ")
    assert page.number_input(key="rps").value == 5
    upload(page, "web.csv", b"t_s\n" + b"".join(b"%.1f\n" % (i * 0.2 + (i % 3) * 0.05) for i in range(2000)))
    assert not page.error
    assert "Planned for web.csv" in page.info[0].value.replace("\\", "")
    upload(page, "torn.csv", b"\xff\xfe")
    assert len(page.error) == 1
    assert "Planned for web.csv" in page.info[0].value.replace("\\", "")
    assert page.header[0].value.startswith("Run it on ")


def upload(page: AppTest, name: str, content: bytes) -> None:
    """Hand over another trace."""
    page.file_uploader(key="trace_file").set_value((name, content, "text/csv")).run()
    assert not page.exception


def test_a_week_has_168_hours() -> None:
    """Too few are refused in one sentence and the plan goes on; with all of them it is sized for the busiest hour."""
    page = recommend(**FEW, arrivals="week of hours")
    page.text_area(key="week").set_value(WEEK.rsplit(" ", 1)[0]).run()
    assert [error.value for error in page.error] == ["week: hours is 167; allowed: exactly 168 numbers."]
    assert page.header[0].value.startswith("Run it on ")
    page.text_area(key="week").set_value(WEEK).run()
    assert not page.error
    assert "sized for Poisson arrivals at the highest rate" in said(page)
    page.text_area(key="week").set_value(f"{WEEK} 1").run()
    assert len(page.error) == 1
    assert page.info[0].value == "Planned for the week that was entered before."


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("1;" * 3 + "x", "hour 4"),
        ("1\n-2\n", "hour 2"),
        ("1 nan", "hour 2"),
        ("0 " * 168, "traffic"),
        ("1 1e999", "hour 2"),
    ],
)
def test_hours_are_numbers_of_at_least_0(text: str, place: str) -> None:
    """The sentence names the first hour that does not fit."""
    with pytest.raises(InputError) as refused:
        week_of(text)
    assert refused.value.field == place


def test_an_overload_at_the_peak_is_put_into_words() -> None:
    """When the budget buys less than the peak needs, the page says how late requests would be if all were let in."""
    page = recommend(arrivals="daily swing", rps="20", budget="60")
    assert page.header[0].value == "No fleet meets all limits"
    assert re.search(r"requests at the peak would wait up to [\d.]+ (min|h)", said(page))


def test_calls_in_the_order_measured_are_asked_for_only_where_a_profile_keeps_it() -> None:
    """Not for shipped profiles: those that keep it serve no machine type. With one that does the plan replays it."""
    assert not any(toggle.key == "call_order" for toggle in recommend(**FEW).toggle)
    document = json.loads(own_profile())
    for cell in document["cells"]:
        cell["series_s"] = [0.9 * cell["service_mean_s"], 1.1 * cell["service_mean_s"]] * 50
    page = AppTest.from_file(MAIN, default_timeout=TIMEOUT_S)
    page.session_state["uploaded_profiles"] = {document["profile_id"]: json.dumps(document)}
    page.query_params.update({"model": document["model"]["name"], "rps": "5", "call_order": "true"})
    page.run()
    assert not page.exception
    assert page.toggle(key="call_order").value
    assert "Service times follow each other as in the profile" in said(page)
