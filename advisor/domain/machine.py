"""Machine types, the offers by which they are had, and the catalog that holds both."""

import datetime
import re
from functools import cached_property
from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from advisor.domain.profile import CpuIdentity
from advisor.domain.record import Record


class MachineType(Record):
    """What a machine is, whatever it costs and wherever it stands."""

    provider: str = Field(min_length=1)
    name: str = Field(min_length=1, description="the provider's name, such as g6.xlarge")
    arch: str = Field(description="x86_64 or arm64, as the source says")
    vcpus: float | None = Field(gt=0, description="virtual CPUs; null when the source does not say")
    memory_gib: float | None = Field(gt=0, description="main memory [GiB]; null when the source does not say")
    gpu_model: str | None = Field(default=None, description="accelerator name in the price source")
    gpu_count: float = Field(default=0, ge=0, description="accelerators; a fraction for shared ones")
    gpu_memory_gib: float | None = Field(default=None, gt=0, description="memory of one accelerator [GiB]")
    gpu_ids: tuple[str, ...] = Field(
        default=(), description="identifiers in gpu_specs.csv that this accelerator can be"
    )
    microarchitectures: tuple[str, ...] = Field(
        default=(), description="CPU generations that may stand behind the type; several: mixed"
    )
    vcpu_is: Literal["thread", "core", "unknown"] = "unknown"
    burstable: bool = False
    legacy: bool = Field(default=False, description="hardware that current frameworks dropped")
    source: str = Field(description="where the facts come from")

    @property
    def key(self) -> str:
        """Provider and name, unique in a catalog."""
        return f"{self.provider}/{self.name}"

    @property
    def kind(self) -> Literal["cpu", "gpu"]:
        """Whether the machine has an accelerator."""
        return "gpu" if self.gpu_model else "cpu"

    @property
    def label(self) -> str:
        """Name for people: the accelerator first, since it says most."""
        if not self.gpu_model:
            return self.name
        count = "" if self.gpu_count == 1 else f"{self.gpu_count:g}× "
        return f"{self.name} ({count}{self.gpu_model})"


class Offer(Record):
    """One way to have a machine type in one region."""

    machine_type: str = Field(description="key of the machine type: provider/name")
    region: str = Field(pattern=r"^[^/]+/[^/]+$", description="provider/region")
    kind: Literal["on_demand"] = Field(description="how it is paid for")
    price_usd_per_h: float = Field(gt=0, description="list price [USD/h]")
    price_date: datetime.date
    source: str = Field(min_length=1)
    license: str
    note: str | None = None

    @property
    def key(self) -> str:
        """Unique name of the offer."""
        return f"{self.machine_type}@{self.region}:{self.kind}"


class GpuSpec(Record):
    """Datasheet facts of one GPU."""

    gpu_id: str
    name: str
    memory_gb: float = Field(gt=0, description="memory of one GPU [GB]")
    tdp_w: float = Field(gt=0, description="thermal design power of the board [W]")
    gpus_per_board: PositiveInt = 1
    note: str | None = None


class CpuIdRule(Record):
    """One row of the map from CPUID to microarchitecture; the first fitting row wins."""

    vendor: str
    family: int | str
    model_min: int
    model_max: int
    stepping_min: int | None = None
    stepping_max: int | None = None
    requires_flag: str | None = None
    microarchitecture: str
    source: str

    def fits(self, cpu: CpuIdentity) -> bool:
        """Whether the row describes this CPU."""
        if cpu.vendor != self.vendor or str(cpu.family) != str(self.family):
            return False
        if not self.model_min <= cpu.model <= self.model_max:
            return False
        if self.requires_flag is not None and self.requires_flag not in cpu.flags:
            return False
        if self.stepping_min is None or self.stepping_max is None:
            return True
        return cpu.stepping is not None and self.stepping_min <= cpu.stepping <= self.stepping_max


class Catalog(Record):
    """Everything that can be had, with the maps that tell which profile serves it."""

    schema_version: Literal[1]
    machine_types: tuple[MachineType, ...]
    offers: tuple[Offer, ...]
    gpu_specs: tuple[GpuSpec, ...] = ()
    cpuid_rules: tuple[CpuIdRule, ...] = ()

    @model_validator(mode="after")
    def _keys_are_unique_and_known(self) -> Self:
        types = [machine.key for machine in self.machine_types]
        offers = [offer.key for offer in self.offers]
        for keys, what in ((types, "machine type"), (offers, "offer")):
            if len(set(keys)) != len(keys):
                twice = next(key for key in keys if keys.count(key) > 1)
                raise ValueError(f"each {what} once; {twice} stands twice")
        unknown = {offer.machine_type for offer in self.offers} - set(types)
        if unknown:
            raise ValueError(f"offers of known machine types; unknown: {sorted(unknown)[0]}")
        return self

    @cached_property
    def by_key(self) -> dict[str, MachineType]:
        """Machine types by key."""
        return {machine.key: machine for machine in self.machine_types}

    def microarchitecture(self, cpu: CpuIdentity) -> str | None:
        """CPU generation of a measured CPU, or None when no row of the map fits."""
        return next((rule.microarchitecture for rule in self.cpuid_rules if rule.fits(cpu)), None)

    def regions_named(self, name: str) -> tuple[str, ...]:
        """Regions that a user's word means: provider/region, or a bare region of every provider that has it."""
        known = sorted({offer.region for offer in self.offers})
        if "/" in name:
            return tuple(region for region in known if region == name)
        return tuple(region for region in known if re.fullmatch(rf"[^/]+/{re.escape(name)}", region))
