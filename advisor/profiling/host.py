"""Counters of the host at both ends of a window: what else ran on the CPUs, and how the own threads fared."""

import functools
import math
import os
import re
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from advisor.domain.measurement import Surroundings
from advisor.profiling.control_group import cpu_limit, throttled_s
from advisor.profiling.system_files import SYSTEM, Folders, read_text

_KHZ_PER_MHZ = 1e3
_DIGITS = 6
"""Decimals of a share: finer than any of the counters."""
_TIMER_S = 0.004
"""Period of the timer that charges a CPU's time to whoever runs [s]: 250 Hz, the slowest that servers use today."""
_STEAL_ROUNDING_TICKS = 2
"""Ticks of stolen time that rounding may make of nearly nothing, one at each end of a window."""


@dataclass(frozen=True, slots=True)
class HostReading:
    """All counters at one moment. None: the system does not tell."""

    at_s: float
    """Time on the clock of `time.perf_counter` [s]."""
    own_cpu_s: float
    """CPU time of this process, all its threads [s]."""
    busy_cpu_s: float | None
    """Time that the CPUs of this process's affinity mask were at work for anybody, stolen time not included [s]."""
    steal_s: float | None
    """Time that the hypervisor took from the same CPUs [s]."""
    tasks: Mapping[int, tuple[int, int]]
    """Per own thread: time on a CPU, and time ready but kept waiting for one [ns]; empty where untold."""
    throttled_s: tuple[float, ...] | None
    """Time that the control group and each one above it spent without CPU quota, summed over CPUs [s]."""
    clock_mhz: float | None
    """Clock of the fastest of these CPUs, each counted up to its base clock [MHz]: idle ones slow down and would hide
    what the busy ones do. None without a base clock, and in a virtual machine without a frequency interface, whose
    /proc/cpuinfo shows a constant."""
    has_quota: bool = False
    """Whether the control group grants less than these CPUs: then they serve other containers as well, on time that
    is not this one's."""


@dataclass(frozen=True, slots=True)
class _ClockFiles:
    """Where the clock of each CPU stands: one file each in kHz, or /proc/cpuinfo; none of them: nowhere."""

    base_mhz: Mapping[int, float]
    """Base clocks of the CPUs that tell theirs [MHz]; others are not looked at."""
    files: Mapping[int, Path]
    cpuinfo: Path | None


def own_cpus() -> frozenset[int]:
    """CPUs of the affinity mask of the process; all CPUs where the system has no masks.

    That of the main thread: zero would mean the calling thread, which an engine may have pinned.
    """
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(os.getpid()))
    return frozenset(range(os.cpu_count() or 1))


def read_host(folders: Folders = SYSTEM, *, cpus: Set[int] | None = None) -> HostReading:
    """Read all counters once.

    It takes about 0.2 ms on two CPUs, and some 10 µs more per CPU with a frequency interface and per own thread.
    The times of the CPUs advance in ticks of 10 ms; `resolution_s` says what that leaves open.

    Parameters
    ----------
    folders
        Roots of /proc and /sys.
    cpus
        CPUs that count; those of the affinity mask when not given.
    """
    counted = own_cpus() if cpus is None else frozenset(cpus)
    at_s, own_cpu_s = time.perf_counter(), time.process_time()
    ticks = parse_cpu_lines(read_text(folders.proc / "stat") or "", counted)
    return HostReading(
        at_s=at_s,
        own_cpu_s=own_cpu_s,
        busy_cpu_s=None if ticks is None else ticks[0] / _ticks_per_s(),
        steal_s=None if ticks is None else ticks[1] / _ticks_per_s(),
        tasks=_read_tasks(folders.proc / "self/task"),
        throttled_s=throttled_s(folders),
        clock_mhz=_read_clock_mhz(_clock_files(folders, counted)),
        has_quota=_has_quota(folders, counted),
    )


def surroundings(before: HostReading, after: HostReading) -> Surroundings:
    """What the host did between two readings.

    Other load is what exceeds the resolution of the counters; under a CPU quota it is not told, since the counters are
    those of the whole host.

    Steal is compared with the CPU time that was wanted, used or stolen, and at least with one CPU: on a large machine
    its idle CPUs do not dilute it. A tick is 1 % of a CPU in a second; one or two may be rounding, and count as none.

    Throttled time is summed over CPUs, so it is compared with the CPU time that this process wanted, used or throttled,
    and at least with one CPU. Of several groups one above the other the one throttled longest counts: two may both have
    counted the same moment.
    """
    elapsed_s = after.at_s - before.at_s
    if elapsed_s <= 0:
        return Surroundings()
    own_s = after.own_cpu_s - before.own_cpu_s
    busy_s = _difference(before.busy_cpu_s, after.busy_cpu_s)
    steal_s = _difference(before.steal_s, after.steal_s)
    limited_s = _longest_difference(before.throttled_s, after.throttled_s)
    return Surroundings(
        run_delay_frac=run_delay_frac(before.tasks, after.tasks),
        other_cpus=None if before.has_quota or after.has_quota else _other_cpus(busy_s, own_s, elapsed_s),
        steal_frac=None if steal_s is None else _wanted_frac(_beyond_rounding_s(steal_s), busy_s or 0.0, elapsed_s),
        throttled_frac=None if limited_s is None else _wanted_frac(limited_s, own_s, elapsed_s),
        clock_change_frac=_clock_change_frac(before.clock_mhz, after.clock_mhz),
    )


