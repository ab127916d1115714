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


class _Worker:
    """Calls an engine whenever its bell rings, and keeps the times of all calls but the first.

    The first call of a sleeping engine pays for other things than idleness, such as memory that was given back.
    """

    def __init__(self, engine: Engine, items: Sequence[Item]) -> None:
        self._engine, self._items = engine, items
        self._bell, self.answered = _Bell(), threading.Event()
        self.gaps_s, self.services_s = list[float](), list[float]()

    def work(self) -> None:
        """Call until there are no more requests."""
        if self._bell.wait() is not None:
            self._engine.call(self._items[-1])
            self.answered.set()
        while (rung_ns := self._bell.wait()) is not None:
            item = self._items[len(self.services_s) % len(self._items)]
            start_ns = time.perf_counter_ns()
            self._engine.call(item)
            self.services_s.append((time.perf_counter_ns() - start_ns) / _NS_PER_S)
            self.gaps_s.append((start_ns - rung_ns) / _NS_PER_S)
            self.answered.set()

    def ask(self) -> None:
        """Make a request and wait for its end."""
        self.answered.clear()
        self._bell.ring()
        self.answered.wait()

    def end(self) -> None:
        """Make no more requests."""
        self._bell.end()


def measure_idle_starts(
    engine: Engine, items: Sequence[Item], *, service_s: float, seconds: float, rng: np.random.Generator
) -> IdleStarts:
    """Call a replica after idle times drawn from an exponential distribution; a first call is not counted.

    Parameters
    ----------
    engine
        One replica.
    items
        Prepared inputs of one batch size, used in turn.
    service_s
        Time of a call, from which the idle times follow: the mean gives a load of a tenth, but is at most 0.2 s [s].
    seconds
        Time to spend; at least two calls are counted [s].
    rng
        Source of the idle times.

    Raises
    ------
    MeasurementError
        When the replica fails.
    """
    idle_s = min(LONGEST_GAP_S, service_s * (1 - IDLE_LOAD) / IDLE_LOAD)
    worker = _Worker(engine, items)
    with ThreadPoolExecutor(1, thread_name_prefix="idle") as pool:
        working = pool.submit(worker.work)
        # Nobody is left waiting for the answer of an engine that failed.
        working.add_done_callback(lambda _: worker.answered.set())
        try:
            deadline = time.perf_counter() + seconds
            worker.ask()
            while not working.done() and (time.perf_counter() < deadline or len(worker.services_s) < 2):
                time.sleep(rng.exponential(idle_s))
                worker.ask()
        finally:
            worker.end()
        working.result()
    return IdleStarts(np.maximum(worker.gaps_s, 1e-9), np.maximum(worker.services_s, 1e-9))


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
