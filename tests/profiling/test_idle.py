"""Idle starts: a worker that sleeps is woken for each call, and a batch is made of single items."""

import numpy as np
import pytest

from advisor.errors import MeasurementError
from advisor.profiling.idle import JOINS, measure_idle_starts, measure_join_s


def test_every_call_follows_a_request(sleeping_model):
    """Gaps and calls come in pairs, and a call lasts at least as long as it sleeps."""
    engine = sleeping_model(0.002).open(1, concurrency=1)
    found = measure_idle_starts(engine, [1, 2], service_s=1e-4, seconds=0.1, rng=np.random.default_rng(0))
    assert found.gap_s.size == found.service_s.size >= 2
    assert found.service_s[0::2].min() >= 0.002
    assert found.service_s[1::2].min() >= 0.004
    assert found.gap_s.min() > 0


def test_there_are_two_calls_however_short_the_time(sleeping_model):
    """A model too slow for the time still gives a mean of two."""
    engine = sleeping_model(0.01).open(1, concurrency=1)
    found = measure_idle_starts(engine, [1], service_s=1e-3, seconds=0.0, rng=np.random.default_rng(0))
    assert found.service_s.size == 2


def test_a_replica_that_fails_is_its_own_sentence(sleeping_model):
    """The requests stop, and nobody waits for an answer that never comes."""
    engine = sleeping_model(fail_after=1).open(1, concurrency=1)
    with pytest.raises(MeasurementError, match="it broke"):
        measure_idle_starts(engine, [1], service_s=1e-4, seconds=5.0, rng=np.random.default_rng(0))


def test_the_first_call_of_a_sleeping_engine_is_not_counted(sleeping_model):
    """It pays for other things than idleness; the calls that count begin with the first input."""
    engine = sleeping_model(0.001).open(1, concurrency=1)
    items = []

    def remember(item):
        items.append(item)

    engine.call = remember
    found = measure_idle_starts(engine, ["a", "b", "c"], service_s=1e-4, seconds=0.0, rng=np.random.default_rng(0))
    assert items == ["c", "a", "b"]
    assert found.gap_s.size == found.service_s.size == 2


def test_a_replica_that_fails_at_once_keeps_nobody_waiting(sleeping_model):
    """Its first call, that does not count, breaks."""
    engine = sleeping_model(fail_after=0).open(1, concurrency=1)
    with pytest.raises(MeasurementError, match="it broke"):
        measure_idle_starts(engine, [1], service_s=1e-4, seconds=5.0, rng=np.random.default_rng(0))


def test_the_batch_is_made_of_as_many_single_items(tiny_model):
    """Joined items are the same numbers, in their order."""
    engine, rng = tiny_model.open(1, concurrency=1), np.random.default_rng(0)
    singles = [engine.prepare(1, rng) for _ in range(3)]
    joined = engine.join(singles)["features"]
    np.testing.assert_array_equal(joined, np.concatenate([single["features"] for single in singles]))


def test_a_batch_is_joined_several_times(sleeping_model):
    """Every try joins as many items as the batch has."""

    class Counting:
        """An engine that only joins."""

        sizes: list[int] = []  # noqa: RUF012 - one instance, one list

        def prepare(self, batch_size, rng):
            """Give the batch size."""
            return batch_size

        def join(self, items):
            """Remember how many."""
            self.sizes.append(len(items))

    engine = Counting()
    assert measure_join_s(engine, 7, np.random.default_rng(0)) >= 0
    assert engine.sizes == [7] * (1 + JOINS)
