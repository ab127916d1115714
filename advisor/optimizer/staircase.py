"""Cheapest cost against rate, with exact steps, and who wins where.

The largest rate that a sum of money buys is an unbounded knapsack over whole cents:
R(k) = max_o R(k - c_o) + r_o, R(k) = 0 for k < min c_o. Its jumps are the steps of the cost curve.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from advisor.optimizer.formulation import CoveringProgram, undominated
from advisor.optimizer.numbers import numbers_up_to_rate

Array = NDArray[np.float64]

LARGEST_TABLE = 2**23
"""Entries of the money table; dearer ranges are counted in coarser units."""
LARGEST_POOLED_TABLE = 2**15
"""The same where numbers of machines are options of their own, which takes longer per entry."""


@dataclass(frozen=True)
class Staircase:
    """Steps of the cheapest fleet: up to ``rate_rps[i]`` it costs ``cost_usd[i]`` a month; both increase."""

    rate_rps: Array
    cost_usd: Array

    def cost_at(self, rate_rps: Array) -> Array:
        """Cheapest cost at each rate [USD/month]; infinite beyond the last step."""
        index = np.searchsorted(self.rate_rps, rate_rps * (1 - 1e-12))
        return np.append(self.cost_usd, np.inf)[index]


@njit(cache=True)
def _best_rates(cost: NDArray[np.int64], rate: Array, size: int) -> Array:
    """R(k) for k = 0 … size-1 units of money."""
    best = np.zeros(size)
    for k in range(1, size):
        value = best[k - 1]
        for o in range(cost.size):
            if cost[o] <= k:
                value = max(value, best[k - cost[o]] + rate[o])
        best[k] = value
    return best


@njit(cache=True)
def _add_offer(best: Array, units: NDArray[np.int64], rate: Array) -> Array:
    """R(k) with one offer more, of which at most one number is taken."""
    extended = best.copy()
    for k in range(best.size):
        for option in range(units.size):
            if units[option] <= k:
                extended[k] = max(extended[k], best[k - units[option]] + rate[option])
    return extended


def money_unit(program: CoveringProgram, up_to_rps: float) -> float:
    """Unit in which money is counted, a whole part of the price of the offer that sustains the most per dollar [USD].

    Fleets of that offer alone are then counted exactly; the other prices are rounded up by less than a unit. It is at
    most a cent while the table is large enough for the range.
    """
    best = int(np.argmax(program.rate_each / program.cost_usd))
    price = float(program.cost_usd[best])
    most = min(program.least_count(o, up_to_rps) * float(price) for o, price in enumerate(program.cost_usd))
    table = LARGEST_TABLE if program.pooling is None else LARGEST_POOLED_TABLE
    parts = max(1, min(int(np.ceil(price / 0.01)), int(table / (most / price + 1))))
    return price / parts


def staircase(program: CoveringProgram, up_to_rps: float, unit_usd: float) -> Staircase:
    """Steps of the cheapest fleet up to a rate.

    Parameters
    ----------
    program
        Offers.
    up_to_rps
        Largest rate of interest [1/s].
    unit_usd
        Unit in which money is counted; costs are rounded up to it [USD].
    """
    if program.cost_usd.size == 0:
        return Staircase(np.zeros(0), np.zeros(0))
    kept = undominated(program)
    if program.pooling is not None:
        return _pooled_staircase(program, kept, up_to_rps, unit_usd)
    rate = program.capacity_rps[kept]
    units = np.ceil(np.round(program.cost_usd[kept] / unit_usd, 6)).astype(np.int64)
    single = np.ceil(up_to_rps / rate).astype(np.int64) * units
    return _steps(_best_rates(units, rate, int(single.min()) + 1), up_to_rps, unit_usd)


def _pooled_staircase(
    program: CoveringProgram, kept: NDArray[np.int64], up_to_rps: float, unit_usd: float
) -> Staircase:
    """Steps where an offer's rate is a table: R(k) is extended offer by offer, one number of machines of each."""
    options = numbers_up_to_rate(program, kept, up_to_rps)
    units = np.ceil(np.round(options.cost_usd / unit_usd, 6)).astype(np.int64)
    enough = options.rate_rps >= up_to_rps * (1 - 1e-9)
    best = np.zeros(int(units[enough].min()) + 1)
    for offer in kept:
        mine = options.offer == offer
        best = _add_offer(best, units[mine], options.rate_rps[mine])
    return _steps(best, up_to_rps, unit_usd)


def _steps(best: Array, up_to_rps: float, unit_usd: float) -> Staircase:
    """Jumps of R(k) up to a rate."""
    best = np.maximum.accumulate(best)
    jumps = np.flatnonzero(np.diff(best) > 1e-9 * up_to_rps) + 1
    last = int(np.searchsorted(best[jumps], up_to_rps)) + 1
    jumps = jumps[:last]
    return Staircase(best[jumps], jumps.astype(np.float64) * unit_usd)


@dataclass(frozen=True)
class Span:
    """Rates over which one side is cheaper, or both cost the same."""

    from_rps: float
    to_rps: float
    winner: str


def compare(cpu: Staircase, gpu: Staircase, up_to_rps: float) -> tuple[Span, ...]:
    """Who is cheaper on each interval between steps, neighbours of equal winner joined.

    Money is compared in whole cents.

    Examples
    --------
    >>> a = Staircase(np.array([10.0, 20.0]), np.array([1.0, 2.0]))
    >>> b = Staircase(np.array([100.0]), np.array([1.5]))
    >>> [(s.to_rps, s.winner) for s in compare(a, b, 50.0)]
    [(10.0, 'cpu'), (50.0, 'gpu')]
    """
    edges = np.unique(np.concatenate((cpu.rate_rps, gpu.rate_rps, [up_to_rps])))
    edges = edges[edges <= up_to_rps]
    cost_cpu, cost_gpu = cpu.cost_at(edges), gpu.cost_at(edges)
    spans: list[Span] = []
    start = 0.0
    for edge, a, b in zip(edges, cost_cpu, cost_gpu, strict=True):
        winner = "tie" if a == b or abs(a - b) < 0.005 else "cpu" if a < b else "gpu"
        if spans and spans[-1].winner == winner:
            spans[-1] = Span(spans[-1].from_rps, float(edge), winner)
        else:
            spans.append(Span(start, float(edge), winner))
        start = float(edge)
    return tuple(spans)
