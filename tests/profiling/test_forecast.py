"""The forecast follows the queue event by event, and its interval holds what the same machine would show."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from advisor.domain.measurement import Histogram, IdleStart, JoinTime
from advisor.domain.profile import Profile
from advisor.errors import InputError
from advisor.profiling.cell import Configuration
from advisor.profiling.forecast import ServiceModel, SpeedRatio, forecast, quantiles_s, service_model
from advisor.profiling.load import poisson_arrivals
from advisor.profiling.serving import ServerSetup
from advisor.profiling.statistics import histogram
from advisor.simulation.engine import Pool, run_pool
from tests.conftest import cpu_profile
from tests.measured_profile import repeat
from tests.simulation.reference import Reference

Array = npt.NDArray[np.float64]

TIMES_S = {1: 0.010, 2: 0.012, 4: 0.020}
EXACT = SpeedRatio()


def profile_of(error: float = 0.0, **update: Any) -> Profile:
    """Two replicas of one thread on two CPUs, constant service times."""
    return cpu_profile(TIMES_S, error=error).model_copy(update=update)


def model_of(profile: Profile, *, max_batch: int = 4, batch_delay_s: float = 0.0) -> ServiceModel:
    """Read the only configuration of the profile."""
    return service_model(profile, ServerSetup(Configuration(1, 2), max_batch, batch_delay_s))


def arrivals_of(load: float, count: int, seed: int = 1) -> Array:
    """Poisson arrivals at a load of the two replicas."""
    return poisson_arrivals(load * 2 * 4 / TIMES_S[4], count, np.random.default_rng(seed))


@pytest.mark.parametrize("delay_s", [0.0, 0.004])
@pytest.mark.parametrize("load", [0.3, 0.8, 1.1])
def test_constant_service_gives_what_the_event_by_event_simulator_gives(load: float, delay_s: float) -> None:
    """Service times known exactly leave no doubt: the interval is one point, the reference's figure."""
    arrivals = arrivals_of(load, 400)
    found = forecast(
        model_of(profile_of(), batch_delay_s=delay_s), arrivals, counted_from=50, ratio=EXACT, seed=1, replications=3
    )
    times = np.interp([1, 2, 3, 4], list(TIMES_S), list(TIMES_S.values()))
    reference = Reference(arrivals.tolist(), times.tolist(), 2, "central_queue", delay_s)
    counted = np.array(reference.response)[50:]
    expected = (counted.mean(), *np.percentile(counted, [95, 99]))
    for figure, value in zip((found.mean, found.p95, found.p99), expected, strict=True):
        assert figure.value_s == pytest.approx(value)
        assert figure.high_s == pytest.approx(figure.low_s)


def test_joining_and_idle_starts_take_their_time() -> None:
    """The reference with batch times that include joining, and a constant extra for idle servers, gives the same."""
    # A bin is 2 % wide: the extra is taken to be its cold part, far longer than the gap.
    gap = Histogram(first_bin=-640, counts=(1,))
    start = IdleStart(
        threads=1,
        batch_size=1,
        count=9,
        gap=gap,
        gap_mean_s=1e-6,
        service=histogram(np.array([0.013])),
        service_mean_s=0.013,
    )
    joins = (JoinTime(batch_size=2, median_s=0.001), JoinTime(batch_size=4, median_s=0.005))
    model = model_of(profile_of(idle_starts=(start,), join_times=joins))
    arrivals = arrivals_of(0.5, 300)
    found = forecast(model, arrivals, counted_from=0, ratio=EXACT, seed=1, replications=3)
    times = np.interp([1, 2, 3, 4], list(TIMES_S), list(TIMES_S.values()))
    times += np.array([0.0, 0.001, 0.003, 0.005])
    reference = Reference(arrivals.tolist(), times.tolist(), 2, "central_queue", idle_extra=0.003)
    assert found.mean.value_s == pytest.approx(np.mean(reference.response), rel=1e-3)
    assert model.saturated_rps == pytest.approx(2 * 4 / 0.025)
    assert model.notes == (
        "The profile keeps no calls in order: their times are drawn one by one, so stalls do not cluster.",
    )


def test_what_a_profile_lacks_is_said() -> None:
    """No calls in order, no joining, no idle starts: three sentences, and a forecast all the same."""
    notes = model_of(profile_of()).notes
    assert [
        word for word in ("in order", "putting batches", "idle replica") if any(word in note for note in notes)
    ] == [
        "in order",
        "putting batches",
        "idle replica",
    ]
    assert not any("putting batches" in note for note in model_of(profile_of(), max_batch=1).notes)


def test_a_cold_call_is_compared_with_warm_ones_of_the_fewest_replicas_and_never_faster() -> None:
    """One that came out faster is noise: only the gap is left."""
    start = IdleStart(
        threads=1,
        batch_size=1,
        count=9,
        gap=Histogram(first_bin=-320, counts=(5, 5)),
        gap_mean_s=0.001,
        service=histogram(np.array([0.009])),
        service_mean_s=0.009,
    )
    sample = model_of(profile_of(idle_starts=(start,))).idle_start_s
    assert sample is not None
    assert 2**-10 <= sample.min() < sample.max() <= 2 ** (-318 / 32)


def truth_s(model: ServiceModel, arrivals: Array, *, scale: float, seed: int) -> Array:
    """Response times of a machine whose services take ``scale`` times what the profile says."""
    law = model.law(scale)
    rngs = [np.random.default_rng(child) for child in np.random.SeedSequence([99, seed]).spawn(2)]
    return run_pool(Pool(2, law), arrivals, *rngs).response_s


