"""Which cells are measured and how long that takes, known before the measurement starts."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.domain.profile import ModelInfo
from advisor.errors import InputError
from advisor.profiling import memory
from advisor.profiling.engines import Engine, EngineFactory
from advisor.profiling.environment import usable_cpus
from advisor.profiling.window import WindowRules

DEFAULT_BATCH_SIZES = (1, 2, 4, 8, 16, 32)
DEFAULT_REPEATS = 3
DEFAULT_BUDGET_S = 120.0
DEFAULT_RULES = WindowRules()

LEAST_WINDOW_S = 0.2
"""The budget shortens windows down to this before it drops batch sizes."""

ITEMS_PER_CELL = 4
"""Different inputs that the callers of a cell rotate through."""

_SHORT_CALL_S = 0.1
_GENEROUS = 1.5
"""Configurations may share the time unevenly, so a batch size is tried somewhat beyond an even share."""
_MEMORY_FRAC = 0.8
_LEAST_MEMORY_GIB = 2.0**-12
"""A quarter of a MiB: growth below this is lost among the pages of the interpreter."""


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
        >>> cell.seconds(WindowRules(warmup_calls=3, warmup_s=0.2, min_calls=5, min_s=1.0))
        4.0
        """
        warmup_s = _loop_s(self.call_s, rules.warmup_s, rules.warmup_calls, rules.cap_s)
        return self.prepare_s + warmup_s + _loop_s(self.call_s, rules.min_s, rules.min_calls, rules.cap_s)


