"""The protocol: a plan that fits its time, windows that overlap, and a profile that can be read again."""

import datetime
import itertools

import numpy as np
import pytest

from advisor.domain.profile import Profile
from advisor.domain.record import parse_record
from advisor.errors import InputError, MeasurementError
from advisor.profiling.bench import measure
from advisor.profiling.environment import usable_cpus
from advisor.profiling.grid import Configuration, PlannedCell, fit_budget, plan_grid
from advisor.profiling.window import WindowRules, run_window

TODAY = datetime.date(2026, 1, 2)
QUICK = WindowRules(warmup_calls=3, warmup_s=0.0, min_calls=5, min_s=0.02)
TWO_WAYS = (Configuration(threads=1, concurrency=2), Configuration(threads=2, concurrency=1))


def planned(call_s, *, batch_sizes=(1, 2, 4), threads=1, concurrency=1):
    """Cells whose call time is proportional to the batch."""
    place = Configuration(threads, concurrency)
    return [PlannedCell(size, place, call_s=call_s * size, prepare_s=0.0, memory_gib=None) for size in batch_sizes]


def test_a_model_is_measured_from_end_to_end(tiny_model):
    """A real model gives a complete profile, and the file read again is the same value."""
    plan = plan_grid(tiny_model, batch_sizes=(4, 1), configurations=TWO_WAYS, repeats=2, rules=QUICK)
    seen = []
    profile = measure(tiny_model, plan, today=TODAY, on_progress=lambda *state: seen.append(state))
    assert parse_record(Profile, profile.model_dump_json(), file="tiny.json") == profile
    assert profile.status == "complete"
    assert profile.evidence.source == "advisor profile tiny.onnx"
    assert profile.evidence.date == TODAY
    assert profile.profile_id.startswith("tiny-fp32-")
    assert [(cell.batch_size, cell.threads, cell.concurrency) for cell in profile.cells] == [
        (1, 1, 2),
        (4, 1, 2),
        (1, 2, 1),
        (4, 2, 1),
    ]
    for cell in profile.cells:
        assert cell.count == sum(cell.histogram.counts) >= 10
        assert cell.cpu_mean_s > 0
        assert cell.mean_ci95_frac is not None
        assert 2 <= len(cell.series_s) <= min(1000, cell.count)
        assert max(cell.series_s) <= cell.service_max_s * (1 + 1e-4)
    assert [state[:2] for state in seen] == [(done, 8) for done in range(9)]
    assert seen[-1][2] == 0
    assert "items/s" in seen[-1][3]
    assert profile.environment["steal_frac"] is not None


def test_options_that_differ_between_configurations_are_all_recorded(tiny_model):
    """Spinning is on for one replica on two threads, off for two replicas."""
    plan = plan_grid(tiny_model, batch_sizes=(1,), configurations=TWO_WAYS, repeats=1, rules=QUICK)
    options = measure(tiny_model, plan, today=TODAY).runtime.options
    assert options["allow_spinning[threads=1,concurrency=2]"] is False
    assert options["allow_spinning[threads=2,concurrency=1]"] is True
    assert options["inter_op_threads"] == 1


def test_the_default_grid_keeps_all_cpus_busy(sleeping_model):
    """One replica on each CPU, and one replica on all."""
    plan = plan_grid(sleeping_model(1e-5), batch_sizes=(1,), rules=QUICK)
    cpus = usable_cpus()
    assert set(plan.configurations) == {Configuration(1, cpus), Configuration(cpus, 1)}
    assert plan.warnings == ()


def test_replicas_together_answer_more_than_one(sleeping_model):
    """Three replicas that only sleep have three times the throughput of one, over the same overlap."""
    model = sleeping_model(0.002)
    places = (Configuration(1, 1), Configuration(1, 3))
    plan = plan_grid(model, batch_sizes=(2,), configurations=places, repeats=1, rules=QUICK)
    alone, together = measure(model, plan, today=TODAY).cells
    assert together.throughput_rps == pytest.approx(3 * alone.throughput_rps, rel=0.35)
    assert alone.throughput_rps == pytest.approx(2 / alone.service_mean_s, rel=0.25)
    assert all(engine.closed for engine in model.opened)


def test_a_call_that_waits_is_told_by_its_two_clocks(sleeping_model):
    """Sleep takes wall time and no CPU time, which at one thread is a warning."""
    plan = plan_grid(sleeping_model(), batch_sizes=(1,), configurations=[Configuration(1, 1)], repeats=1, rules=QUICK)
    (cell,) = measure(sleeping_model(), plan, today=TODAY).cells
    assert cell.cpu_mean_s < 0.5 * cell.service_mean_s
    codes = {warning.split(":")[0] for warning in cell.warnings}
    assert {"WALL_OVER_CPU", "UNSETTLED", "FEW_SAMPLES", "MEMORY_UNKNOWN"} <= codes
    assert cell.service_p99_s is None
    assert cell.mean_ci95_frac is None


def test_the_window_ends_with_the_first_caller_to_finish(sleeping_model):
    """A caller far slower neither lengthens the window nor adds a call that was not whole inside."""
    fast, slow = sleeping_model(0.002).open(1, concurrency=2), sleeping_model(0.3).open(1, concurrency=2)
    rules = WindowRules(warmup_calls=1, warmup_s=0.0, min_calls=5, min_s=0.0)
    window = run_window([fast, slow], [1], rules, threads=1)
    assert window.duration_s < 0.3
    assert len(window.service_s) == 5
    assert 5 < window.calls < 6


