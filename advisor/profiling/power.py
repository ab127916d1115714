"""Power and energy of a measurement: the best meter at hand, idle power, and energy of one item.

The ladder, best first: the energy counter of NVML, its power polled, RAPL, perf, watts given by the user, watts
from a table. The last two are estimates and carry a band.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from advisor.domain.measurement import Energy, IdlePower
from advisor.errors import MeasurementError
from advisor.profiling.cpu_meters import Perf, Rapl, find_packages
from advisor.profiling.gpu import Gpu
from advisor.profiling.host import own_cpus
from advisor.profiling.meters import (
    AssumedMeter,
    AssumedPower,
    Meter,
    MeterReading,
    NvmlCounter,
    NvmlPolled,
    busy_cpu_s,
)
from advisor.profiling.statistics import half_width95

__all__ = [
    "AssumedPower",
    "EnergyWindow",
    "Meter",
    "MeterReading",
    "NoMeter",
    "choose_meter",
    "idle_power",
    "item_energy",
]

USER_WATTS_ERROR_FRAC = 0.2
"""An assumption: the user's figures were read off a meter, but power follows load only roughly in a straight line."""
TDP_ERROR_FRAC = 0.5
"""An assumption: watts of a table may be off by half, as they leave out which machine it is and what it runs."""

_POWERCAP = Path("/sys/class/powercap")
_COUNTER_PATIENCE_S = 1.0
"""Ten times the slowest update of NVML's counter: one that has not moved by then stands still."""
_GLANCE_S = 0.02


@dataclass(frozen=True, slots=True)
class NoMeter:
    """Nothing tells the energy."""

    why: str
    """Each rung of the ladder with the reason for which it was not taken."""


@dataclass(frozen=True, slots=True)
class EnergyWindow:
    """What the meter counted over one window that counts."""

    energy_j: float
    duration_s: float
    items: float


def choose_meter(
    gpus: Sequence[Gpu],
    *,
    kind: Literal["cpu", "gpu"],
    assumed: Sequence[AssumedPower],
    cpus: int,
    powercap: Path = _POWERCAP,
    perf: str = "perf",
) -> Meter | NoMeter:
    """Start the best meter that works here.

    Parameters
    ----------
    gpus
        Cards that the model runs on, and no others: the meter sums them. It does not close them.
    kind
        Device that the model runs on. A GPU is measured by NVML or assumed, a CPU by its packages or assumed.
    assumed
        Watts for want of a meter. Those of the user go before those of a table.
    cpus
        CPUs that the process may use; assumed watts follow their busy share. For a GPU they count as busy.
    powercap
        Folder of the kernel's energy counters.
    perf
        Name or path of the perf program.

    Examples
    --------
    >>> watts = AssumedPower("user_watts", idle_w=10.0, busy_w=30.0, scope="one card", error_frac=0.2)
    >>> meter = choose_meter((), kind="gpu", assumed=[watts], cpus=2)
    >>> meter.method, meter.scope
    ('user_watts', 'one card, as if busy all the time')
    >>> choose_meter((), kind="gpu", assumed=[], cpus=2).why
    'nvml_counter and nvml_poll: no card is visible; user_watts: none were given; tdp_estimate: no figure is known'
    """
    measured: dict[str, Callable[[], Meter]]
    if kind == "cpu":
        measured = {"rapl": lambda: _rapl(powercap), "perf": lambda: Perf(perf)}
    elif gpus:
        measured = {"nvml_counter": lambda: _nvml_counter(gpus), "nvml_poll": lambda: NvmlPolled(gpus)}
    else:
        measured = {"nvml_counter and nvml_poll": _no_card}
    reasons = []
    for rung, start in measured.items():
        try:
            return start()
        except MeasurementError as error:
            reasons.append(f"{rung}: {str(error).rstrip('.')}")
    for rung, why in (("user_watts", "none were given"), ("tdp_estimate", "no figure is known")):
        for power in assumed:
            if power.method == rung:
                return AssumedMeter(power, busy_cpu_s=_busy_clock(cpus) if kind == "cpu" else None, cpus=cpus)
        reasons.append(f"{rung}: {why}")
    return NoMeter("; ".join(reasons))


