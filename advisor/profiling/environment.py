"""What the machine is and in which state it was: identity of the CPU and facts about its surroundings.

Never a secret, a host name, a user name or a path.
"""

import importlib.metadata
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

import cpuinfo
import psutil

from advisor.domain.profile import CpuIdentity, Device, Fact
from advisor.units import BYTES_PER_GIB

RELEVANT_FLAGS = (
    "avx2",
    "fma",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "amx_int8",
    "amx_bf16",
    "avx_vnni",
    "asimd",
    "sve",
    "i8mm",
    "bf16",
)
"""Instruction set extensions that change the speed of inference, as /proc/cpuinfo spells them."""

STEAL_LIMIT_FRAC = 0.01
"""Above this share of stolen CPU time the numbers describe the neighbours as well."""

_CPUINFO = Path("/proc/cpuinfo")
_STAT = Path("/proc/stat")
_CGROUP = Path("/proc/self/cgroup")
_CGROUP_ROOT = Path("/sys/fs/cgroup")
_CPU0 = Path("/sys/devices/system/cpu/cpu0")
_DMI_VENDOR = Path("/sys/class/dmi/id/sys_vendor")


@dataclass(frozen=True, slots=True)
class CpuTicks:
    """Time since boot that all CPUs spent, and the part that the hypervisor gave to others; in ticks."""

    total: int
    steal: int


def usable_cpus() -> int:
    """Whole CPUs that this process may use: its affinity, cut by the limit of its cgroup."""
    affinity = affinity_cpus() or os.cpu_count() or 1
    limit = cgroup_cpu_limit().value
    return max(1, min(affinity, int(limit))) if isinstance(limit, float) else affinity


def affinity_cpus() -> int | None:
    """CPUs of the process's affinity mask; None where the system has no such thing."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def observe_device(*, machine_type: str | None = None) -> Device:
    """Identify the CPU of this machine."""
    text = _read(_CPUINFO)
    parsed = parse_cpuinfo(text, logical_cpus=usable_cpus(), threads_per_core=_threads_per_core()) if text else None
    name, cpu = parsed or _identify_elsewhere()
    return Device(kind="cpu", name=name, cpu=cpu, machine_type=machine_type)


def parse_cpuinfo(text: str, *, logical_cpus: int, threads_per_core: int | None) -> tuple[str, CpuIdentity] | None:
    r"""Name and identity of the CPU from the text of /proc/cpuinfo on x86 and Arm; None if it tells neither.

    Examples
    --------
    >>> text = "CPU implementer : 0x41\nCPU part : 0xd40\nFeatures : fp asimd sve"
    >>> name, cpu = parse_cpuinfo(text, logical_cpus=4, threads_per_core=1)
    >>> name, cpu.flags
    ('Arm implementer 0x41 part 0xd40', ('asimd', 'sve'))
    """
    first = text.strip().split("\n\n")[0]
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}
    known = set((fields.get("flags") or fields.get("Features") or "").split())
    flags = tuple(flag for flag in RELEVANT_FLAGS if flag in known)
    if "vendor_id" in fields and "cpu family" in fields:
        stepping = fields.get("stepping", "")
        identity = CpuIdentity(
            vendor=fields["vendor_id"],
            family=int(fields["cpu family"]),
            model=int(fields["model"]),
            stepping=int(stepping) if stepping.isdecimal() else None,
            flags=flags,
            logical_cpus=logical_cpus,
            threads_per_core=threads_per_core,
        )
        return fields.get("model name") or fields["vendor_id"], identity
    if "CPU implementer" in fields and "CPU part" in fields:
        implementer = fields["CPU implementer"]
        identity = CpuIdentity(
            vendor=implementer,
            family=implementer,
            model=int(fields["CPU part"], 16),
            flags=flags,
            logical_cpus=logical_cpus,
            threads_per_core=threads_per_core,
        )
        return f"Arm implementer {implementer} part {fields['CPU part']}", identity
    return None


def observe_environment() -> dict[str, Fact]:
    """Collect the facts about the machine and its state before a measurement."""
    return {
        "os": Fact(value=_operating_system()),
        "architecture": Fact(value=platform.machine()),
        "python": Fact(value=platform.python_version()),
        "numpy": _package_version("numpy"),
        "onnxruntime": _package_version("onnxruntime"),
        "logical_cpus": _known(os.cpu_count(), "the system does not tell"),
        "affinity_cpus": _known(affinity_cpus(), "the system has no affinity masks"),
        "cgroup_cpu_limit": cgroup_cpu_limit(),
        "governor": _known(_read(_CPU0 / "cpufreq/scaling_governor"), "no cpufreq interface is visible"),
        "memory_gib": Fact(value=round(psutil.virtual_memory().total / BYTES_PER_GIB, 2)),
        "hypervisor": _hypervisor(),
        "load_average_1min": _load_average(),
    }


def cgroup_cpu_limit() -> Fact:
    """CPUs that the control group grants: the smallest quota on the way up to the root."""
    if not _CGROUP_ROOT.is_dir():
        return Fact(value=None, why="the system has no control groups")
    lines = (_read(_CGROUP) or "").splitlines()
    inside = next((line.split("::", 1)[1] for line in lines if line.startswith("0::")), "/").strip("/")
    folder = _CGROUP_ROOT / inside
    limits = []
    for place in (folder, *folder.parents):
        limits += parse_cpu_max(_read(place / "cpu.max") or "max")
        if place == _CGROUP_ROOT:
            break
    quota = _read(_CGROUP_ROOT / "cpu/cpu.cfs_quota_us")
    period = _read(_CGROUP_ROOT / "cpu/cpu.cfs_period_us")
    if quota and period:
        limits += parse_cpu_max(f"{quota} {period}")
    return _known(min(limits, default=None), "no limit is set")


def parse_cpu_max(text: str) -> list[float]:
    """CPUs granted by one quota, as a list of one, or none when there is no limit.

    Examples
    --------
    >>> parse_cpu_max("150000 100000"), parse_cpu_max("max 100000"), parse_cpu_max("-1 100000")
    ([1.5], [], [])
    """
    match text.split():
        case [quota, period] if quota.isdecimal() and period.isdecimal() and int(period) > 0:
            return [int(quota) / int(period)]
        case _:
            return []


def read_cpu_ticks() -> CpuTicks | None:
    """Read the CPU time counters of the machine; None where the system has no /proc/stat."""
    text = _read(_STAT)
    return parse_cpu_ticks(text) if text else None


def parse_cpu_ticks(text: str) -> CpuTicks | None:
    """Read the first line of /proc/stat.

    Examples
    --------
    >>> parse_cpu_ticks("cpu  10 0 5 80 0 0 0 5 0 0")
    CpuTicks(total=100, steal=5)
    """
    numbers = [int(word) for word in text.split("\n", 1)[0].split()[1:]]
    # user nice system idle iowait irq softirq steal; guest times are inside user and nice already.
    return CpuTicks(total=sum(numbers[:8]), steal=numbers[7]) if len(numbers) >= 8 else None


def steal_during(before: CpuTicks | None, after: CpuTicks | None) -> Fact:
    """Share of CPU time that the hypervisor gave to others between two readings."""
    if before is None or after is None:
        return Fact(value=None, why="the system has no /proc/stat with a steal column")
    if after.total <= before.total:
        return Fact(value=None, why="the run was shorter than one tick")
    return Fact(value=round((after.steal - before.steal) / (after.total - before.total), 6))


def _read(path: Path) -> str | None:
    """Text of a small system file without its line end; None where it is missing, unreadable or empty."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def _known(value: str | float | None, why: str) -> Fact:
    """Make a fact of a value, or of the reason why there is none."""
    return Fact(value=value, why=why if value is None else None)


