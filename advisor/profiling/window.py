"""One closed-loop window: several callers, each with its own replica, and the time they all overlap."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from advisor.errors import MeasurementError
from advisor.profiling.engines import Engine, Item

NsArray = npt.NDArray[np.int64]
Seen = TypeVar("Seen")

_NS_PER_S = 1e9
_STABLE_FRAC = 0.05
"""Medians of successive stretches of the warm-up that agree within this are settled (triton's analyzer takes 10 %)."""
_STRETCHES = 3
_STRETCH_CALLS, _STRETCH_S = 3, 0.02
"""A stretch is so many calls, and for short calls so many as last so long: an assumption."""


@dataclass(frozen=True, slots=True)
class WindowRules:
    """How long one window runs; times in seconds, per caller."""

    warmup_calls: int = 3
    warmup_s: float = 0.2
    min_calls: int = 30
    min_s: float = 1.0
    cap_s: float = 10.0
    """A window or warm-up that has lasted this long stops after the current call, whatever its count."""
    settle: bool = True
    """Whether the warm-up goes on until the times of the calls have settled."""


@dataclass(frozen=True, slots=True)
class WarmUp:
    """What the first caller saw before the window."""

    calls: int
    first_call_s: float
    settled: bool | None
    """Whether the times had settled; true where nobody asked, since an earlier window of the same shape had settled,
    and None where the calls are so slow that there were too few to tell."""


@dataclass(frozen=True, slots=True)
class Window(Generic[Seen]):
    """What was seen while all callers were at work."""

    starts_ns: NsArray
    """Start of each call that began inside, on the clock of `time.perf_counter_ns`."""
    service_ns: NsArray
    """Wall times of the same calls."""
    cpu_mean_s: float
    """Mean CPU time of one call, all its threads [s]."""
    calls: float
    """Calls inside; a call across an edge counts by its share, so that throughput has no bias."""
    duration_s: float
    """Length of the window [s]."""
    first_caller_calls: int
    """How many of the calls are the first caller's; they come first, in order of time."""
    warm_up: WarmUp
    before: Seen
    """What `observe` gave just before the first call."""
    after: Seen
    """What it gave just after the end."""

    @property
    def service_s(self) -> npt.NDArray[np.float64]:
        """Wall times of the calls [s]."""
        return self.service_ns / _NS_PER_S


@dataclass(slots=True)
class _Log:
    """Clock readings of one caller [ns]."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    cpu: list[int] = field(default_factory=list)
    warm_up: WarmUp | None = None


class _Gate(Generic[Seen]):
    """Common start and end of all callers, and the readings at both."""

    def __init__(self, callers: int, observe: Callable[[], Seen]) -> None:
        self.stop = threading.Event()
        self.barrier = threading.Barrier(callers, action=self._start)
        self._observe = observe
        self._lock = threading.Lock()
        self.start_ns = self.end_ns = self.cpu_start_ns = self.cpu_end_ns = 0
        self.seen: list[Seen] = []

    def _start(self) -> None:
        self.seen.append(self._observe())
        self.cpu_start_ns, self.start_ns = time.process_time_ns(), time.perf_counter_ns()

    def finish(self, end_ns: int) -> None:
        """Close the window at the end of the first caller to finish; later ones change nothing."""
        with self._lock:
            if not self.stop.is_set():
                self.cpu_end_ns, self.end_ns = time.process_time_ns(), end_ns
                self.stop.set()
                self.seen.append(self._observe())

    def give_up(self) -> None:
        """Let every caller stop at its next call."""
        self.stop.set()
        self.barrier.abort()


def nothing() -> None:
    """Observe nothing, for windows whose surroundings nobody asks for."""


def run_window(
    engines: Sequence[Engine],
    items: Sequence[Item],
    rules: WindowRules,
    *,
    threads: int,
    observe: Callable[[], Seen],
) -> Window[Seen]:
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
    observe
        Called just before the first call and just after the end, while the callers wait or stop.

    Raises
    ------
    MeasurementError
        When a replica fails, or no call was whole inside the window.
    """
    gate = _Gate(len(engines), observe)
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


def _call_in_a_loop(
    engine: Engine, items: Sequence[Item], offset: int, *, rules: WindowRules, gate: _Gate[Seen]
) -> _Log:
    """Warm up, wait for the others, then call until this or another caller has enough."""
    log = _Log()
    try:
        log.warm_up = _warm_up(engine, items, offset, rules=rules, gate=gate)
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


def _warm_up(engine: Engine, items: Sequence[Item], offset: int, *, rules: WindowRules, gate: _Gate[Seen]) -> WarmUp:
    """Call until the times have settled: every new shape pays again for memory and plans."""
    times_s: list[float] = []
    began = time.perf_counter()
    settled: bool | None = not rules.settle
    while not gate.stop.is_set():
        started = time.perf_counter()
        engine.call(items[(offset + len(times_s)) % len(items)])
        ended = time.perf_counter()
        times_s.append(ended - started)
        enough = ended - began >= rules.warmup_s and len(times_s) >= rules.warmup_calls
        if enough and rules.settle:
            settled = has_settled(times_s)
        if (enough and settled) or ended - began >= rules.cap_s:
            break
    if not settled and len(times_s) < _STRETCHES * _STRETCH_CALLS:
        settled = None
    return WarmUp(len(times_s), times_s[0] if times_s else 0.0, settled)


def has_settled(times_s: Sequence[float]) -> bool:
    """Whether the last three stretches of calls have medians within 5 % of each other.

    Examples
    --------
    >>> has_settled([0.1] * 9), has_settled([0.1] * 6 + [0.08] * 3), has_settled([0.1] * 8)
    (True, False, False)
    """
    last_s = max(times_s[-1], 1e-9)
    calls = max(_STRETCH_CALLS, math.ceil(_STRETCH_S / last_s))
    if len(times_s) < _STRETCHES * calls:
        return False
    recent = np.asarray(times_s[-_STRETCHES * calls :]).reshape(_STRETCHES, calls)
    medians = np.median(recent, axis=1)
    return bool(medians.max() <= medians.min() * (1 + _STABLE_FRAC))


def _cut(logs: list[_Log], gate: _Gate[Seen], *, per_thread: bool) -> Window[Seen]:
    """Keep the calls that began between the common start and the end of the first caller to finish.

    They run to their end, also beyond it: to drop those that are cut would drop the long ones more often.
    """
    starts = np.concatenate([np.asarray(log.starts, np.int64) for log in logs])
    ends = np.concatenate([np.asarray(log.ends, np.int64) for log in logs])
    cpu = np.concatenate([np.asarray(log.cpu, np.int64) for log in logs])
    whole = (starts >= gate.start_ns) & (starts < gate.end_ns)
    warm_up = logs[0].warm_up
    if not bool(whole.any()) or warm_up is None:
        raise MeasurementError("No call finished inside the measurement window.")
    inside_ns = np.clip(np.minimum(ends, gate.end_ns) - np.maximum(starts, gate.start_ns), 0, None)
    # A clock that did not advance during a call is read as its smallest step.
    service_ns = np.maximum(ends - starts, 1)
    calls = float(np.sum(inside_ns / service_ns))
    cpu_mean_ns = float(np.mean(cpu[whole])) if per_thread else (gate.cpu_end_ns - gate.cpu_start_ns) / calls
    before, after = gate.seen
    return Window(
        starts_ns=starts[whole],
        service_ns=service_ns[whole],
        cpu_mean_s=cpu_mean_ns / _NS_PER_S,
        calls=calls,
        duration_s=(gate.end_ns - gate.start_ns) / _NS_PER_S,
        first_caller_calls=int(np.count_nonzero(whole[: len(logs[0].ends)])),
        warm_up=warm_up,
        before=before,
        after=after,
    )
