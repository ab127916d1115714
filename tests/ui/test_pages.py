"""The pages without a browser: what they say, not how they look."""

import json

import pytest
from streamlit.testing.v1 import AppTest

from advisor.store.paths import PROFILES, ROOT

MAIN = ROOT / "advisor" / "ui" / "main.py"
TIMEOUT_S = 180
pytestmark = pytest.mark.xdist_group("pages")  # one worker, so that the first page and its plan are made once
SHIPPED = PROFILES / "resnet50-fp32-zen3-onnxruntime.json"


def recommend(**inputs: str) -> AppTest:
    """Open the first page with these values in its address."""
    page = AppTest.from_file(MAIN, default_timeout=TIMEOUT_S)
    for name, value in inputs.items():
        page.query_params[name] = value
    page.run()
    assert not page.exception
    return page


def profiles_page() -> AppTest:
    """Open the Profiles page."""

    def script() -> None:
        from advisor.ui.views import profiles  # noqa: PLC0415 - AppTest runs the body of this function alone

        profiles.page()

    page = AppTest.from_function(script, default_timeout=TIMEOUT_S).run()
    assert not page.exception
    return page


def upload(page: AppTest, *files: tuple[str, bytes]) -> AppTest:
    """Hand over files as one choice."""
    for name, content in files:
        page.file_uploader[0].upload(name, content, "application/json")
    page.run()
    assert not page.exception
    return page


def own_profile(model: str = "our-classifier", profile_id: str = "our-classifier-zen3") -> bytes:
    """Shipped profile under names of one's own."""
    document = json.loads(SHIPPED.read_text(encoding="utf-8"))
    document["profile_id"], document["model"]["name"] = profile_id, model
    return json.dumps(document).encode()


def said(page: AppTest) -> str:
    """Everything in words on the page, without the escapes of Markdown."""
    elements = (*page.title, *page.header, *page.subheader, *page.markdown, *page.error, *page.success, *page.warning)
    return "\n".join(element.value for element in elements).replace("\\", "")


@pytest.fixture(scope="module")
def first_page() -> AppTest:
    """Open the first page once; tests that change nothing share it."""
    return recommend()


def test_the_first_page_shows_a_fleet_without_a_click(first_page: AppTest) -> None:
    """Headline, four numbers, the fleet and what else could be had are there at once."""
    assert first_page.header[0].value.replace("\\", "").startswith("Run it on ")
    assert len(first_page.metric) == 4
    assert first_page.metric[0].value.startswith("$")
    assert {"Machine", "Count", "Cost (USD/month)", "Saturation (%)"} <= set(first_page.dataframe[0].value.columns)
    assert len(first_page.dataframe) >= 4


def test_headings_go_down_one_level_at_a_time(first_page: AppTest) -> None:
    """One title, then the headline, then sections: a screen reader can walk them."""
    assert [title.value for title in first_page.title] == ["What should we run it on?"]
    assert len(first_page.header) == 1
    assert "Where the numbers come from" in [section.value for section in first_page.subheader]


def test_the_cost_in_the_table_is_the_cost_above_it(first_page: AppTest) -> None:
    """One plan, one sum, to the cent."""
    total = first_page.dataframe[0].value["Cost (USD/month)"].sum()
    assert first_page.metric[0].value == f"${total:,.2f}"


def test_every_number_of_the_fleet_has_its_evidence(first_page: AppTest) -> None:
    """Speed and price name the kind of their evidence and its source."""
    evidence = next(table.value for table in first_page.dataframe if "Evidence" in table.value.columns)
    assert set(evidence["Evidence"]) <= {"measured", "imported", "published", "estimated"}
    assert all(evidence["Source"])


def test_a_hundred_times_the_traffic_changes_the_fleet() -> None:
    """Five requests a second fit a CPU; five hundred are cheaper on a GPU."""
    page = recommend(rps="5")
    few = page.dataframe[0].value
    page.number_input(key="rps").set_value(500).run()
    many = page.dataframe[0].value
    assert not few[["Machine", "Count"]].equals(many[["Machine", "Count"]])
    assert few["Cost (USD/month)"].sum() < many["Cost (USD/month)"].sum()
    assert "at 500 req/s" in said(page)