def resolution_s(busy_s: float, elapsed_s: float) -> float:
    """How far off the busy time of the CPUs together may be, by the steps in which it is counted [s].

    Only CPUs at work err. The kernel cuts the time of each to ticks of 10 ms on its own, so these errors grow with the
    square root of their number; in trials with two CPUs one had a standard deviation of 0.7 ticks, and they hardly
    went together. The timer that charges the time strikes on all CPUs at once, so what it misses at the ends of a
    window adds up.

    Parameters
    ----------
    busy_s
        Time that all CPUs together were at work [s].
    elapsed_s
        Length of the window [s].

    Examples
    --------
    >>> [round(resolution_s(busy_cpus, 1.0), 3) for busy_cpus in (0, 2, 64)]
    [0.014, 0.022, 0.336]
    """
    at_work = max(1.0, busy_s / elapsed_s)
    return math.sqrt(at_work) / _ticks_per_s() + at_work * _TIMER_S


def run_delay_frac(before: Mapping[int, tuple[int, int]], after: Mapping[int, tuple[int, int]]) -> float | None:
    """Waiting for a CPU over time on one, of the threads that both readings show; None if they did nothing.

    Examples
    --------
    >>> run_delay_frac({1: (0, 0), 2: (0, 0)}, {1: (900, 30), 2: (100, 20), 3: (5, 5)})
    0.05
    """
    both = before.keys() & after.keys()
    on_cpu_ns = sum(after[task][0] - before[task][0] for task in both)
    waited_ns = sum(after[task][1] - before[task][1] for task in both)
    return round(max(0.0, waited_ns / on_cpu_ns), _DIGITS) if on_cpu_ns > 0 else None


def parse_cpu_lines(text: str, cpus: Set[int]) -> tuple[int, int] | None:
    r"""Ticks at work and ticks stolen of some CPUs, from /proc/stat; None if it lists none of them.

    Examples
    --------
    >>> parse_cpu_lines("cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 10 1 5 80 2 1 2 5 0 0\ncpu1 7 0 0 90 0 0 0 0 0 0", {0})
    (19, 5)
    """
    busy = stolen = seen = 0
    for line in text.splitlines():
        if not line.startswith("cpu"):
            # The lines of the CPUs come first; those below are long on large machines.
            break
        name, *words = line.split()
        if name != "cpu" and int(name.removeprefix("cpu")) in cpus and len(words) >= 8:
            # user nice system idle iowait irq softirq steal; guest times are inside user and nice already.
            numbers = [int(word) for word in words[:8]]
            busy += sum(numbers[:3]) + numbers[5] + numbers[6]
            stolen += numbers[7]
            seen += 1
    return (busy, stolen) if seen else None


def parse_schedstat(text: str) -> tuple[int, int] | None:
    """Time on a CPU and time waiting for one [ns] of a schedstat file; None if it is none.

    Examples
    --------
    >>> parse_schedstat("1200 340 7"), parse_schedstat("")
    ((1200, 340), None)
    """
    match text.split():
        case [on_cpu_ns, waited_ns, _] if on_cpu_ns.isdecimal() and waited_ns.isdecimal():
            return int(on_cpu_ns), int(waited_ns)
        case _:
            return None


def is_virtual(cpuinfo: str) -> bool:
    """Whether /proc/cpuinfo tells of a hypervisor; Arm never does."""
    return re.search(r"^flags\s*:.*\bhypervisor\b", cpuinfo, re.MULTILINE) is not None


def parse_clocks_mhz(text: str, cpus: Set[int]) -> dict[int, float]:
    r"""Clocks of some CPUs from /proc/cpuinfo [MHz]; none on Arm, which does not tell, and in a virtual machine.

    Examples
    --------
    >>> parse_clocks_mhz("processor : 0\ncpu MHz : 2400.5\n\nprocessor : 1\ncpu MHz : 800.0", {0})
    {0: 2400.5}
    """
    if is_virtual(text):
        return {}
    found = {}
    for block in text.split("\n\n"):
        number = re.search(r"^processor\s*:\s*(\d+)", block, re.MULTILINE)
        clock = re.search(r"^cpu MHz\s*:\s*([\d.]+)", block, re.MULTILINE)
        if number and clock and int(number[1]) in cpus:
            found[int(number[1])] = float(clock[1])
    return found