@dataclass(frozen=True, slots=True)
class GridPlan:
    """What will be measured and how long it takes; made by `plan_grid`, carried out by `measure`."""

    model: ModelInfo
    cells: tuple[PlannedCell, ...]
    rules: WindowRules
    repeats: int
    seed: int
    opening_s: float
    """Time to open all replicas [s]."""
    warnings: tuple[str, ...]

    @property
    def estimated_s(self) -> float:
        """Time of the whole measurement [s]."""
        return self.opening_s + self.repeats * sum(cell.seconds(self.rules) for cell in self.cells)

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Batch sizes in rising order."""
        return tuple(sorted({cell.batch_size for cell in self.cells}))

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """Configurations in the order given."""
        return tuple(dict.fromkeys(cell.configuration for cell in self.cells))


def default_configurations(cpus: int) -> tuple[Configuration, ...]:
    """Two ways to keep all CPUs busy: a replica on each, and one replica on all.

    Examples
    --------
    >>> default_configurations(4)
    (Configuration(threads=1, concurrency=4), Configuration(threads=4, concurrency=1))
    >>> default_configurations(1)
    (Configuration(threads=1, concurrency=1),)
    """
    return tuple(dict.fromkeys((Configuration(1, cpus), Configuration(cpus, 1))))


def plan_grid(
    engine_factory: EngineFactory,
    *,
    batch_sizes: Sequence[int] = DEFAULT_BATCH_SIZES,
    configurations: Sequence[Configuration] | None = None,
    repeats: int = DEFAULT_REPEATS,
    rules: WindowRules = DEFAULT_RULES,
    budget_s: float = DEFAULT_BUDGET_S,
    seed: int = 0,
) -> GridPlan:
    """Time one call per cell and fit the grid into a budget.

    `fit_budget` says how; the warnings of the plan say what was changed. Without `configurations` it takes
    `default_configurations` of the usable CPUs. `budget_s` is the time for planning and measuring [s], `seed`
    that of the inputs and of the order of cells.

    Raises
    ------
    InputError
        When a number is not above zero.
    MeasurementError
        When the model cannot be loaded or fails.
    """
    _check(batch_sizes, configurations or (), repeats, budget_s)
    started = time.perf_counter()
    wanted = tuple(dict.fromkeys(configurations or default_configurations(usable_cpus())))
    fixed = engine_factory.fixed_batch_size
    sizes = [fixed] if fixed is not None else sorted(set(batch_sizes))
    limits = _Limits(rules=rules, repeat_s=budget_s / repeats / len(wanted), seed=seed)
    rehearsals = {
        threads: _rehearse(engine_factory, threads, sizes, limits)
        for threads in dict.fromkeys(place.threads for place in wanted)
    }
    places, warnings = _fit_machine(wanted, rehearsals)
    cells = [rehearsals[place.threads].cell(size, place) for place in places for size in sizes]
    opening_s = sum(rehearsals[place.threads].open_s * place.concurrency for place in places)
    left_s = budget_s - (time.perf_counter() - started) - opening_s
    kept, fitted, changes = fit_budget(cells, rules, repeats=repeats, budget_s=left_s)
    return GridPlan(
        model=next(iter(rehearsals.values())).model,
        cells=kept,
        rules=fitted,
        repeats=repeats,
        seed=seed,
        opening_s=opening_s,
        warnings=(*warnings, *changes),
    )


def fit_budget(
    cells: Iterable[PlannedCell], rules: WindowRules, *, repeats: int, budget_s: float
) -> tuple[tuple[PlannedCell, ...], WindowRules, tuple[str, ...]]:
    """Shorten windows and drop the largest batch sizes until the measurement fits a budget [s].

    Windows are shortened first, down to 0.2 s; then the largest batch sizes are left out. The smallest batch
    size always stays.

    Returns
    -------
    tuple
        The cells that stay, the rules for them, and a sentence for each change.
    """
    kept, changes = list(cells), []
    shortest = replace(rules, min_s=min(rules.min_s, LEAST_WINDOW_S))

    def total_s(candidate: WindowRules) -> float:
        return repeats * sum(cell.seconds(candidate) for cell in kept)

    while total_s(shortest) > budget_s:
        largest = max(cell.batch_size for cell in kept)
        cost_s = repeats * sum(cell.seconds(shortest) for cell in kept if cell.batch_size == largest)
        smaller = [cell for cell in kept if cell.batch_size < largest]
        if not smaller:
            changes.append(f"BUDGET: even batch {largest} alone takes about {cost_s:.0f} s, more than the time left.")
            return tuple(kept), shortest, tuple(changes)
        changes.append(f"BUDGET: batch {largest} was left out, its cells take at least {cost_s:.0f} s.")
        kept = smaller
    fitted = rules
    if total_s(rules) > budget_s:
        fitted = replace(rules, min_s=_longest_window_s(total_s, shortest, rules, budget_s=budget_s))
        changes.append(
            f"BUDGET: each window lasts {fitted.min_s:.2f} s instead of {rules.min_s:.2f} s to fit the time."
        )
    return tuple(kept), fitted, tuple(changes)


def _longest_window_s(
    total_s: Callable[[WindowRules], float], shortest: WindowRules, longest: WindowRules, *, budget_s: float
) -> float:
    """Longest window between two rules whose total fits, by bisection to the hundredth of a second [s]."""
    low_s, high_s = shortest.min_s, longest.min_s
    while high_s - low_s > 0.01:
        middle_s = (low_s + high_s) / 2
        if total_s(replace(longest, min_s=middle_s)) > budget_s:
            high_s = middle_s
        else:
            low_s = middle_s
    return low_s


def _loop_s(call_s: float, min_s: float, min_calls: int, cap_s: float) -> float:
    """Time of whole calls until both minima are reached, or the cap [s]."""
    need_s = min(max(min_s, min_calls * call_s), cap_s)
    return math.ceil(need_s / call_s - 1e-9) * call_s


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


@dataclass(frozen=True, slots=True)
class _Limits:
    """What a rehearsal must keep to."""

    rules: WindowRules
    repeat_s: float
    """Time that one repeat of all batch sizes of one configuration may take [s]."""
    seed: int


@dataclass(frozen=True, slots=True)
class _Rehearsal:
    """What single calls of one replica told, by batch size."""

    model: ModelInfo
    open_s: float
    call_s: dict[int, float]
    prepare_s: dict[int, float]
    memory_gib: dict[int, float | None]

    def cell(self, batch_size: int, configuration: Configuration) -> PlannedCell:
        """Plan one cell; replicas that share a CPU wait for each other."""
        crowding = max(1.0, configuration.threads * configuration.concurrency / usable_cpus())
        return PlannedCell(
            batch_size=batch_size,
            configuration=configuration,
            call_s=self.call_s[batch_size] * crowding,
            prepare_s=self.prepare_s[batch_size] * ITEMS_PER_CELL,
            memory_gib=self.memory_gib[batch_size],
        )

    def extrapolate(self, batch_size: int) -> tuple[float, float]:
        """Guess the times of a larger batch, in proportion to the largest one called [s]."""
        last = max(self.call_s)
        return self.call_s[last] * batch_size / last, self.prepare_s[last] * batch_size / last


def _rehearse(engine_factory: EngineFactory, threads: int, sizes: Sequence[int], limits: _Limits) -> _Rehearsal:
    """Call one replica once per batch size, from small to large.

    Batch sizes far beyond the time that is left after the smaller ones are not called: their time is
    extrapolated in proportion, which hardly serves but to leave them out. Memory grows with the batch and is
    never given back by a session, so the resident memory after each size is the peak of a replica that
    serves up to it.
    """
    rng = np.random.default_rng(limits.seed)
    shortest = replace(limits.rules, min_s=LEAST_WINDOW_S)
    baseline_gib, started = memory.resident_gib(), time.perf_counter()
    engine = engine_factory.open(threads, concurrency=1)
    found = _Rehearsal(engine.describe()[0], time.perf_counter() - started, {}, {}, {})
    spent_s = 0.0
    try:
        for size in sizes:
            times = found.extrapolate(size) if found.call_s else None
            if times is not None:
                spent_s += PlannedCell(size, Configuration(threads, 1), *times, None).seconds(shortest)
            growth_gib: float | None = None
            if times is None or spent_s <= _GENEROUS * limits.repeat_s:
                times = _time_one_call(engine, size, rng)
                growth_gib = memory.resident_gib() - baseline_gib
            honest = memory.can_measure_growth() and growth_gib is not None and growth_gib >= _LEAST_MEMORY_GIB
            found.memory_gib[size] = growth_gib if honest else None
            found.call_s[size], found.prepare_s[size] = times
    finally:
        engine.close()
    return found


def _time_one_call(engine: Engine, batch_size: int, rng: np.random.Generator) -> tuple[float, float]:
    """Time of a call and of preparing its input [s]; a short call is repeated, for its first one is slow."""
    prepare_started = time.perf_counter()
    item = engine.prepare(batch_size, rng)
    started = time.perf_counter()
    engine.call(item)
    call_s = time.perf_counter() - started
    if call_s < _SHORT_CALL_S:
        again = time.perf_counter()
        engine.call(item)
        call_s = time.perf_counter() - again
    return max(call_s, 1e-9), started - prepare_started


def _fit_machine(
    configurations: tuple[Configuration, ...], rehearsals: dict[int, _Rehearsal]
) -> tuple[tuple[Configuration, ...], list[str]]:
    """Lower the concurrency where replicas would not fit into memory; say where they compete for CPUs."""
    available_gib = memory.available_gib() * _MEMORY_FRAC / len(configurations)
    fitted, warnings = [], []
    for place in configurations:
        known = [size_gib for size_gib in rehearsals[place.threads].memory_gib.values() if size_gib]
        most = max(1, int(available_gib / max(known))) if known else place.concurrency
        if most < place.concurrency:
            warnings.append(
                f"MEMORY: {most} instead of {place.concurrency} replicas of {max(known):.1f} GiB "
                "ran together, more do not fit."
            )
        fitted.append(replace(place, concurrency=min(most, place.concurrency)))
    cpus = usable_cpus()
    warnings += [
        f"OVERSUBSCRIBED: {place.concurrency} replicas of {place.threads} threads compete for {cpus} CPUs."
        for place in fitted
        if place.threads * place.concurrency > cpus
    ]
    return tuple(dict.fromkeys(fitted)), warnings
