"""A run under load end to end with replicas that sleep, and what speaks against a run."""

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.domain.measurement import LoadRun, Predicted, Surroundings
from advisor.domain.profile import Cell, Device, Profile, RuntimeInfo
from advisor.errors import InputError, MeasurementError
from advisor.profiling.cell import Configuration
from advisor.profiling.forecast import Forecast, SpeedRatio
from advisor.profiling.load import poisson_arrivals
from advisor.profiling.serving import prepare_singles
from advisor.profiling.verification import AnchorReading, Observed, doubts, run_load, verify
from advisor.profiling.verification_plan import (
    FEWEST_COUNTED,
    LONGEST_RUN_S,
    VerificationPlan,
    plan_verification,
    refuse_other_machine,
)
from tests.conftest import cpu_profile, gpu_profile, make_cell

QUIET = Surroundings(run_delay_frac=0.0, other_cpus=0.0, steal_frac=0.0)
STEADY = AnchorReading(SpeedRatio(1.0, 0.01), ())
ITEM_S = 0.004


def sleeper_profile(item_s: float = ITEM_S, *, sizes: Sequence[int] = (1, 2), logical_cpus: int = 8) -> Profile:
    """Profile of a replica that sleeps so long per item: two of one thread, and one of two threads."""
    base = cpu_profile({1: item_s}, logical_cpus=logical_cpus)
    cells = [
        Cell(
            batch_size=size,
            threads=threads,
            concurrency=replicas,
            service_mean_s=size * item_s,
            throughput_rps=replicas / item_s,
            mean_ci95_frac=0.02,
        )
        for threads, replicas in ((1, 2), (2, 1), (1, logical_cpus))
        for size in sizes
    ]
    return base.model_copy(update={"cells": tuple(cells), "runtime": RuntimeInfo(name="sleep")})


def planned(profile: Profile | None = None, **choices: Any) -> VerificationPlan:
    """Plan of one short run."""
    loads = choices.pop("loads", (0.4,))
    return plan_verification(
        profile or sleeper_profile(), loads, **{"duration_s": 0.1, "cpus": 8, "replicas": 2} | choices
    )


def observed(**changes: Any) -> Observed:
    """Run of 400 requests that took 10 ms each on a quiet host."""
    arrivals = poisson_arrivals(100.0, 400, np.random.default_rng(1))
    seen = Observed(
        rate_rps=100.0,
        arrivals_s=arrivals,
        counted_from=0,
        response_s=np.full(400, 0.010),
        lateness_p99_s=0.0001,
        batch_sizes=np.ones(400, np.int64),
        service_s=np.full(400, ITEM_S),
        duration_s=4.0,
        around=QUIET,
    )
    return replace(seen, **changes)


def codes(
    seen: Observed, *, load: float = 0.5, after: AnchorReading = STEADY, plan: VerificationPlan | None = None
) -> list[str]:
    """Codes of the doubts about a run whose p99 is predicted to be 20 ms."""
    figure = Predicted(value_s=0.020, low_s=0.015, high_s=0.025)
    found = doubts(plan or planned(), seen, Forecast(figure, figure, figure), load=load, anchors=(STEADY, after))
    return [doubt.split(":")[0] for doubt in found]


def test_a_quiet_run_has_no_doubts() -> None:
    """Nothing speaks against it."""
    assert codes(observed()) == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"lateness_p99_s": 0.0011}, "CLIENT_BOUND"),
        ({"around": Surroundings(other_cpus=0.2)}, "NOISY_HOST"),
        ({"around": Surroundings(run_delay_frac=0.02)}, "NOISY_HOST"),
        ({"around": Surroundings(steal_frac=0.02)}, "NOISY_HOST"),
        ({"response_s": np.full(FEWEST_COUNTED - 1, 0.010)}, "FEW_SAMPLES"),
    ],
)
def test_each_disturbance_has_its_doubt(changes: dict[str, Any], code: str) -> None:
    """One thing wrong with a run gives one code."""
    assert codes(observed(**changes)) == [code]


