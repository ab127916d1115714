"""One replica called once per batch size: times and memory, known before the measurement starts."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.domain.profile import ModelInfo, RuntimeInfo
from advisor.profiling.budget import shortened
from advisor.profiling.cell import ITEMS_PER_CELL, Configuration, PlannedCell
from advisor.profiling.engines import Engine, EngineFactory, Memory, OutOfMemory
from advisor.profiling.environment import usable_cpus
from advisor.profiling.window import WindowRules

_SHORT_CALL_S = 0.1
_GENEROUS = 1.5
"""Configurations may share the time unevenly, so a batch size is tried somewhat beyond an even share."""
_MEMORY_FRAC = 0.8
_LEAST_MEMORY_GIB = 2.0**-12
"""A quarter of a MiB: growth below this is lost among the pages of the interpreter."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a rehearsal must keep to."""

    rules: WindowRules
    repeat_s: float
    """Time that one repeat of all batch sizes of one configuration may take [s]."""
    seed: int


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What single calls of one replica told, by batch size."""

    model: ModelInfo
    runtime: RuntimeInfo
    open_s: float
    call_s: dict[int, float]
    prepare_s: dict[int, float]
    memory_gib: dict[int, float | None]
    on_cpus: bool
    """Whether replicas share the CPUs of this machine."""

    def cell(self, batch_size: int, configuration: Configuration) -> PlannedCell:
        """Plan one cell; replicas that share a CPU wait for each other."""
        replicas = configuration.threads * configuration.concurrency
        crowding = max(1.0, replicas / usable_cpus()) if self.on_cpus else 1.0
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


def _next_gib(memory_gib: dict[int, float | None], size: int) -> float:
    """Memory of a replica at the next batch size, on the line through the last two sizes [GiB]; 0 where not known.

    Examples
    --------
    >>> _next_gib({1: 1.0, 2: 1.5}, 4), _next_gib({1: 1.0}, 4), _next_gib({1: None, 2: 1.5}, 4)
    (2.5, 0.0, 0.0)
    """
    match list(memory_gib.items())[-2:]:
        case [(smaller, float() as less_gib), (larger, float() as more_gib)]:
            return more_gib + (more_gib - less_gib) * (size - larger) / (larger - smaller)
        case _:
            return 0.0


def rehearse(engine_factory: EngineFactory, threads: int, sizes: Sequence[int], limits: Limits) -> Rehearsal:
    """Call one replica once per batch size, from small to large.

    Batch sizes far beyond the time that is left after the smaller ones are not called: their time is
    extrapolated in proportion, which hardly serves but to leave them out. Memory grows with the batch and is
    never given back by a session, so the resident memory after each size is the peak of a replica that
    serves up to it. Sizes that would not fit into memory, or for which the model found none, are missing in what it
    returns.

    Raises
    ------
    MeasurementError
        When the model cannot be loaded or fails, or does not even have room for the smallest size.
    """
    rng = np.random.default_rng(limits.seed)
    shortest = shortened(replace(limits.rules, settle=False), 0.0)
    growth, started = _Growth(engine_factory.memory), time.perf_counter()
    engine = engine_factory.open(threads, concurrency=1)
    on_cpus = engine_factory.placement.kind == "cpu"
    found = Rehearsal(*engine.describe(), time.perf_counter() - started, {}, {}, {}, on_cpus)
    spent_s = 0.0
    try:
        for size in sizes:
            if _next_gib(found.memory_gib, size) > growth.most_gib():
                break
            times = found.extrapolate(size) if found.call_s else None
            if times is not None:
                spent_s += PlannedCell(size, Configuration(threads, 1), *times, None).seconds(shortest)
            growth_gib: float | None = None
            if times is None or spent_s <= _GENEROUS * limits.repeat_s:
                try:
                    times = _time_one_call(engine, size, rng)
                except OutOfMemory:
                    if not found.call_s:
                        raise
                    break
                growth_gib = growth.gib()
            found.memory_gib[size] = growth_gib
            found.call_s[size], found.prepare_s[size] = times
    finally:
        engine.close()
    return found


class _Growth:
    """Memory that one replica took since its opening, where it can be seen.

    Parameters
    ----------
    memory
        What it grows in.
    """

    def __init__(self, memory: Memory | None) -> None:
        self._memory = memory
        self._baseline_gib = memory.resident_gib() if memory is not None else 0.0

    def gib(self) -> float | None:
        """Growth so far [GiB]; None where it is not to be trusted."""
        if self._memory is None or not self._memory.can_measure_growth():
            return None
        grown_gib = self._memory.resident_gib() - self._baseline_gib
        return grown_gib if grown_gib >= _LEAST_MEMORY_GIB else None

    def most_gib(self) -> float:
        """Growth that there is room for [GiB]."""
        if self._memory is None:
            return math.inf
        return self._memory.available_gib() * _MEMORY_FRAC + self._memory.resident_gib() - self._baseline_gib


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


def fit_machine(
    configurations: Sequence[Configuration],
    rehearsals: Mapping[int, Rehearsal],
    sizes: Sequence[int],
    memory: Memory | None,
) -> tuple[tuple[Configuration, ...], list[str]]:
    """Leave out what would not fit into memory; say where replicas compete for CPUs.

    All replicas of all configurations are open at the same time. Where they do not fit, the configuration that takes
    most memory gives up one replica after the other, its last one with the configuration itself.
    """
    warnings = [
        f"MEMORY: batch {size} at {threads} threads was left out, since it would not fit into memory."
        for threads, found in rehearsals.items()
        for size in sizes
        if size not in found.call_s
    ]
    available_gib = math.inf if memory is None else memory.available_gib() * _MEMORY_FRAC
    need_gib = {
        place: max((size for size in rehearsals[place.threads].memory_gib.values() if size), default=0.0)
        for place in configurations
    }
    replicas = {place: place.concurrency for place in configurations}
    while sum(replicas.values()) > 1 and sum(replicas[place] * need_gib[place] for place in replicas) > available_gib:
        largest = max(replicas, key=lambda place: replicas[place] * need_gib[place])
        replicas[largest] -= 1
    warnings += [
        f"MEMORY: {count} instead of {place.concurrency} replicas of {place.threads} threads ran together, of "
        f"{need_gib[place]:.1f} GiB each, since the replicas of all configurations do not fit into {available_gib:.1f} "
        "GiB."
        for place, count in replicas.items()
        if count < place.concurrency
    ]
    fitted = [replace(place, concurrency=count) for place, count in replicas.items() if count]
    cpus = usable_cpus()
    warnings += [
        f"OVERSUBSCRIBED: {place.concurrency} replicas of {place.threads} threads compete for {cpus} CPUs."
        for place in fitted
        if rehearsals[place.threads].on_cpus and place.threads * place.concurrency > cpus
    ]
    return tuple(dict.fromkeys(fitted)), warnings
