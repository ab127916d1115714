"""Which cells are measured next: whole turns of the grid in random order, then only what needs more."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.profiling.cell import Configuration
from advisor.profiling.grid import GridPlan
from advisor.profiling.journal import Sample
from advisor.profiling.statistics import mean_ci95_frac

MOST_RETRIES = 6
"""Windows beyond the planned ones for a cell that was disturbed; then the machine is not fit for it."""

Key = tuple[int, Configuration]
"""Batch size and configuration of a cell."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of one cell so far."""

    attempts: int
    accepted: int
    mean_ci_frac: float | None

    def lacks(self, plan: GridPlan) -> bool:
        """Whether it has too few windows that count, and has tries left."""
        return self.accepted < plan.repeats and self.attempts < plan.repeats + MOST_RETRIES

    def unsettled(self, plan: GridPlan) -> bool:
        """Whether its mean is not known well enough, and it may have more repeats."""
        wide = self.mean_ci_frac is None or self.mean_ci_frac > plan.target_ci_frac
        return wide and self.accepted < plan.most_repeats and self.attempts < plan.most_repeats + MOST_RETRIES


def standing(samples: Iterable[Sample], key: Key) -> Standing:
    """What is known of a cell so far; its anchors tell of its mean, and are no repeats."""
    own = [sample for sample in samples if (sample.batch_size, sample.configuration) == key]
    turns = [sample for sample in own if not sample.anchor]
    means = [sample.repeat.service_mean_s for sample in own if sample.accepted]
    return Standing(len(turns), sum(sample.accepted for sample in turns), mean_ci95_frac(means))


def turn_order(keys: Sequence[Key], *, seed: int, turn: int) -> list[Key]:
    """Order of the cells in one turn, random but the same for a seed, so that drift meets every cell."""
    rng = np.random.default_rng([seed, turn])
    return [keys[index] for index in rng.permutation(len(keys))]


def planned_turn(plan: GridPlan, samples: Sequence[Sample], turn: int) -> list[Key]:
    """Cells of one of the planned turns that were not measured in it yet."""
    done = {
        (sample.batch_size, sample.configuration) for sample in samples if sample.round == turn and not sample.anchor
    }
    keys = [(cell.batch_size, cell.configuration) for cell in plan.cells]
    return [key for key in turn_order(keys, seed=plan.seed, turn=turn) if key not in done]


def further_turn(plan: GridPlan, samples: Sequence[Sample], turn: int) -> list[Key]:
    """Cells of a turn beyond the planned ones: the disturbed ones first, then those whose mean is not known well."""
    keys = [(cell.batch_size, cell.configuration) for cell in plan.cells]
    ordered = turn_order(keys, seed=plan.seed, turn=turn)
    standings = {key: standing(samples, key) for key in keys}
    lacking = [key for key in ordered if standings[key].lacks(plan)]
    return lacking + [key for key in ordered if key not in lacking and standings[key].unsettled(plan)]