def test_doubts_do_not_ask_whether_the_prediction_held() -> None:
    """Responses ten times as long as predicted on a quiet host are a wrong prediction, and no doubt about the run."""
    assert codes(observed(response_s=np.full(400, 0.2))) == []


def test_a_changed_or_disturbed_anchor_is_a_doubt() -> None:
    """More than 3 % between before and after, or a stall beside the run."""
    assert codes(observed(), after=AnchorReading(SpeedRatio(1.04), ())) == ["DRIFT"]
    assert codes(observed(), after=AnchorReading(SpeedRatio(1.02), ())) == []
    assert codes(observed(), after=AnchorReading(SpeedRatio(), ("STALLS: many.",))) == ["NOISY_HOST"]


def test_a_stalled_batch_is_a_doubt_and_a_larger_batch_is_none() -> None:
    """Each batch is held against what one of its size should take."""
    stalled = np.full(400, ITEM_S)
    stalled[:3] = 3 * ITEM_S
    assert codes(observed(service_s=stalled)) == ["NOISY_HOST"]
    sizes = np.where(np.arange(400) % 2, 1, 2)
    assert codes(observed(batch_sizes=sizes, service_s=sizes * ITEM_S), plan=planned(max_batch=2)) == []


def test_one_kind_of_noise_is_told_once() -> None:
    """Other load in the run and beside it: one sentence, with what was seen in the run."""
    after = AnchorReading(SpeedRatio(), ("OTHER_LOAD: other processes kept 0.90 CPUs busy.", "STALLS: many."))
    figure = Predicted(value_s=0.020, low_s=0.015, high_s=0.025)
    seen = observed(around=Surroundings(other_cpus=0.2))
    assert doubts(planned(), seen, Forecast(figure, figure, figure), load=0.5, anchors=(STEADY, after)) == (
        "NOISY_HOST: other processes kept 0.20 CPUs busy. (OTHER_LOAD, in the run)",
        "NOISY_HOST: many. (STALLS, beside it)",
    )


def test_a_load_at_which_queues_only_grow_is_overloaded() -> None:
    """From 98 % on nothing is promised; below it a queue that grows is no excuse."""
    assert codes(observed(), load=1.0) == ["OVERLOADED"]
    assert codes(observed(), load=0.95) == []


def test_own_threads_that_wait_for_each_other_are_no_noise() -> None:
    """Where the replicas use all CPUs the generator has to wait for one: that shows in its lateness instead."""
    full = planned(replicas=8)
    assert not full.leaves_a_cpu_free
    assert codes(observed(around=Surroundings(run_delay_frac=0.2)), plan=full) == []


def test_a_run_is_predicted_observed_and_counted(sleeping_model: Any) -> None:
    """All counted requests are in the record, and a response lasts at least as long as its sleep."""
    model = sleeping_model(ITEM_S)
    steps: list[str] = []
    plan = planned(loads=(0.3, 0.5))
    runs = list(verify(model, plan, on_step=steps.append))
    assert [run.load for run in runs] == [0.3, 0.5]
    for run in runs:
        assert run.count == sum(run.response.counts) == plan.counted_requests(run.rate_rps)
        assert run.mean.observed_s >= ITEM_S
        assert run.p95.observed_s <= run.p99.observed_s
        assert run.rate_rps == pytest.approx(run.load * plan.model.saturated_rps / (1 + run.drift_frac))
        # A sleep never ends early, so the anchor cannot be faster than the profile of exact sleeps.
        assert run.drift_frac >= -1e-9
        assert 1 <= run.mean_batch <= plan.setup.max_batch
    assert runs[1].drift_frac == runs[0].drift_after_frac
    assert [engine.closed for engine in model.opened] == [True, True]
    assert LoadRun.model_validate_json(runs[0].model_dump_json()) == runs[0]


