"""Counters of the host at both ends of a window: what else ran on the CPUs, and how the own threads fared."""

import functools
import os
import re
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from advisor.domain.measurement import Surroundings
from advisor.profiling.control_group import throttled_s
from advisor.profiling.system_files import SYSTEM, Folders, read_text

_KHZ_PER_MHZ = 1e3
_DIGITS = 6
"""Decimals of a share: finer than any of the counters."""


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
    throttled_s: float | None
    """Time without CPU quota, summed over CPUs [s]."""
    clock_mhz: float | None
    """Clock of the fastest of these CPUs [MHz]: idle ones slow down and would hide what the busy ones do. None in a
    virtual machine without a frequency interface, whose /proc/cpuinfo shows a constant."""


@dataclass(frozen=True, slots=True)
class _ClockFiles:
    """Where the clock of each CPU stands: one file each in kHz, or /proc/cpuinfo; none of them: nowhere."""

    files: tuple[Path, ...]
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
    The times of the CPUs advance in ticks of 10 ms, so over a second one CPU of load is seen to about 1 %.

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
        clock_mhz=_read_clock_mhz(_clock_files(folders, counted), counted),
    )


def surroundings(before: HostReading, after: HostReading) -> Surroundings:
    """What the host did between two readings.

    Steal is compared with the CPU time that was wanted, used or stolen, and at least with one CPU: on a large machine
    its idle CPUs do not dilute it, on an idle one a single tick does not count for much.
    """
    elapsed_s = after.at_s - before.at_s
    if elapsed_s <= 0:
        return Surroundings()
    own_s = after.own_cpu_s - before.own_cpu_s
    busy_s = _difference(before.busy_cpu_s, after.busy_cpu_s)
    steal_s = _difference(before.steal_s, after.steal_s)
    limited_s = _difference(before.throttled_s, after.throttled_s)
    wanted_s = max(elapsed_s, (busy_s or 0.0) + (steal_s or 0.0))
    return Surroundings(
        run_delay_frac=run_delay_frac(before.tasks, after.tasks),
        other_cpus=None if busy_s is None else round(max(0.0, busy_s - own_s) / elapsed_s, _DIGITS),
        steal_frac=None if steal_s is None else round(max(0.0, steal_s) / wanted_s, _DIGITS),
        throttled_frac=None if limited_s is None else round(min(1.0, max(0.0, limited_s) / elapsed_s), _DIGITS),
        clock_change_frac=_clock_change_frac(before.clock_mhz, after.clock_mhz),
    )


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


def parse_clocks_mhz(text: str, cpus: Set[int]) -> list[float]:
    r"""Clocks of some CPUs from /proc/cpuinfo [MHz]; none on Arm, which does not tell, and in a virtual machine.

    Examples
    --------
    >>> parse_clocks_mhz("processor : 0\ncpu MHz : 2400.5\n\nprocessor : 1\ncpu MHz : 800.0", {0})
    [2400.5]
    """
    if is_virtual(text):
        return []
    found = []
    for block in text.split("\n\n"):
        number = re.search(r"^processor\s*:\s*(\d+)", block, re.MULTILINE)
        clock = re.search(r"^cpu MHz\s*:\s*([\d.]+)", block, re.MULTILINE)
        if number and clock and int(number[1]) in cpus:
            found.append(float(clock[1]))
    return found


@functools.cache
def _ticks_per_s() -> int:
    """Ticks of /proc/stat in a second."""
    return os.sysconf("SC_CLK_TCK")


@functools.cache
def _clock_files(folders: Folders, cpus: frozenset[int]) -> _ClockFiles:
    """Find out once where the clocks stand: /proc/cpuinfo is slow to read."""
    root = folders.sys / "devices/system/cpu"
    files = tuple(root / f"cpu{cpu}/cpufreq/scaling_cur_freq" for cpu in sorted(cpus))
    there = tuple(file for file in files if read_text(file) is not None)
    cpuinfo = folders.proc / "cpuinfo"
    tells = not there and parse_clocks_mhz(read_text(cpuinfo) or "", cpus)
    return _ClockFiles(there, cpuinfo if tells else None)


def _read_clock_mhz(source: _ClockFiles, cpus: Set[int]) -> float | None:
    texts = (read_text(file) for file in source.files)
    clocks_mhz = [int(text) / _KHZ_PER_MHZ for text in texts if text is not None and text.isdecimal()]
    if source.cpuinfo is not None:
        clocks_mhz = parse_clocks_mhz(read_text(source.cpuinfo) or "", cpus)
    return max(clocks_mhz, default=None)


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


def _clock_change_frac(before_mhz: float | None, after_mhz: float | None) -> float | None:
    """Change of the clock as a fraction of its value at the start."""
    if not before_mhz or after_mhz is None:
        return None
    return round(abs(after_mhz / before_mhz - 1), _DIGITS)
