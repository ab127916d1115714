"""Scenario files: short for people, strict in what they accept, SI inside."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.domain.workload import JobScenario, Scenario
from advisor.errors import InputError
from advisor.store.paths import SCENARIOS
from advisor.store.scenarios import parse_scenario, read_scenario

SHORT = """
schema_version: 1
name: bert-online
model: bert-base
demand: {rate_rps: 120}
sla: {p99_ms: 100}
budget_usd_per_month: 2000
regions: [aws/us-east-1]
"""


def test_the_short_form_is_a_whole_scenario():
    """Seven lines are enough; milliseconds become seconds."""
    scenario = parse_scenario(SHORT, file="short.yaml")
    assert isinstance(scenario, Scenario)
    assert scenario.workload.sla.response_time_s == pytest.approx(0.1)
    assert scenario.workload.sla.percentile == 0.99
    assert scenario.headroom_frac == 0.0
    assert scenario.regions == ("aws/us-east-1",)


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_scenario_reads(path):
    """Shipped scenarios fit the schema."""
    assert isinstance(read_scenario(path), Scenario | JobScenario)


def test_overrides_replace_fields_by_path():
    """--set reaches nested fields, also ones that the file leaves out."""
    scenario = parse_scenario(SHORT, ("demand.rate_rps=500", "sla.p99_ms=50", "headroom_pct=20"), file="short.yaml")
    assert scenario.workload.arrival_rate_rps == 500
    assert scenario.workload.sla.response_time_s == pytest.approx(0.05)
    assert scenario.headroom_frac == pytest.approx(0.2)


@given(st.floats(min_value=0.001, max_value=3_600_000))
def test_milliseconds_survive_the_way_to_seconds(limit_ms):
    """The limit in seconds is the limit in milliseconds over a thousand."""
    scenario = parse_scenario(SHORT, (f"sla.p99_ms={limit_ms!r}",), file="short.yaml")
    assert scenario.workload.sla.response_time_s == pytest.approx(limit_ms / 1000)


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("demand.rate_rps=-3", "short.yaml: demand.rate_rps is -3; allowed: greater than 0."),
        ("demand.rate_rps=many", "short.yaml: demand.rate_rps is 'many'; allowed: a valid number."),
        ("sla.p99_ms=0", "short.yaml: sla.p99_ms is 0; allowed: greater than 0."),
        ("sla.p95_ms=80", "allowed: exactly one of p50_ms, p90_ms, p95_ms, p99_ms, p999_ms."),
        ("colour=blue", "short.yaml: colour is 'blue'; allowed: no such field in this schema version."),
        ("schema_version=2", "short.yaml: schema_version is 2; allowed: 1."),
        ("model.name=x", "--set is 'model.name=x'; allowed: a path of fields; one on the way is a value."),
        ("rate", "--set is 'rate'; allowed: field=value, such as demand.rate_rps=500."),
    ],
)
def test_one_sentence_for_a_bad_value(override, sentence):
    """Bad input names file, field, value and what is allowed."""
    with pytest.raises(InputError) as caught:
        parse_scenario(SHORT, (override,), file="short.yaml")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- a\n- b\n", "content is 'list'; allowed: a YAML mapping of fields"),
        ("a: [1,\n", "allowed: a YAML document"),
        ("name: x\n", "schema_version is missing; allowed: the field is required"),
    ],
)
def test_what_is_no_scenario_is_refused(text, sentence):
    """A file that is not a scenario gets one sentence, too."""
    with pytest.raises(InputError, match=r"bad\.yaml") as caught:
        parse_scenario(text, file="bad.yaml")
    assert sentence in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    """The file that does not exist is named."""
    with pytest.raises(InputError, match=r"nowhere\.yaml"):
        read_scenario(tmp_path / "nowhere.yaml")
