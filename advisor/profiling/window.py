"""One closed-loop window: several callers, each with its own replica, and the time they all overlap."""

import itertools
import math
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from advisor.errors import MeasurementError
from advisor.profiling.engines import Engine, Item, TokenTimes

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
    """What was seen before the window."""

    calls: int
    """Calls of the first caller until it was warm; those that it made on, for the others, are not among them."""
    first_call_s: float
    """Its first call [s]."""
    settled: bool | None
    """Whether the times of all callers had settled; true where nobody asked, since an earlier window of the same shape
    had settled, and None where the calls are so slow that there were too few to tell."""


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
    tokens_ns: tuple[NsArray, ...]
    """Times at which the tokens of each of these calls came, since its start; none where answers come whole."""
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
    tokens: list[TokenTimes] = field(default_factory=list)
    """Of every call, where the engine streams."""
    warm_up: WarmUp | None = None


class _Gate(Generic[Seen]):
    """Common start and end of all callers, and the readings at both."""

    def __init__(self, callers: int, observe: Callable[[], Seen]) -> None:
        self.began_s = time.perf_counter()
        self.warm, self.stop = threading.Event(), threading.Event()
        self.barrier = threading.Barrier(callers, action=self._start)
        self._observe = observe
        self._lock = threading.Lock()
        self._cold = callers
        self.start_ns = self.end_ns = self.cpu_start_ns = self.cpu_end_ns = 0
        self.seen: list[Seen] = []

    def _start(self) -> None:
        self.seen.append(self._observe())
        self.cpu_start_ns, self.start_ns = time.process_time_ns(), time.perf_counter_ns()

    def count_warm(self) -> None:
        """Note that one more caller is warm: the warm-up of all is over with the last."""
        with self._lock:
            self._cold -= 1
            if self._cold == 0:
                self.warm.set()

    def finish(self, end_ns: int) -> None:
        """Close the window at the end of the first caller to finish; later ones change nothing."""
        with self._lock:
            if not self.stop.is_set():
                self.cpu_end_ns, self.end_ns = time.process_time_ns(), end_ns
                self.stop.set()
                self.seen.append(self._observe())

    def give_up(self) -> None:
        """Let every caller stop at its next call, in the warm-up as well."""
        self.warm.set()
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
            tokens = engine.call(item)
            end_ns = time.perf_counter_ns()
            log.cpu.append(time.thread_time_ns() - cpu_ns)
            if tokens is not None:
                log.tokens.append(tokens)
            log.starts.append(start_ns)
            log.ends.append(end_ns)
            elapsed_s = (end_ns - gate.start_ns) / _NS_PER_S
            if (elapsed_s >= rules.min_s and len(log.ends) >= rules.min_calls) or elapsed_s >= rules.cap_s:
                gate.finish(end_ns)
    except BaseException:
        gate.give_up()
        raise
    return log


def _warm_up(
    engine: Engine, items: Sequence[Item], offset: int, *, rules: WindowRules, gate: _Gate[Seen]
) -> WarmUp | None:
    """Call until this caller is warm, and on until all are; None when another failed before.

    Every new shape pays again for memory and plans. A caller that stood still once it is warm would let the others
    settle on a machine that is quieter than in the window.
    """
    times = WarmUpTimes(rules)
    found: WarmUp | None = None
    calls = itertools.count(offset)
    while not gate.warm.is_set():
        item = items[next(calls) % len(items)]
        started_s = time.perf_counter()
        engine.call(item)
        ended_s = time.perf_counter()
        if found is None:
            # The time of all callers has one beginning, so that the cap is the same moment for each.
            found = times.add(ended_s - started_s, ended_s - gate.began_s)
            if found is not None:
                gate.count_warm()
    return found