class StallingEngine:
    """A replica that answers at once, but for one call in the middle, which stalls."""

    def __init__(self, stall_at: int, stall_s: float) -> None:
        self.stall_at, self.stall_s, self.calls = stall_at, stall_s, 0
        self.stalled_ns = (0, 0)
        self.lock = threading.Lock()

    def prepare(self, batch_size: int, rng: np.random.Generator) -> int:
        """Take the batch size as the input."""
        return batch_size

    def join(self, items: Sequence[int]) -> int:
        """Add the batch sizes."""
        return sum(items)

    def call(self, item: int) -> None:
        """Stall once."""
        self.calls += 1
        if self.calls == self.stall_at:
            start_ns = time.perf_counter_ns()
            time.sleep(self.stall_s)
            self.stalled_ns = (start_ns, time.perf_counter_ns())

    def describe(self) -> Any:
        """Never asked for."""
        raise NotImplementedError

    def close(self) -> None:
        """Hold nothing."""


def test_a_stall_of_the_server_shows_in_every_request_that_was_due_during_it() -> None:
    """No coordinated omission: a stall of half a second makes long all that was due in it, not one call."""
    stall_s = 0.5
    plan = planned(replicas=1, threads=2, max_batch=1)
    engine = StallingEngine(stall_at=320, stall_s=stall_s)
    singles = prepare_singles(engine, np.random.default_rng(0), most=1)
    seen = run_load([engine], singles, plan, rate_rps=200.0, seed=1)
    assert engine.calls == seen.arrivals_s.size
    # The stalled request and those due in the first two fifths of the stall waited for at least three fifths of it.
    due_s = seen.arrivals_s[seen.counted_from :]
    began_s = seen.arrivals_s[engine.stall_at - 1]
    hit = (due_s >= began_s) & (due_s <= began_s + 0.4 * stall_s)
    assert np.count_nonzero(hit) > 20
    assert np.all(seen.response_s[hit] >= 0.6 * stall_s)


def test_a_failing_replica_ends_the_verification(sleeping_model: Any) -> None:
    """Its sentence is the error, and the replicas are closed."""
    model = sleeping_model(0.001, fail_after=120)
    with pytest.raises(MeasurementError, match="it broke"):
        list(verify(model, planned(), on_step=lambda _: None))
    assert all(engine.closed for engine in model.opened)


def test_an_interrupt_keeps_the_runs_that_were_yielded_and_closes_the_replicas(sleeping_model: Any) -> None:
    """What was yielded before is whole; nothing is left open."""
    model, runs = sleeping_model(0.001), []

    def stop_at_the_second_run(line: str) -> None:
        if runs and line.startswith("load"):
            raise KeyboardInterrupt

    def collect() -> None:
        for run in verify(model, planned(sleeper_profile(0.001), loads=(0.3, 0.3)), on_step=stop_at_the_second_run):
            runs.append(run)

    with pytest.raises(KeyboardInterrupt):
        collect()
    assert len(runs) == 1
    assert all(engine.closed for engine in model.opened)


def test_a_model_without_single_requests_is_refused(sleeping_model: Any) -> None:
    """A batch axis that is fixed at 8 cannot serve single requests."""
    with pytest.raises(InputError, match="single requests"):
        list(verify(sleeping_model(fixed_batch_size=8), planned(), on_step=lambda _: None))


def test_the_default_leaves_a_cpu_to_the_generator_and_says_so() -> None:
    """The most throughput among those, on a machine of few CPUs, with a word on what that leaves open."""
    plan = planned(sleeper_profile(logical_cpus=4), replicas=None, cpus=4)
    assert plan.setup.configuration == Configuration(1, 2)
    assert "which leave a CPU to the load generator; plans use replicas on all 4 CPUs" in plan.notes[0]


def test_the_configuration_of_plans_is_the_default_where_no_other_is_free_or_cpus_are_many() -> None:
    """The most throughput, with a warning: on eight CPUs or more the load generator hardly counts."""
    many = planned(replicas=None)
    assert many.setup.configuration == Configuration(1, 8)
    crowded = planned(replicas=None, cpus=2)
    assert crowded.setup.configuration == Configuration(1, 8)
    assert "take time from each other" in crowded.notes[0]


