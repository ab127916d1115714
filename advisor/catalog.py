"""Catalog reader: the CSV files of data/ become machine types, offers and the maps from profiles to machines.

Nothing is guessed here. A cell that does not fit stops the reading with its file, row and column; a fact that
the source leaves out stays null; two rows that contradict each other about one machine type are an error.
"""

import csv
import datetime
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from advisor.domain.machine import Catalog, CpuIdRule, GpuSpec, MachineType, Offer
from advisor.domain.record import Record, first_problem
from advisor.errors import CatalogError, InputError

PRICES_FILE = "cloud_prices.csv"
GPUS_FILE = "gpu_specs.csv"
MICROARCHITECTURE_FILE = "cpu_microarchitecture.csv"
CPUID_FILE = "cpu_cpuid.csv"

COLUMNS = {
    PRICES_FILE: """provider region instance_type arch vcpus memory_gib gpu_model gpu_count
        gpu_memory_gib_each on_demand_usd_h spot_usd_h reserved_1y_discount reserved_3y_discount
        usd_per_gpu_hour usd_per_vcpu_hour status price_date spot_date reserved_1y_as_of source spot_source
        licence note""",
    GPUS_FILE: """gpu_id name architecture release_date memory_gb memory_type memory_bandwidth_gb_s tdp_w
        fp32_tflops fp16_nontensor_tflops fp16_tensor_dense_tflops int8_tensor_dense_tops
        fp8_tensor_dense_tflops bus techpowerup_url note gpus_per_board""",
    MICROARCHITECTURE_FILE: """provider family instance_regex microarchitecture cpu_model vcpu_is
        threads_per_core burstable mixed host_cpu_of_gpu_instance confidence source note""",
    CPUID_FILE: """order kind vendor family model_min model_max stepping_min stepping_max requires_flag
        microarchitecture cloud_names example_parts confidence source note""",
}
"""Columns of each file, separated by blanks: a file has exactly these, in any order."""

FACT_COLUMNS = ("arch", "vcpus", "memory_gib", "gpu_model", "gpu_count", "gpu_memory_gib_each", "status")
"""Columns of the price file that describe the machine rather than the offer."""

SMALLEST_MEMORY_FRAC, LARGEST_MEMORY_FRAC = 0.90, 1.02
"""Price lists quote a 24 GB card as 24 or as 22.4 (GiB): accept both, but keep 80 GB and 94 GB apart."""

RecordType = TypeVar("RecordType", bound=Record)


@dataclass(frozen=True)
class _Row:
    """One data row of a CSV file; rows are numbered as a spreadsheet shows them, the header being row 1."""

    file: str
    number: int
    cells: dict[str, str]

    def error(self, column: str, allowed: str) -> InputError:
        return InputError(f"row {self.number}, column {column}", self.cells[column] or None, allowed, file=self.file)

    def text(self, column: str) -> str:
        if not self.cells[column]:
            raise self.error(column, "a text")
        return self.cells[column]

    def number_or_none(self, column: str, *, above: float | None = None) -> float | None:
        """Finite number of at least 0, or above the given bound; None for an empty cell."""
        cell = self.cells[column]
        if not cell:
            return None
        allowed = "a finite number of at least 0" if above is None else f"a finite number above {above:g}"
        try:
            value = float(cell)
        except ValueError:
            raise self.error(column, allowed) from None
        if not math.isfinite(value) or value < 0 or (above is not None and value <= above):
            raise self.error(column, allowed)
        return value

    def positive(self, column: str) -> float:
        value = self.number_or_none(column, above=0)
        if value is None:
            raise self.error(column, "a finite number above 0")
        return value

    def whole(self, column: str) -> int:
        """Whole number, decimal or hexadecimal (0x…), as /proc/cpuinfo prints them."""
        try:
            return int(self.cells[column], 0)
        except ValueError:
            raise self.error(column, "a whole number, decimal or 0x…") from None

    def one_of(self, column: str, allowed: Sequence[str]) -> str:
        if self.cells[column] not in allowed:
            raise self.error(column, " or ".join(allowed))
        return self.cells[column]

    def date(self, column: str) -> datetime.date:
        try:
            return datetime.date.fromisoformat(self.cells[column])
        except ValueError:
            raise self.error(column, "a date as YYYY-MM-DD") from None

    def record(self, record_type: type[RecordType], fields: dict[str, object]) -> RecordType:
        """Build a record; what the type itself refuses is reported with this row."""
        try:
            return record_type.model_validate(fields)
        except ValidationError as error:
            raise first_problem(
                error,
                file=self.file,
                place=lambda location: f"row {self.number}, {'.'.join(map(str, location))}",
            ) from error


