"""GPUs as the profiler sees them: facts that stay, readings that change, each value or the reason why it is missing."""

import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import pynvml

from advisor.domain.profile import Fact, FactValue
from advisor.errors import MeasurementError
from advisor.profiling.gpu_memory import GpuMemory as GpuMemory  # noqa: PLC0414  # the alias exports it from here
from advisor.profiling.gpu_memory import leave_library, nvml_library
from advisor.units import BYTES_PER_GIB

THROTTLE_REASONS = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clock setting",
    0x200: "board limit",
    0x400: "reliability",
}
"""Bits of nvmlClocksEventReasons that lower the clocks (nvml.h); 0x1 is idle and 0x2 the clocks that the user chose."""
NO_THROTTLE = 0x1 | 0x2

_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
"""Names of nvmlComputeMode_t (nvml.h)."""
_PROCESSES = Path("/proc")
_MILLI_PER_UNIT = 1e3
_PERCENT = 100

_BUS_ORDER = "PCI_BUS_ID"
_SLICE = "MIG-"
"""How the names of the slices of a divided card begin."""

Handle: TypeAlias = Any
"""Opaque pointer of the driver's library."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One look at a card."""

    at_s: float
    """Time at which energy and power were read, on the clock of `time.perf_counter` [s]."""
    energy_j: Fact
    """Counter of the whole card since its driver was loaded [J]."""
    power_w: Fact
    """Power of the whole card [W]; at once where the driver tells, else its mean over up to a second."""
    sm_clock_mhz: Fact
    memory_clock_mhz: Fact
    temperature_c: Fact
    throttle: Fact
    """Reasons that lower the clocks, joined by commas; empty when there is none."""
    memory_used_gib: Fact
    utilization_frac: Fact
    """Share of the time in which any kernel ran; it is no measure of load."""
    foreign_processes: Fact
    """Compute processes on the card that are not this one."""


class Gpu(Protocol):
    """One card."""

    def facts(self) -> dict[str, Fact]:
        """Identity and settings, each key beginning with ``gpu_``."""
        ...

    def read(self) -> GpuReading:
        """Look at the card now; what it does not tell is null with the reason."""
        ...

    def close(self) -> None:
        """Give back the driver's library."""
        ...


@dataclass(frozen=True, slots=True)
class Gpus:
    """The cards of this machine that can be opened, and why others or all cannot."""

    cards: tuple[Gpu, ...]
    why: str | None = None


