"""Watts of CPUs from published tables, for machines that have no meter: estimates, and marked as such.

The first table gives watts per vCPU by microarchitecture, the second the thermal design power of a socket by name.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import CatalogError, InputError
from advisor.store.paths import DATA

VCPU_POWER_FILE = "vcpu_power_ccf.csv"
TDP_FILE = "cpu_tdp.csv"

VCPU_POWER_SOURCE = "the table of Cloud Carbon Footprint (2023-05)"
TDP_SOURCE = "the table of CodeCarbon 3.3.2"

MICROARCHITECTURES = {
    "EPYC 1st Gen": "zen1",
    "EPYC 2nd Gen": "zen2",
    "EPYC 3rd Gen": "zen3",
    "Haswell": "haswell",
    "Broadwell": "broadwell",
    "Sky Lake": "skylake-sp",
    "Skylake": "skylake-sp",
    "Cascade Lake": "cascade-lake",
    "Graviton2": "graviton2",
}
"""Names in the table of watts, as data/cpu_cpuid.csv and data/cpu_microarchitecture.csv spell them.

The table has older generations too, which the maps do not know: Sandy Bridge, Ivy Bridge, Coffee Lake, Graviton.
"""

TDP_IDLE_FRAC = 0.1
"""Idle power as a share of the thermal design power: an assumption."""
AMD_THREADS_PER_CORE = 2
"""Hardware threads of one core of every EPYC and Threadripper; a host without them would have fewer."""

_NOISE = re.compile(r"\(r\)|\(tm\)|@.*|\bcpu\b|\b\d+-core processor\b|\bprocessor\b")
_AMD_CORES = re.compile(r"^AMD .*?\b(\d+)-Core Processor")


@dataclass(frozen=True, slots=True)
class PowerEstimate:
    """Watts that nobody measured on this machine."""

    idle_w: float
    busy_w: float
    scope: str
    """What the watts cover and where they come from, with the date or version."""


def estimate_cpu_power(
    name: str, *, microarchitecture: str | None, vcpus: int, folder: Path = DATA
) -> PowerEstimate | None:
    """Estimate the power of some vCPUs; None where no table fits.

    The watts per vCPU of the microarchitecture go first. Else the thermal design power of the socket is shared by
    its hardware threads, which only the names of AMD tell, and idle is taken as 10 % of it.

    Parameters
    ----------
    name
        CPU as the device names it.
    microarchitecture
        As the CPUID map of the catalog tells it; None where it does not.
    vcpus
        Hardware threads that the model may use.
    folder
        Folder of the tables.

    Raises
    ------
    InputError
        When a cell of a table does not fit.
    CatalogError
        When a table cannot be read.

    Examples
    --------
    >>> estimate_cpu_power("AMD EPYC 7763 64-Core Processor", microarchitecture="zen3", vcpus=2)
    PowerEstimate(idle_w=0.8908, busy_w=4.0386, scope='2 vCPUs, by the table of Cloud Carbon Footprint (2023-05)')
    >>> estimate_cpu_power("AMD EPYC 9654 96-Core Processor", microarchitecture="zen4", vcpus=16).busy_w
    30.0
    """
    covered = f"{vcpus} vCPU{'s' if vcpus > 1 else ''}"
    by_table = None if microarchitecture is None else vcpu_power_w(microarchitecture, folder=folder)
    if by_table is not None:
        idle_w, busy_w = by_table
        return PowerEstimate(vcpus * idle_w, vcpus * busy_w, f"{covered}, by {VCPU_POWER_SOURCE}")
    socket_w, threads = tdp_w(name, folder=folder), socket_threads(name)
    if socket_w is None or threads is None:
        return None
    busy_w = socket_w * vcpus / threads
    scope = f"{covered}, of which a socket has {threads} at {socket_w:g} W by {TDP_SOURCE}"
    return PowerEstimate(TDP_IDLE_FRAC * busy_w, busy_w, scope)


def vcpu_power_w(microarchitecture: str, *, folder: Path = DATA) -> tuple[float, float] | None:
    """Idle and busy power of one vCPU [W]; None where the table has no such microarchitecture.

    Providers run slightly different CPUs of one generation. The lowest idle and the highest busy figure are taken,
    so that busy power and energy above idle are not understated.

    Examples
    --------
    >>> vcpu_power_w("zen2"), vcpu_power_w("zen5")
    ((0.4743, 1.693), None)
    """
    found = []
    for number, row in _read(
        folder / VCPU_POWER_FILE, ("microarchitecture", "min_watts_per_vcpu", "max_watts_per_vcpu")
    ):
        if MICROARCHITECTURES.get(row["microarchitecture"]) == microarchitecture:
            watts = [_watts(row, column, number) for column in ("min_watts_per_vcpu", "max_watts_per_vcpu")]
            found.append((watts[0], watts[1]))
    if not found:
        return None
    return min(idle_w for idle_w, _ in found), max(busy_w for _, busy_w in found)


def tdp_w(name: str, *, folder: Path = DATA) -> float | None:
    """Thermal design power of one socket [W]; None where the table does not have this very name.

    Examples
    --------
    >>> tdp_w("Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz"), tdp_w("Some CPU")
    (210.0, None)
    """
    wanted = plain_cpu_name(name)
    for number, row in _read(folder / TDP_FILE, ("cpu_name", "tdp_w")):
        if plain_cpu_name(row["cpu_name"]) == wanted:
            return _watts(row, "tdp_w", number)
    return None


def plain_cpu_name(name: str) -> str:
    """CPU name without trademarks, clock, core count and case.

    Examples
    --------
    >>> plain_cpu_name("Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz"), plain_cpu_name("AMD EPYC 7763 64-Core Processor")
    ('intel xeon e5-2686 v4', 'amd epyc 7763')
    """
    return " ".join(_NOISE.sub(" ", name.casefold()).split())


def socket_threads(name: str) -> int | None:
    """Hardware threads of one socket; None where the name does not tell, as Intel's do not.

    Examples
    --------
    >>> socket_threads("AMD EPYC 7763 64-Core Processor"), socket_threads("Intel(R) Xeon(R) Platinum 8259CL CPU")
    (128, None)
    """
    cores = _AMD_CORES.match(name)
    return None if cores is None else int(cores[1]) * AMD_THREADS_PER_CORE


def _read(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows with their number as a spreadsheet shows it, the header being row 1."""
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream, strict=True)
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                raise InputError("row 1, header", None, f"the columns {', '.join(columns)}", file=path.name)
            for number, row in enumerate(reader, start=2):
                yield number, {column: row[column] or "" for column in columns}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CatalogError(f"{path.name} cannot be read ({error}); allowed: a CSV file in UTF-8.") from error


def _watts(row: dict[str, str], column: str, number: int) -> float:
    try:
        watts = float(row[column])
    except ValueError:
        watts = 0.0
    if not 0 < watts < float("inf"):
        file = TDP_FILE if column == "tdp_w" else VCPU_POWER_FILE
        raise InputError(f"row {number}, column {column}", row[column] or None, "a finite number above 0", file=file)
    return watts