@dataclass(frozen=True)
class _HostCpu:
    """What stands behind the instance names of one row of the microarchitecture map."""

    provider: str
    names: re.Pattern[str]
    microarchitectures: tuple[str, ...]
    vcpu_is: str
    burstable: bool


def load_catalog(folder: Path) -> Catalog:
    """Read and check the catalog files of a folder.

    Parameters
    ----------
    folder
        Folder with cloud_prices.csv, gpu_specs.csv, cpu_microarchitecture.csv and cpu_cpuid.csv.

    Returns
    -------
    Catalog
        Machine types in the order in which the price file first names them, offers in the order of its rows.

    Raises
    ------
    InputError
        When a cell does not fit: file, row, column, value and what is allowed.
    CatalogError
        When a file cannot be read, or two rows contradict each other about one machine type.

    Examples
    --------
    >>> catalog = load_catalog(Path("data"))
    >>> catalog.by_key["aws/g6.xlarge"].gpu_ids
    ('L4',)
    """
    gpu_specs = tuple(map(_gpu_spec, _read_rows(folder / GPUS_FILE, key=("gpu_id",))))
    hosts = tuple(map(_host_cpu, _read_rows(folder / MICROARCHITECTURE_FILE)))
    rules = tuple(map(_cpuid_rule, _read_rows(folder / CPUID_FILE, key=("order",))))
    # The offer kind is on_demand in every row, so that these three columns name one offer.
    prices = tuple(_read_rows(folder / PRICES_FILE, key=("provider", "region", "instance_type")))
    by_type: dict[str, list[_Row]] = {}
    for row in prices:
        by_type.setdefault(f"{row.text('provider')}/{row.text('instance_type')}", []).append(row)
    return Catalog(
        schema_version=1,
        machine_types=tuple(_machine_type(rows, gpu_specs, hosts) for rows in by_type.values()),
        offers=tuple(_offer(row) for row in prices),
        gpu_specs=gpu_specs,
        cpuid_rules=rules,
    )


def find_offers(
    catalog: Catalog,
    *,
    gpu: str | None = None,
    region: str | None = None,
    provider: str | None = None,
    text: str | None = None,
) -> list[tuple[MachineType, Offer]]:
    """Offers that fit every given word, cheapest first.

    Parameters
    ----------
    catalog
        Where to look.
    gpu
        Accelerator as the price list names it (``L4``) or as gpu_specs.csv does (``A100-SXM-40GB``).
    region
        ``provider/region``, or a bare region for every provider that has it.
    provider
        Provider such as ``aws``.
    text
        Part of the machine type's name, in any case.

    Raises
    ------
    InputError
        When the GPU, region or provider is not in the catalog; the message lists those that are.

    Examples
    --------
    >>> catalog = load_catalog(Path("data"))
    >>> machine, offer = find_offers(catalog, gpu="L4", region="aws/us-east-1", text="g6.")[0]
    >>> machine.name, offer.price_usd_per_h
    ('g6.xlarge', 0.8048)
    """
    regions = None if region is None else catalog.regions_named(region)
    if regions == ():
        raise InputError("region", region, ", ".join(sorted({offer.region for offer in catalog.offers})))
    providers = sorted({machine.provider for machine in catalog.machine_types})
    if provider is not None and provider not in providers:
        raise InputError("provider", provider, ", ".join(providers))
    machines = {
        machine.key: machine
        for machine in catalog.machine_types
        if (provider is None or machine.provider == provider)
        and (gpu is None or _plain(gpu) in _gpu_names(machine))
        and (text is None or text.casefold() in machine.name.casefold())
    }
    if gpu is not None and not any(_plain(gpu) in _gpu_names(machine) for machine in catalog.machine_types):
        known = sorted({machine.gpu_model for machine in catalog.machine_types if machine.gpu_model})
        raise InputError("gpu", gpu, ", ".join(known))
    found = [
        (machines[offer.machine_type], offer)
        for offer in catalog.offers
        if offer.machine_type in machines and (regions is None or offer.region in regions)
    ]
    return sorted(found, key=lambda pair: (pair[1].price_usd_per_h, pair[1].key))


