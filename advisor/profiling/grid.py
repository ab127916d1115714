"""Which cells are measured and how long that takes, known before the measurement starts."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from advisor.domain.profile import ModelInfo, RuntimeInfo
from advisor.errors import InputError
from advisor.profiling.budget import FEWEST_REPEATS, fit_budget
from advisor.profiling.cell import Configuration, PlannedCell
from advisor.profiling.engines import IN_PROCESS, EngineFactory, Placement
from advisor.profiling.environment import usable_cpus
from advisor.profiling.rehearsal import Limits, fit_machine, rehearse
from advisor.profiling.window import WindowRules

DEFAULT_BATCH_SIZES = (1, 2, 4, 8, 16, 32)
DEFAULT_REPEATS = 5
"""At a spread of 3 % between repeats five give the mean within 3.7 %, three within 7.5 % (Student, 95 %)."""
DEFAULT_MOST_REPEATS = 10
TARGET_CI_FRAC = 0.02
"""Half width of the interval of the mean at which a cell needs no more repeats."""
DEFAULT_BUDGET_S = 120.0
DEFAULT_RULES = WindowRules()

ANCHOR_S, ANCHOR_BUDGET_FRAC = 7.5, 1 / 16
"""The anchor runs so long at the start and at the end, to see rare stalls; less where the budget is small."""
IDLE_START_S, IDLE_START_BUDGET_FRAC = 10.0, 1 / 24
"""Time for the calls of an idle replica, per thread count."""

REPLICAS_ELSEWHERE = {"gpu": (1, 2), "endpoint": (1, 2, 4, 8)}
"""Replicas on a GPU and callers of an endpoint by default: a second replica copies while the first computes, and
callers are doubled to see where a server's throughput levels off."""

OPENING_BUDGET_FRAC = 0.25
"""Share of the budget from which the time to open all replicas is told: an assumption."""
IDLE_POWER_S, IDLE_POWER_BUDGET_FRAC = 2.0, 1 / 60
"""Time for idle power, before and after."""


@dataclass(frozen=True, slots=True)
class _Beside:
    """Times of what is measured beside the cells [s]."""

    anchor_s: float
    idle_start_s: float
    idle_power_s: float

    @classmethod
    def of_budget(cls, budget_s: float) -> Self:
        """Take the usual times, or less where the whole measurement has little [s]."""
        return cls(
            anchor_s=min(ANCHOR_S, budget_s * ANCHOR_BUDGET_FRAC),
            idle_start_s=min(IDLE_START_S, budget_s * IDLE_START_BUDGET_FRAC),
            idle_power_s=min(IDLE_POWER_S, budget_s * IDLE_POWER_BUDGET_FRAC),
        )

    def total_s(self, thread_counts: int) -> float:
        """Anchors and idle power twice, idle starts per thread count [s]."""
        return 2 * self.anchor_s + self.idle_start_s * thread_counts + 2 * self.idle_power_s


