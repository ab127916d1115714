"""Scenario files: short for people, strict in what they accept, SI inside."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.domain.workload import JobScenario, Scenario
from advisor.errors import InputError
from advisor.store.paths import SCENARIOS
from advisor.store.scenarios import online_scenario, parse_scenario, read_scenario
from advisor.store.traces import read_trace

SHORT = """
schema_version: 1
name: bert-online
model: bert-base
demand: {rate_rps: 120}
sla: {p99_ms: 100}
budget_usd_per_month: 2000
regions: [aws/us-east-1]
"""


def parse(text, overrides=(), *, file="short.yaml", folder=SCENARIOS):
    """Scenario of a text, without its traces."""
    return parse_scenario(text, overrides, file=file, folder=folder).scenario


def test_the_short_form_is_a_whole_scenario():
    """Seven lines are enough; milliseconds become seconds."""
    scenario = parse(SHORT)
    assert isinstance(scenario, Scenario)
    assert scenario.workload.sla.response_time_s == pytest.approx(0.1)
    assert scenario.workload.sla.percentile == 0.99
    assert scenario.headroom_frac == 0.0
    assert scenario.regions == ("aws/us-east-1",)


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_scenario_reads(path):
    """Shipped scenarios fit the schema."""
    assert isinstance(read_scenario(path).scenario, Scenario | JobScenario)


def test_overrides_replace_fields_by_path():
    """--set reaches nested fields, also ones that the file leaves out."""
    scenario = parse(SHORT, ("demand.rate_rps=500", "sla.p99_ms=50", "headroom_pct=20"))
    assert scenario.workload.arrival_rate_rps == 500
    assert scenario.workload.sla.response_time_s == pytest.approx(0.05)
    assert scenario.headroom_frac == pytest.approx(0.2)


@given(st.floats(min_value=0.001, max_value=3_600_000))
def test_milliseconds_survive_the_way_to_seconds(limit_ms):
    """The limit in seconds is the limit in milliseconds over a thousand."""
    scenario = parse(SHORT, (f"sla.p99_ms={limit_ms!r}",))
    assert scenario.workload.sla.response_time_s == pytest.approx(limit_ms / 1000)


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("demand.rate_rps=-3", "short.yaml: demand.rate_rps is -3; allowed: greater than 0."),
        ("demand.rate_rps=many", "short.yaml: demand.rate_rps is 'many'; allowed: a valid number."),
        ("sla.p99_ms=0", "short.yaml: sla.p99_ms is 0; allowed: greater than 0."),
        ("sla={}", "allowed: at least one of p50_ms, p90_ms, p95_ms, p99_ms, p999_ms."),
        ("demand.rate_rps=null", "allowed: rate_rps, unless arrivals is a trace."),
        ("demand.arrivals.kind=poison", "demand.arrivals is 'dict of 1'; allowed: Input tag 'poison'"),
        ("demand.arrivals={kind: renewal}", "demand.arrivals.renewal.scv is missing; allowed: the field is required."),
        (
            "demand.arrivals={kind: renewal, scv: 0}",
            "demand.arrivals.renewal.scv is 0; allowed: greater than or equal to",
        ),
        ("demand.arrivals={kind: hourly_week, weights: [1, 2]}", "demand.arrivals.hourly_week.weights"),
        ("demand.arrivals={kind: trace, file: none.csv}", "none.csv"),
        (
            "routing=magic",
            "routing is 'magic'; allowed: 'random', 'round_robin', 'least_outstanding' or 'central_queue'.",
        ),
        ("batch_delay_ms=-1", "batch_delay_ms is -1; allowed: greater than or equal to 0."),
        ("colour=blue", "short.yaml: colour is 'blue'; allowed: no such field in this schema version."),
        ("schema_version=2", "short.yaml: schema_version is 2; allowed: 1."),
        ("model.name=x", "--set is 'model.name=x'; allowed: a path of fields; one on the way is a value."),
        ("rate", "--set is 'rate'; allowed: field=value, such as demand.rate_rps=500."),
        ("name=2020-13-45", "--set is 'name=2020-13-45'; allowed: values that can be read; a text that looks like"),
        ("seed=" + "9" * 5000, "allowed: values that can be read"),
        ("name=!!timestamp x", "allowed: values that can be read"),
    ],
)
def test_one_sentence_for_a_bad_value(override, sentence):
    """Bad input names file, field, value and what is allowed."""
    with pytest.raises(InputError) as caught:
        parse(SHORT, (override,))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- a\n- b\n", "content is 'list'; allowed: a YAML mapping of fields"),
        ("a: [1,\n", "allowed: a YAML document"),
        ("name: 2020-13-45\n", "content is 'month must be in 1..12'; allowed: values that can be read"),
        ("name: !!timestamp x\n", "allowed: values that can be read"),
        ("name: x\n", "schema_version is missing; allowed: the field is required"),
    ],
)
def test_what_is_no_scenario_is_refused(text, sentence):
    """A file that is not a scenario gets one sentence, too."""
    with pytest.raises(InputError, match=r"bad\.yaml") as caught:
        parse(text, file="bad.yaml")
    assert sentence in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    """The file that does not exist is named."""
    with pytest.raises(InputError, match=r"nowhere\.yaml"):
        read_scenario(tmp_path / "nowhere.yaml")


def test_several_limits_hold_together_and_the_highest_percentile_comes_first():
    """Limits may be given for several percentiles; headlines speak of the highest."""
    workload = parse(SHORT, ("sla.p50_ms=40", "sla.p999_ms=300")).workload
    assert [limit.label for limit in workload.limits] == ["p99.9", "p99", "p50"]
    assert workload.sla.response_time_s == pytest.approx(0.3)


def test_a_trace_is_read_from_beside_the_scenario_and_gives_its_rate(tmp_path):
    """Without a rate the traffic is that of the trace; with one the trace is sped up or slowed down to it."""
    (tmp_path / "log.csv").write_text("t_s\n0\n1\n2\n4\n")
    document = SHORT.replace("{rate_rps: 120}", "{arrivals: {kind: trace, file: log.csv}}")
    found = parse_scenario(document, file="short.yaml", folder=tmp_path)
    assert found.scenario.workload.arrival_rate_rps == pytest.approx(0.75)
    assert found.traces["log.csv"].times_s.tolist() == [0, 1, 2, 4]
    faster = parse_scenario(document, ("demand.rate_rps=3",), file="short.yaml", folder=tmp_path)
    assert faster.scenario.workload.arrival_rate_rps == 3
    assert faster.traces["log.csv"].sha256 == read_trace(tmp_path / "log.csv").sha256


def test_a_trace_that_gives_the_rate_is_held_to_its_bound(tmp_path):
    """Two stamps a nanosecond apart would be a rate of 1e9/s: refused, unless the rate is given."""
    (tmp_path / "log.csv").write_text("t_ns\n0\n1\n")
    document = SHORT.replace("{rate_rps: 120}", "{arrivals: {kind: trace, file: log.csv}}")
    with pytest.raises(InputError, match=r"log\.csv: mean rate is '1e\+09/s'; allowed: at most 1e\+07/s") as caught:
        parse_scenario(document, file="short.yaml", folder=tmp_path)
    assert "\n" not in str(caught.value)
    fields = {"name": "x", "model": "m", "sla": {"p99_ms": 100}}
    arrivals = {"kind": "trace", "file": "log.csv"}
    with pytest.raises(InputError, match=r"log\.csv: mean rate"):
        online_scenario(read_trace(tmp_path / "log.csv"), demand={"arrivals": arrivals}, **fields)
    slower = parse_scenario(document, ("demand.rate_rps=3",), file="short.yaml", folder=tmp_path)
    assert slower.scenario.workload.arrival_rate_rps == 3