def _plain(gpu: str) -> str:
    """Accelerator name without case, blanks and hyphens, so that "RTX A6000" and "RTX-A6000" are one."""
    return re.sub(r"[\s-]", "", gpu).casefold()


def _gpu_names(machine: MachineType) -> set[str]:
    return {_plain(name) for name in (machine.gpu_model or "", *machine.gpu_ids) if name}


def _read_rows(path: Path, *, key: Sequence[str] = ()) -> Iterator[_Row]:
    """Yield the rows of a CSV file that has exactly its columns and, over the key columns, no row twice."""
    columns = COLUMNS[path.name].split()
    seen: dict[tuple[str, ...], int] = {}
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            header = next(reader, [])
            if sorted(header) != sorted(columns):
                odd = ", ".join(sorted(set(header) ^ set(columns)) or header)
                allowed = f"exactly the columns {', '.join(columns)}"
                raise InputError("row 1, header", odd, allowed, file=path.name)
            for number, cells in enumerate(reader, start=2):
                if len(cells) != len(header):
                    length = f"{len(cells)} cells"
                    raise InputError(f"row {number}", length, f"{len(header)} cells", file=path.name)
                row = _Row(path.name, number, dict(zip(header, map(str.strip, cells), strict=True)))
                name = tuple(row.cells[column] for column in key) if key else (str(number),)
                if name in seen:
                    allowed = f"one row for each {', '.join(key)}; row {seen[name]} has it already"
                    raise InputError(f"row {number}, {key[-1]}", "/".join(name), allowed, file=path.name)
                seen[name] = number
                yield row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise CatalogError(f"{path.name} cannot be read ({reason}); allowed: a CSV file in UTF-8.") from error


def _gpu_spec(row: _Row) -> GpuSpec:
    numbers = {column: row.positive(column) for column in ("memory_gb", "tdp_w")}
    names = {column: row.text(column) for column in ("gpu_id", "name")}
    boards = row.whole("gpus_per_board")
    return row.record(GpuSpec, {**names, **numbers, "gpus_per_board": boards, "note": row.cells["note"] or None})


def _host_cpu(row: _Row) -> _HostCpu:
    name = row.text("microarchitecture")
    candidates: tuple[str, ...] = () if name == "unknown" else (name,)
    if name == "mixed":
        listed = re.match(r"candidates: ([^;]+)", row.cells["note"])
        if listed is None:
            raise row.error("note", "'candidates: a|b' for a mixed microarchitecture")
        candidates = tuple(candidate.strip() for candidate in listed[1].split("|"))
    try:
        names = re.compile(row.text("instance_regex"))
    except re.error:
        raise row.error("instance_regex", "a regular expression") from None
    return _HostCpu(
        provider=row.text("provider"),
        names=names,
        microarchitectures=candidates,
        vcpu_is=row.one_of("vcpu_is", ("thread", "core", "unknown")),
        burstable=row.one_of("burstable", ("0", "1")) == "1",
    )


def _cpuid_rule(row: _Row) -> CpuIdRule:
    """One row of the CPUID map.

    On Arm the instance map speaks of products (graviton3) and CPUID of cores (neoverse-v1). The product is
    taken only where the file names a single one and does not say that other chips share the part number.
    """
    arm = row.one_of("kind", ("x86", "arm")) == "arm"
    products = [name for name in row.cells["cloud_names"].split("|") if name]
    alone = len(products) == 1 and "share this part number" not in row.cells["note"]
    family = row.text("family")
    fields: dict[str, object] = {
        "vendor": family if arm else row.text("vendor"),
        "family": family if arm else row.whole("family"),
        **{name: row.whole(name) for name in ("model_min", "model_max")},
        **{name: row.whole(name) for name in ("stepping_min", "stepping_max") if row.cells[name]},
        "requires_flag": row.cells["requires_flag"] or None,
        "microarchitecture": products[0] if arm and alone else row.text("microarchitecture"),
        "source": row.text("source"),
    }
    return row.record(CpuIdRule, fields)