@functools.cache
def _ticks_per_s() -> int:
    """Ticks of /proc/stat in a second."""
    return os.sysconf("SC_CLK_TCK")


@functools.cache
def _has_quota(folders: Folders, cpus: frozenset[int]) -> bool:
    """Whether the control group grants less than these CPUs; found out once, since a reading must be short."""
    granted = cpu_limit(folders)
    return granted is not None and granted < len(cpus)


@functools.cache
def _clock_files(folders: Folders, cpus: frozenset[int]) -> _ClockFiles:
    """Find out once where the clocks stand: /proc/cpuinfo is slow to read."""
    root = folders.sys / "devices/system/cpu"
    base_mhz = {cpu: mhz for cpu in sorted(cpus) if (mhz := _base_mhz(root / f"cpu{cpu}")) is not None}
    files = {cpu: root / f"cpu{cpu}/cpufreq/scaling_cur_freq" for cpu in base_mhz}
    there = {cpu: file for cpu, file in files.items() if read_text(file) is not None}
    cpuinfo = folders.proc / "cpuinfo"
    tells = not there and parse_clocks_mhz(read_text(cpuinfo) or "", base_mhz.keys())
    return _ClockFiles(base_mhz, there, cpuinfo if tells else None)


def _base_mhz(cpu: Path) -> float | None:
    """Clock that a CPU holds without turbo [MHz], as Intel's driver or the firmware (ACPI CPPC) tells it."""
    match (read_text(cpu / "cpufreq/base_frequency"), read_text(cpu / "acpi_cppc/nominal_freq")):
        case (str(khz), _) if khz.isdecimal():
            return int(khz) / _KHZ_PER_MHZ
        case (_, str(mhz)) if mhz.isdecimal() and int(mhz) > 0:
            return float(mhz)
        case _:
            return None


def _read_clock_mhz(source: _ClockFiles) -> float | None:
    """Read the clock of the fastest CPU, each counted up to its base clock [MHz]."""
    texts = {cpu: read_text(file) for cpu, file in source.files.items()}
    clocks_mhz = {cpu: int(text) / _KHZ_PER_MHZ for cpu, text in texts.items() if text and text.isdecimal()}
    if source.cpuinfo is not None:
        clocks_mhz = parse_clocks_mhz(read_text(source.cpuinfo) or "", source.base_mhz.keys())
    return max((min(mhz, source.base_mhz[cpu]) for cpu, mhz in clocks_mhz.items()), default=None)


def _read_tasks(folder: Path) -> dict[int, tuple[int, int]]:
    """Read the run-queue times of every own thread; a thread that ends meanwhile is left out."""
    if not (folder.parent / "schedstat").exists():
        return {}
    found = {}
    for name in os.listdir(folder):  # noqa: PTH208 - a reading must be short; paths of all threads are not needed
        times = parse_schedstat(read_text(folder / name / "schedstat") or "")
        if times is not None:
            found[int(name)] = times
    return found


def _difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def _longest_difference(before: tuple[float, ...] | None, after: tuple[float, ...] | None) -> float | None:
    """Time of the counter that advanced most [s]; None without counters, or when some came or went."""
    if before is None or after is None or len(before) != len(after):
        return None
    return max((end - start for start, end in zip(before, after, strict=True)), default=None)


def _other_cpus(busy_s: float | None, own_s: float, elapsed_s: float) -> float | None:
    """CPUs kept busy beyond this process and beyond what the counters leave open."""
    if busy_s is None:
        return None
    return round(max(0.0, busy_s - own_s - resolution_s(busy_s, elapsed_s)) / elapsed_s, _DIGITS)


def _beyond_rounding_s(steal_s: float) -> float:
    """Stolen time, or nothing where it may be rounding [s]; half a tick keeps clear of how sums of floats end."""
    return steal_s if steal_s * _ticks_per_s() > _STEAL_ROUNDING_TICKS + 0.5 else 0.0


def _wanted_frac(denied_s: float, used_s: float, elapsed_s: float) -> float:
    """CPU time denied over the time that was wanted, used or denied, and at least over that of one CPU."""
    return round(max(0.0, denied_s) / max(elapsed_s, used_s + denied_s), _DIGITS)


def _clock_change_frac(before_mhz: float | None, after_mhz: float | None) -> float | None:
    """Change of the clock as a fraction of its value at the start.

    The readings count clocks up to the base clock only. Turbo above it depends on how many CPUs are at work: few are
    just before a window, when most callers wait for the last to warm up, and all are at its end. That is the protocol
    and no change of the machine. A CPU below its base clock is held back by heat or power, or not yet up to speed.
    """
    if not before_mhz or after_mhz is None:
        return None
    return round(abs(after_mhz / before_mhz - 1), _DIGITS)