def idle_power(meter: Meter, seconds: float) -> float:
    """Mean power over some seconds in which nothing runs [W]; of an estimate its assumed idle power, at once.

    Raises
    ------
    MeasurementError
        When the meter cannot be read.
    """
    if isinstance(meter, AssumedMeter):
        return meter.idle_w
    before = meter.read()
    time.sleep(seconds)
    after = meter.read()
    return (after.energy_j - before.energy_j) / (after.at_s - before.at_s)


def item_energy(windows: Sequence[EnergyWindow], meter: Meter, idle: IdlePower | None) -> Energy:
    """Energy of one item over the windows that count, one window for each repeat.

    Gross is ΣE/Σitems. Its half width is the largest of three: Student's t over the windows' joules per item
    (two windows or more); the edges, each of which may be off by one update of the meter at mean power,
    2·update_s·√n·P/Σitems for n windows; and the band of an estimate.
    Net is gross less idle power times ΣT/Σitems. Half the difference of idle power before and after widens it.

    Parameters
    ----------
    windows
        At least one.
    meter
        The meter that counted them.
    idle
        Idle power; None leaves net out.

    Raises
    ------
    ValueError
        When there is no window.

    Examples
    --------
    >>> power = AssumedPower("tdp_estimate", idle_w=10.0, busy_w=30.0, scope="these vCPUs", error_frac=0.5)
    >>> meter = AssumedMeter(power, busy_cpu_s=None, cpus=2)
    >>> idle = IdlePower(method="tdp_estimate", before_w=10.0, after_w=10.0)
    >>> energy = item_energy([EnergyWindow(energy_j=60.0, duration_s=2.0, items=20.0)], meter, idle)
    >>> energy.gross_j, energy.gross_half_j, energy.net_j
    (3.0, 1.5, 2.0)
    """
    if not windows:
        raise ValueError("energy of an item needs at least one window")
    items = sum(window.items for window in windows)
    duration_s = sum(window.duration_s for window in windows)
    energy_j = sum(window.energy_j for window in windows)
    gross_j = energy_j / items
    edges_j = 2 * meter.update_s * math.sqrt(len(windows)) * energy_j / duration_s / items
    gross_half_j = max(_spread_j(windows), edges_j, meter.error_frac * gross_j)
    net_j = net_half_j = None
    if idle is not None:
        after_w = idle.before_w if idle.after_w is None else idle.after_w
        net_j = gross_j - (idle.before_w + after_w) / 2 * duration_s / items
        net_half_j = gross_half_j + abs(idle.before_w - after_w) / 2 * duration_s / items
    return Energy(
        scope=meter.scope,
        is_estimate=meter.is_estimate,
        gross_j=gross_j,
        gross_half_j=gross_half_j,
        net_j=net_j,
        net_half_j=net_half_j,
        window_s=duration_s,
    )


def _spread_j(windows: Sequence[EnergyWindow]) -> float:
    """Half width of the 95 % interval of the mean over windows [J]; 0 for a single one."""
    if len(windows) < 2:
        return 0.0
    return half_width95([window.energy_j / window.items for window in windows])


def _busy_clock(cpus: int) -> Callable[[], float]:
    """CPU time that the watts follow: of all processes, or of this one where a quota grants fewer CPUs than there are.

    What others do on the CPUs of a host is not what a container with a part of them uses.
    """
    return busy_cpu_s if len(own_cpus()) <= cpus else time.process_time


def _rapl(powercap: Path) -> Meter:
    packages = find_packages(powercap)
    if not packages:
        raise MeasurementError(f"{powercap} shows no CPU package, as is usual in a virtual machine.")
    return Rapl(packages)


def _no_card() -> Meter:
    raise MeasurementError("no card is visible.")


def _nvml_counter(gpus: Sequence[Gpu]) -> Meter:
    """Start the counter, once it is seen to move: a card that is on always uses energy."""
    meter = NvmlCounter(gpus)
    deadline_s = time.perf_counter() + _COUNTER_PATIENCE_S
    while meter.read().energy_j == 0:
        if time.perf_counter() > deadline_s:
            raise MeasurementError(f"the counter stood still for {_COUNTER_PATIENCE_S:g} s.")
        time.sleep(_GLANCE_S)
    return meter