def _fact(row: _Row, column: str) -> str | float | None:
    """One fact in the form in which two rows can be compared: 4 and 4.0 are the same number."""
    if column in {"arch", "gpu_model"}:
        return row.cells[column] or None
    if column == "status":
        return row.one_of("status", ("current", "legacy_hw"))
    return row.number_or_none(column, above=None if column == "gpu_count" else 0)


def _facts(rows: Sequence[_Row]) -> tuple[dict[str, str | float | None], dict[str, _Row]]:
    """Facts of one machine type over its rows in all regions, each with the first row that states it."""
    facts: dict[str, str | float | None] = dict.fromkeys(FACT_COLUMNS)
    origin: dict[str, _Row] = {}
    for row in rows:
        for column in FACT_COLUMNS:
            value = _fact(row, column)
            if value is None or value == facts[column]:
                continue
            if column in origin:
                where = f"{row.cells['provider']}/{row.cells['instance_type']}"
                raise CatalogError(
                    f"{row.file}: {where} has {column} {facts[column]} in row {origin[column].number} "
                    f"and {value} in row {row.number}; allowed: one value for a machine type in all regions."
                )
            facts[column], origin[column] = value, row
    if facts["gpu_count"] and facts["gpu_model"] is None:
        raise origin["gpu_count"].error("gpu_model", "the accelerator's name where gpu_count is above 0")
    return facts, origin


def _machine_type(rows: Sequence[_Row], specs: Sequence[GpuSpec], hosts: Sequence[_HostCpu]) -> MachineType:
    facts, origin = _facts(rows)
    provider, name = rows[0].text("provider"), rows[0].text("instance_type")
    host = next((host for host in hosts if host.provider == provider and host.names.match(name)), None)
    fields: dict[str, object] = {
        "provider": provider,
        "name": name,
        "arch": facts["arch"],
        **{column: facts[column] for column in ("vcpus", "memory_gib", "gpu_model")},
        "gpu_count": facts["gpu_count"] or 0.0,
        "gpu_memory_gib": facts["gpu_memory_gib_each"],
        "gpu_ids": _gpu_ids(facts, name, specs),
        "microarchitectures": host.microarchitectures if host else (),
        "vcpu_is": host.vcpu_is if host else "unknown",
        "burstable": bool(host and host.burstable),
        "legacy": facts["status"] == "legacy_hw",
        "source": "; ".join(dict.fromkeys(row.text("source") for row in origin.values())),
    }
    return rows[0].record(MachineType, fields)


def _gpu_ids(facts: dict[str, str | float | None], name: str, specs: Sequence[GpuSpec]) -> tuple[str, ...]:
    """Say which GPUs an accelerator can be: same model and memory, and the form that the name states."""
    model, memory_gib = facts["gpu_model"], facts["gpu_memory_gib_each"]
    form = re.search(r"pcie|sxm|nvl", name.casefold())
    found = []
    for spec in specs:
        family, *variant = re.split(r"-(?=(?:PCIe|SXM\d?|NVL)-\d+GB$)", spec.gpu_id)
        same_model = model is not None and _plain(family) == _plain(str(model))
        same_memory = memory_gib is None or (
            SMALLEST_MEMORY_FRAC <= float(memory_gib) / spec.memory_gb <= LARGEST_MEMORY_FRAC
        )
        same_form = form is None or not variant or form[0] in variant[0].casefold()
        if same_model and same_memory and same_form:
            found.append(spec.gpu_id)
    return tuple(found)


def _offer(row: _Row) -> Offer:
    fields: dict[str, object] = {
        "machine_type": f"{row.text('provider')}/{row.text('instance_type')}",
        "region": f"{row.text('provider')}/{row.text('region')}",
        "kind": "on_demand",
        "price_usd_per_h": row.positive("on_demand_usd_h"),
        "price_date": row.date("price_date"),
        "source": row.text("source"),
        "license": row.text("licence"),
        "note": row.cells["note"] or None,
    }
    return row.record(Offer, fields)
