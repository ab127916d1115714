"""Solve the covering program with HiGHS and break ties, so that equal inputs give equal fleets."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult, milp

from advisor.errors import SolverError
from advisor.optimizer.formulation import CoveringProgram, undominated
from advisor.optimizer.numbers import Numbers, numbers_up_to_cost, numbers_up_to_rate

Array = NDArray[np.float64]

TIME_LIMIT_S = 60.0
"""Guard against a hang; the programs here take milliseconds."""
POOLED_TIME_LIMIT_S = 10.0
"""The same where rates are tables: sizes of one family are exchangeable, so that now and then a proof takes minutes
while the fleet itself is found in a moment."""
_INTEGRALITY_GAP = 1e-9
_POOLED_GAP = 1e-3
"""Where rates are tables: far below the error of a simulated capacity, and found in a moment."""

_PROVEN, _OUT_OF_TIME = 0, 1
"""Results of HiGHS, as scipy numbers them."""

Status = Literal["optimal", "optimal among the numbers of machines looked at", "stopped by time"]


@dataclass(frozen=True)
class Solved:
    """Counts per offer with the proof.

    Attributes
    ----------
    counts
        Machines per offer, in the order of the program.
    cost_usd
        Their monthly cost [USD/month].
    gap_frac
        Proven relative gap: no fleet is cheaper than the cost by more than this or, within a budget, none serves more
        than the fleet by more than this part of the best.
    status
        ``optimal``: the gap holds against all fleets. ``optimal among the numbers of machines looked at``: rates are
        tables, and it holds against the options of `advisor.optimizer.numbers`, which thins large numbers of machines
        and leaves out what another option beats; that loses nothing only where a pool sustains at least what its parts
        would apart. ``stopped by time``: the best fleet found in the time allowed; the gap holds as in the other cases,
        may be wide, and can differ from one machine to another.
    """

    counts: NDArray[np.int64]
    cost_usd: float
    gap_frac: float
    status: Status

    @property
    def bound_usd(self) -> float:
        """No fleet that covers the demand, of those the gap holds against, is cheaper than this [USD/month]."""
        return self.cost_usd * (1 - self.gap_frac)


def cheapest_fleet(program: CoveringProgram, demand_rps: float) -> Solved:
    """Fleet of least cost that covers the demand; among those of equal cost the least reluctant one.

    Where HiGHS runs out of time the best fleet that it has found is taken, with the gap proven by then.

    Raises
    ------
    SolverError
        When HiGHS ends without a fleet.
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
    preferred = _solve(program.reluctance[kept], [covering, within], upper, otherwise=first)
    counts = _round_counts(preferred)
    if counts @ capacity < demand_rps * (1 - 1e-9):
        counts = _round_counts(first)
    if counts @ capacity < demand_rps * (1 - 1e-6):
        raise SolverError(f"the fleet found covers {counts @ capacity:.6g} of {demand_rps:.6g} req/s; rounding failed")
    full = np.zeros(program.cost_usd.size, dtype=np.int64)
    full[kept] = counts
    return Solved(full, float(counts @ cost), _gap(first, float(counts @ cost)), _status(first, preferred))


def most_served(program: CoveringProgram, budget_usd: float) -> Solved:
    """Fleet within a budget that serves the most: maximize Σ r_o x_o, Σ c_o x_o ≤ B; empty: nothing is affordable.

    Raises
    ------
    SolverError
        When HiGHS ends without a fleet.
    """
    full = np.zeros(program.cost_usd.size, dtype=np.int64)
    kept = undominated(program)
    kept = kept[program.cost_usd[kept] <= budget_usd]
    if kept.size == 0:
        return Solved(full, 0.0, 0.0, "optimal")
    if program.pooling is not None:
        return _most_pooled(program, kept, budget_usd)
    cost, capacity = program.cost_usd[kept], program.capacity_rps[kept]
    worth = -capacity / capacity.max()
    within = LinearConstraint(cost[None, :] / budget_usd, ub=1.0)
    found = _solve(worth, [within], np.floor(budget_usd / cost))
    full[kept] = _round_counts(found)
    return Solved(full, float(full @ program.cost_usd), _gap(found, float(worth @ full[kept])), _status(found))


