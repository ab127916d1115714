"""Settings and state of the machine that change its speed, each a value or the reason why it is not known.

Facts with a fraction are readings of the moment; the others are settings, which differ between two profiles only when
somebody changed them.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.domain.profile import Fact, FactValue
from advisor.profiling.control_group import memory_limit_bytes
from advisor.profiling.memory import available_gib
from advisor.profiling.system_files import SYSTEM, Folders, read_text
from advisor.units import BYTES_PER_GIB

RECORDED_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
"""Environment variables that change speed and hold nothing else."""
RECORDED_PREFIX = "ORT_"
"""Those of ONNX Runtime, of which the set ones are recorded."""

_KHZ_PER_MHZ = 1e3
_BYTES_PER_KIB = 1024
_PLAIN_VALUE = re.compile(r"[A-Za-z0-9_.,:+-]{1,80}")
"""A value without a path or blanks; another is not recorded, since it may tell more than a setting."""
_SWITCH = re.compile(r"\d{1,9}(\.\d{1,9})?|true|false|on|off", re.IGNORECASE)
"""What is recorded of a variable that only its prefix allows: anybody may have chosen the rest of its name."""


def fact(value: FactValue, why: str) -> Fact:
    """Make a fact of a value, or of the reason why there is none."""
    return Fact(value=value, why=why if value is None else None)


def settings(folders: Folders = SYSTEM) -> dict[str, Fact]:
    """Collect what stays as it is until somebody changes it."""
    cpufreq = "no cpufreq interface is visible"
    limit_bytes = memory_limit_bytes(folders)
    clocks = highest_clocks(folders)
    return {
        "governor": fact(governor(folders), cpufreq),
        "boost": fact(boost(folders), "neither boost nor turbo is visible"),
        "clock_limit_mhz": fact(clock_range([cpu.limit_mhz for cpu in clocks]), cpufreq),
        "clock_possible_mhz": fact(clock_range([cpu.possible_mhz for cpu in clocks]), cpufreq),
        "clock_limited_cpus": fact(sum(cpu.is_limited for cpu in clocks) if clocks else None, cpufreq),
        "on_battery": fact(on_battery(folders), "no power supply is visible"),
        "memory_limit_gib": fact(
            None if limit_bytes is None else round(limit_bytes / BYTES_PER_GIB, 2), "no limit is set"
        ),
        "microcode": fact(parse_microcode(read_text(folders.proc / "cpuinfo") or ""), "the system does not tell"),
        "l3_cache_bytes": fact(
            parse_cache_size(read_text(folders.sys / "devices/system/cpu/cpu0/cache/index3/size") or ""),
            "no third-level cache is visible",
        ),
        "numa_nodes": fact(
            len(list((folders.sys / "devices/system/node").glob("node[0-9]*"))) or None, "the system does not tell"
        ),
    }


def readings(folders: Folders = SYSTEM) -> dict[str, Fact]:
    """Collect what changes from moment to moment."""
    psi = parse_pressure(read_text(folders.proc / "pressure/cpu") or "")
    running = parse_running(read_text(folders.proc / "stat") or "")
    return {
        "load_average_1min": _load_average(),
        "tasks_running": fact(None if running is None else float(running), "the system does not tell"),
        "cpu_pressure_frac": fact(psi, "the kernel keeps no pressure figures (PSI)"),
        "swap_used_gib": fact(
            parse_swap_used_gib(read_text(folders.proc / "meminfo") or ""), "the system has no /proc/meminfo"
        ),
        "memory_available_gib": Fact(value=round(available_gib(folders), 2)),
    }


def recorded_variables(environment: Mapping[str, str]) -> dict[str, Fact]:
    """Take the variables of an allow-list that change speed; none else is looked at.

    Examples
    --------
    >>> found = recorded_variables({"OMP_NUM_THREADS": "2", "ORT_CACHE": "abc123", "SECRET": "1"})
    >>> found["env_OMP_NUM_THREADS"].value, found["env_MKL_NUM_THREADS"].why, found["env_ORT_CACHE"].why
    ('2', 'not set', 'set to a text that is not recorded')
    >>> "env_SECRET" in found
    False
    """
    switches = sorted(name for name in environment if name.startswith(RECORDED_PREFIX))
    return {f"env_{name}": _variable(environment.get(name), _PLAIN_VALUE) for name in RECORDED_VARIABLES} | {
        f"env_{name}": _variable(environment[name], _SWITCH) for name in switches
    }


def _variable(text: str | None, recorded: re.Pattern[str]) -> Fact:
    if text is None:
        return Fact(value=None, why="not set")
    return fact(text if recorded.fullmatch(text) else None, "set to a text that is not recorded")


def governor(folders: Folders) -> str | None:
    """Name the rule by which the kernel chooses the clock; of several CPUs all names."""
    names = {read_text(path) for path in _cpu_files(folders, "cpufreq/scaling_governor")}
    return ", ".join(sorted(name for name in names if name)) or None


def boost(folders: Folders) -> str | None:
    """Whether the clock may exceed its nominal value: on or off."""
    root = folders.sys / "devices/system/cpu"
    match (read_text(root / "cpufreq/boost"), read_text(root / "intel_pstate/no_turbo")):
        case ("1", _) | (_, "0"):
            return "on"
        case ("0", _) | (_, "1"):
            return "off"
        case _:
            return None


@dataclass(frozen=True, slots=True)
class HighestClock:
    """How fast one CPU may run and how fast it could [MHz]."""

    limit_mhz: int
    possible_mhz: int

    @property
    def is_limited(self) -> bool:
        """Whether this CPU may not run as fast as it could."""
        return self.limit_mhz < self.possible_mhz


def highest_clocks(folders: Folders) -> list[HighestClock]:
    """Highest clocks of every CPU that tells both; they differ among CPUs where some cores are made to be slower."""
    found = []
    for path in _cpu_files(folders, "cpufreq/scaling_max_freq"):
        limit, possible = read_text(path), read_text(path.with_name("cpuinfo_max_freq"))
        if limit and possible and limit.isdecimal() and possible.isdecimal():
            found.append(HighestClock(round(int(limit) / _KHZ_PER_MHZ), round(int(possible) / _KHZ_PER_MHZ)))
    return found


def clock_range(clocks_mhz: Sequence[int]) -> int | str | None:
    """Clock of all CPUs, or the lowest and the highest where they differ [MHz]; None without any.

    Examples
    --------
    >>> clock_range([3800, 3800]), clock_range([5200, 3800]), clock_range([])
    (3800, '3800 to 5200', None)
    """
    if not clocks_mhz:
        return None
    lowest, highest = min(clocks_mhz), max(clocks_mhz)
    return lowest if lowest == highest else f"{lowest} to {highest}"


def on_battery(folders: Folders) -> bool | None:
    """Whether a battery feeds the machine; None where it shows no power supply at all."""
    supplies = [
        Supply(*(read_text(folder / name) for name in ("type", "scope", "online", "status")))
        for folder in sorted((folders.sys / "class/power_supply").glob("*"))
    ]
    return feeds_from_battery(supplies)


@dataclass(frozen=True, slots=True)
class Supply:
    """One power supply as the kernel describes it."""

    type: str | None
    scope: str | None
    """Device for the battery of a mouse, which is none of the machine's."""
    online: str | None
    status: str | None