def noisy_profile(error: float) -> Profile:
    """As `profile_of`, with calls whose times vary by 30 %."""
    rng = np.random.default_rng(3)
    calls = {size: mean * rng.lognormal(-0.045, 0.3, 1000) for size, mean in TIMES_S.items()}
    base = profile_of(error)
    cells = tuple(
        cell.model_copy(
            update={
                "series_s": tuple(calls[cell.batch_size or 0].tolist()),
                "histogram": histogram(calls[cell.batch_size or 0]),
            }
        )
        for cell in base.cells
    )
    return base.model_copy(update={"cells": cells})


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Of 120 machines whose speed is drawn from the profile's interval, about 95 % lie inside: 108 at least.

    With a chance of 0.95 fewer than 108 of 120 would be seen once in a hundred times; the seeds are fixed.
    """
    error, machines = 0.05, 120
    model = model_of(noisy_profile(error))
    rng = np.random.default_rng(5)
    inside = {"mean": 0, "p95": 0, "p99": 0}
    for machine in range(machines):
        arrivals = arrivals_of(0.6, 600, seed=machine)
        scale = float(np.exp(rng.standard_normal() * error / 1.96))
        seen = truth_s(model, arrivals, scale=scale, seed=machine)[100:]
        found = forecast(model, arrivals, counted_from=100, ratio=EXACT, seed=machine, replications=100)
        figures = {"mean": seen.mean(), "p95": np.percentile(seen, 95), "p99": np.percentile(seen, 99)}
        for name, value in figures.items():
            predicted = getattr(found, name)
            inside[name] += predicted.low_s <= value <= predicted.high_s
    assert min(inside.values()) >= 108
    # An interval that holds everything would be no prediction.
    assert sum(inside.values()) < 3 * machines


def test_a_machine_that_wanders_is_expected_to_wander_on() -> None:
    """Windows that differ by 4 % widen the interval, though the mean of many is well known."""
    base = noisy_profile(0.005)
    means = [1 + 0.04 * sign for sign in (-1, 1) * 10]
    cells = tuple(
        cell.model_copy(
            update={"repeats": tuple(repeat(cell.service_mean_s * mean, cell.batch_size) for mean in means)}
        )
        for cell in base.cells
    )
    wandering = model_of(base.model_copy(update={"cells": cells}))
    assert wandering.wander_frac == pytest.approx(0.04 * np.sqrt(20 / 19))
    arrivals = arrivals_of(0.6, 600)
    still, moved = (
        forecast(model, arrivals, counted_from=0, ratio=EXACT, seed=1).mean for model in (model_of(base), wandering)
    )
    assert moved.high_s - moved.low_s > 2 * (still.high_s - still.low_s)


def test_the_machine_wanders_in_all_cells_and_disturbed_windows_say_nothing_about_it() -> None:
    """Windows of every cell tell, each about the mean of its own, also of batches that the server does not make."""
    cell = profile_of().cells[0]
    windows = (repeat(0.010, 1), repeat(0.010, 1), repeat(0.030, 1, rejected=("STEAL: 2 %.",)))
    still = cell.model_copy(update={"repeats": windows})
    assert model_of(profile_of(cells=(still,)), max_batch=1).wander_frac == 0
    large = profile_of().cells[2].model_copy(update={"repeats": (repeat(0.019, 4), repeat(0.021, 4))})
    wander = model_of(profile_of(cells=(still, large)), max_batch=1).wander_frac
    assert wander == pytest.approx(0.05)  # √((0 + 0 + 0.05² + 0.05²) / (1 + 1))


def test_a_wrong_scale_lies_outside() -> None:
    """A machine a quarter slower than an exact profile says is found out."""
    model = model_of(noisy_profile(0.01))
    arrivals = arrivals_of(0.6, 1000)
    seen = truth_s(model, arrivals, scale=1.25, seed=1)
    found = forecast(model, arrivals, counted_from=0, ratio=EXACT, seed=1)
    assert seen.mean() > found.mean.high_s
    assert np.percentile(seen, 99) > found.p99.high_s


def test_the_anchor_rescales_and_its_doubt_widens() -> None:
    """A ratio of 1.25 brings the same machine inside; an uncertain ratio gives a wider interval."""
    model = model_of(noisy_profile(0.01))
    arrivals = arrivals_of(0.6, 1000)
    seen = truth_s(model, arrivals, scale=1.25, seed=1)
    sure, unsure = (
        forecast(model, arrivals, counted_from=0, ratio=SpeedRatio(1.25, error), seed=1) for error in (0.0, 0.1)
    )
    assert sure.p99.low_s <= np.percentile(seen, 99) <= sure.p99.high_s
    assert unsure.mean.high_s - unsure.mean.low_s > 2 * (sure.mean.high_s - sure.mean.low_s)


def test_equal_inputs_give_equal_forecasts() -> None:
    """The seed fixes everything that is drawn."""
    model = model_of(noisy_profile(0.02))
    first, second = (
        forecast(model, arrivals_of(0.5, 200), counted_from=0, ratio=EXACT, seed=4, replications=20) for _ in range(2)
    )
    assert first == second


def test_a_configuration_that_was_not_measured_is_refused() -> None:
    """The sentence names those that were."""
    with pytest.raises(InputError, match="2 × 1 threads"):
        service_model(profile_of(), ServerSetup(Configuration(2, 2), 1))


def test_quantiles_of_a_histogram_have_its_mean() -> None:
    """Evenly spread quantiles stand for the sample: equal means to within the width of a bin."""
    sample = np.random.default_rng(2).exponential(0.003, 5000) + 1e-5
    assert quantiles_s(histogram(sample), 1000).mean() == pytest.approx(sample.mean(), rel=0.02)
