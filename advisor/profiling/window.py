"""One closed-loop window: several callers, each with its own replica, and the time they all overlap."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from advisor.errors import MeasurementError
from advisor.profiling.engines import Engine, Item
from advisor.profiling.statistics import FloatArray

_NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class WindowRules:
    """How long one window runs; times in seconds, per caller."""

    warmup_calls: int = 3
    warmup_s: float = 0.2
    min_calls: int = 5
    min_s: float = 1.0
    cap_s: float = 10.0
    """A window or warm-up that has lasted this long stops after the current call, whatever its count."""


@dataclass(frozen=True, slots=True)
class Window:
    """What was seen while all callers were at work."""

    service_s: FloatArray
    """Wall times of the calls that lie wholly inside [s]."""
    cpu_mean_s: float
    """Mean CPU time of one call, all its threads [s]."""
    calls: float
    """Calls inside; a call across an edge counts by its share, so that throughput has no bias."""
    duration_s: float
    """Length of the window [s]."""
    first_caller_calls: int
    """How many of the calls are the first caller's; they come first, in order of time."""


@dataclass(slots=True)
class _Log:
    """Clock readings of one caller [ns]."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    cpu: list[int] = field(default_factory=list)


class _Gate:
    """Common start and end of all callers, and the CPU time of the process at both."""

    def __init__(self, callers: int) -> None:
        self.stop = threading.Event()
        self.barrier = threading.Barrier(callers, action=self._start)
        self._lock = threading.Lock()
        self.start_ns = self.end_ns = self.cpu_start_ns = self.cpu_end_ns = 0

    def _start(self) -> None:
        self.cpu_start_ns, self.start_ns = time.process_time_ns(), time.perf_counter_ns()

    def finish(self, end_ns: int) -> None:
        """Close the window at the end of the first caller to finish; later ones change nothing."""
        with self._lock:
            if not self.stop.is_set():
                self.cpu_end_ns, self.end_ns = time.process_time_ns(), end_ns
                self.stop.set()

    def give_up(self) -> None:
        """Let every caller stop at its next call."""
        self.stop.set()
        self.barrier.abort()


def run_window(engines: Sequence[Engine], items: Sequence[Item], rules: WindowRules, *, threads: int) -> Window:
    """Drive all replicas in a closed loop until the first caller has enough.

    Parameters
    ----------
    engines
        One replica per caller.
    items
        Prepared inputs that the callers rotate through, so that no input stays in the cache alone.
    rules
        Warm-up and length.
    threads
        Threads of one replica. With one thread the CPU time is that of the calling thread, call by call;
        with more it is the CPU time of the process over the window divided by the calls.

    Raises
    ------
    MeasurementError
        When a replica fails, or no call was whole inside the window.
    """
    gate = _Gate(len(engines))
    with ThreadPoolExecutor(len(engines), thread_name_prefix="caller") as pool:
        try:
            futures = [
                pool.submit(_call_in_a_loop, engine, items, index, rules=rules, gate=gate)
                for index, engine in enumerate(engines)
            ]
            logs = _results(futures)
        except BaseException:
            gate.give_up()
            raise
    return _cut(logs, gate, per_thread=threads == 1)


def _results(futures: list[Future[_Log]]) -> list[_Log]:
    """Wait for all callers; the failure of one is reported, not the broken barrier of the others."""
    failures = [error for error in (future.exception() for future in futures) if error is not None]
    for error in failures:
        if not isinstance(error, threading.BrokenBarrierError):
            raise error
    return [future.result() for future in futures]


def _call_in_a_loop(engine: Engine, items: Sequence[Item], offset: int, *, rules: WindowRules, gate: _Gate) -> _Log:
    """Warm up, wait for the others, then call until this or another caller has enough."""
    log = _Log()
    try:
        _warm_up(engine, items, offset, rules=rules, gate=gate)
        gate.barrier.wait()
        while not gate.stop.is_set():
            item = items[(offset + len(log.ends)) % len(items)]
            cpu_ns, start_ns = time.thread_time_ns(), time.perf_counter_ns()
            engine.call(item)
            end_ns = time.perf_counter_ns()
            log.cpu.append(time.thread_time_ns() - cpu_ns)
            log.starts.append(start_ns)
            log.ends.append(end_ns)
            elapsed_s = (end_ns - gate.start_ns) / _NS_PER_S
            if (elapsed_s >= rules.min_s and len(log.ends) >= rules.min_calls) or elapsed_s >= rules.cap_s:
                gate.finish(end_ns)
    except BaseException:
        gate.give_up()
        raise
    return log


def _warm_up(engine: Engine, items: Sequence[Item], offset: int, *, rules: WindowRules, gate: _Gate) -> None:
    """Call without recording: every new shape pays again for memory and plans."""
    start_ns, calls = time.perf_counter_ns(), 0
    while not gate.stop.is_set():
        engine.call(items[(offset + calls) % len(items)])
        calls += 1
        elapsed_s = (time.perf_counter_ns() - start_ns) / _NS_PER_S
        if (elapsed_s >= rules.warmup_s and calls >= rules.warmup_calls) or elapsed_s >= rules.cap_s:
            return


def _cut(logs: list[_Log], gate: _Gate, *, per_thread: bool) -> Window:
    """Keep what lies between the common start and the end of the first caller to finish."""
    starts = np.concatenate([np.asarray(log.starts, np.int64) for log in logs])
    ends = np.concatenate([np.asarray(log.ends, np.int64) for log in logs])
    cpu = np.concatenate([np.asarray(log.cpu, np.int64) for log in logs])
    whole = (starts >= gate.start_ns) & (ends <= gate.end_ns)
    if not bool(whole.any()):
        raise MeasurementError("No call finished inside the measurement window.")
    inside_ns = np.clip(np.minimum(ends, gate.end_ns) - np.maximum(starts, gate.start_ns), 0, None)
    # A clock that did not advance during a call is read as its smallest step.
    service_ns = np.maximum(ends - starts, 1)
    calls = float(np.sum(inside_ns / service_ns))
    cpu_mean_ns = float(np.mean(cpu[whole])) if per_thread else (gate.cpu_end_ns - gate.cpu_start_ns) / calls
    return Window(
        service_s=service_ns[whole] / _NS_PER_S,
        cpu_mean_s=cpu_mean_ns / _NS_PER_S,
        calls=calls,
        duration_s=(gate.end_ns - gate.start_ns) / _NS_PER_S,
        first_caller_calls=int(np.count_nonzero(whole[: len(logs[0].ends)])),
    )
