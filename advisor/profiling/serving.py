"""A real server in this process: one queue, dynamic batching, and a worker thread for each replica.

A worker that is free takes what waits, up to the largest batch; with a delay d > 0 it waits for a full batch, but no
longer than until the oldest request is d old. The simulator of `advisor.simulation` follows the same rule.
"""

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np

from advisor.profiling.cell import ITEMS_PER_CELL, Configuration
from advisor.profiling.engines import Engine, Item
from advisor.profiling.window import NsArray

WARM_CALLS = 3
"""Calls of each replica at each batch size before the load: a new shape is slow in its first two."""

_NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class ServerSetup:
    """How the server is set up."""

    configuration: Configuration
    max_batch: int
    """Requests that a worker takes at most."""
    batch_delay_s: float = 0.0
    """Longest wait of a free worker for its batch to fill [s]."""


@dataclass(frozen=True, slots=True)
class Served:
    """What the server did."""

    done_ns: NsArray
    """Time at which each request was answered, on the clock of `time.perf_counter_ns`."""
    batch_sizes: NsArray
    """Size of each batch, worker by worker."""
    service_ns: NsArray
    """Time of each batch, from its first request taken to its answer [ns]; in the same order."""


class Server:
    """Workers that answer requests until `finish`.

    Requests are numbers from 0; each gets one of the prepared items in turn. The work per request is kept tiny, since
    Python's lock is shared by all workers and by whoever makes the requests.

    Parameters
    ----------
    engines
        One replica per worker.
    items
        Prepared single items.
    setup
        Batching.
    requests
        How many requests there will be.
    """

    def __init__(self, engines: Sequence[Engine], items: Sequence[Item], setup: ServerSetup, *, requests: int) -> None:
        self._engines, self._items = engines, items
        self._max_batch, self._delay_ns = setup.max_batch, round(setup.batch_delay_s * _NS_PER_S)
        self._queue: deque[int] = deque()
        self._arrived_ns, self._done_ns = [0] * requests, [0] * requests
        # A plain lock: the condition's own would be reentrant, and slower.
        self._condition = threading.Condition(threading.Lock())
        self._over = self._failed = False
        self._pool = ThreadPoolExecutor(len(engines), thread_name_prefix="worker")
        self._workers: list[Future[list[tuple[int, int]]]] = []

    def __enter__(self) -> Self:
        """Start the workers."""
        self._workers = [self._pool.submit(self._work, engine) for engine in self._engines]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the workers; what still waits is not answered when something went wrong."""
        self._end(drop=kind is not None)
        self._pool.shutdown()

    @property
    def failed(self) -> bool:
        """Whether a replica failed; `finish` raises its error."""
        return self._failed

    def put(self, request: int) -> None:
        """Add a request to the queue."""
        self._arrived_ns[request] = time.perf_counter_ns()
        with self._condition:
            self._queue.append(request)
            self._condition.notify()

    def finish(self) -> Served:
        """Wait until all requests are answered.

        Raises
        ------
        MeasurementError
            When a replica failed.
        """
        self._end(drop=False)
        batches = np.array([batch for worker in self._workers for batch in worker.result()], np.int64).reshape(-1, 2)
        return Served(np.array(self._done_ns, np.int64), batches[:, 0], batches[:, 1])

    def _end(self, *, drop: bool) -> None:
        with self._condition:
            self._over = True
            if drop:
                self._queue.clear()
            self._condition.notify_all()

    def _work(self, engine: Engine) -> list[tuple[int, int]]:
        """Serve batches until the end; their sizes and times [ns]."""
        items, many, batches = self._items, len(self._items), list[tuple[int, int]]()
        try:
            while taken := self._take():
                start_ns = time.perf_counter_ns()
                if len(taken) == 1:
                    item = items[taken[0] % many]
                else:
                    item = engine.join([items[request % many] for request in taken])
                engine.call(item)
                now_ns = time.perf_counter_ns()
                for request in taken:
                    self._done_ns[request] = now_ns
                batches.append((len(taken), now_ns - start_ns))
        except BaseException:
            self._failed = True
            self._end(drop=True)
            raise
        return batches

    def _take(self) -> list[int]:
        """Wait for a batch; an empty one means that there will be none any more."""
        queue, condition = self._queue, self._condition
        with condition:
            while True:
                if queue:
                    left_ns = self._left_ns()
                    if left_ns <= 0:
                        taken = [queue.popleft() for _ in range(min(len(queue), self._max_batch))]
                        if queue:
                            condition.notify()
                        return taken
                    condition.wait(left_ns / _NS_PER_S)
                elif self._over:
                    return []
                else:
                    condition.wait()

    def _left_ns(self) -> int:
        """Time that the batch at the head of the queue may still wait to fill [ns]."""
        if self._delay_ns == 0 or len(self._queue) >= self._max_batch:
            return 0
        return self._arrived_ns[self._queue[0]] + self._delay_ns - time.perf_counter_ns()


def prepare_singles(engine: Engine, rng: np.random.Generator, *, most: int) -> list[Item]:
    """Single items for the requests to share: as many as the largest batch, or as a measured cell rotates through."""
    return [engine.prepare(1, rng) for _ in range(max(most, ITEMS_PER_CELL))]


def warm_up(engines: Sequence[Engine], items: Sequence[Item], max_batch: int) -> None:
    """Call every replica at every batch size, all replicas at the same time.

    Raises
    ------
    MeasurementError
        When a replica fails.
    """

    def call_all(engine: Engine) -> None:
        for size in range(max_batch, 0, -1):
            joined = items[0] if size == 1 else engine.join([items[index % len(items)] for index in range(size)])
            for _ in range(WARM_CALLS):
                engine.call(joined)

    with ThreadPoolExecutor(len(engines), thread_name_prefix="warm") as pool:
        for done in [pool.submit(call_all, engine) for engine in engines]:
            done.result()
