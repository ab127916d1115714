"""Cheapest cost against rate, with exact steps, and who wins where.

The largest rate that a sum of money buys is an unbounded knapsack over whole cents:
R(k) = max_o R(k - c_o) + r_o, R(k) = 0 for k < min c_o. Its jumps are the steps of the cost curve.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from advisor.optimizer.formulation import CoveringProgram, undominated

Array = NDArray[np.float64]

LARGEST_TABLE = 2**23
"""Entries of the money table; dearer ranges are counted in coarser units."""


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


def money_unit(program: CoveringProgram, up_to_rps: float) -> float:
    """Unit in which money is counted, a whole part of the price of the offer that sustains the most per dollar [USD].

    Fleets of that offer alone are then counted exactly; the other prices are rounded up by less than a unit. It is at
    most a cent while the table is large enough for the range.
    """
    best = int(np.argmax(program.capacity_rps / program.cost_usd))
    price = float(program.cost_usd[best])
    most = float((np.ceil(up_to_rps / program.capacity_rps) * program.cost_usd).min())
    parts = max(1, min(int(np.ceil(price / 0.01)), int(LARGEST_TABLE / (most / price + 1))))
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
    rate = program.capacity_rps[kept]
    units = np.ceil(np.round(program.cost_usd[kept] / unit_usd, 6)).astype(np.int64)
    single = np.ceil(up_to_rps / rate).astype(np.int64) * units
    best = _best_rates(units, rate, int(single.min()) + 1)
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
