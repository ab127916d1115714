"""Solve the covering program with HiGHS and break ties, so that equal inputs give equal fleets."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult, milp

from advisor.errors import SolverError
from advisor.optimizer.formulation import CoveringProgram, undominated
from advisor.optimizer.numbers import Numbers, numbers_up_to_cost, numbers_up_to_rate

Array = NDArray[np.float64]

TIME_LIMIT_S = 60.0
"""Guard against a hang; the programs here take milliseconds."""
_INTEGRALITY_GAP = 1e-9
_POOLED_GAP = 1e-3
"""Where rates are tables: far below the error of a simulated capacity, and found in a moment."""


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
    if program.pooling is not None:
        return _cheapest_pooled(program, kept, demand_rps)
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
    if program.pooling is not None:
        return _most_pooled(program, kept, budget_usd)
    cost, capacity = program.cost_usd[kept], program.capacity_rps[kept]
    within = LinearConstraint(cost[None, :] / budget_usd, ub=1.0)
    found = _solve(-capacity / capacity.max(), [within], np.floor(budget_usd / cost))
    full[kept] = _round_counts(found)
    total = float(full @ program.cost_usd)
    return Solved(full, total, total, "optimal")


def _cheapest_pooled(program: CoveringProgram, kept: NDArray[np.int64], demand_rps: float) -> Solved:
    """As `cheapest_fleet`, with one binary per offer and number of machines: at most one number of each offer.

    Ties were broken among the options; the gap is that of a capacity found by simulation, and reported.
    """
    options = numbers_up_to_rate(program, kept, demand_rps)
    covering = LinearConstraint(options.rate_rps[None, :] / demand_rps, lb=1.0)
    ones = np.ones(options.cost_usd.size)
    first = _solve(options.cost_usd, [covering, _one_number(options)], ones, gap=_POOLED_GAP)
    counts = _counts(program, options, first)
    if program.total_rps(counts) < demand_rps * (1 - 1e-6):
        raise SolverError(f"the fleet found covers less than {demand_rps:.6g} req/s; rounding failed")
    total = float(counts @ program.cost_usd)
    bound = float(first.mip_dual_bound) if first.mip_dual_bound is not None else float(first.fun)
    return Solved(counts, total, min(bound, total), "optimal")


def _most_pooled(program: CoveringProgram, kept: NDArray[np.int64], budget_usd: float) -> Solved:
    """As `most_served`, with one binary per offer and number of machines."""
    options = numbers_up_to_cost(program, kept, budget_usd)
    within = LinearConstraint(options.cost_usd[None, :] / budget_usd, ub=1.0)
    ones = np.ones(options.cost_usd.size)
    worth = -options.rate_rps / options.rate_rps.max()
    found = _solve(worth, [within, _one_number(options)], ones, gap=_POOLED_GAP)
    counts = _counts(program, options, found)
    total = float(counts @ program.cost_usd)
    return Solved(counts, total, total, "optimal")


def _one_number(options: Numbers) -> LinearConstraint:
    """At most one number of machines per offer."""
    offers = np.unique(options.offer)
    return LinearConstraint((options.offer[None, :] == offers[:, None]).astype(float), ub=np.ones(offers.size))


def _counts(program: CoveringProgram, options: Numbers, result: OptimizeResult) -> NDArray[np.int64]:
    counts = np.zeros(program.cost_usd.size, dtype=np.int64)
    taken = np.rint(result.x) > 0
    counts[options.offer[taken]] = options.machines[taken]
    return counts


def _solve(cost: Array, rows: list[LinearConstraint], upper: Array, *, gap: float = _INTEGRALITY_GAP) -> OptimizeResult:
    result = milp(
        cost,
        constraints=rows,
        integrality=np.ones(cost.size, dtype=np.int64),
        bounds=Bounds(np.zeros_like(cost), upper),
        options={"time_limit": TIME_LIMIT_S, "mip_rel_gap": gap},
    )
    if result.status != 0 or result.x is None:
        raise SolverError(f"HiGHS stopped with status {result.status}: {result.message}")
    return result


def _round_counts(result: OptimizeResult) -> NDArray[np.int64]:
    counts: NDArray[np.int64] = np.rint(result.x).astype(np.int64)
    return counts
