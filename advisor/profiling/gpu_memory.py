"""Memory of a GPU, and the driver's library that tells it."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pynvml

from advisor.errors import MeasurementError
from advisor.units import BYTES_PER_GIB


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """Memory of one card, or of one slice of it; it is an `advisor.profiling.engines.Memory`.

    What other processes hold counts too: inside a container the driver does not tell which process is this one.
    """

    uuid: str

    def can_measure_growth(self) -> bool:
        """Whether the driver tells how much memory is in use."""
        try:
            self._read()
        except MeasurementError:
            return False
        return True

    def resident_gib(self) -> float:
        """Memory in use, by whomever [GiB].

        Raises
        ------
        MeasurementError
            When the driver does not tell it.
        """
        return float(self._read().used) / BYTES_PER_GIB

    def available_gib(self) -> float:
        """Memory that is free [GiB].

        Raises
        ------
        MeasurementError
            When the driver does not tell it.
        """
        return float(self._read().free) / BYTES_PER_GIB

    def _read(self) -> Any:
        try:
            with nvml_library():
                return pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID(self.uuid))
        except pynvml.NVMLError as error:
            raise MeasurementError(f"The memory of {self.uuid} cannot be read: NVML: {error}.") from error


@contextlib.contextmanager
def nvml_library() -> Iterator[None]:
    """Hold the driver's library for a moment; it counts its users."""
    pynvml.nvmlInit()
    try:
        yield
    finally:
        leave_library()


def leave_library() -> None:
    """Stop being a user of the driver's library."""
    # The library has failed before this when it fails to end, and a reading has said so.
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlShutdown()
