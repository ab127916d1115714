"""The grid: known with its time before the measurement starts, and made to fit a budget."""

import itertools
import time
from dataclasses import replace

import pytest

from advisor.errors import InputError
from advisor.profiling.budget import fit_budget
from advisor.profiling.cell import Configuration, PlannedCell
from advisor.profiling.engines import Placement
from advisor.profiling.environment import usable_cpus
from advisor.profiling.grid import plan_grid
from advisor.profiling.window import WindowRules

QUICK = WindowRules(warmup_calls=3, warmup_s=0.0, min_calls=5, min_s=0.02)


def planned(call_s, *, batch_sizes=(1, 2, 4), threads=1, concurrency=1):
    """Cells whose call time is proportional to the batch."""
    place = Configuration(threads, concurrency)
    return [PlannedCell(size, place, call_s=call_s * size, prepare_s=0.0, memory_gib=None) for size in batch_sizes]


def test_the_default_grid_keeps_all_cpus_busy_and_has_a_replica_alone(sleeping_model):
    """One replica on each CPU, one on all, and one on one CPU."""
    plan = plan_grid(sleeping_model(1e-5), batch_sizes=(1,), rules=QUICK)
    cpus = usable_cpus()
    assert {Configuration(1, cpus), Configuration(cpus, 1), Configuration(1, 1)} <= set(plan.configurations)
    assert plan.warnings == ()
    assert (plan.anchor.batch_size, plan.anchor.configuration) == (1, Configuration(1, cpus))


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        (Placement(takes_threads=False), {(1, usable_cpus()), (1, 1)}),
        (Placement(kind="gpu", takes_threads=False), {(1, 1), (1, 2)}),
        (Placement(kind="endpoint", takes_threads=False), {(1, 1), (1, 2), (1, 4), (1, 8)}),
    ],
)
def test_the_default_grid_follows_where_calls_are_answered(sleeping_model, placement, expected):
    """Threads where a replica takes them, replicas on a GPU, callers at an endpoint; only CPUs can be crowded."""
    plan = plan_grid(sleeping_model(1e-5, placement=placement), batch_sizes=(1,), rules=QUICK)
    assert {(place.threads, place.concurrency) for place in plan.configurations} == expected
    assert plan.placement == placement
    assert plan.warnings == ()


def test_threads_that_cannot_be_chosen_are_refused(sleeping_model):
    """A cell would say four threads, and nothing would have changed."""
    model = sleeping_model(placement=Placement(kind="endpoint", takes_threads=False))
    with pytest.raises(InputError, match="allowed: 1, since what answers cannot be told"):
        plan_grid(model, configurations=[Configuration(4, 1)], rules=QUICK)


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


def total_s(fit):
    """Time of all repeats that fit."""
    return sum(cell.all_repeats_s(fit.rules, fit.repeats) for cell in fit.cells)


def test_a_short_budget_shortens_windows_first():
    """Calls before time, nothing is dropped while shorter windows are enough, and the total fits."""
    cells = planned(0.001)
    fit = fit_budget(cells, WindowRules(), repeats=5, budget_s=12.0)
    assert list(fit.cells) == cells
    assert fit.repeats == 5
    assert 0.2 <= fit.rules.min_s < 1.0
    assert fit.rules.min_calls == 5
    assert total_s(fit) <= 12.0
    assert len(fit.changes) == 1
    slow = planned(0.05)
    whole_s = total_s(fit_budget(slow, WindowRules(), repeats=5, budget_s=1e9))
    fit = fit_budget(slow, WindowRules(), repeats=5, budget_s=0.9 * whole_s)
    assert fit.rules.min_s == 1.0
    assert 5 < fit.rules.min_calls < 30


def test_then_fewer_repeats_have_to_do():
    """As many as fit, and at least three, before a batch size is left out."""
    fit = fit_budget(planned(0.001), WindowRules(), repeats=5, budget_s=5.4)
    assert fit.repeats == 4
    fit = fit_budget(planned(0.001), WindowRules(), repeats=5, budget_s=4.5)
    assert fit.repeats == 3
    assert len(fit.cells) == 3
    assert total_s(fit) <= 4.5


def test_a_shorter_budget_drops_the_largest_batches():
    """Five calls of 0.4 s, three times, do not fit into 6 s; those of 0.1 s do."""
    fit = fit_budget(planned(0.1), WindowRules(), repeats=3, budget_s=6.0)
    assert [cell.batch_size for cell in fit.cells] == [1]
    assert [change.split(" was")[0] for change in fit.changes[:2]] == ["BUDGET: batch 4", "BUDGET: batch 2"]
    assert total_s(fit) <= 6.0


def test_the_smallest_batch_stays_whatever_it_costs():
    """A profile has at least one cell; the plan says that it takes longer."""
    fit = fit_budget(planned(5.0), WindowRules(), repeats=3, budget_s=5.0)
    assert [cell.batch_size for cell in fit.cells] == [1]
    assert "more than the time left" in fit.changes[-1]


def test_more_time_never_means_fewer_cells_or_shorter_windows():
    """The plan is monotone in its budget, as long as the number of repeats is the same."""
    fits = [fit_budget(planned(0.05), WindowRules(), repeats=3, budget_s=float(budget)) for budget in range(2, 40)]
    for less, more in itertools.pairwise(fits):
        assert len(less.cells) <= len(more.cells)
        if less.cells == more.cells:
            assert less.rules.min_s <= more.rules.min_s
            assert less.rules.min_calls <= more.rules.min_calls


def test_a_slow_call_is_capped_in_time():
    """Calls of 8 s stop at the cap of 10 s after two, not after thirty."""
    (cell,) = planned(8.0, batch_sizes=(1,))
    assert cell.seconds(WindowRules()) == 32.0


def test_only_the_first_repeat_waits_until_the_times_have_settled():
    """Nine calls of warm-up in the first one, three in the others."""
    (cell,) = planned(0.5, batch_sizes=(1,))
    rules = WindowRules(min_calls=2)
    assert cell.seconds(rules) - cell.seconds(replace(rules, settle=False)) == pytest.approx(6 * 0.5)
    assert cell.all_repeats_s(rules, 3) == pytest.approx(3 * cell.seconds(rules) - 2 * 6 * 0.5)


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


def test_replicas_that_take_long_to_open_are_told(sleeping_model):
    """Thirty replicas of a tenth of a second are most of four seconds."""

    class Slow(sleeping_model):
        """A model that is loaded slowly."""

        def open(self, threads, *, concurrency):
            time.sleep(0.1)
            return super().open(threads, concurrency=concurrency)

    plan = plan_grid(Slow(1e-5), batch_sizes=(1,), configurations=[Configuration(1, 30)], rules=QUICK, budget_s=4.0)
    assert plan.opening_s == pytest.approx(3.0, rel=0.5)
    assert any(warning.startswith("BUDGET: opening 30 replicas takes about") for warning in plan.warnings)
