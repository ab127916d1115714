"""Figures of the page on platforms: times, energy and cost of one inference, and which of them can be told apart."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from advisor.cli.profile_report import NOTES
from advisor.domain.machine import Catalog, MachineType, Offer
from advisor.domain.profile import Cell, CpuIdentity, Profile
from advisor.units import SECONDS_PER_HOUR
from examples.platforms.check import BATCH_SIZES, Platform

BUDGET, QUICK_BUDGET = "90s", "10s"
PATIENCE = "5m"
"""How long each measurement waits for a quiet machine; after that it is made all the same, and says so."""
REGION, VCPUS = "aws/us-east-1", 2
ZEN = ("zen1", "zen2", "zen3", "zen4", "zen5")
"""Generations of one maker, from old to new: the price of the next one stands in where nobody rents out the CPU."""
UNIT = 1000
"""Inferences that energy and cost are told for."""


@dataclass(frozen=True, slots=True)
class Band:
    """A figure with the half width of its 95 % interval or, for an estimate, of its band."""

    value: float
    half: float | None
    """None: the width is not known."""

    @property
    def low(self) -> float:
        """Lower end; any figure may be where the width is not known."""
        return -math.inf if self.half is None else self.value - self.half

    @property
    def high(self) -> float:
        """Upper end; see `low`."""
        return math.inf if self.half is None else self.value + self.half


@dataclass(frozen=True, slots=True)
class Measured:
    """One platform with its profile, and how far its scores are from the exact ones."""

    platform: Platform
    profile: Profile
    difference_frac: float
    """Largest difference, as a fraction of the largest score."""

    @property
    def name(self) -> str:
        """Platform, for people."""
        return self.platform.name

    def cell(self, batch_size: int) -> Cell | None:
        """Cell of a batch size; None where it was left out."""
        return self.profile.quietest_cell(batch_size, 1)

    def time_s(self, batch_size: int) -> Band | None:
        """Time of one inference, which is that of a call over its inputs [s]."""
        cell = self.cell(batch_size)
        if cell is None or cell.service_mean_s is None:
            return None
        mean_s = cell.service_mean_s / batch_size
        return Band(mean_s, None if cell.mean_ci95_frac is None else mean_s * cell.mean_ci95_frac)

    def energy_j(self, batch_size: int) -> Band | None:
        """Energy of `UNIT` inferences with all that the meter covers [J]; None without a figure."""
        cell = self.cell(batch_size)
        if cell is None or cell.energy is None:
            return None
        return Band(UNIT * cell.energy.gross_j, UNIT * cell.energy.gross_half_j)

    @property
    def best_batch_size(self) -> int:
        """Batch size with the most inferences per second."""
        times = {size: self.time_s(size) for size in BATCH_SIZES}
        return min((band.value, size) for size, band in times.items() if band is not None)[1]

    @property
    def doubts(self) -> tuple[str, ...]:
        """Codes of the warnings that give reason to doubt the figures."""
        warnings = (*self.profile.warnings, *(text for cell in self.profile.cells for text in cell.warnings))
        codes = (text.partition(":")[0] for text in warnings)
        return tuple(dict.fromkeys(code for code in codes if code not in NOTES))


@dataclass(frozen=True, slots=True)
class Price:
    """Offer of the cheapest machine type of so many vCPUs with this CPU, or with the next generation of its maker."""

    measured: str
    """Microarchitecture of the CPU that was measured."""
    machine: MachineType
    offer: Offer

    @property
    def usd_per_vcpu_h(self) -> float:
        """Price of one vCPU [USD/h]."""
        return self.offer.price_usd_per_h / VCPUS

    def cost_usd(self, busy_s: float) -> float:
        """Cost of one vCPU that is busy so long [USD]."""
        return busy_s * self.usd_per_vcpu_h / SECONDS_PER_HOUR


def choose_price(catalog: Catalog, cpu: CpuIdentity | None) -> Price | None:
    """Find what a CPU costs in the region of the page; None where no machine type there has it."""
    measured = None if cpu is None else catalog.microarchitecture(cpu)
    if measured is None:
        return None
    generations = ZEN[ZEN.index(measured) :] if measured in ZEN else (measured,)
    for generation in generations:
        found = [
            (offer.price_usd_per_h, offer.key, offer)
            for offer in catalog.offers
            if offer.region == REGION and _is_small(catalog.by_key[offer.machine_type], generation)
        ]
        if found:
            offer = min(found)[2]
            return Price(measured, catalog.by_key[offer.machine_type], offer)
    return None


def _is_small(machine: MachineType, microarchitecture: str) -> bool:
    """Whether a machine has so many vCPUs of this microarchitecture, for certain and for good, and no GPU."""
    certain = machine.microarchitectures == (microarchitecture,)
    return certain and machine.vcpus == VCPUS and machine.kind == "cpu" and not machine.burstable


def tiers(bands: Mapping[str, Band]) -> list[list[str]]:
    """Names in rising order; those that cannot be told apart by their bands stand together.

    Examples
    --------
    >>> tiers({"c": Band(9.0, 1.0), "a": Band(1.0, 0.2), "b": Band(1.3, 0.2)})
    [['a', 'b'], ['c']]
    """
    groups: list[list[str]] = []
    reach = -math.inf
    for name, band in sorted(bands.items(), key=lambda pair: pair[1].value):
        if groups and band.low <= reach:
            groups[-1].append(name)
        else:
            groups.append([name])
        reach = max(reach, band.high)
    return groups


def order(bands: Mapping[str, Band]) -> str:
    """Order of platforms as words, those that cannot be told apart with an equals sign."""
    return " < ".join(" = ".join(group) for group in tiers(bands))


def command(platform: Platform, budget: str) -> list[str]:
    """Command that measures a platform, as a person would type it."""
    sizes = ",".join(map(str, BATCH_SIZES))
    options = f"--name mlp --threads 1 --replicas 1 --batches {sizes} --budget {budget}"
    waiting = f" --wait-quiet {PATIENCE}" if budget == BUDGET else ""
    return f"advisor profile {platform.target} {options}{waiting}".split()