def test_a_budget_too_small_is_explained() -> None:
    """No empty page: the reason, what would help, and the fleet that more money buys."""
    page = recommend(budget="10")
    assert page.header[0].value == "No fleet meets all limits"
    assert "over the budget of $10.00" in said(page)
    assert "Raise the budget from $10.00 to " in said(page)
    assert page.dataframe[0].value["Cost (USD/month)"].sum() > 10
    assert not page.metric


def test_a_limit_that_nothing_meets_names_the_nearest_one() -> None:
    """One millisecond is too short for a text encoder on a CPU: the page says which limit would do."""
    page = recommend(model="minilm", p99="1")
    assert page.header[0].value == "No fleet meets all limits"
    assert "Raise the p99 limit from 1 ms to " in said(page)


def test_a_bad_address_falls_back_and_says_so() -> None:
    """Values that do not fit give the default; a model that is not here is named."""
    page = recommend(rps="-5", p99="abc", model="not-here")
    assert page.number_input(key="rps").value == 60
    assert page.number_input(key="p99").value == 250
    assert "asks for the model “not-here”" in said(page)


def test_a_model_that_was_only_uploaded_can_be_chosen() -> None:
    """An upload counts as much as a shipped profile."""
    page = AppTest.from_file(MAIN, default_timeout=TIMEOUT_S)
    page.session_state["uploaded_profiles"] = {"our-classifier-zen3": own_profile().decode()}
    page.query_params["model"] = "our-classifier"
    page.run()
    assert not page.exception
    assert page.selectbox(key="model").value == "our-classifier"
    assert set(page.dataframe[0].value["Profile"]) == {"our-classifier-zen3"}


def test_what_cannot_be_read_is_said_in_one_sentence() -> None:
    """A refusal from below is a sentence on the page, never a traceback."""
    page = AppTest.from_file(MAIN, default_timeout=TIMEOUT_S)
    page.session_state["uploaded_profiles"] = {"torn": "{"}
    page.run()
    assert not page.exception
    assert [error.value.split(" is ")[0] for error in page.error] == ["torn: content"]


def test_shipped_profiles_are_listed_and_filtered() -> None:
    """Each shipped file is a row; a choice of model leaves its rows."""
    page = profiles_page()
    table = page.dataframe[0].value
    assert len(table) == len(list(PROFILES.rglob("*.json")))
    page.selectbox(key="profiles_model").select("minilm").run()
    assert set(page.dataframe[0].value["Model"]) == {"minilm"}


def test_a_bad_file_does_not_stop_a_good_one() -> None:
    """The bad one gets one sentence with file, field, value and what is allowed; the good one is used."""
    broken = json.loads(own_profile())
    broken["cells"][0]["service_mean_s"] = -1
    page = upload(
        profiles_page(), ("broken.json", json.dumps(broken).encode()), ("torn.json", b"{"), ("good.json", own_profile())
    )
    errors = [error.value.replace("\\", "") for error in page.error]
    assert errors[0] == "broken.json: cells[0].service_mean_s is -1; allowed: greater than 0."
    assert errors[1].startswith("torn.json: content is ")
    assert len(page.success) == 1
    assert "our-classifier-zen3" in page.success[0].value.replace("\\", "")
    assert page.dataframe[0].value["Profile"].iloc[0] == "our-classifier-zen3"


def test_the_same_file_twice_is_one_profile() -> None:
    """A profile is known by its profile_id."""
    page = upload(profiles_page(), ("one.json", own_profile()), ("two.json", own_profile()))
    assert (page.dataframe[0].value["Profile"] == "our-classifier-zen3").sum() == 1


def test_uploads_can_be_forgotten() -> None:
    """One button brings the shipped profiles back, and the field is empty again."""
    page = upload(profiles_page(), ("good.json", own_profile()))
    page.button(key="forget").click().run()
    assert "our-classifier-zen3" not in set(page.dataframe[0].value["Profile"])
    assert not page.success


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "# $x$ **bold** <b>"])
def test_a_name_is_shown_as_text(name: str) -> None:
    """What a spreadsheet or Markdown would run or format stays as written."""
    page = upload(profiles_page(), ("odd.json", own_profile(model=name)))
    assert page.dataframe[0].value["Model"].iloc[0] == name
    assert f"Choose {name} on the Recommend page." in page.success[0].value.replace("\\", "")
