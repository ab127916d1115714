"""Numbers of machines to choose from, where the rate of a pool is not in proportion to its size."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.optimizer.formulation import CoveringProgram

Array = NDArray[np.float64]

_EVERY_NUMBER = 64
"""Up to here every number of machines is an option; beyond, steps of 3 %, and what one offer alone needs."""
_STEP = 1.03


@dataclass(frozen=True)
class Numbers:
    """Options of all offers, one after the other.

    Attributes
    ----------
    offer
        Index of the offer in its program.
    machines
        Number of machines.
    cost_usd
        Cost of them all [USD/month].
    rate_rps
        Rate that they sustain together [1/s].
    reluctance
        Of them all.
    """

    offer: NDArray[np.int64]
    machines: NDArray[np.int64]
    cost_usd: Array
    rate_rps: Array
    reluctance: Array


def numbers_up_to_rate(program: CoveringProgram, offers: NDArray[np.int64], rate_rps: float) -> Numbers:
    """For each offer the numbers of machines up to the one that sustains the rate alone."""
    return _numbers(program, offers, [program.least_count(int(offer), rate_rps) for offer in offers])


def numbers_up_to_cost(program: CoveringProgram, offers: NDArray[np.int64], budget_usd: float) -> Numbers:
    """For each offer the numbers of machines that a budget buys."""
    return _numbers(program, offers, [int(budget_usd / program.cost_usd[offer] * (1 + 1e-12)) for offer in offers])


def _numbers(program: CoveringProgram, offers: NDArray[np.int64], most: list[int]) -> Numbers:
    choices = [_choices(last) for last in most]
    offer = np.repeat(offers, [found.size for found in choices])
    machines = np.concatenate(choices)
    rates = np.concatenate([program.rates(int(o), found) for o, found in zip(offers, choices, strict=True)])
    options = Numbers(offer, machines, machines * program.cost_usd[offer], rates, machines * program.reluctance[offer])
    return _undominated(options)


def _undominated(options: Numbers) -> Numbers:
    """Options that no other beats in cost and rate, by increasing cost.

    Safe where a pool sustains at least what its parts would apart: then the better option can take the place of the
    other even when its offer is in the fleet already. Of equal options the least reluctant is kept.
    """
    order = np.lexsort((options.reluctance, -options.rate_rps, np.round(options.cost_usd, 4)))
    best_so_far = np.maximum.accumulate(options.rate_rps[order])
    better = options.rate_rps[order] > np.concatenate(([0.0], best_so_far[:-1])) * (1 + 1e-9)
    kept = order[better]
    return Numbers(
        options.offer[kept],
        options.machines[kept],
        options.cost_usd[kept],
        options.rate_rps[kept],
        options.reluctance[kept],
    )


def _choices(last: int) -> NDArray[np.int64]:
    """Increasing numbers from 1 to the last.

    Examples
    --------
    >>> _choices(4).tolist(), _choices(70).tolist()[-4:]
    ([1, 2, 3, 4], [64, 66, 68, 70])
    """
    beyond = _EVERY_NUMBER * _STEP ** np.arange(0, max(0.0, np.log(last / _EVERY_NUMBER) / np.log(_STEP)))
    numbers = np.concatenate((np.arange(1, min(last, _EVERY_NUMBER) + 1), np.ceil(beyond), [last]))
    return np.unique(numbers[numbers <= last]).astype(np.int64)