def test_an_interrupt_keeps_the_whole_cells(sleeping_model):
    """Stopped after the first window, the profile is partial and says so."""
    model = sleeping_model()
    plan = plan_grid(model, batch_sizes=(1, 2), configurations=[Configuration(1, 1)], repeats=2, rules=QUICK)

    def stop_after_one(done, total, seconds_left, line):
        if done == 1:
            raise KeyboardInterrupt

    profile = measure(model, plan, today=TODAY, on_progress=stop_after_one)
    assert profile.status == "partial"
    assert len(profile.cells) == 1
    assert any(warning.startswith("STOPPED") for warning in profile.warnings)
    assert profile.cells[0].warnings[0].startswith("STOPPED: 1 of 2 repeats")
    assert all(engine.closed for engine in model.opened)


def test_an_interrupt_before_the_first_cell_leaves_nothing(sleeping_model):
    """Without a whole cell there is no profile, only the interrupt."""
    model = sleeping_model()
    plan = plan_grid(model, batch_sizes=(1,), configurations=[Configuration(1, 2)], repeats=1, rules=QUICK)

    def stop_at_once(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(model, plan, today=TODAY, on_progress=stop_at_once)
    assert all(engine.closed for engine in model.opened)


def test_a_replica_that_fails_ends_the_measurement_with_its_sentence(sleeping_model):
    """The other callers stop too, and their broken barrier is not what the user reads."""
    plan = plan_grid(sleeping_model(), batch_sizes=(1,), configurations=[Configuration(1, 3)], repeats=1, rules=QUICK)
    model = sleeping_model(fail_after=4)
    with pytest.raises(MeasurementError, match=r"^sleeper: it broke\.$"):
        measure(model, plan, today=TODAY)
    assert all(engine.closed for engine in model.opened)


def test_a_fixed_batch_is_the_only_one_planned(sleeping_model):
    """Whatever was asked for."""
    plan = plan_grid(sleeping_model(fixed_batch_size=1), batch_sizes=(2, 4), rules=QUICK)
    assert plan.batch_sizes == (1,)


def test_a_batch_that_cannot_fit_is_not_even_tried(sleeping_model):
    """Its time is extrapolated from smaller ones, so that planning is quick."""
    model = sleeping_model(0.01)
    plan = plan_grid(model, batch_sizes=(1, 1000), configurations=[Configuration(1, 1)], rules=QUICK, budget_s=3.0)
    assert plan.batch_sizes == (1,)
    assert plan.estimated_s < 3
    assert model.calls <= 2
    assert plan.warnings[0].startswith("BUDGET: batch 1000 was left out")


def test_a_short_budget_shortens_windows_first():
    """Nothing is dropped while shorter windows are enough, and the total fits."""
    cells = planned(0.001)
    kept, rules, changes = fit_budget(cells, WindowRules(), repeats=3, budget_s=8.0)
    assert list(kept) == cells
    assert 0.2 <= rules.min_s < 1.0
    assert 3 * sum(cell.seconds(rules) for cell in kept) <= 8.0
    assert len(changes) == 1


def test_a_shorter_budget_drops_the_largest_batches():
    """Eight calls of 0.4 s, three times, do not fit into 5 s; those of 0.1 s do."""
    kept, rules, changes = fit_budget(planned(0.1), WindowRules(), repeats=3, budget_s=5.0)
    assert [cell.batch_size for cell in kept] == [1]
    assert [change.split(" was")[0] for change in changes[:2]] == ["BUDGET: batch 4", "BUDGET: batch 2"]
    assert 3 * kept[0].seconds(rules) <= 5.0


def test_the_smallest_batch_stays_whatever_it_costs():
    """A profile has at least one cell; the plan says that it takes longer."""
    kept, _, changes = fit_budget(planned(5.0), WindowRules(), repeats=3, budget_s=5.0)
    assert [cell.batch_size for cell in kept] == [1]
    assert "more than the time left" in changes[-1]


def test_more_time_never_means_fewer_cells_or_shorter_windows():
    """The plan is monotone in its budget."""
    fitted = [fit_budget(planned(0.05), WindowRules(), repeats=3, budget_s=float(budget)) for budget in range(2, 20)]
    for (less, _, _), (more, _, _) in itertools.pairwise(fitted):
        assert len(less) <= len(more)


def test_a_slow_call_is_capped_in_time():
    """Calls of 8 s stop at the cap of 10 s after two, not after five."""
    (cell,) = planned(8.0, batch_sizes=(1,))
    assert cell.seconds(WindowRules()) == 32.0


@pytest.mark.parametrize(
    "choice",
    [
        {"batch_sizes": (0,)},
        {"batch_sizes": ()},
        {"repeats": 0},
        {"budget_s": 0.0},
        {"configurations": [Configuration(0, 1)]},
    ],
)
def test_numbers_that_make_no_grid_are_refused(sleeping_model, choice):
    """One sentence each, before anything runs."""
    with pytest.raises(InputError):
        plan_grid(sleeping_model(), **choice)


def test_items_differ_between_calls(tiny_model):
    """Inputs of one cell come from one stream, so that no call finds its data in the cache of the last."""
    engine, rng = tiny_model.open(1, concurrency=1), np.random.default_rng(0)
    first, second = engine.prepare(1, rng), engine.prepare(1, rng)
    assert not np.array_equal(first["features"], second["features"])
