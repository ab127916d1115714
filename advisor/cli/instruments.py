"""Options about power, and the instruments that a measurement reads."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Literal

import typer

from advisor.catalog import load_catalog
from advisor.domain.profile import Device
from advisor.errors import InputError
from advisor.profiling.engines import Placement
from advisor.profiling.environment import usable_cpus
from advisor.profiling.gpu import Gpu
from advisor.profiling.instruments import Instruments
from advisor.profiling.power import (
    TDP_ERROR_FRAC,
    USER_WATTS_ERROR_FRAC,
    AssumedPower,
    NoMeter,
    choose_meter,
)
from advisor.store.paths import DATA
from advisor.store.power import estimate_cpu_power

Watts = Annotated[
    float | None, typer.Option(help="power of this machine with all CPUs busy, read off a meter, in watts")
]
IdleWatts = Annotated[float | None, typer.Option(help="power with nothing to do, in watts; needs --watts")]


@contextmanager
def open_instruments(
    device: Device, placement: Placement, cards: Sequence[Gpu], given: tuple[AssumedPower, ...]
) -> Iterator[Instruments]:
    """Open the best power meter at hand for what answers the calls, and close it in the end.

    Parameters
    ----------
    device
        Hardware that answers.
    placement
        Where it is. The meters of this machine tell nothing about another one, for which only given watts count.
    cards
        GPUs that answer; they are read, and not closed.
    given
        Watts that the user gave.
    """
    kind: Literal["cpu", "gpu"] = "gpu" if cards or not placement.local else "cpu"
    assumed = (*given, *(table_watts(device) if kind == "cpu" else ()))
    meter = choose_meter(cards, kind=kind, assumed=assumed, cpus=usable_cpus())
    try:
        yield Instruments(meter, tuple(cards))
    finally:
        if not isinstance(meter, NoMeter):
            meter.close()


def user_watts(watts: float | None, idle_watts: float | None) -> tuple[AssumedPower, ...]:
    """Power that the user gave; none where nothing was given.

    Raises
    ------
    InputError
        When only one of the two is given, or they do not fit together.
    """
    if watts is None and idle_watts is None:
        return ()
    if watts is None or idle_watts is None:
        missing = "--watts" if watts is None else "--idle-watts"
        raise InputError(missing, None, "a number of watts whenever the other is given, --watts and --idle-watts")
    if not 0 <= idle_watts <= watts or watts == 0:
        raise InputError("--idle-watts", idle_watts, f"0 to {watts:g}, the value of --watts, which is above 0")
    scope = f"this machine, by {idle_watts:g} to {watts:g} W given on the command line"
    return (AssumedPower("user_watts", idle_watts, watts, scope, USER_WATTS_ERROR_FRAC),)


def table_watts(device: Device) -> tuple[AssumedPower, ...]:
    """Power by a published table for CPUs of this kind; none where no table has it."""
    if device.cpu is None:
        return ()
    microarchitecture = load_catalog(DATA).microarchitecture(device.cpu)
    found = estimate_cpu_power(device.name, microarchitecture=microarchitecture, vcpus=device.cpu.logical_cpus)
    if found is None:
        return ()
    return (AssumedPower("tdp_estimate", found.idle_w, found.busy_w, found.scope, TDP_ERROR_FRAC),)
