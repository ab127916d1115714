"""Everything that is read at both ends of a window: counters of the host, a power meter, GPUs."""

from dataclasses import dataclass, field

from advisor.domain.measurement import Surroundings
from advisor.errors import MeasurementError
from advisor.profiling.gpu import Gpu, GpuReading
from advisor.profiling.host import HostReading, read_host, surroundings
from advisor.profiling.power import Meter, MeterReading, NoMeter, idle_power


@dataclass(frozen=True, slots=True)
class Observation:
    """One look at everything."""

    host: HostReading
    meter: MeterReading | None
    gpus: tuple[GpuReading, ...]


@dataclass(frozen=True, slots=True)
class Instruments:
    """What there is to read."""

    meter: Meter | NoMeter
    gpus: tuple[Gpu, ...] = ()
    failures: list[str] = field(default_factory=list)
    """What the meter said when it failed, once each: times stay good without it."""

    def observe(self) -> Observation:
        """Read everything once."""
        return Observation(read_host(), self._read_meter(), tuple(gpu.read() for gpu in self.gpus))

    def idle_power_w(self, seconds: float) -> float | None:
        """Mean power while nothing runs [W]; None without a meter, or where it failed."""
        if isinstance(self.meter, NoMeter):
            return None
        try:
            return idle_power(self.meter, seconds)
        except MeasurementError as error:
            self._note(error)
            return None

    def _note(self, error: MeasurementError) -> None:
        if str(error) not in self.failures:
            self.failures.append(str(error))

    def _read_meter(self) -> MeterReading | None:
        if isinstance(self.meter, NoMeter):
            return None
        try:
            return self.meter.read()
        except MeasurementError as error:
            self._note(error)
            return None


def around(before: Observation, after: Observation) -> Surroundings:
    """What the host and the GPUs did between two looks."""
    seen = surroundings(before.host, after.host)
    changes = [seen.clock_change_frac] if seen.clock_change_frac is not None else []
    throttle: list[str] = []
    for start, end in zip(before.gpus, after.gpus, strict=True):
        throttle += [str(fact.value) for fact in (start.throttle, end.throttle) if fact.value]
        if isinstance(start.sm_clock_mhz.value, int | float) and isinstance(end.sm_clock_mhz.value, int | float):
            changes.append(abs(end.sm_clock_mhz.value / start.sm_clock_mhz.value - 1))
    return seen.model_copy(
        update={"clock_change_frac": max(changes, default=None), "gpu_throttle": tuple(dict.fromkeys(throttle))}
    )


def energy_between(before: Observation, after: Observation, duration_s: float) -> float | None:
    """Energy of a window [J]: mean power between the two looks times the length of the window between them [s]."""
    if before.meter is None or after.meter is None or after.meter.at_s <= before.meter.at_s:
        return None
    power_w = (after.meter.energy_j - before.meter.energy_j) / (after.meter.at_s - before.meter.at_s)
    return power_w * duration_s
