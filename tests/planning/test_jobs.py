"""Batch jobs: whole jobs in a window, one node per job."""

import pytest

from advisor.domain.workload import BatchJobs, JobScenario, NodeOption
from advisor.economics.jobs import energy_kwh, job_time, jobs_per_node, nodes_needed, slack_h
from advisor.errors import InputError
from advisor.planning import plan
from tests.conftest import TODAY, cpu_profile, gpu_profile


def scenario(*options, **fields):
    """Night batch of 20 GB jobs."""
    known = {
        "jobs_per_day": 1000.0,
        "data_gb_per_job": 20.0,
        "data_mb_per_item": 0.1,
        "window_h": 7.0,
        "fixed_s": 60.0,
        "network_mb_per_s": 120.0,
    }
    return JobScenario(schema_version=1, name="night", model="net", jobs=BatchJobs(**(known | fields), options=options))


def test_twenty_gigabytes_over_a_gigabit_link():
    """20 GB at 120 MB/s and 60 s of start-up: 226.7 s a job, 111 jobs a node in 7 h, 10 nodes for 1,000 jobs."""
    time = job_time(20, 0.1, items_per_s=1e6, network_mb_per_s=120, fixed_s=60)
    assert time.total_s == pytest.approx(226.667, abs=1e-3)
    assert jobs_per_node(7, time.total_s) == 111
    assert nodes_needed(1000, 111) == 10


def test_fluid_rate_would_promise_too_few_nodes():
    """Whole jobs need at least as many nodes as the fluid rate says."""
    job_s = 226.667
    fluid = 1000 * job_s / (7 * 3600)
    assert fluid < 9.0
    assert nodes_needed(1000, jobs_per_node(7, job_s)) > fluid


def test_slack_is_what_is_left_of_the_window():
    """Jobs are spread evenly; the slack is negative when the last ends too late."""
    assert slack_h(10, 2, job_s=3600, window_h=6) == pytest.approx(1.0)
    assert slack_h(14, 2, job_s=3600, window_h=6) == pytest.approx(-1.0)


def test_energy_is_power_times_time_times_pue():
    """400 W for 5 h at a PUE of 1.5 are 3 kWh."""
    assert energy_kwh(400, 5, 1.5) == pytest.approx(3.0)


def test_network_bound_options_are_told_that_a_gpu_does_not_help(small_profiles):
    """When reading the data takes longer than computing, every processor needs the same nodes."""
    night = scenario(
        NodeOption(name="hosts", profile="net-cpu", owned_count=12, replicas=640),
        NodeOption(name="cards", profile="net-gpu", owned_count=0, replicas=8),
    )
    result = plan(night, small_profiles, None, today=TODAY)
    assert {answer.bottleneck for answer in result.answers} == {"network"}
    assert [answer.nodes_needed for answer in result.answers] == [10, 10]
    assert any("faster network" in warning for warning in result.warnings)
    assert result.answers[0].slack_h == pytest.approx(7 - 84 * 226.667 / 3600, abs=1e-3)


def test_cost_only_as_far_as_the_scenario_states_it(small_profiles):
    """Without watts, tariff and PUE there is no cost; with them there is energy; with a rent, the nodes missing."""
    bare = plan(
        scenario(NodeOption(name="a", profile="net-cpu", owned_count=0, replicas=64)), small_profiles, None, today=TODAY
    )
    assert bare.answers[0].cost_usd_per_month is None
    priced = scenario(
        NodeOption(name="a", profile="net-cpu", owned_count=2, replicas=64, power_w=400.0, price_usd_per_h=1.0),
        tariff_usd_per_kwh=0.2,
        pue=1.5,
    )
    answer = plan(priced, small_profiles, None, today=TODAY).answers[0]
    rent = (answer.nodes_needed - 2) * 730.0
    energy = 0.4 * answer.busy_node_h_per_day * 1.5 * 730 / 24 * 0.2
    assert answer.cost_usd_per_month == pytest.approx(rent + energy, abs=0.01)


def test_a_job_longer_than_the_window_needs_no_count(small_profiles):
    """When not even one job fits, the option says so instead of a number of nodes."""
    result = plan(
        scenario(NodeOption(name="a", profile="net-cpu", owned_count=0, replicas=1), window_h=0.5),
        small_profiles,
        None,
        today=TODAY,
    )
    assert result.answers[0].nodes_needed is None
    assert result.status == "infeasible"


