"""Limits and counters of the control group (cgroup) that this process runs in, version 1 and 2."""

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from advisor.profiling.system_files import SYSTEM, Folders, read_text

_US_PER_S = 1e6
_NS_PER_S = 1e9
_NO_MEMORY_LIMIT_BYTES = 2**60
"""Version 1 writes the largest page-aligned 63-bit number where there is no limit; no machine has an exbibyte."""


@dataclass(frozen=True, slots=True)
class Place:
    """Folders of one controller: that of this process first, then each one above it."""

    folders: tuple[Path, ...]

    def texts(self, name: str) -> list[str]:
        """Contents of the files of this name, from the process's own folder upwards."""
        found = (read_text(folder / name) for folder in self.folders)
        return [text for text in found if text is not None]


@functools.cache
def place_of(controller: str, folders: Folders = SYSTEM) -> Place:
    """Find the folders of a controller such as cpu or memory; empty where the system has no control groups.

    Inside a container the path that the kernel tells may be one of the host, which is not there; then the root of the
    mounted tree is the container's own group.
    """
    root = folders.sys / "fs/cgroup"
    candidates: list[Path] = []
    for mount, inside in parse_memberships(read_text(folders.proc / "self/cgroup") or "", controller):
        top = root / mount
        own = top / inside
        above = [place for place in own.parents if place.is_relative_to(top)]
        candidates += [place for place in (own, *above) if place.is_dir()]
    return Place(tuple(dict.fromkeys(candidates)))


def parse_memberships(text: str, controller: str) -> list[tuple[str, str]]:
    r"""Folders to look in, each a mount below /sys/fs/cgroup and the path inside it, from /proc/self/cgroup.

    Examples
    --------
    >>> parse_memberships("4:memory:/a\n2:cpu,cpuacct:/b", "cpu")
    [('cpu,cpuacct', 'b')]
    >>> parse_memberships("0::/user.slice", "cpu")
    [('', 'user.slice'), ('unified', 'user.slice')]
    """
    found = []
    for line in text.splitlines():
        match line.split(":", 2):
            case [_, "", path]:
                # Version 2 stands alone at the root, or beside version 1 in a folder of its own.
                found += [("", path.strip("/")), ("unified", path.strip("/"))]
            case [_, names, path] if controller in names.split(","):
                found.append((names, path.strip("/")))
            case _:
                pass
    return found


def cpu_limit(folders: Folders = SYSTEM) -> float | None:
    """CPUs that the group grants, the smallest quota on the way up to the root; None without a limit."""
    place = place_of("cpu", folders)
    limits = [limit for text in place.texts("cpu.max") for limit in parse_cpu_max(text)]
    for folder in place.folders:
        quota, period = read_text(folder / "cpu.cfs_quota_us"), read_text(folder / "cpu.cfs_period_us")
        if quota and period:
            limits += parse_cpu_max(f"{quota} {period}")
    return min(limits, default=None)


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


def memory_limit_bytes(folders: Folders = SYSTEM) -> int | None:
    """Memory that the group grants, the smallest limit on the way up to the root [B]; None without a limit."""
    place = place_of("memory", folders)
    return smallest_limit_bytes([*place.texts("memory.max"), *place.texts("memory.limit_in_bytes")])


def smallest_limit_bytes(texts: Iterable[str]) -> int | None:
    """Smallest of several memory limits [B]; None when each says that there is none.

    Examples
    --------
    >>> smallest_limit_bytes(["max", "1073741824"]), smallest_limit_bytes(["9223372036854771712"])
    (1073741824, None)
    """
    limits = (int(text) for text in texts if text.isdecimal())
    return min((limit for limit in limits if limit < _NO_MEMORY_LIMIT_BYTES), default=None)


def memory_room_bytes(folders: Folders = SYSTEM) -> int | None:
    """Memory that the group can still take, the smallest room on the way up to the root [B]; None without a limit."""
    return min((room for folder in place_of("memory", folders).folders for room in _rooms(folder)), default=None)


def _rooms(folder: Path) -> list[int]:
    """Room below the limit of one group [B], as a list of one, or none without a limit or a count of what is used.

    File pages that nobody touched lately count as usage, but the kernel drops them before it refuses anything.
    """
    # Version 2 first; in version 1 only the total_ line covers the groups below, as the usage does.
    for names in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit = smallest_limit_bytes(filter(None, [read_text(folder / names[0])]))
        used = read_text(folder / names[1])
        if limit is not None and used is not None and used.isdecimal():
            reclaimable = parse_memory_stat(read_text(folder / "memory.stat") or "", names[2])
            return [max(0, limit - max(0, int(used) - reclaimable))]
    return []


def parse_memory_stat(text: str, name: str) -> int:
    r"""One line of a memory.stat file [B]; 0 where it is missing.

    Examples
    --------
    >>> parse_memory_stat("inactive_file 5\ntotal_inactive_file 4096", "total_inactive_file")
    4096
    """
    found = re.search(rf"^{name} (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else 0


def throttled_s(folders: Folders = SYSTEM) -> tuple[float, ...] | None:
    """Time that the group, and each one above it, spent without quota, all CPUs together [s]; None without a counter.

    The kernel counts each CPU on which the group had something to run.
    """
    counted = [parse_throttled_s(text) for text in place_of("cpu", folders).texts("cpu.stat")]
    return tuple(time_s for time_s in counted if time_s is not None) or None


def parse_throttled_s(text: str) -> float | None:
    r"""Throttled time of a cpu.stat file [s]: microseconds in version 2, nanoseconds in version 1.

    Examples
    --------
    >>> parse_throttled_s("usage_usec 9\nthrottled_usec 250000"), parse_throttled_s("throttled_time 250000000")
    (0.25, 0.25)
    >>> parse_throttled_s("usage_usec 9") is None
    True
    """
    for line in text.splitlines():
        match line.split():
            case ["throttled_usec", number]:
                return int(number) / _US_PER_S
            case ["throttled_time", number]:
                return int(number) / _NS_PER_S
            case _:
                pass
    return None
