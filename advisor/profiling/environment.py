"""What the machine is and in which state it was: identity of the CPU and facts about its surroundings.

Never a secret, a host name, a user name or a path.
"""

import importlib.metadata
import os
import platform
import re
from pathlib import Path

import cpuinfo
import psutil
import threadpoolctl

from advisor.domain.profile import CpuIdentity, Device, Fact
from advisor.profiling.control_group import cpu_limit
from advisor.profiling.host import is_virtual, own_cpus
from advisor.profiling.machine_state import fact, readings, recorded_variables, settings
from advisor.profiling.system_files import read_text
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

_CPUINFO = Path("/proc/cpuinfo")
_STAT = Path("/proc/stat")
_CPU0 = Path("/sys/devices/system/cpu/cpu0")
_DMI_VENDOR = Path("/sys/class/dmi/id/sys_vendor")


def usable_cpus() -> int:
    """Whole CPUs that this process may use: its affinity, cut by the limit of its cgroup."""
    affinity = len(own_cpus())
    limit = cpu_limit()
    return affinity if limit is None else max(1, min(affinity, int(limit)))


def observe_device(*, machine_type: str | None = None) -> Device:
    """Identify the CPU of this machine."""
    text = read_text(_CPUINFO)
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
        "blas": fact(_blas(), "no library for linear algebra is loaded that tells its name"),
        "logical_cpus": fact(os.cpu_count(), "the system does not tell"),
        "affinity_cpus": Fact(value=len(own_cpus())),
        "cgroup_cpu_limit": fact(cpu_limit(), "no limit is set"),
        "memory_gib": Fact(value=round(psutil.virtual_memory().total / BYTES_PER_GIB, 2)),
        "hypervisor": _hypervisor(),
        **settings(),
        **readings(),
        **recorded_variables(os.environ),
    }


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


def _blas() -> str | None:
    """Name the loaded libraries for linear algebra, with version and kernel."""
    found = [library for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"]
    names = {f"{library['internal_api']} {library['version']} {library.get('architecture', '')}" for library in found}
    return ", ".join(sorted(name.strip() for name in names)) or None


def _hypervisor() -> Fact:
    """Name the maker of the virtual machine, or say that there is none."""
    text = read_text(_CPUINFO) or ""
    if is_virtual(text):
        vendor = read_text(_DMI_VENDOR)
        return Fact(value=f"yes, {vendor}" if vendor else "yes, maker not visible")
    if "CPU implementer" in text or not text:
        return Fact(value=None, why="this CPU does not tell whether a hypervisor is present")
    return Fact(value="none seen")


def _threads_per_core() -> int | None:
    """Hardware threads of the first core, as the operating system lists them."""
    text = read_text(_CPU0 / "topology/thread_siblings_list")
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
