"""Memory that one replica adds to this process."""

import ctypes
import gc
import sys

import psutil

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


def available_gib() -> float:
    """Memory that can be had without swapping [GiB]."""
    return float(psutil.virtual_memory().available) / BYTES_PER_GIB


def _malloc_trim() -> "ctypes._NamedFuncPointer | None":
    """Find glibc's malloc_trim; other C libraries have none."""
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
