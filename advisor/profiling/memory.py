"""Memory that one replica adds to this process, and what there is to be had."""

import ctypes
import gc
import sys

import psutil

from advisor.profiling.control_group import memory_room_bytes
from advisor.profiling.system_files import SYSTEM, Folders
from advisor.units import BYTES_PER_GIB


def can_measure_growth() -> bool:
    """Whether freed memory leaves the process on request, which makes growth between readings honest."""
    return sys.platform.startswith("linux") and _malloc_trim() is not None


def resident_gib() -> float:
    """Resident memory of this process after freed memory went back to the system [GiB]."""
    gc.collect()
    trim = _malloc_trim()
    if trim is not None:
        trim(0)
    return float(psutil.Process().memory_info().rss) / BYTES_PER_GIB


def available_gib(folders: Folders = SYSTEM) -> float:
    """Memory that can be had without swapping, on the host and within the limits of the control group [GiB]."""
    available_bytes, room_bytes = psutil.virtual_memory().available, memory_room_bytes(folders)
    return float(available_bytes if room_bytes is None else min(available_bytes, room_bytes)) / BYTES_PER_GIB


def _malloc_trim() -> "ctypes._NamedFuncPointer | None":
    """Find glibc's malloc_trim; other C libraries have none."""
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
