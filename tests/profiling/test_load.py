"""The load follows its schedule whatever the server does, and lateness counts."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.profiling.load import drive, poisson_arrivals, schedule


def never() -> bool:
    """Say that nothing failed."""
    return False


@given(st.floats(0.1, 1e4), st.integers(1, 200), st.integers(0, 2**32 - 1))
def test_arrivals_increase_and_depend_on_the_seed_alone(rate_rps: float, count: int, seed: int) -> None:
    """Equal seeds give equal arrivals; there are as many as asked for."""
    first, second = (poisson_arrivals(rate_rps, count, np.random.default_rng(seed)) for _ in range(2))
    assert np.array_equal(first, second)
    assert first.size == count
    assert np.all(np.diff(first) >= 0)
    assert first[0] > 0


def test_gaps_are_exponential_with_the_rate() -> None:
    """Mean 1/λ and a squared coefficient of variation of one, within three standard errors."""
    count = 20_000
    gaps = np.diff(poisson_arrivals(50.0, count, np.random.default_rng(7)))
    assert gaps.mean() == pytest.approx(1 / 50.0, rel=3 / np.sqrt(count))
    # The variance of the sample variance of an exponential law is 8 μ⁴/n.
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(1.0, abs=3 * np.sqrt(8 / count))


def test_no_request_leaves_before_its_time() -> None:
    """The time sent is never before the schedule, and requests leave in order, each once."""
    taken: list[int] = []
    due_ns = schedule(np.linspace(0.0, 0.058, 30), time.perf_counter_ns() + 5_000_000)
    sent_ns = drive(taken.append, due_ns, failed=never)
    assert taken == list(range(30))
    assert np.all(sent_ns >= due_ns)


def test_a_stall_does_not_move_the_schedule() -> None:
    """Requests due during a stall of the generator leave after it, and are late by what was left of the stall."""
    stall_s = 0.1
    due_ns = schedule(np.linspace(0.0, 0.19, 20), time.perf_counter_ns() + 5_000_000)

    def put(request: int) -> None:
        if request == 5:
            time.sleep(stall_s)

    late_s = (drive(put, due_ns, failed=never) - due_ns) / 1e9
    for behind in range(1, 9):
        assert late_s[5 + behind] >= stall_s - 0.01 * behind


def test_a_time_that_is_over_is_sent_at_once() -> None:
    """A schedule in the past is worked off without sleeping: all is sent before an hour has gone by."""
    due_ns = schedule(np.zeros(100), time.perf_counter_ns() - 3_600_000_000_000)
    sent_ns = drive(lambda _: None, due_ns, failed=never)
    assert np.all((sent_ns - due_ns) / 1e9 >= 3600)


def test_a_failed_server_gets_no_more_requests() -> None:
    """The rest of the schedule is left out."""
    taken: list[int] = []
    due_ns = schedule(np.zeros(10), time.perf_counter_ns())
    sent_ns = drive(taken.append, due_ns, failed=lambda: len(taken) == 4)
    assert taken == [0, 1, 2, 3]
    assert np.count_nonzero(sent_ns) == 4