@dataclass(frozen=True, slots=True)
class GridPlan:
    """What will be measured and how long it takes; made by `plan_grid`, carried out by `measure`."""

    model: ModelInfo
    runtime: RuntimeInfo
    cells: tuple[PlannedCell, ...]
    rules: WindowRules
    repeats: int
    seed: int
    opening_s: float
    """Time to open all replicas [s]."""
    warnings: tuple[str, ...]
    most_repeats: int = DEFAULT_MOST_REPEATS
    """Repeats at most, of a cell whose mean is not known well enough yet."""
    target_ci_frac: float = TARGET_CI_FRAC
    anchor_s: float = ANCHOR_S
    idle_start_s: float = IDLE_START_S
    idle_power_s: float = IDLE_POWER_S
    budget_s: float = DEFAULT_BUDGET_S
    """Time for the measurement [s]: what the planned repeats leave goes to cells that were disturbed or differ."""
    placement: Placement = IN_PROCESS
    """Where calls are answered."""

    @property
    def estimated_s(self) -> float:
        """Time of the measurement without further repeats [s]."""
        repeats_s = sum(cell.all_repeats_s(self.rules, self.repeats) for cell in self.cells)
        threads = len({place.threads for place in self.configurations})
        beside = _Beside(self.anchor_s, self.idle_start_s, self.idle_power_s)
        return self.opening_s + repeats_s + beside.total_s(threads)

    @property
    def anchor(self) -> PlannedCell:
        """The cell that tells whether the machine still runs as fast: the smallest batch on all replicas."""
        return min(self.cells, key=lambda cell: (-cell.configuration.concurrency, cell.batch_size))

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Batch sizes in rising order."""
        return tuple(sorted({cell.batch_size for cell in self.cells}))

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """Configurations in the order given."""
        return tuple(dict.fromkeys(cell.configuration for cell in self.cells))


def default_configurations(cpus: int, placement: Placement = IN_PROCESS) -> tuple[Configuration, ...]:
    """Ways to keep busy what answers.

    On CPUs: from a replica on each to one on all, and one replica alone on one CPU, which tells what sharing the
    machine costs and leaves room for a load generator; where replicas cannot be told how many threads to use, those of
    one thread. On a GPU: one replica, and two that take turns. At an endpoint: one caller up to eight.

    Examples
    --------
    >>> [place.concurrency for place in default_configurations(16, Placement(kind="endpoint", takes_threads=False))]
    [1, 2, 4, 8]
    >>> [(place.threads, place.concurrency) for place in default_configurations(16)]
    [(1, 16), (4, 4), (16, 1), (1, 1)]
    >>> [(place.threads, place.concurrency) for place in default_configurations(2)]
    [(1, 2), (2, 1), (1, 1)]
    >>> [(place.threads, place.concurrency) for place in default_configurations(1)]
    [(1, 1)]
    """
    if placement.kind != "cpu":
        return tuple(Configuration(1, count) for count in REPLICAS_ELSEWHERE[placement.kind])
    if not placement.takes_threads:
        return tuple(dict.fromkeys((Configuration(1, cpus), Configuration(1, 1))))
    middle = 1 << round(math.log2(cpus) / 2)
    threads = [1, *([middle] if cpus % middle == 0 else []), cpus]
    busy = [Configuration(count, cpus // count) for count in threads]
    return tuple(dict.fromkeys((*busy, Configuration(1, 1))))


def plan_grid(
    engine_factory: EngineFactory,
    *,
    batch_sizes: Sequence[int] = DEFAULT_BATCH_SIZES,
    configurations: Sequence[Configuration] | None = None,
    repeats: int = DEFAULT_REPEATS,
    rules: WindowRules = DEFAULT_RULES,
    most_repeats: int = DEFAULT_MOST_REPEATS,
    budget_s: float = DEFAULT_BUDGET_S,
    seed: int = 0,
) -> GridPlan:
    """Time one call per cell and fit the grid into a budget.

    `fit_budget` says how; the warnings of the plan say what was changed. Without `configurations` it takes
    `default_configurations` of the usable CPUs and of where calls are answered. `budget_s` is the time for planning
    and measuring [s], `seed` that of the inputs and of the order of cells.

    Raises
    ------
    InputError
        When a number is not above zero.
    MeasurementError
        When the model cannot be loaded or fails.
    """
    _check(batch_sizes, configurations or (), repeats, budget_s)
    started = time.perf_counter()
    placement = engine_factory.placement
    if not placement.takes_threads and any(place.threads != 1 for place in configurations or ()):
        asked = sorted({place.threads for place in configurations or ()})
        raise InputError("threads", asked, "1, since what answers cannot be told how many to use")
    wanted = tuple(dict.fromkeys(configurations or default_configurations(usable_cpus(), placement)))
    fixed = engine_factory.fixed_batch_size
    sizes = [fixed] if fixed is not None else sorted(set(batch_sizes))
    limits = Limits(rules=rules, repeat_s=budget_s / min(repeats, FEWEST_REPEATS) / len(wanted), seed=seed)
    rehearsals = {
        threads: rehearse(engine_factory, threads, sizes, limits)
        for threads in dict.fromkeys(place.threads for place in wanted)
    }
    places, warnings = fit_machine(wanted, rehearsals, sizes, engine_factory.memory)
    found = {place: rehearsals[place.threads] for place in places}
    opening_s = sum(rehearsal.open_s * place.concurrency for place, rehearsal in found.items())
    if opening_s > OPENING_BUDGET_FRAC * budget_s:
        replicas = sum(place.concurrency for place in places)
        warnings.append(
            f"BUDGET: opening {replicas} replicas takes about {opening_s:.0f} s of {budget_s:.0f} s; fewer ways to "
            "share the CPUs (--threads, --replicas) leave more to measure."
        )
    beside = _Beside.of_budget(budget_s)
    left_s = budget_s - (time.perf_counter() - started)
    fit = fit_budget(
        [rehearsal.cell(size, place) for place, rehearsal in found.items() for size in rehearsal.call_s],
        rules,
        repeats=repeats,
        budget_s=left_s - opening_s - beside.total_s(len(rehearsals)),
    )
    first = next(iter(rehearsals.values()))
    return GridPlan(
        model=first.model,
        runtime=first.runtime,
        cells=fit.cells,
        rules=fit.rules,
        repeats=fit.repeats,
        seed=seed,
        opening_s=opening_s,
        warnings=(*warnings, *fit.changes),
        most_repeats=max(most_repeats, fit.repeats),
        budget_s=left_s,
        anchor_s=beside.anchor_s,
        idle_start_s=beside.idle_start_s,
        idle_power_s=beside.idle_power_s,
        placement=placement,
    )


def _check(batch_sizes: Sequence[int], configurations: Sequence[Configuration], repeats: int, budget_s: float) -> None:
    """Refuse numbers that make no grid."""
    if not batch_sizes or min(batch_sizes) < 1:
        raise InputError("batch sizes", list(batch_sizes), "one or more whole numbers above 0")
    for configuration in configurations:
        if min(configuration.threads, configuration.concurrency) < 1:
            raise InputError("configuration", configuration, "threads and concurrency of at least 1")
    if repeats < 1:
        raise InputError("repeats", repeats, "a whole number above 0")
    if budget_s <= 0:
        raise InputError("budget", budget_s, "a time above 0 seconds")
