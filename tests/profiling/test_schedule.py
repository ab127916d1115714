"""Turns of the grid: all cells once in random order, then only the disturbed and the unsettled ones."""

from advisor.domain.profile import ModelInfo, RuntimeInfo
from advisor.profiling.cell import Configuration, PlannedCell
from advisor.profiling.grid import GridPlan
from advisor.profiling.schedule import MOST_RETRIES, further_turn, planned_turn, turn_order
from advisor.profiling.window import WindowRules

ALONE = Configuration(1, 1)
KEYS = [(size, ALONE) for size in (1, 2, 4, 8)]


def plan(repeats=3, most_repeats=5):
    """Four cells of one configuration."""
    cells = tuple(PlannedCell(size, place, call_s=0.01, prepare_s=0.0, memory_gib=None) for size, place in KEYS)
    model, runtime = ModelInfo(name="m"), RuntimeInfo(name="r")
    return GridPlan(
        model,
        runtime,
        cells,
        WindowRules(),
        repeats=repeats,
        seed=3,
        opening_s=0.0,
        warnings=(),
        most_repeats=most_repeats,
    )


def test_a_turn_is_every_cell_once_in_an_order_of_its_own():
    """The order is random but belongs to the seed and the turn."""
    orders = [turn_order(KEYS, seed=3, turn=turn) for turn in range(6)]
    assert all(sorted(order, key=str) == sorted(KEYS, key=str) for order in orders)
    assert orders == [turn_order(KEYS, seed=3, turn=turn) for turn in range(6)]
    assert len({tuple(order) for order in orders}) > 1


def test_what_was_measured_in_a_turn_is_not_measured_again(sample):
    """The rest keeps its order, and the anchor is not the turn's window of its cell."""
    whole = planned_turn(plan(), [], 1)
    assert planned_turn(plan(), [sample(2, turn=1), sample(8, turn=0)], 1) == [key for key in whole if key[0] != 2]
    assert planned_turn(plan(), [sample(2, turn=1, anchor=True)], 1) == whole


def test_a_cell_with_enough_equal_windows_is_done(sample):
    """Nothing further is measured where the repeats agree."""
    samples = [sample(size, turn=turn) for size, _ in KEYS for turn in range(3)]
    assert further_turn(plan(), samples, 3) == []


def test_disturbed_cells_come_before_unsettled_ones(sample):
    """First every cell gets its planned number of windows that count, then means become narrower."""
    samples = [sample(size, turn=turn) for size in (1, 2) for turn in range(3)]
    samples += [sample(4, mean_s=0.010 + 0.002 * turn, turn=turn) for turn in range(3)]
    samples += [sample(8, turn=turn, rejected=("STEAL: much.",) if turn else ()) for turn in range(3)]
    assert further_turn(plan(), samples, 3) == [(8, ALONE), (4, ALONE)]


def test_retries_end(sample):
    """A machine that is never quiet is given up after six further windows."""
    rejected = [sample(1, turn=turn, rejected=("STEAL: much.",)) for turn in range(3 + MOST_RETRIES)]
    fine = [sample(size, turn=turn) for size in (2, 4, 8) for turn in range(3)]
    assert (1, ALONE) in further_turn(plan(most_repeats=3), rejected[:-1] + fine, 9)
    assert further_turn(plan(most_repeats=3), rejected + fine, 9) == []


def test_repeats_for_a_narrower_mean_end(sample):
    """A cell that never agrees with itself has at most so many repeats."""
    wide = [sample(1, mean_s=0.010 * (1 + turn % 2), turn=turn) for turn in range(5)]
    fine = [sample(size, turn=turn) for size in (2, 4, 8) for turn in range(3)]
    assert further_turn(plan(), wide[:4] + fine, 9) == [(1, ALONE)]
    assert further_turn(plan(), wide + fine, 9) == []