def _cheapest_pooled(program: CoveringProgram, kept: NDArray[np.int64], demand_rps: float) -> Solved:
    """As `cheapest_fleet`, with one binary per offer and number of machines: at most one number of each offer.

    Ties were broken among the options; the gap is that of a capacity found by simulation, and reported.
    """
    options = numbers_up_to_rate(program, kept, demand_rps)
    covering = LinearConstraint(options.rate_rps[None, :] / demand_rps, lb=1.0)
    first = _solve_pooled(options.cost_usd, covering, options)
    counts = _counts(program, options, first)
    if program.total_rps(counts) < demand_rps * (1 - 1e-6):
        raise SolverError(f"the fleet found covers less than {demand_rps:.6g} req/s; rounding failed")
    total = float(counts @ program.cost_usd)
    return Solved(counts, total, _gap(first, total), _status(first, pooled=True))


def _most_pooled(program: CoveringProgram, kept: NDArray[np.int64], budget_usd: float) -> Solved:
    """As `most_served`, with one binary per offer and number of machines."""
    options = numbers_up_to_cost(program, kept, budget_usd)
    within = LinearConstraint(options.cost_usd[None, :] / budget_usd, ub=1.0)
    worth = -options.rate_rps / options.rate_rps.max()
    found = _solve_pooled(worth, within, options)
    counts = _counts(program, options, found)
    gap = _gap(found, float(worth @ np.rint(found.x)))
    return Solved(counts, float(counts @ program.cost_usd), gap, _status(found, pooled=True))


def _solve_pooled(cost: Array, row: LinearConstraint, options: Numbers) -> OptimizeResult:
    """Choose at most one number of machines per offer."""
    offers = np.unique(options.offer)
    one_number = LinearConstraint((options.offer[None, :] == offers[:, None]).astype(float), ub=np.ones(offers.size))
    rows = [row, one_number]
    return _solve(cost, rows, np.ones(cost.size), gap=_POOLED_GAP, time_limit_s=POOLED_TIME_LIMIT_S)


def _counts(program: CoveringProgram, options: Numbers, result: OptimizeResult) -> NDArray[np.int64]:
    counts = np.zeros(program.cost_usd.size, dtype=np.int64)
    taken = np.rint(result.x) > 0
    counts[options.offer[taken]] = options.machines[taken]
    return counts


def _solve(
    cost: Array,
    rows: list[LinearConstraint],
    upper: Array,
    *,
    gap: float = _INTEGRALITY_GAP,
    time_limit_s: float | None = None,
    otherwise: OptimizeResult | None = None,
) -> OptimizeResult:
    """HiGHS's result, or what it has when its time is over; ``otherwise`` stands in where it has nothing."""
    result = milp(
        cost,
        constraints=rows,
        integrality=np.ones(cost.size, dtype=np.int64),
        bounds=Bounds(np.zeros_like(cost), upper),
        options={"time_limit": TIME_LIMIT_S if time_limit_s is None else time_limit_s, "mip_rel_gap": gap},
    )
    if result.x is None and result.status == _OUT_OF_TIME and otherwise is not None:
        result.x = otherwise.x
    if result.x is None or result.status not in (_PROVEN, _OUT_OF_TIME):
        raise SolverError(f"HiGHS stopped with status {result.status}: {result.message}")
    return result


def _gap(result: OptimizeResult, value: float) -> float:
    """Proven gap of a solution of this value, relative to the larger of it and the bound, from 0 to 1."""
    bound = result.fun if result.mip_dual_bound is None else result.mip_dual_bound
    largest = max(abs(value), abs(bound))
    return float(min(1.0, max(0.0, (value - bound) / largest))) if largest > 0 else 0.0


def _status(*results: OptimizeResult, pooled: bool = False) -> Status:
    if any(result.status == _OUT_OF_TIME for result in results):
        return "stopped by time"
    return "optimal among the numbers of machines looked at" if pooled else "optimal"


def _round_counts(result: OptimizeResult) -> NDArray[np.int64]:
    counts: NDArray[np.int64] = np.rint(result.x).astype(np.int64)
    return counts