def _package_version(name: str) -> Fact:
    """Version of an installed distribution."""
    try:
        return Fact(value=importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Fact(value=None, why="not installed as a distribution of this name")


def _operating_system() -> str:
    """System and version number; a local suffix of the kernel's release may name a place and is cut."""
    number = re.match(r"[\d.]+", platform.release())
    return f"{platform.system()} {number.group().strip('.') if number else ''}".strip()


def _load_average() -> Fact:
    """Runnable tasks, averaged over the last minute."""
    if not hasattr(os, "getloadavg"):
        return Fact(value=None, why="the system keeps no load average")
    return Fact(value=round(os.getloadavg()[0], 2))


def _hypervisor() -> Fact:
    """Name the maker of the virtual machine, or say that there is none."""
    text = _read(_CPUINFO) or ""
    if re.search(r"^flags\s*:.*\bhypervisor\b", text, re.MULTILINE):
        vendor = _read(_DMI_VENDOR)
        return Fact(value=f"yes, {vendor}" if vendor else "yes, maker not visible")
    if "CPU implementer" in text or not text:
        return Fact(value=None, why="this CPU does not tell whether a hypervisor is present")
    return Fact(value="none seen")


def _threads_per_core() -> int | None:
    """Hardware threads of the first core, as the operating system lists them."""
    text = _read(_CPU0 / "topology/thread_siblings_list")
    if text is None:
        return None
    count = 0
    for part in text.split(","):
        first, _, last = part.partition("-")
        count += int(last or first) - int(first) + 1
    return count


def _identify_elsewhere() -> tuple[str, CpuIdentity]:
    """Identity of the CPU where /proc/cpuinfo does not tell, from py-cpuinfo."""
    found = cpuinfo.get_cpu_info()
    known = set(found.get("flags", ()))
    identity = CpuIdentity(
        vendor=str(found.get("vendor_id_raw") or found.get("arch_string_raw") or "unknown"),
        family=int(found.get("family") or 0),
        model=int(found.get("model") or 0),
        stepping=int(found["stepping"]) if found.get("stepping") is not None else None,
        flags=tuple(flag for flag in RELEVANT_FLAGS if flag in known),
        logical_cpus=usable_cpus(),
    )
    return str(found.get("brand_raw") or platform.processor() or "unknown CPU"), identity
