"""A window: all replicas at work at once, warm before it starts, and every call on two clocks."""

import itertools
import threading
import time

import numpy as np
import pytest

from advisor.errors import MeasurementError
from advisor.profiling import window as window_module
from advisor.profiling.window import WarmUp, WarmUpTimes, WindowRules, has_settled, nothing, run_window

HANG_S = 60.0
"""No call waits longer for another one: a hang guard, far beyond any delay of a busy machine."""
QUICK = WindowRules(warmup_calls=3, warmup_s=0.0, min_calls=5, min_s=0.02)


class Calling:
    """A replica that does what it is given."""

    def __init__(self, call):
        self._call, self.calls = call, 0

    def call(self, item):
        """Count, and do it with the number of the call, from 1."""
        self.calls += 1
        self._call(self.calls)


class Restless:
    """A replica that takes at least a tenth longer with every call, by its own clock and whatever else runs."""

    last_s = 0.0

    def call(self, item):
        """Sleep longer than the call before took."""
        started = time.perf_counter()
        time.sleep(1.1 * self.last_s)
        self.last_s = time.perf_counter() - started


def test_the_window_ends_with_the_first_caller_to_finish():
    """A caller far slower does not lengthen the window; its call that began inside is kept whole, as long as it was."""
    begun, inside, over = threading.Event(), threading.Event(), threading.Event()

    def observe():
        at_ns = time.perf_counter_ns()
        (over if begun.is_set() else begun).set()
        return at_ns

    def wait_for_the_slow(call):
        if begun.is_set():
            assert inside.wait(HANG_S)

    def last_beyond_the_end(call):
        if begun.is_set():
            inside.set()
            assert over.wait(HANG_S)

    rules = WindowRules(warmup_calls=1, warmup_s=0.0, min_calls=5, min_s=0.0, cap_s=HANG_S, settle=False)
    engines = [Calling(wait_for_the_slow), Calling(last_beyond_the_end)]
    window = run_window(engines, [1], rules, threads=1, observe=observe)
    assert window.first_caller_calls == 5
    assert len(window.service_s) == 6
    assert window.starts_ns[5] + window.service_ns[5] >= window.after
    assert window.duration_s < window.service_s[5] + (window.starts_ns[5] - window.before) / 1e9
    assert 5 <= window.calls < 6


def test_the_warm_up_goes_on_until_the_times_have_settled():
    """Three calls would be enough for the count; the first, slow one is kept."""
    engine = Calling(lambda call: time.sleep(0.05 if call == 1 else 0.007))
    window = run_window([engine], [1], QUICK, threads=1, observe=nothing)
    assert window.warm_up.calls >= 9
    assert window.warm_up.first_call_s >= 0.05


def warm_up(times_s, rules=QUICK):
    """Tell what a warm-up of calls of these times was."""
    times = WarmUpTimes(rules)
    pairs = zip(times_s, itertools.accumulate(times_s), strict=True)
    found = (times.add(call_s, elapsed_s) for call_s, elapsed_s in pairs)
    return next((result for result in found if result is not None), None)


@pytest.mark.parametrize(
    ("times_s", "cap_s", "expected"),
    [
        ([0.5, 0.2, *[0.1] * 20], 10.0, WarmUp(12, 0.5, True)),
        ([0.1 * 1.1**call for call in range(40)], 1.8, WarmUp(11, 0.1, False)),
        ([0.5] * 8, 4.0, WarmUp(8, 0.5, None)),
        ([0.4] * 9, 3.5, WarmUp(9, 0.4, True)),
    ],
)
def test_a_warm_up_tells_the_truth_about_its_times(times_s, cap_s, expected):
    """They settled, or the cap came before they did, or before there were enough calls to tell."""
    rules = WindowRules(warmup_calls=3, warmup_s=0.0, cap_s=cap_s)
    assert warm_up(times_s, rules) == expected


def test_where_nobody_asks_the_warm_up_is_as_long_as_its_rules():
    """So many calls, and so much time."""
    rules = WindowRules(warmup_calls=3, warmup_s=0.45, settle=False)
    assert warm_up([0.1] * 9, rules) == WarmUp(5, 0.1, True)
    assert warm_up([0.3] * 9, rules) == WarmUp(3, 0.3, True)


