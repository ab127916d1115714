"""What single calls tell before the measurement: above all what fits into memory."""

import pytest

from advisor.domain.profile import ModelInfo, RuntimeInfo
from advisor.profiling import memory
from advisor.profiling.cell import Configuration
from advisor.profiling.engines import OutOfMemory
from advisor.profiling.grid import plan_grid
from advisor.profiling.rehearsal import Limits, Rehearsal, fit_machine, rehearse
from advisor.profiling.window import WindowRules

QUICK = WindowRules(warmup_calls=3, warmup_s=0.0, min_calls=5, min_s=0.02)


def rehearsal(memory_gib):
    """One replica that takes so much memory by batch size."""
    times_s = dict.fromkeys(memory_gib, 0.01)
    return Rehearsal(ModelInfo(name="m"), RuntimeInfo(name="r"), 0.1, times_s, times_s, memory_gib, on_cpus=True)


@pytest.fixture
def gib_available(monkeypatch):
    """Give the function that says how much memory the machine has left, of which four fifths are used."""
    return lambda gib: monkeypatch.setattr(memory, "available_gib", lambda: gib / 0.8)


@pytest.mark.parametrize(
    ("gib", "left", "told"),
    [
        (13.0, [(1, 4), (4, 1), (1, 1)], 0),
        (10.0, [(1, 2), (4, 1), (1, 1)], 1),
        (5.0, [(1, 1)], 2),
        (1.0, [(1, 1)], 2),
    ],
)
def test_replicas_are_given_up_until_all_fit(gib_available, gib, left, told):
    """The configuration that takes most gives up first; one replica is always left, for it ran in the rehearsal."""
    gib_available(gib)
    ways = [Configuration(1, 4), Configuration(4, 1), Configuration(1, 1)]
    places, warnings = fit_machine(ways, {1: rehearsal({1: 2.0}), 4: rehearsal({1: 3.0})}, [1], memory)
    assert [(place.threads, place.concurrency) for place in places] == left
    assert sum(warning.startswith("MEMORY") for warning in warnings) == told


def test_replicas_whose_memory_is_not_known_are_taken_to_fit(gib_available):
    """No figure, no reason to leave anything out."""
    gib_available(0.1)
    places, warnings = fit_machine([Configuration(1, 2)], {1: rehearsal({1: None})}, [1], memory)
    assert places == (Configuration(1, 2),)
    assert not [warning for warning in warnings if warning.startswith("MEMORY")]


def test_a_batch_that_would_fill_the_memory_is_not_tried(sleeping_model, monkeypatch):
    """Memory that grew from 1 to 2 GiB with two items would be 4 with four; 3 are left."""
    grown_gib = {0: 0.0, 1: 1.0, 2: 2.0, 4: 4.0}
    largest = 0

    class Growing(sleeping_model):
        """A model whose replicas keep the memory of their largest batch."""

        def open(self, threads, *, concurrency):
            engine = super().open(threads, concurrency=concurrency)
            call = engine.call

            def grow(item):
                nonlocal largest
                largest = max(largest, item)
                call(item)

            engine.call = grow
            return engine

    monkeypatch.setattr(memory, "resident_gib", lambda: grown_gib[largest])
    monkeypatch.setattr(memory, "can_measure_growth", lambda: True)
    monkeypatch.setattr(memory, "available_gib", lambda: (3.0 - grown_gib[largest]) / 0.8)
    found = rehearse(Growing(1e-5), 1, [1, 2, 4], Limits(rules=QUICK, repeat_s=9.0, seed=0))
    assert list(found.call_s) == [1, 2]
    assert largest == 2
    largest = 0
    plan = plan_grid(Growing(1e-5), batch_sizes=(1, 2, 4), configurations=[Configuration(1, 1)], rules=QUICK)
    assert plan.batch_sizes == (1, 2)
    assert plan.warnings[0] == "MEMORY: batch 4 at 1 threads was left out, since it would not fit into memory."


def test_a_batch_for_which_the_model_finds_no_room_is_left_out(sleeping_model):
    """Smaller ones are measured, and a warning names it; without room for the smallest there is nothing to measure."""
    places = [Configuration(1, 1)]
    plan = plan_grid(sleeping_model(1e-4, room=2), batch_sizes=(1, 2, 4, 8), configurations=places, rules=QUICK)
    assert plan.batch_sizes == (1, 2)
    assert [warning.split(" at ")[0] for warning in plan.warnings] == ["MEMORY: batch 4", "MEMORY: batch 8"]
    with pytest.raises(OutOfMemory, match="no room for batch 4"):
        plan_grid(sleeping_model(room=2), batch_sizes=(4,), configurations=places, rules=QUICK)
