"""Energy meters: what counts joules while a model runs, from the GPU's own counter down to a table of watts."""

import os
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import psutil

from advisor.domain.measurement import PowerMethod
from advisor.domain.profile import Fact
from advisor.errors import MeasurementError
from advisor.profiling.gpu import Gpu, GpuReading

NVML_COUNTER_UPDATE_S = 0.1
"""NVML's energy counter is renewed every 20 to 100 ms on newer cards (PETSc manual, PetscLogGpuEnergyMeter)."""
NVML_POWER_UPDATE_S = 1.0
"""Power may be the mean over the last second (NVML manual, nvmlDeviceGetPowerUsage, Ampere and later except GA100)."""
NVML_POLL_S = 0.1
LONGEST_BRIDGE_S = 1.0
"""Failed readings are bridged by a straight line up to this long: an assumption."""
TICK_S = 0.01
"""Linux counts CPU time in hundredths of a second."""


@dataclass(frozen=True, slots=True)
class MeterReading:
    """State of a meter."""

    at_s: float
    """Time on the clock of `time.perf_counter` [s]."""
    energy_j: float
    """Energy since the meter was started [J]; it never falls."""


class Meter(Protocol):
    """Counts energy from its construction to `close`."""

    @property
    def method(self) -> PowerMethod:
        """How the energy is obtained."""
        ...

    @property
    def scope(self) -> str:
        """What it covers."""
        ...

    @property
    def is_estimate(self) -> bool:
        """Whether it is computed from watts that nobody measured here."""
        ...

    @property
    def error_frac(self) -> float:
        """Half width of the band of an estimate, as a fraction; 0 for a real meter."""
        ...

    @property
    def update_s(self) -> float:
        """Time between two values of its counter: how far off the edge of a window may be [s]."""
        ...

    def read(self) -> MeterReading:
        """Read the meter now.

        Raises
        ------
        MeasurementError
            When the device no longer answers, or its counter fell.
        """
        ...

    def close(self) -> None:
        """Stop counting."""
        ...


@dataclass(frozen=True, slots=True)
class AssumedPower:
    """Watts that nobody measured here: given by the user, or from a table.

    Raises
    ------
    ValueError
        Unless 0 ≤ idle_w ≤ busy_w and busy_w > 0.
    """

    method: PowerMethod
    idle_w: float
    busy_w: float
    scope: str
    error_frac: float

    def __post_init__(self) -> None:
        if not 0 <= self.idle_w <= self.busy_w or self.busy_w == 0:
            raise ValueError("0 ≤ idle_w ≤ busy_w and busy_w > 0")


class NvmlCounter:
    """Differences of the energy counters of some cards; the cards stay open when it is closed."""

    method: PowerMethod = "nvml_counter"
    is_estimate = False
    error_frac = 0.0
    update_s = NVML_COUNTER_UPDATE_S

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self.scope = card_scope(gpus)
        self._gpus = tuple(gpus)
        self._names = tuple(_name(gpu) for gpu in gpus)
        self._first_j = self._last_j = self._counters([gpu.read() for gpu in gpus])

    def read(self) -> MeterReading:
        """Read all counters. One that fell was reset, by a reload of the driver for one: the window is lost."""
        readings = [gpu.read() for gpu in self._gpus]
        now_j = self._counters(readings)
        for name, last_j, counter_j in zip(self._names, self._last_j, now_j, strict=True):
            if counter_j < last_j:
                raise MeasurementError(
                    f"The energy counter of {name} fell from {last_j:.1f} J to {counter_j:.1f} J; "
                    "it must not be reset, nor the driver reloaded, during a measurement."
                )
        self._last_j = now_j
        return MeterReading(statistics.fmean(reading.at_s for reading in readings), sum(now_j) - sum(self._first_j))

    def close(self) -> None:
        """Nothing runs in the background."""

    def _counters(self, readings: Sequence[GpuReading]) -> tuple[float, ...]:
        return tuple(
            _number(reading.energy_j, f"the energy counter of {name}")
            for name, reading in zip(self._names, readings, strict=True)
        )