class WarmUpTimes:
    """Times of one caller's warm-up, and when it is over.

    Parameters
    ----------
    rules
        Its length, and whether the times have to settle.

    Examples
    --------
    >>> times = WarmUpTimes(WindowRules(warmup_s=0.2))
    >>> [times.add(0.1, 0.1 * call) for call in range(1, 10)][-1]
    WarmUp(calls=9, first_call_s=0.1, settled=True)
    """

    def __init__(self, rules: WindowRules) -> None:
        self._rules = rules
        self._times_s: list[float] = []
        self._due = 0

    def add(self, call_s: float, elapsed_s: float) -> WarmUp | None:
        """Take one more call; what the warm-up was, once it is over.

        Parameters
        ----------
        call_s
            Time of the call [s].
        elapsed_s
            Time since the beginning of the warm-up [s].
        """
        rules, count = self._rules, len(self._times_s) + 1
        self._times_s.append(call_s)
        capped = elapsed_s >= rules.cap_s
        enough = elapsed_s >= rules.warmup_s and count >= rules.warmup_calls
        if not (enough or capped):
            return None
        if not rules.settle:
            return WarmUp(count, self._times_s[0], settled=True)
        if count < self._due and not capped:
            return None
        if has_settled(self._times_s):
            return WarmUp(count, self._times_s[0], settled=True)
        stretch = _stretch_calls(call_s)
        if count >= _STRETCHES * stretch:
            # Once a stretch and not after each call: medians in Python keep other callers waiting for its lock.
            self._due = count + stretch
        told = count >= _STRETCHES * _STRETCH_CALLS
        return WarmUp(count, self._times_s[0], settled=False if told else None) if capped else None


def _stretch_calls(last_s: float) -> int:
    """Calls of one stretch, where the last one took so long [s]."""
    return max(_STRETCH_CALLS, math.ceil(_STRETCH_S / max(last_s, 1e-9)))


def has_settled(times_s: Sequence[float]) -> bool:
    """Whether the last three stretches of calls have medians within 5 % of each other.

    Examples
    --------
    >>> has_settled([0.1] * 9), has_settled([0.1] * 6 + [0.08] * 3), has_settled([0.1] * 8)
    (True, False, False)
    """
    calls = _stretch_calls(times_s[-1])
    first = len(times_s) - _STRETCHES * calls
    if first < 0:
        return False
    medians = [statistics.median(times_s[start : start + calls]) for start in range(first, len(times_s), calls)]
    return max(medians) <= min(medians) * (1 + _STABLE_FRAC)


def all_settled(verdicts: Iterable[bool | None]) -> bool | None:
    """Whether all callers had settled; None when some had too few calls to tell, and none speaks against it.

    Examples
    --------
    >>> all_settled([True, True]), all_settled([True, None]), all_settled([None, True, False])
    (True, None, False)
    """
    found = set(verdicts)
    if False in found:
        return False
    return None if None in found else True


def _cut(logs: list[_Log], gate: _Gate[Seen], *, per_thread: bool) -> Window[Seen]:
    """Keep the calls that began between the common start and the end of the first caller to finish.

    They run to their end, also beyond it: to drop those that are cut would drop the long ones more often.
    """
    starts = np.concatenate([np.asarray(log.starts, np.int64) for log in logs])
    ends = np.concatenate([np.asarray(log.ends, np.int64) for log in logs])
    cpu = np.concatenate([np.asarray(log.cpu, np.int64) for log in logs])
    whole = (starts >= gate.start_ns) & (starts < gate.end_ns)
    warm_ups = [log.warm_up for log in logs if log.warm_up is not None]
    if not bool(whole.any()) or len(warm_ups) < len(logs):
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
        warm_up=replace(warm_ups[0], settled=all_settled(warm_up.settled for warm_up in warm_ups)),
        tokens_ns=_tokens(logs, whole),
        before=before,
        after=after,
    )


def _tokens(logs: list[_Log], whole: npt.NDArray[np.bool_]) -> tuple[NsArray, ...]:
    """Times of the tokens of the calls that count, since the start of each call [ns]."""
    calls = [(start, tokens) for log in logs for start, tokens in zip(log.starts, log.tokens, strict=False)]
    if len(calls) < whole.size:
        return ()
    return tuple(
        np.asarray(tokens, np.int64) - start for (start, tokens), kept in zip(calls, whole, strict=True) if kept
    )
