"""The covering program of one workload behind a random router.

minimize    Σ_o c_o x_o                   monthly cost [USD/month]
subject to  Σ_o r_o x_o ≥ λ               capacity of offer o's machine under the SLA, r_o [1/s]
            x_o ∈ {0, 1, 2, …}

Under random routing machines are independent, so a pool of n sustains n times the rate of one, and a traffic split in
proportion to r_o keeps every machine within its own capacity. That makes the linear covering row exact.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


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
    """

    cost_usd: Array
    capacity_rps: Array
    reluctance: Array

    def subset(self, keep: NDArray[np.bool_]) -> "CoveringProgram":
        """Program with some of the offers."""
        return CoveringProgram(self.cost_usd[keep], self.capacity_rps[keep], self.reluctance[keep])


def undominated(program: CoveringProgram) -> NDArray[np.int64]:
    """Offers that no other offer beats in both cost and capacity, by increasing cost.

    Safe while no offer has a limited stock. Of equal offers the least reluctant is kept, then the first.

    Examples
    --------
    >>> undominated(CoveringProgram(np.array([3.0, 1.0, 2.0, 1.0]), np.array([5.0, 2.0, 2.0, 2.0]), np.ones(4)))
    array([1, 0])
    """
    order = np.lexsort((np.arange(program.cost_usd.size), program.reluctance, -program.capacity_rps, program.cost_usd))
    kept = []
    best = 0.0
    for index in order:
        if program.capacity_rps[index] > best:
            kept.append(index)
            best = float(program.capacity_rps[index])
    return np.array(kept, dtype=np.int64)