def feeds_from_battery(supplies: Iterable[Supply]) -> bool | None:
    """Whether a battery of the machine is discharging and no mains supply is connected; None without supplies.

    Examples
    --------
    >>> battery = Supply("Battery", None, None, "Discharging")
    >>> feeds_from_battery([battery]), feeds_from_battery([battery, Supply("Mains", None, "1", None)])
    (True, False)
    >>> feeds_from_battery([Supply("Battery", "Device", None, "Discharging")]) is None
    True
    """
    own = [supply for supply in supplies if supply.scope != "Device" and supply.type in {"Battery", "Mains", "USB"}]
    if not own:
        return None
    connected = any(supply.type != "Battery" and supply.online == "1" for supply in own)
    return not connected and any(supply.type == "Battery" and supply.status == "Discharging" for supply in own)


def parse_pressure(text: str) -> float | None:
    """Share of the last ten seconds in which some task waited for a CPU, from /proc/pressure/cpu.

    Examples
    --------
    >>> parse_pressure("some avg10=12.50 avg60=0.00 avg300=0.00 total=1"), parse_pressure("")
    (0.125, None)
    """
    found = re.search(r"^some avg10=([\d.]+)", text)
    return round(float(found[1]) / 100, 4) if found else None


def parse_running(text: str) -> int | None:
    r"""Tasks that run or are ready to, this one included, from /proc/stat.

    Examples
    --------
    >>> parse_running("ctxt 5\nprocs_running 3\nprocs_blocked 0"), parse_running("ctxt 5")
    (3, None)
    """
    found = re.search(r"^procs_running (\d+)", text, re.MULTILINE)
    return int(found[1]) if found else None


def parse_swap_used_gib(text: str) -> float | None:
    r"""Memory that lies in the swap space, from /proc/meminfo [GiB].

    Examples
    --------
    >>> parse_swap_used_gib("SwapTotal: 2097152 kB\nSwapFree: 1048576 kB")
    1.0
    """
    found = dict(re.findall(r"^(SwapTotal|SwapFree):\s*(\d+) kB", text, re.MULTILINE))
    if len(found) < 2:
        return None
    return round((int(found["SwapTotal"]) - int(found["SwapFree"])) * _BYTES_PER_KIB / BYTES_PER_GIB, 3)


def parse_swapped_pages(text: str) -> int | None:
    r"""Pages moved to and from the swap space since boot, from /proc/vmstat.

    Examples
    --------
    >>> parse_swapped_pages("pswpin 3\npswpout 4"), parse_swapped_pages("pgfault 9")
    (7, None)
    """
    found = re.findall(r"^pswp(?:in|out) (\d+)", text, re.MULTILINE)
    return sum(int(pages) for pages in found) if found else None


def parse_microcode(text: str) -> str | None:
    r"""Version of the CPU's microcode, from /proc/cpuinfo on x86.

    Examples
    --------
    >>> parse_microcode("processor : 0\nmicrocode\t: 0xb204035\n"), parse_microcode("CPU part : 0xd40")
    ('0xb204035', None)
    """
    found = re.search(r"^microcode\s*:\s*(\w+)", text, re.MULTILINE)
    return found[1] if found else None


def parse_cache_size(text: str) -> int | None:
    """Size of a cache as sysfs writes it [B].

    Examples
    --------
    >>> parse_cache_size("32768K"), parse_cache_size("")
    (33554432, None)
    """
    found = re.fullmatch(r"(\d+)K", text)
    return int(found[1]) * _BYTES_PER_KIB if found else None


def _load_average() -> Fact:
    """Runnable tasks, averaged over the last minute."""
    if not hasattr(os, "getloadavg"):
        return Fact(value=None, why="the system keeps no load average")
    return Fact(value=round(os.getloadavg()[0], 2))


def _cpu_files(folders: Folders, name: str) -> list[Path]:
    return sorted((folders.sys / "devices/system/cpu").glob(f"cpu[0-9]*/{name}"))
