"""A window: all replicas at work at once, warm before it starts, and every call on two clocks."""

import time

import numpy as np
import pytest

from advisor.errors import MeasurementError
from advisor.profiling.window import WindowRules, has_settled, nothing, run_window


def test_the_window_ends_with_the_first_caller_to_finish(sleeping_model):
    """A caller far slower does not lengthen the window; its call that began inside is kept whole, as long as it was."""
    fast, slow = sleeping_model(0.002).open(1, concurrency=2), sleeping_model(0.3).open(1, concurrency=2)
    rules = WindowRules(warmup_calls=1, warmup_s=0.0, min_calls=5, min_s=0.0, settle=False)
    window = run_window([fast, slow], [1], rules, threads=1, observe=nothing)
    assert window.duration_s < 0.3
    assert len(window.service_s) == 6
    assert window.service_s.max() >= 0.3
    assert 5 <= window.calls < 6


QUICK = WindowRules(warmup_calls=3, warmup_s=0.0, min_calls=5, min_s=0.02)


def test_the_warm_up_goes_on_until_the_times_have_settled(sleeping_model):
    """A model that starts slowly is called more often, and the first call is kept."""

    class Starting:
        """A replica whose first calls are slow."""

        calls = 0

        def call(self, item):
            """Sleep less from call to call, down to 1 ms."""
            self.calls += 1
            time.sleep(max(0.001, 0.02 - 0.002 * self.calls))

    window = run_window([Starting()], [1], QUICK, threads=1, observe=nothing)
    assert window.warm_up.settled
    assert window.warm_up.calls > 18
    assert window.warm_up.first_call_s >= 0.018


def test_a_warm_up_that_never_settles_ends_at_the_cap():
    """The window says so."""

    class Restless:
        """A replica that slows down for ever."""

        calls = 0

        def call(self, item):
            """Sleep longer from call to call."""
            self.calls += 1
            time.sleep(0.0005 * 1.1**self.calls)

    rules = WindowRules(warmup_calls=3, warmup_s=0.0, min_calls=1, min_s=0.0, cap_s=0.1)
    assert run_window([Restless()], [1], rules, threads=1, observe=nothing).warm_up.settled is False


def test_calls_too_slow_to_tell_are_not_called_restless(sleeping_model):
    """Fewer than nine calls before the cap say nothing about whether times have settled."""
    rules = WindowRules(warmup_calls=3, warmup_s=0.0, min_calls=1, min_s=0.0, cap_s=0.1)
    engine = sleeping_model(0.04).open(1, concurrency=1)
    assert run_window([engine], [1], rules, threads=1, observe=nothing).warm_up.settled is None


def test_settled_means_three_stretches_alike():
    """Stretches are three calls, or as many as last 20 ms."""
    assert not has_settled([0.1] * 8)
    assert has_settled([0.1] * 9)
    assert has_settled([0.3] * 9 + [0.1] * 9)
    assert not has_settled([0.1] * 6 + [0.106] * 3)
    assert not has_settled([1e-3] * 59)
    assert has_settled([1e-3] * 60)


def test_surroundings_are_looked_at_once_before_and_once_after(sleeping_model):
    """In the moments when no caller is in a call that counts."""
    seen = []

    def observe():
        seen.append(time.perf_counter_ns())
        return len(seen)

    engines = [sleeping_model(0.001).open(1, concurrency=3) for _ in range(3)]
    window = run_window(engines, [1], QUICK, threads=1, observe=observe)
    assert (window.before, window.after) == (1, 2)
    assert seen[0] <= window.starts_ns.min()
    assert seen[1] >= window.starts_ns.max()


def test_all_callers_are_at_work_in_the_window(sleeping_model):
    """Three callers together are in calls for more than twice as long as the window lasts."""
    engines = [sleeping_model(0.002).open(1, concurrency=3) for _ in range(3)]
    window = run_window(engines, [1], QUICK, threads=1, observe=nothing)
    assert window.service_s.sum() > 2 * window.duration_s
    assert window.calls * 0.002 <= 3 * window.duration_s


def test_the_failure_of_one_caller_is_the_sentence_of_the_window(sleeping_model):
    """Not the broken barrier of the others."""
    model = sleeping_model(fail_after=4)
    engines = [model.open(1, concurrency=2) for _ in range(2)]
    with pytest.raises(MeasurementError, match=r"^sleeper: it broke\.$"):
        run_window(engines, [1], QUICK, threads=1, observe=nothing)


def test_service_times_are_wall_times_of_whole_calls(sleeping_model):
    """Seconds and nanoseconds are the same times, none shorter than the sleep."""
    window = run_window([sleeping_model(0.002).open(1, concurrency=1)], [1], QUICK, threads=1, observe=nothing)
    assert window.service_s.min() >= 0.002
    assert np.array_equal(window.service_s, window.service_ns / 1e9)
    assert window.duration_s >= window.service_s.sum()