class NvmlPolled:
    """Power of some cards integrated over the times of its readings; the cards stay open when it is closed."""

    method: PowerMethod = "nvml_poll"
    is_estimate = False
    error_frac = 0.0
    update_s = NVML_POWER_UPDATE_S

    def __init__(self, gpus: Sequence[Gpu], *, period_s: float = NVML_POLL_S) -> None:
        self.scope = card_scope(gpus)
        self._gpus = tuple(gpus)
        self._names = tuple(_name(gpu) for gpu in gpus)
        self._lock = threading.Lock()
        self._energy_j = 0.0
        self._trouble: MeasurementError | None = None
        self._last = self._look()
        self._sampler = Sampler(self._sample, period_s)

    def read(self) -> MeterReading:
        """Add one more reading and tell the integral."""
        with self._lock:
            self._advance()
            return MeterReading(statistics.fmean(at_s for at_s, _ in self._last), self._energy_j)

    def close(self) -> None:
        """Stop the polling."""
        self._sampler.close()

    def _sample(self) -> None:
        with self._lock:
            try:
                self._advance()
            except MeasurementError as error:
                # Told at the next reading of the meter, unless the card answers again soon.
                self._trouble = error

    def _look(self) -> tuple[tuple[float, float], ...]:
        """Time [s] and power [W] of each card."""
        readings = [gpu.read() for gpu in self._gpus]
        return tuple(
            (reading.at_s, _number(reading.power_w, f"the power of {name}"))
            for name, reading in zip(self._names, readings, strict=True)
        )

    def _advance(self) -> None:
        """Add the trapezoids since the last reading; a long gap of failed readings is no straight line.

        Whoever reads next learns of the gap once; the integral goes on behind it.
        """
        now = self._look()
        trouble, self._trouble = self._trouble, None
        if trouble is not None and now[0][0] - self._last[0][0] > LONGEST_BRIDGE_S:
            self._last = now
            raise trouble
        for (before_s, before_w), (at_s, power_w) in zip(self._last, now, strict=True):
            self._energy_j += (before_w + power_w) / 2 * (at_s - before_s)
        self._last = now


class AssumedMeter:
    """Energy from assumed watts: idle power all the time, and the rest by the busy share of the CPUs.

    E = idle_w·t + (busy_w - idle_w)·∫ share dt.

    Parameters
    ----------
    power
        The watts.
    busy_cpu_s
        CPU time that was used since any moment [CPU s]; None counts the device as busy all the time.
    cpus
        CPUs that make a share of 1.
    clock
        Source of the time [s].

    Examples
    --------
    >>> power = AssumedPower("user_watts", idle_w=10.0, busy_w=30.0, scope="this machine", error_frac=0.2)
    >>> clock, busy = iter([0.0, 10.0]), iter([0.0, 5.0])
    >>> meter = AssumedMeter(power, busy_cpu_s=lambda: next(busy), cpus=2, clock=lambda: next(clock))
    >>> meter.read().energy_j
    150.0
    """

    is_estimate = True
    update_s = TICK_S

    def __init__(
        self,
        power: AssumedPower,
        *,
        busy_cpu_s: Callable[[], float] | None,
        cpus: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.method, self.error_frac, self.idle_w = power.method, power.error_frac, power.idle_w
        self.scope = power.scope if busy_cpu_s else f"{power.scope}, as if busy all the time"
        self._power, self._busy_cpu_s, self._cpus, self._clock = power, busy_cpu_s, cpus, clock
        self._energy_j = 0.0
        self._last_s, self._last_busy_s = clock(), busy_cpu_s() if busy_cpu_s else 0.0

    def read(self) -> MeterReading:
        """Add what was used since the last reading."""
        now_s = self._clock()
        elapsed_s = now_s - self._last_s
        active_s = elapsed_s
        if self._busy_cpu_s is not None:
            busy_s = self._busy_cpu_s()
            # Ticks come late and in lumps: a share is neither above 1 nor, after a correction by the kernel, below 0.
            active_s = min(max((busy_s - self._last_busy_s) / self._cpus, 0.0), elapsed_s)
            self._last_busy_s = busy_s
        self._energy_j += self._power.idle_w * elapsed_s + (self._power.busy_w - self._power.idle_w) * active_s
        self._last_s = now_s
        return MeterReading(now_s, self._energy_j)

    def close(self) -> None:
        """Nothing runs in the background."""


class Sampler:
    """Calls a function again and again from a thread of its own, until closed."""

    def __init__(self, take: Callable[[], None], period_s: float) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(take, period_s), name="meter", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, and wait for the call in progress."""
        self._over.set()
        self._thread.join()

    def _run(self, take: Callable[[], None], period_s: float) -> None:
        while not self._over.wait(period_s):
            take()


def busy_cpu_s() -> float:
    """CPU time since boot that all processes used on the CPUs of this process's affinity [CPU s].

    What the hypervisor gave to others is not in it.
    """
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    kinds = ("user", "nice", "system", "irq", "softirq")
    return sum(
        getattr(times, kind, 0.0)
        for index, times in enumerate(psutil.cpu_times(percpu=True))
        if allowed is None or index in allowed
        for kind in kinds
    )


def card_scope(gpus: Sequence[Gpu]) -> str:
    """What an energy counter of these cards covers; on a divided card it counts all slices."""
    cards = "one card" if len(gpus) == 1 else f"{len(gpus)} cards"
    if any(gpu.facts().get("gpu_mig_mode") == Fact(value="enabled") for gpu in gpus):
        return f"{cards} with all MIG slices, not only the one that ran"
    return cards


def _name(gpu: Gpu) -> str:
    return str(gpu.facts()["gpu_name"].value or "the GPU")


def _number(fact: Fact, what: str) -> float:
    if isinstance(fact.value, int | float):
        return float(fact.value)
    raise MeasurementError(f"Reading {what} failed: {fact.why or f'it gave {fact.value!r}'}.")