def open_gpus() -> Gpus:
    """Open every card that the NVIDIA driver shows.

    The driver numbers all cards of the machine; an environment variable that hides some from CUDA does not
    hide them here. The caller closes each card.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Gpus((), f"NVML cannot be used: {error}")
    cards: list[Gpu] = []
    failures: list[str] = []
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                cards.append(NvmlGpu(pynvml.nvmlDeviceGetHandleByIndex(index)))
            except pynvml.NVMLError as error:
                failures.append(f"card {index} cannot be opened: {error}")
    except pynvml.NVMLError as error:
        return Gpus((), f"NVML does not list its cards: {error}")
    finally:
        # The library counts its users; each card that was opened is one of its own.
        leave_library()
    return Gpus(tuple(cards), "; ".join(failures) or (None if cards else "NVML lists no card"))


def card_with(uuid: str) -> Gpu:
    """Open the card of this name; the name of a slice gives its whole card, which alone has a power meter.

    The caller closes the card.

    Raises
    ------
    MeasurementError
        When the driver knows no such card, or cannot be asked.
    """
    try:
        with nvml_library():
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            if uuid.startswith(_SLICE):
                handle = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
            return NvmlGpu(handle)
    except pynvml.NVMLError as error:
        raise MeasurementError(f"The card {uuid} cannot be opened: NVML: {error}.") from error


def first_visible_card(environment: Mapping[str, str]) -> str:
    """Name of the card, or of the slice of one, that CUDA takes as its device 0 in this environment.

    NVML numbers cards by their place on the bus, CUDA only with CUDA_DEVICE_ORDER=PCI_BUS_ID, which is therefore
    assumed where the variable is not set: set it before CUDA starts.

    Raises
    ------
    MeasurementError
        When there is none, when CUDA numbers several cards in another order, or when the card is divided and no
        slice is named.
    """
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    try:
        with nvml_library():
            if chosen is not None and chosen.strip().startswith(_SLICE):
                return str(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByUUID(_first(chosen))))
            handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
            uuids = [str(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
            divided = [_is_divided(handle) for handle in handles]
    except pynvml.NVMLError as error:
        named = "" if chosen is None else f" for CUDA_VISIBLE_DEVICES={chosen}"
        raise MeasurementError(f"No GPU can be found{named}: NVML: {error}.") from error
    uuid = choose_card(uuids, chosen, order=environment.get("CUDA_DEVICE_ORDER", _BUS_ORDER))
    if divided[uuids.index(uuid)]:
        raise MeasurementError(f"{uuid} is divided; allowed: the name of a slice, MIG-..., as CUDA_VISIBLE_DEVICES.")
    return uuid


def choose_card(uuids: Sequence[str], chosen: str | None, *, order: str) -> str:
    """The card that CUDA takes first of those in the machine, given as the driver numbers them.

    Raises
    ------
    MeasurementError
        When there is none, or when a number means another card to CUDA than to the driver.

    Examples
    --------
    >>> cards = ["GPU-1a", "GPU-2b"]
    >>> [choose_card(cards, chosen, order="PCI_BUS_ID") for chosen in (None, "1,0", "GPU-2")]
    ['GPU-1a', 'GPU-2b', 'GPU-2b']
    """
    if not uuids:
        raise MeasurementError("The NVIDIA driver lists no card.")
    first = "0" if chosen is None else _first(chosen)
    if not first.isdecimal():
        # CUDA takes the beginning of a name where only one card has it.
        found = [uuid for uuid in uuids if first and uuid.startswith(first)]
    elif len(uuids) > 1 and order != _BUS_ORDER:
        raise MeasurementError(f"CUDA_DEVICE_ORDER is {order!r}; allowed: {_BUS_ORDER}, the order of the driver.")
    else:
        found = list(uuids[int(first) : int(first) + 1])
    if len(found) != 1:
        raise MeasurementError(
            f"CUDA_VISIBLE_DEVICES is {chosen!r}, which begins with no card; allowed: a number below {len(uuids)}, or "
            f"one of {', '.join(uuids)}."
        )
    return found[0]


class NvmlGpu:
    """One NVIDIA card through the driver's library.

    A call that the card or its driver does not support makes one null with its reason; the others stand.
    """

    def __init__(self, handle: Handle) -> None:
        pynvml.nvmlInit()
        self._handle = handle

    def facts(self) -> dict[str, Fact]:
        """Identity and settings. The link's generation drops when the card is idle; read it under load."""
        handle = self._handle
        return {
            "gpu_name": _ask(lambda: pynvml.nvmlDeviceGetName(handle)),
            "gpu_uuid": _ask(lambda: pynvml.nvmlDeviceGetUUID(handle)),
            "gpu_driver": _ask(pynvml.nvmlSystemGetDriverVersion),
            "gpu_cuda": _ask(_cuda_version),
            "gpu_memory_gib": _ask(lambda: _gib(pynvml.nvmlDeviceGetMemoryInfo(handle).total)),
            "gpu_power_limit_w": _ask(lambda: _from_milli(pynvml.nvmlDeviceGetEnforcedPowerLimit(handle))),
            "gpu_default_power_limit_w": _ask(
                lambda: _from_milli(pynvml.nvmlDeviceGetPowerManagementDefaultLimit(handle))
            ),
            "gpu_max_sm_clock_mhz": _ask(lambda: pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM)),
            "gpu_max_memory_clock_mhz": _ask(lambda: pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_MEM)),
            "gpu_applications_sm_clock_mhz": _ask(
                lambda: pynvml.nvmlDeviceGetApplicationsClock(handle, pynvml.NVML_CLOCK_SM)
            ),
            "gpu_applications_memory_clock_mhz": _ask(
                lambda: pynvml.nvmlDeviceGetApplicationsClock(handle, pynvml.NVML_CLOCK_MEM)
            ),
            "gpu_mig_mode": _ask(lambda: _on_or_off(pynvml.nvmlDeviceGetMigMode(handle)[0])),
            "gpu_ecc_mode": _ask(lambda: _on_or_off(pynvml.nvmlDeviceGetEccMode(handle)[0])),
            "gpu_pcie_generation": _ask(lambda: pynvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)),
            "gpu_pcie_width": _ask(lambda: pynvml.nvmlDeviceGetCurrPcieLinkWidth(handle)),
            "gpu_persistence_mode": _ask(lambda: _on_or_off(pynvml.nvmlDeviceGetPersistenceMode(handle))),
            "gpu_compute_mode": _ask(lambda: _compute_mode(pynvml.nvmlDeviceGetComputeMode(handle))),
        }

    def read(self) -> GpuReading:
        """Look at the card now. Energy and power come first, between two readings of the clock."""
        handle = self._handle
        before_s = time.perf_counter()
        energy_j = _ask(lambda: _from_milli(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)))
        power_w = _ask(
            lambda: _from_milli(_instant_power_mw(handle)),
            lambda: _from_milli(pynvml.nvmlDeviceGetPowerUsage(handle)),
        )
        return GpuReading(
            at_s=statistics.fmean((before_s, time.perf_counter())),
            energy_j=energy_j,
            power_w=power_w,
            sm_clock_mhz=_ask(lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
            memory_clock_mhz=_ask(lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM)),
            temperature_c=_ask(
                lambda: pynvml.nvmlDeviceGetTemperatureV(handle, pynvml.NVML_TEMPERATURE_GPU),
                lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
            ),
            throttle=_ask(
                lambda: throttle_names(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)),
                lambda: throttle_names(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
            ),
            memory_used_gib=_ask(lambda: _gib(pynvml.nvmlDeviceGetMemoryInfo(handle).used)),
            utilization_frac=_ask(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / _PERCENT),
            foreign_processes=self._foreign_processes(),
        )

    def close(self) -> None:
        """Give back the driver's library."""
        leave_library()

    def _foreign_processes(self) -> Fact:
        try:
            pids = [process.pid for process in _compute_processes(self._handle)]
        except pynvml.NVMLError as error:
            return Fact(value=None, why=f"NVML: {error}")
        return count_foreign(pids, own=os.getpid(), is_visible=_is_visible)