def test_throughput_only_profiles_serve_jobs():
    """A published throughput at an unstated batch size is enough for batch jobs, ten percent slow."""
    source = gpu_profile({1: 0.01}, profile_id="k80", gpu_id="K80")
    cell = source.cells[0].model_copy(update={"batch_size": None, "service_mean_s": None, "throughput_rps": 110.0})
    profile = source.model_copy(update={"cells": (cell,)})
    night = scenario(NodeOption(name="k80", profile="k80", owned_count=1, replicas=2))
    answer = plan(night, (profile,), None, today=TODAY).answers[0]
    assert answer.items_per_s == pytest.approx(200.0)


def test_replicas_that_shared_a_card_count_as_that_card():
    """Two replicas of 20 ms on one card make 100 items a second, as one of 10 ms does."""
    source = gpu_profile({1: 0.01}, profile_id="one")
    cell = source.cells[0].model_copy(update={"threads": 1, "concurrency": 2, "service_mean_s": 0.02})
    night = [scenario(NodeOption(name=name, profile=name, owned_count=1, replicas=1)) for name in ("one", "two")]
    one = plan(night[0], (source,), None, today=TODAY).answers[0]
    two = plan(
        night[1], (source.model_copy(update={"profile_id": "two", "cells": (cell,)}),), None, today=TODAY
    ).answers[0]
    assert two.items_per_s == pytest.approx(one.items_per_s)
    assert "each of the 1 replicas on a node has one GPU of its own" in two.assumptions
    assert not two.extrapolated


def test_wrong_profiles_are_refused(small_profiles):
    """An option that names an unknown profile, or one of another model, is refused with what is allowed."""
    night = scenario(NodeOption(name="a", profile="nowhere", owned_count=0, replicas=1))
    with pytest.raises(InputError, match=r"jobs.options\[0\].profile is 'nowhere'"):
        plan(night, small_profiles, None, today=TODAY)
    other = cpu_profile({1: 0.1}, model="other", profile_id="other")
    night = scenario(NodeOption(name="a", profile="other", owned_count=0, replicas=1))
    with pytest.raises(InputError, match="this one is of other"):
        plan(night, (other,), None, today=TODAY)


def test_a_throughput_of_a_whole_host_is_not_multiplied():
    """A CPU profile without batch sizes gives the throughput of the host: more replicas than one are refused."""
    source = cpu_profile({1: 0.01}, profile_id="host")
    cell = source.cells[0].model_copy(
        update={"batch_size": None, "service_mean_s": None, "throughput_rps": 110.0, "concurrency": None}
    )
    profile = source.model_copy(update={"cells": (cell,)})
    answer = plan(
        scenario(NodeOption(name="h", profile="host", owned_count=1, replicas=1)), (profile,), None, today=TODAY
    ).answers[0]
    assert answer.items_per_s == pytest.approx(100.0)
    with pytest.raises(InputError, match="whole host"):
        plan(scenario(NodeOption(name="h", profile="host", owned_count=1, replicas=2)), (profile,), None, today=TODAY)


def test_too_few_owned_nodes_without_a_rent_do_not_suffice(small_profiles):
    """Nodes that are neither owned nor to be rented leave the question without an answer."""
    short = scenario(NodeOption(name="a", profile="net-cpu", owned_count=1, replicas=64))
    assert plan(short, small_profiles, None, today=TODAY).status == "infeasible"


def test_throughput_of_a_host_with_idle_cpus_is_no_capacity(small_profiles):
    """One replica alone on a machine of many CPUs is a floor; the sentence asks for another profile."""
    lonely = cpu_profile({1: 0.05}, logical_cpus=4, profile_id="lonely")
    cells = tuple(cell.model_copy(update={"concurrency": 1}) for cell in lonely.cells)
    lonely = lonely.model_copy(update={"cells": cells})
    night = scenario(NodeOption(name="hosts", profile="lonely", owned_count=12, replicas=1))
    with pytest.raises(InputError, match="another profile: profile lonely was not measured with all cores busy"):
        plan(night, (*small_profiles, lonely), None, today=TODAY)
