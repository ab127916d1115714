"""A grid made to fit the time that there is."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from advisor.profiling.cell import PlannedCell
from advisor.profiling.window import WindowRules

FEWEST_REPEATS = 3
LEAST_WINDOW_FRAC, LEAST_CALLS = 0.2, 5
"""The budget shortens windows down to this part of their time and so many calls before it drops batch sizes."""
PLANNED_FRAC = 0.6
"""Part of the budget that planned repeats fill with longer windows. The rest goes to repeats of what was disturbed or
differs, which tell more than longer windows: calls of one window resemble each other. An assumption."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What fits a budget."""

    cells: tuple[PlannedCell, ...]
    rules: WindowRules
    repeats: int
    changes: tuple[str, ...]
    """A sentence for each thing that was changed."""


def fit_budget(cells: Iterable[PlannedCell], rules: WindowRules, *, repeats: int, budget_s: float) -> Fit:
    """Shorten windows, make fewer repeats and drop the largest batch sizes until the measurement fits a budget [s].

    Windows get fewer calls first, down to five, then less time, down to a fifth; then there are fewer repeats, down to
    three; then the largest batch sizes are left out. The smallest batch size always stays. Windows are not lengthened
    beyond `PLANNED_FRAC` of the budget.
    """
    kept, changes = list(cells), list[str]()
    shortest = shortened(rules, 0.0)

    fewest = min(repeats, FEWEST_REPEATS)

    def total_s(candidate: WindowRules, count: int) -> float:
        return sum(cell.all_repeats_s(candidate, count) for cell in kept)

    while total_s(shortest, fewest) > budget_s:
        largest = max(cell.batch_size for cell in kept)
        cost_s = sum(cell.all_repeats_s(shortest, fewest) for cell in kept if cell.batch_size == largest)
        smaller = [cell for cell in kept if cell.batch_size < largest]
        if not smaller:
            changes.append(f"BUDGET: even batch {largest} alone takes about {cost_s:.0f} s, more than the time left.")
            return Fit(tuple(kept), shortest, fewest, tuple(changes))
        changes.append(f"BUDGET: batch {largest} was left out, its cells take at least {cost_s:.0f} s.")
        kept = smaller
    possible = max(count for count in range(fewest, repeats + 1) if total_s(shortest, count) <= budget_s)
    if possible < repeats:
        changes.append(f"BUDGET: {possible} instead of {repeats} repeats of each cell fit the time.")
    fitted = rules
    planned_s = PLANNED_FRAC * budget_s
    if total_s(rules, possible) > planned_s:
        fitted = _longest_rules(lambda candidate: total_s(candidate, possible), rules, budget_s=planned_s)
        changes.append(
            f"BUDGET: each window lasts {fitted.min_s:.2f} s and {fitted.min_calls} calls instead of "
            f"{rules.min_s:.2f} s and {rules.min_calls} to fit the time."
        )
    return Fit(tuple(kept), fitted, possible, tuple(changes))


def shortened(rules: WindowRules, frac: float) -> WindowRules:
    """Rules of windows between the shortest (0) and whole ones (1).

    Calls are given up first, since they make windows of slow calls long; then time, which all windows take.

    Examples
    --------
    >>> for frac in (1.0, 0.5, 0.0):
    ...     short = shortened(WindowRules(min_calls=30, min_s=1.0), frac)
    ...     print(short.min_calls, short.min_s)
    30 1.0
    5 1.0
    5 0.2
    """
    few, short_s = min(LEAST_CALLS, rules.min_calls), LEAST_WINDOW_FRAC * rules.min_s
    calls = few + math.ceil((rules.min_calls - few) * max(0.0, 2 * frac - 1))
    return replace(rules, min_calls=calls, min_s=short_s + (rules.min_s - short_s) * min(1.0, 2 * frac))


def _longest_rules(total_s: Callable[[WindowRules], float], rules: WindowRules, *, budget_s: float) -> WindowRules:
    """Longest windows whose total fits, by bisection to a hundredth of the way."""
    low, high = 0.0, 1.0
    while high - low > 0.01:
        middle = (low + high) / 2
        if total_s(shortened(rules, middle)) > budget_s:
            high = middle
        else:
            low = middle
    return shortened(rules, low)
