"""One cell of the grid: batch size, threads and replicas, and how long a window of it takes."""

import math
from dataclasses import dataclass, replace

from advisor.profiling.window import WindowRules

CALLS_TO_SETTLE = 9
"""Calls of a warm-up that settles at once: three stretches of three."""

ITEMS_PER_CELL = 4
"""Different inputs that the callers of a cell rotate through."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """How the replicas share the machine."""

    threads: int
    """Threads of one replica inside an operator."""
    concurrency: int
    """Replicas that run at the same time."""


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """One cell to be measured, with what one call told about it."""

    batch_size: int
    configuration: Configuration
    call_s: float
    """Time of one call with all replicas at work, estimated [s]."""
    prepare_s: float
    """Time to make the inputs [s]."""
    memory_gib: float | None
    """Memory that one replica adds at this batch size [GiB]; None where it cannot be told."""

    def seconds(self, rules: WindowRules) -> float:
        """Time of one repeat, warm-up included [s].

        Examples
        --------
        >>> cell = PlannedCell(1, Configuration(1, 1), call_s=0.5, prepare_s=0.0, memory_gib=None)
        >>> cell.seconds(WindowRules(warmup_calls=3, warmup_s=0.2, min_calls=5, min_s=1.0, settle=False))
        4.0
        """
        calls = max(rules.warmup_calls, CALLS_TO_SETTLE if rules.settle else 0)
        warmup_s = _loop_s(self.call_s, rules.warmup_s, calls, rules.cap_s)
        return self.prepare_s + warmup_s + _loop_s(self.call_s, rules.min_s, rules.min_calls, rules.cap_s)

    def all_repeats_s(self, rules: WindowRules, repeats: int) -> float:
        """Time of all repeats, the first of which waits until the times have settled [s]."""
        return self.seconds(rules) + (repeats - 1) * self.seconds(replace(rules, settle=False))


def _loop_s(call_s: float, min_s: float, min_calls: int, cap_s: float) -> float:
    """Time of whole calls until both minima are reached, or the cap [s]."""
    need_s = min(max(min_s, min_calls * call_s), cap_s)
    return math.ceil(need_s / call_s - 1e-9) * call_s