def test_another_version_of_the_runtime_is_refused(sleeping_model: Any) -> None:
    """The anchor would hide how much faster or slower it is; whoever insists gets any version."""
    old = sleeper_profile().model_copy(update={"runtime": RuntimeInfo(name="sleep", version="1")})
    with pytest.raises(InputError, match="runtime is 'sleep None'; allowed: the one that was profiled, sleep 1"):
        list(verify(sleeping_model(ITEM_S), planned(old), on_step=lambda _: None))
    assert planned(old, anyway=True).runtime is None


def test_the_largest_batch_is_the_knee_unless_stated() -> None:
    """Here throughput does not grow with the batch, so the knee is one request."""
    assert planned().setup.max_batch == 1
    assert planned(max_batch=2).setup.max_batch == 2
    with pytest.raises(InputError, match="from 1 to 2"):
        planned(max_batch=3)


def test_a_vague_profile_is_called_vague() -> None:
    """An interval that nearly everything agrees with proves little, and the plan says so."""
    vague = sleeper_profile()
    cells = tuple(cell.model_copy(update={"mean_ci95_frac": 0.5}) for cell in vague.cells)
    assert "±50%" in planned(vague.model_copy(update={"cells": cells})).notes[-1]
    assert not any("vague" in note for note in planned().notes)


def test_the_load_is_the_rate_over_what_full_batches_give() -> None:
    """ρ = λ s(B) / (c B)."""
    plan = planned(max_batch=2)
    assert plan.model.saturated_rps == pytest.approx(2 * 2 / (2 * ITEM_S))


def test_runs_at_low_rates_last_longer_but_not_for_ever() -> None:
    """At least 300 requests count, within five minutes."""
    plan = planned()
    assert plan.counted_requests(10.0) == FEWEST_COUNTED
    assert plan.counted_requests(0.1) == 0.1 * LONGEST_RUN_S
    assert plan.counted_requests(1e5) == 0.1 * 1e5
    assert plan.estimated_s > FEWEST_COUNTED / (0.4 * plan.model.saturated_rps)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"threads": 3}, "2 × 3"),
        ({"loads": ()}, "loads"),
        ({"profile": gpu_profile({1: 0.01})}, "published"),
    ],
)
def test_what_cannot_be_checked_is_refused(changes: dict[str, Any], sentence: str) -> None:
    """One sentence with the value."""
    with pytest.raises(InputError, match=sentence):
        planned(**changes)


def test_an_address_is_served_with_as_few_callers_as_fill_it() -> None:
    """A third caller that only waits in the queue of the server would be counted twice by the model."""
    profile = sleeper_profile()
    cells = tuple(
        make_cell(1, mean_s, threads=1, concurrency=callers, throughput_rps=callers / mean_s)
        for callers, mean_s in ((1, 0.010), (2, 0.010), (4, 0.0199), (8, 0.040))
    )
    model = profile.model.model_copy(update={"target": "http://host/predict"})
    plan = planned(profile.model_copy(update={"cells": cells, "model": model}), replicas=None)
    assert plan.setup.configuration.concurrency == 2
    assert plan.asks_address
    assert any("2 requests are with the server" in note for note in plan.notes)


def test_another_machine_is_refused() -> None:
    """Another model of CPU, or another number of CPUs, has other service times."""
    profile = sleeper_profile()
    cpu = profile.device.cpu
    assert cpu is not None
    refuse_other_machine(profile, profile.device)
    for change in ({"model": 99}, {"logical_cpus": 64}, {"stepping": 7}):
        with pytest.raises(InputError, match="--anyway"):
            refuse_other_machine(profile, profile.device.model_copy(update={"cpu": cpu.model_copy(update=change)}))
    with pytest.raises(InputError, match="'a box'"):
        refuse_other_machine(profile, Device(kind="cpu", name="a box"))
