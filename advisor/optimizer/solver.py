"""Solve the covering program with HiGHS and break ties, so that equal inputs give equal fleets."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult, milp

from advisor.errors import SolverError
from advisor.optimizer.formulation import CoveringProgram, undominated

Array = NDArray[np.float64]

TIME_LIMIT_S = 60.0
"""Guard against a hang; the programs here take milliseconds."""
_INTEGRALITY_GAP = 1e-9


@dataclass(frozen=True)
class Solved:
    """Counts per offer with the proof.

    Attributes
    ----------
    counts
        Machines per offer, in the order of the program.
    cost_usd
        Their monthly cost [USD/month].
    bound_usd
        No fleet is cheaper than this [USD/month].
    status
        The solver's word.
    """

    counts: NDArray[np.int64]
    cost_usd: float
    bound_usd: float
    status: str

    @property
    def gap_frac(self) -> float:
        """Proven relative gap."""
        return max(0.0, (self.cost_usd - self.bound_usd) / self.cost_usd) if self.cost_usd > 0 else 0.0


def cheapest_fleet(program: CoveringProgram, demand_rps: float) -> Solved:
    """Fleet of least cost that covers the demand; among those of equal cost the least reluctant one.

    Raises
    ------
    SolverError
        When HiGHS ends without a proven answer.
    ValueError
        When there is no offer.
    """
    if program.cost_usd.size == 0:
        raise ValueError("no offer to choose from")
    kept = undominated(program)
    cost, capacity = program.cost_usd[kept], program.capacity_rps[kept]
    upper = np.ceil(demand_rps / capacity)
    covering = LinearConstraint(capacity[None, :] / demand_rps, lb=1.0)
    first = _solve(cost, [covering], upper)
    within = LinearConstraint(cost[None, :], ub=_round_counts(first) @ cost * (1 + 1e-9))
    preferred = _solve(program.reluctance[kept], [covering, within], upper)
    counts = _round_counts(preferred)
    if counts @ capacity < demand_rps * (1 - 1e-9):
        counts = _round_counts(first)
    if counts @ capacity < demand_rps * (1 - 1e-6):
        raise SolverError(f"the fleet found covers {counts @ capacity:.6g} of {demand_rps:.6g} req/s; rounding failed")
    full = np.zeros(program.cost_usd.size, dtype=np.int64)
    full[kept] = counts
    total = float(counts @ cost)
    bound = float(first.mip_dual_bound) if first.mip_dual_bound is not None else float(first.fun)
    return Solved(full, total, min(bound, total), "optimal")


def most_served(program: CoveringProgram, budget_usd: float) -> Solved:
    """Fleet within a budget that serves the most: maximize Σ r_o x_o, Σ c_o x_o ≤ B; empty: nothing is affordable."""
    full = np.zeros(program.cost_usd.size, dtype=np.int64)
    kept = undominated(program)
    kept = kept[program.cost_usd[kept] <= budget_usd]
    if kept.size == 0:
        return Solved(full, 0.0, 0.0, "optimal")
    cost, capacity = program.cost_usd[kept], program.capacity_rps[kept]
    within = LinearConstraint(cost[None, :] / budget_usd, ub=1.0)
    found = _solve(-capacity / capacity.max(), [within], np.floor(budget_usd / cost))
    full[kept] = _round_counts(found)
    total = float(full @ program.cost_usd)
    return Solved(full, total, total, "optimal")


def _solve(cost: Array, rows: list[LinearConstraint], upper: Array) -> OptimizeResult:
    result = milp(
        cost,
        constraints=rows,
        integrality=np.ones(cost.size, dtype=np.int64),
        bounds=Bounds(np.zeros_like(cost), upper),
        options={"time_limit": TIME_LIMIT_S, "mip_rel_gap": _INTEGRALITY_GAP},
    )
    if result.status != 0 or result.x is None:
        raise SolverError(f"HiGHS stopped with status {result.status}: {result.message}")
    return result


def _round_counts(result: OptimizeResult) -> NDArray[np.int64]:
    counts: NDArray[np.int64] = np.rint(result.x).astype(np.int64)
    return counts