def throttle_names(bits: int) -> str:
    """Names of the reasons that lower the clocks, joined by commas.

    Examples
    --------
    >>> throttle_names(0x1 | 0x4 | 0x40), throttle_names(0x1 | 0x2), throttle_names(0x800)
    ('software power cap, hardware thermal slowdown', '', 'unknown reason 0x800')
    """
    names = [name for bit, name in THROTTLE_REASONS.items() if bits & bit]
    unknown = bits & ~NO_THROTTLE & ~sum(THROTTLE_REASONS)
    return ", ".join([*names, *([f"unknown reason {unknown:#x}"] if unknown else [])])


def count_foreign(pids: Sequence[int], *, own: int, is_visible: Callable[[int], bool]) -> Fact:
    """Count the processes that are surely not this one.

    Inside a container the driver may list numbers of the host. A number that this process cannot see may then be
    its own, so that one such number alone tells nothing, and of several one is left out.

    Examples
    --------
    >>> count_foreign([7, 8], own=7, is_visible=lambda pid: True).value
    1
    >>> count_foreign([90, 91], own=7, is_visible=lambda pid: False).value
    1
    >>> count_foreign([90], own=7, is_visible=lambda pid: False).why
    'process 90 may be this one, as its host numbers it'
    """
    others = [pid for pid in pids if pid != own]
    hidden = [pid for pid in others if not is_visible(pid)]
    if own in pids or not hidden:
        return Fact(value=len(others))
    if len(others) == 1:
        return Fact(value=None, why=f"process {hidden[0]} may be this one, as its host numbers it")
    return Fact(value=len(others) - 1)


def _first(chosen: str) -> str:
    """First entry of CUDA_VISIBLE_DEVICES."""
    return chosen.split(",", maxsplit=1)[0].strip()


def _is_divided(handle: Handle) -> bool:
    """Whether the card shows its slices as devices; most cards know no such mode."""
    return _ask(lambda: pynvml.nvmlDeviceGetMigMode(handle)[0]).value == 1


def _from_milli(thousandths: int) -> float:
    """Millijoules to joules, milliwatts to watts."""
    return thousandths / _MILLI_PER_UNIT


def _ask(*calls: Callable[[], FactValue]) -> Fact:
    """Answer of the first call that the driver knows, or why the last one failed."""
    why = ""
    for call in calls:
        try:
            return Fact(value=call())
        except pynvml.NVMLError as error:
            why = f"NVML: {error}"
    return Fact(value=None, why=why)


def _instant_power_mw(handle: Handle) -> int:
    """Power at this moment [mW]; a field has a result code of its own beside that of the call."""
    field = pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_POWER_INSTANT])[0]
    if field.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(field.nvmlReturn)
    return int(field.value.uiVal)


def _compute_processes(handle: Handle) -> Iterable[Any]:
    """Processes with a compute context; the versioned calls say which of them an older driver lacks."""
    try:
        found = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
    except pynvml.NVMLError_FunctionNotFound:
        found = pynvml.nvmlDeviceGetComputeRunningProcesses_v2(handle)
    return list(found)


def _is_visible(pid: int) -> bool:
    """Whether the process has a number in this process's own list; a system without such a list has one numbering."""
    return not _PROCESSES.is_dir() or (_PROCESSES / str(pid)).exists()


def _cuda_version() -> str:
    """Newest CUDA version of the driver, which codes 12.4 as 12040."""
    code = int(pynvml.nvmlSystemGetCudaDriverVersion_v2())
    return f"{code // 1000}.{code % 1000 // 10}"


def _gib(size_bytes: int) -> float:
    return round(size_bytes / BYTES_PER_GIB, 3)


def _on_or_off(state: int) -> str:
    return "enabled" if state else "disabled"


def _compute_mode(mode: int) -> str:
    return _COMPUTE_MODES.get(mode, f"mode {mode}")
