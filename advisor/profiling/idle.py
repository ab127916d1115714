"""What a server pays beside its batches: the waking of an idle worker, a cold first call, and making the batch."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from advisor.profiling.engines import Engine, Item
from advisor.profiling.statistics import FloatArray

IDLE_LOAD = 0.1
"""Load at which idle starts are taken, as the protocol asks: nearly every call finds the replica idle."""
LONGEST_GAP_S = 0.2
"""Mean idle time at most, so that slow models are not waited for all day; caches are cold long before."""
JOINS = 21
"""Times that a batch is put together."""

_NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class IdleStarts:
    """Calls of one replica that was idle before each; both arrays in order of time."""

    gap_s: FloatArray
    """From the request to the start of the call [s]."""
    service_s: FloatArray
    """Wall time of the call [s]."""


class _Bell:
    """Hands one request at a time to a worker that sleeps on a condition, as workers of a server do."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._rung_ns: int | None = None
        self._over = False

    def ring(self) -> None:
        """Make a request."""
        with self._condition:
            self._rung_ns = time.perf_counter_ns()
            self._condition.notify()

    def end(self) -> None:
        """Make no more requests."""
        with self._condition:
            self._over = True
            self._condition.notify()

    def wait(self) -> int | None:
        """Sleep until the next request; its time [ns], or None after the end."""
        with self._condition:
            while self._rung_ns is None and not self._over:
                self._condition.wait()
            rung_ns, self._rung_ns = self._rung_ns, None
            return rung_ns


def measure_idle_starts(
    engine: Engine, items: Sequence[Item], *, service_s: float, seconds: float, rng: np.random.Generator
) -> IdleStarts:
    """Call a replica after idle times drawn from an exponential distribution.

    Parameters
    ----------
    engine
        One replica.
    items
        Prepared inputs of one batch size, used in turn.
    service_s
        Time of a call, from which the idle times follow: the mean gives a load of a tenth, but is at most 0.2 s [s].
    seconds
        Time to spend; at least two calls are made [s].
    rng
        Source of the idle times.

    Raises
    ------
    MeasurementError
        When the replica fails.
    """
    bell, gaps, services = _Bell(), list[float](), list[float]()
    idle_s = min(LONGEST_GAP_S, service_s * (1 - IDLE_LOAD) / IDLE_LOAD)

    def work() -> None:
        while (rung_ns := bell.wait()) is not None:
            item = items[len(services) % len(items)]
            start_ns = time.perf_counter_ns()
            engine.call(item)
            services.append((time.perf_counter_ns() - start_ns) / _NS_PER_S)
            gaps.append((start_ns - rung_ns) / _NS_PER_S)
            answered.set()

    answered = threading.Event()
    with ThreadPoolExecutor(1, thread_name_prefix="idle") as pool:
        worker = pool.submit(work)
        worker.add_done_callback(lambda _: answered.set())
        try:
            deadline = time.perf_counter() + seconds
            while not worker.done() and (time.perf_counter() < deadline or len(services) < 2):
                time.sleep(rng.exponential(idle_s))
                answered.clear()
                bell.ring()
                answered.wait()
        finally:
            bell.end()
        worker.result()
    return IdleStarts(np.maximum(gaps, 1e-9), np.maximum(services, 1e-9))


def measure_join_s(engine: Engine, batch_size: int, rng: np.random.Generator) -> float:
    """Time to put single items together into one batch: the median of several tries after a first one [s]."""
    singles = [engine.prepare(1, rng) for _ in range(batch_size)]
    times_s = []
    engine.join(singles)
    for _ in range(JOINS):
        started = time.perf_counter()
        engine.join(singles)
        times_s.append(time.perf_counter() - started)
    return float(np.median(times_s))