def test_times_are_looked_at_once_a_stretch(monkeypatch):
    """Python computes nothing about a call of 1 ms in 19 cases of 20: its lock is for the other callers."""
    lengths = []

    def listening(times_s):
        lengths.append(len(times_s))
        return has_settled(times_s)

    monkeypatch.setattr(window_module, "has_settled", listening)
    assert warm_up([1e-3 * 1.003**call for call in range(200)]) is None
    assert 5 <= sum(length > 60 for length in lengths) <= 12


def test_a_warm_up_that_never_settles_ends_at_the_cap():
    """The window says so."""
    rules = WindowRules(warmup_calls=3, warmup_s=0.0, min_calls=1, min_s=0.0, cap_s=0.1)
    found = run_window([Restless()], [1], rules, threads=1, observe=nothing).warm_up
    assert found.settled is (False if found.calls >= 9 else None)


def test_one_caller_that_has_not_settled_is_enough_to_say_so():
    """The first caller's times are steady; the other's are not."""
    rules = WindowRules(warmup_calls=3, warmup_s=0.0, min_calls=1, min_s=0.0, cap_s=1.0)
    steady = Calling(lambda call: time.sleep(0.01))
    assert run_window([steady, Restless()], [1], rules, threads=1, observe=nothing).warm_up.settled is not True


ENOUGH = WindowRules(warmup_calls=3, warmup_s=0.0, min_calls=5, min_s=0.0, settle=False)


class KeptCompany:
    """Two replicas: the second stays in one call of its warm-up until the first has made ten."""

    def __init__(self, *, waits_in=2, then_breaks=False):
        self.ten, self.seen, self.waits_in, self.then_breaks = threading.Event(), [], waits_in, then_breaks

    def engines(self):
        """Give both."""
        return [Calling(self._count), Calling(self._wait)]

    def _count(self, call):
        if call == 10:
            self.ten.set()

    def _wait(self, call):
        if call == self.waits_in:
            self.seen.append(self.ten.wait(10.0))
            if self.then_breaks:
                raise MeasurementError("it broke.")


def test_a_caller_that_is_warm_goes_on_until_the_others_are():
    """Else they would settle on a machine quieter than in the window. What it does then is not in its warm-up."""
    pair = KeptCompany()
    window = run_window(pair.engines(), [1], ENOUGH, threads=1, observe=nothing)
    assert pair.seen == [True]
    assert window.warm_up.calls == 3


def test_a_cap_reached_by_one_caller_waits_for_the_call_of_another():
    """The first has its cap behind it while the second still is in its first call."""
    pair = KeptCompany(waits_in=1)
    rules = WindowRules(warmup_calls=100, warmup_s=60.0, min_calls=1, min_s=0.0, cap_s=0.0)
    window = run_window(pair.engines(), [1], rules, threads=1, observe=nothing)
    assert pair.seen == [True]
    assert (window.warm_up.calls, window.warm_up.settled) == (1, None)


def test_a_failure_in_the_warm_up_frees_the_callers_that_are_warm():
    """The sentence is that of the one that failed."""
    with pytest.raises(MeasurementError, match=r"^it broke\.$"):
        run_window(KeptCompany(then_breaks=True).engines(), [1], ENOUGH, threads=1, observe=nothing)


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


def test_all_callers_are_at_work_in_the_window():
    """All three are inside a call at the same moment, and together count no more time than there was."""
    begun, all_inside = threading.Event(), threading.Barrier(3)
    met = [threading.Event() for _ in range(3)]

    def meet_once(index):
        def call(_):
            if begun.is_set() and not met[index].is_set():
                all_inside.wait(HANG_S)
                met[index].set()
            time.sleep(0.002)

        return call

    engines = [Calling(meet_once(index)) for index in range(3)]
    window = run_window(engines, [1], QUICK, threads=1, observe=begun.set)
    assert all(event.is_set() for event in met)
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
