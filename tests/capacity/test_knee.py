"""The knee of a sweep, and the difference between a capacity and a floor."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.capacity.knee import (
    KNEE_FRAC,
    SATURATED_GAIN_FRAC,
    Sweep,
    SweepPoint,
    batch_sweeps,
    doubling_gain_frac,
    replica_sweeps,
    sweeps,
)
from advisor.domain.profile import Cell, CpuIdentity, Profile
from tests.conftest import cpu_profile, gpu_profile, make_cell

times = st.dictionaries(st.integers(1, 64), st.floats(1e-3, 1.0), min_size=1, max_size=7)


def batch_sweep(times_s: dict[int, float]) -> Sweep:
    """The one sweep of a profile with these times [s] per batch size."""
    (sweep,) = batch_sweeps(cpu_profile(times_s))
    return sweep


def with_cells(*cells: Cell, logical_cpus: int = 4) -> Profile:
    """CPU profile with these cells."""
    profile = cpu_profile({1: 0.01}, logical_cpus=logical_cpus)
    return profile.model_copy(update={"cells": cells})


def replicas(*throughputs_rps: float, logical_cpus: int) -> Profile:
    """CPU profile with one thread a replica: one more replica for each throughput [1/s]."""
    cells = [
        make_cell(1, 0.01, threads=1, concurrency=count, throughput_rps=throughput)
        for count, throughput in enumerate(throughputs_rps, start=1)
    ]
    return with_cells(*cells, logical_cpus=logical_cpus)


def test_a_throughput_that_levels_off_has_a_capacity() -> None:
    """Time in proportion to the batch gains nothing: every batch is as good, the smallest is the knee."""
    sweep = batch_sweep({1: 0.010, 2: 0.020, 4: 0.040})
    assert sweep.saturated
    assert sweep.knee.size == 1
    assert sweep.best_rps == pytest.approx(200.0)  # two replicas, one item in 10 ms each


def test_a_throughput_that_still_grows_is_a_floor_and_no_capacity() -> None:
    """A fixed cost per call keeps paying back: what was seen is "at least", nobody knows the most."""
    sweep = batch_sweep({1: 0.010, 2: 0.011, 4: 0.013})
    assert not sweep.saturated
    assert sweep.best_rps == pytest.approx(2 * 4 / 0.013)


def test_a_throughput_that_falls_again_has_its_knee_at_the_top() -> None:
    """Larger batches than the best one only take longer."""
    sweep = batch_sweep({1: 0.010, 8: 0.040, 16: 0.100, 32: 0.210})
    assert sweep.saturated
    assert sweep.knee.size == 8
    assert sweep.best_rps == pytest.approx(2 * 8 / 0.040)


def test_the_knee_is_before_the_best_when_the_rest_gains_little() -> None:
    """Batch 4 reaches 98 % of what batch 8 does at half its time."""
    sweep = batch_sweep({1: 0.010, 4: 0.0204, 8: 0.040})
    assert sweep.best_rps == pytest.approx(2 * 8 / 0.040)
    assert sweep.knee.size == 4


def test_one_batch_size_alone_is_a_floor() -> None:
    """Nobody knows what a larger batch would do."""
    assert not batch_sweep({1: 0.010}).saturated


def test_less_than_a_doubling_is_a_floor() -> None:
    """From 6 to 8 items a batch gains little whatever the model: that is no sign of saturation."""
    sweep = batch_sweep({6: 0.060, 8: 0.080})
    assert doubling_gain_frac(sweep.points) is None
    assert not sweep.saturated


def test_small_steps_are_judged_over_a_doubling() -> None:
    """The same growth is a floor whether it comes in one step or in many."""
    growing = {batch: 0.010 + 0.001 * batch for batch in range(1, 17)}
    ends = {batch: growing[batch] for batch in (1, 8, 16)}
    assert not batch_sweep(growing).saturated
    assert doubling_gain_frac(batch_sweep(growing).points) == doubling_gain_frac(batch_sweep(ends).points)


def test_a_dip_on_the_way_is_no_growth() -> None:
    """Coming back up to what a smaller batch reached already gains nothing."""
    sweep = batch_sweep({1: 0.010, 2: 0.020, 4: 0.050, 8: 0.080})
    assert sweep.saturated
    assert sweep.knee.size == 1


def test_a_gap_in_the_sweep_never_hides_growth() -> None:
    """Read off a straight line over a flattening curve, the gain of the last doubling is rather too large."""
    time_s = {batch: 0.010 + 0.001 * batch for batch in (1, 2, 4, 8, 16, 32)}
    whole = doubling_gain_frac(batch_sweep(time_s).points)
    gap = doubling_gain_frac(batch_sweep({batch: time_s[batch] for batch in (1, 8, 32)}).points)
    assert whole is not None
    assert gap is not None
    assert gap > whole


@given(times)
def test_the_knee_reaches_nearly_the_best_and_no_smaller_size_does(times_s: dict[int, float]) -> None:
    """Whatever the times, the knee is the smallest size within 5 % of the best."""
    sweep = batch_sweep(times_s)
    reached = [point.size for point in sweep.points if point.throughput_rps >= KNEE_FRAC * sweep.best_rps]
    assert sweep.knee.size == min(reached)


@given(times, st.floats(0.1, 10.0))
def test_a_faster_machine_of_the_same_shape_saturates_alike(times_s: dict[int, float], speed: float) -> None:
    """Only ratios count: another unit of time moves neither the knee nor the verdict, apart from ties."""
    slow, fast = batch_sweep(times_s), batch_sweep({batch: time_s / speed for batch, time_s in times_s.items()})
    gain = doubling_gain_frac(slow.points)
    if gain is None or abs(gain - SATURATED_GAIN_FRAC) > 1e-9:
        assert slow.saturated == fast.saturated
    assert fast.best_rps == pytest.approx(slow.best_rps * speed)


def test_each_configuration_is_a_sweep_of_its_own() -> None:
    """Cells of other threads or replicas are never mixed into one line."""
    profile = with_cells(
        make_cell(1, 0.010, threads=1, concurrency=4),
        make_cell(2, 0.020, threads=1, concurrency=4),
        make_cell(1, 0.004, threads=4, concurrency=1),
        make_cell(2, 0.005, threads=4, concurrency=1),
    )
    found = batch_sweeps(profile)
    assert [(sweep.threads, sweep.concurrency, sweep.saturated) for sweep in found] == [(1, 4, True), (4, 1, False)]
    assert sweeps(profile) == found  # no batch size was measured at two counts of replicas with the same threads


def test_the_measured_throughput_counts_before_one_computed_from_times() -> None:
    """Pauses between calls are in the throughput and not in the time."""
    profile = with_cells(make_cell(2, 0.010, threads=1, concurrency=4, throughput_rps=700.0))
    assert batch_sweeps(profile)[0].points == (SweepPoint(2, 700.0),)


def test_all_cpus_at_work_saturate_a_sweep_over_replicas() -> None:
    """Two replicas on two CPUs doubled the throughput: there is no third CPU to give."""
    (sweep,) = replica_sweeps(replicas(100.0, 200.0, logical_cpus=2))
    assert sweep.best_rps == 200.0
    assert sweep.knee.size == 2


def test_idle_cpus_make_a_growing_sweep_over_replicas_a_floor() -> None:
    """Two replicas on eight CPUs say little about eight."""
    (sweep,) = replica_sweeps(replicas(100.0, 200.0, logical_cpus=8))
    assert not sweep.saturated


def test_replicas_that_gain_nothing_saturate_although_cpus_are_idle() -> None:
    """Memory bandwidth can run out before the CPUs do."""
    (sweep,) = replica_sweeps(replicas(100.0, 150.0, 172.0, 176.0, 176.0, 177.0, logical_cpus=8))
    assert sweep.best_rps == 177.0
    assert sweep.knee.size == 3


def test_a_cpu_never_saturates_a_gpu() -> None:
    """Threads of the host do not tell whether the card is full; only the throughput does."""
    profile = gpu_profile({1: 0.004}).model_copy(
        update={
            "cells": (
                make_cell(1, 0.004, threads=8, concurrency=1, throughput_rps=250.0),
                make_cell(1, 0.004, threads=8, concurrency=2, throughput_rps=480.0),
            )
        }
    )
    device = profile.device.model_copy(
        update={"cpu": CpuIdentity(vendor="AuthenticAMD", family=25, model=1, logical_cpus=2)}
    )
    (sweep,) = replica_sweeps(profile.model_copy(update={"device": device}))
    assert not sweep.saturated


def test_callers_of_an_address_fill_no_cpus() -> None:
    """Only the throughput tells whether a server is full, on however many CPUs it may be."""
    profile = replicas(100.0, 200.0, logical_cpus=2)
    model = profile.model.model_copy(update={"target": "http://127.0.0.1/predict"})
    (sweep,) = replica_sweeps(profile.model_copy(update={"model": model}))
    assert not sweep.saturated


def test_cells_without_a_batch_size_are_no_sweep() -> None:
    """A published throughput at an unknown batch size says nothing about its neighbors."""
    profile = with_cells(Cell(batch_size=None, throughput_rps=100.0))
    assert sweeps(profile) == ()
