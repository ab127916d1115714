"""The covering program of one workload.

minimize    Σ_o c_o x_o                   monthly cost [USD/month]
subject to  Σ_o r_o(x_o) ≥ λ              rate that x_o machines of offer o sustain together under the SLA, r_o [1/s]
            x_o ∈ {0, 1, 2, …}

Where replicas are independent (Poisson arrivals, random router) r_o(n) = n r_o(1), and a traffic split in proportion to
capacity keeps every machine within its own: the covering row is linear and exact. Behind other routers, or with bursty
arrivals, machines of one offer help each other, and r_o is a table.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Pooling:
    """Rates that several machines of one offer sustain together, where they are not in proportion to their number.

    Attributes
    ----------
    machines
        Increasing numbers of machines at which the rates are known, from 1; shape (G,).
    rates_rps
        Rates [1/s]; shape (offers, G). Between the numbers `pool_rates_between` holds.
    """

    machines: NDArray[np.int64]
    rates_rps: Array


def pool_rates_between(sizes: NDArray[np.int64], rates_rps: Array, wanted: NDArray[np.int64]) -> Array:
    """Rates of pools of some sizes from those of known ones [1/s]; a pool of none has none.

    Between two known sizes the rate per member is the smaller of theirs, so that no pool is promised more than its
    neighbors sustain; beyond the last it stays.

    Examples
    --------
    >>> pool_rates_between(np.array([1, 4]), np.array([10.0, 60.0]), np.array([0, 1, 2, 4, 8])).tolist()
    [0.0, 10.0, 20.0, 60.0, 120.0]
    """
    known = rates_rps / sizes
    before = np.maximum(np.searchsorted(sizes, wanted, side="right") - 1, 0)
    after = np.minimum(np.searchsorted(sizes, wanted), sizes.size - 1)
    each: Array = np.minimum(known[before], known[after])
    return wanted * each


@dataclass(frozen=True)
class CoveringProgram:
    """Offers that can be combined.

    Attributes
    ----------
    cost_usd
        Monthly cost of one machine per offer [USD/month].
    capacity_rps
        Rate of one machine per offer [1/s].
    reluctance
        What decides between fleets of equal cost: the fleet with the least Σ reluctance · count is taken. One per
        machine prefers few machines; more for an offer whose evidence is weaker.
    pooling
        Rates of several machines; None: in proportion to their number.
    """

    cost_usd: Array
    capacity_rps: Array
    reluctance: Array
    pooling: Pooling | None = None

    def subset(self, keep: NDArray[np.bool_] | NDArray[np.int64]) -> "CoveringProgram":
        """Program with some of the offers."""
        pooling = None if self.pooling is None else Pooling(self.pooling.machines, self.pooling.rates_rps[keep])
        return CoveringProgram(self.cost_usd[keep], self.capacity_rps[keep], self.reluctance[keep], pooling)

    @property
    def rate_each(self) -> Array:
        """Rate per machine of the largest pools [1/s]."""
        if self.pooling is None:
            return self.capacity_rps
        each: Array = self.pooling.rates_rps[:, -1] / self.pooling.machines[-1]
        return each

    def rates(self, offer: int, machines: NDArray[np.int64]) -> Array:
        """Rates that these numbers of machines of an offer sustain [1/s]; none sustain none.

        Examples
        --------
        >>> pooled = Pooling(np.array([1, 4]), np.array([[10.0, 60.0]]))
        >>> program = CoveringProgram(np.ones(1), np.array([10.0]), np.ones(1), pooled)
        >>> program.rates(0, np.array([0, 1, 2, 4, 8])).tolist()
        [0.0, 10.0, 20.0, 60.0, 120.0]
        """
        if self.pooling is None:
            together: Array = machines * self.capacity_rps[offer]
            return together
        return pool_rates_between(self.pooling.machines, self.pooling.rates_rps[offer], machines)

    def total_rps(self, counts: NDArray[np.int64]) -> float:
        """Rate that a fleet sustains [1/s]."""
        return float(sum(self.rates(int(offer), counts[offer : offer + 1])[0] for offer in np.flatnonzero(counts)))

    def least_count(self, offer: int, rate_rps: float) -> int:
        """Machines of one offer that a rate needs.

        Raises
        ------
        ValueError
            When no number of them sustains it.

        Examples
        --------
        >>> pooled = Pooling(np.array([1, 4]), np.array([[10.0, 60.0]]))
        >>> program = CoveringProgram(np.ones(1), np.array([10.0]), np.ones(1), pooled)
        >>> [program.least_count(0, rate) for rate in (25.0, 60.0, 1.5e9)]
        [3, 4, 100000000]
        """
        last = 0
        if self.pooling is not None:
            last = int(self.pooling.machines[-1])
            enough = self.rates(offer, np.arange(1, last + 1)) >= rate_rps * (1 - 1e-12)
            if enough.any():
                return int(np.argmax(enough)) + 1
        each = float(self.rate_each[offer])
        if each <= 0:
            raise ValueError(
                f"rate of one machine of offer {offer} is {each:g}/s; allowed: above 0 to reach {rate_rps:g}/s"
            )
        return max(last + 1, math.ceil(rate_rps / each * (1 - 1e-12)))


def undominated(program: CoveringProgram) -> NDArray[np.int64]:
    """Offers that no other offer beats in both cost and capacity, by increasing cost.

    Safe while no offer has a limited stock. Of equal offers the least reluctant is kept, then the first.

    Examples
    --------
    >>> undominated(CoveringProgram(np.array([3.0, 1.0, 2.0, 1.0]), np.array([5.0, 2.0, 2.0, 2.0]), np.ones(4)))
    array([1, 0])
    """
    rates = program.capacity_rps[:, None] if program.pooling is None else program.pooling.rates_rps
    order = np.lexsort((np.arange(program.cost_usd.size), program.reluctance, -rates[:, 0], program.cost_usd))
    kept: list[int] = []
    for index in order:
        if not any((rates[other] >= rates[index]).all() for other in kept):
            kept.append(index)
    return np.array(kept, dtype=np.int64)
