"""Energy of CPU packages: the kernel's RAPL files, or the same counters through perf."""

import os
import re
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from advisor.domain.measurement import PowerMethod
from advisor.errors import MeasurementError
from advisor.profiling.meters import MeterReading, Sampler

RAPL_UPDATE_S = 0.001
"""The counters are renewed about once per millisecond (Intel SDM, volume 3, RAPL interfaces)."""
LARGEST_PACKAGE_W = 1000.0
"""An assumption, twice the largest figure of data/cpu_tdp.csv (500 W): it bounds the time to a wrap."""
LONGEST_RAPL_POLL_S = 10.0
PERF_INTERVAL_S = 0.1
"""Shorter intervals cost CPU time of their own, as the manual of perf-stat warns."""
PACKAGES_SCOPE = "all CPU packages of this host, without memory"

_MICRO_PER_UNIT = 1e6
_MS_PER_S = 1000
_PERF_PATIENCE_S = 5.0
"""Time for perf to give its first line or to refuse, and to end: an assumption."""


@dataclass(frozen=True, slots=True)
class Package:
    """Counter of one CPU package."""

    name: str
    counter: Path
    range_j: float
    """Energy at which the counter begins again at zero [J]."""

    def read_j(self) -> float:
        """Read the counter [J].

        Raises
        ------
        MeasurementError
            When it cannot be read.
        """
        try:
            return int(self.counter.read_text(encoding="ascii")) / _MICRO_PER_UNIT
        except PermissionError as error:
            raise MeasurementError(f"{self.counter} is readable by root only.") from error
        except (OSError, ValueError) as error:
            raise MeasurementError(f"{self.counter} cannot be read ({error}).") from error


def find_packages(powercap: Path) -> tuple[Package, ...]:
    """List the CPU packages of the kernel's powercap folder; none where there is no such folder.

    Memory and cores are zones inside a package, the platform (psys) is a zone beside them that holds them all:
    only packages are taken, so that nothing counts twice.

    Raises
    ------
    MeasurementError
        When a package does not tell its range.
    """
    packages = []
    for folder in sorted(powercap.glob("intel-rapl:*")):
        try:
            name = (folder / "name").read_text(encoding="ascii").strip()
            if re.fullmatch(r"intel-rapl:\d+", folder.name) and name.startswith("package"):
                range_j = int((folder / "max_energy_range_uj").read_text(encoding="ascii")) / _MICRO_PER_UNIT
                packages.append(Package(name, folder / "energy_uj", range_j))
        except (OSError, ValueError) as error:
            raise MeasurementError(f"{folder} cannot be read ({error}).") from error
    return tuple(packages)


class Rapl:
    """Sum of the package counters, read often enough that none wraps twice between two readings."""

    method: PowerMethod = "rapl"
    scope = PACKAGES_SCOPE
    is_estimate = False
    error_frac = 0.0
    update_s = RAPL_UPDATE_S

    def __init__(self, packages: tuple[Package, ...]) -> None:
        self._packages = packages
        self._lock = threading.Lock()
        self._energy_j = 0.0
        self._trouble: MeasurementError | None = None
        self._last_j = [package.read_j() for package in packages]
        shortest_wrap_s = min(package.range_j for package in packages) / LARGEST_PACKAGE_W
        self._sampler = Sampler(self._sample, min(shortest_wrap_s / 2, LONGEST_RAPL_POLL_S))

    def read(self) -> MeterReading:
        """Add what was used since the last reading."""
        with self._lock:
            if self._trouble is not None:
                raise self._trouble
            self._advance()
            return MeterReading(time.perf_counter(), self._energy_j)

    def close(self) -> None:
        """Stop the background reading."""
        self._sampler.close()

    def _sample(self) -> None:
        with self._lock:
            try:
                self._advance()
            except MeasurementError as error:
                # Told at the next reading of the meter: a wrap may have been missed since.
                self._trouble = error

    def _advance(self) -> None:
        now_j = [package.read_j() for package in self._packages]
        self._energy_j += sum(
            wrapped_difference_j(last_j, counter_j, range_j=package.range_j)
            for package, last_j, counter_j in zip(self._packages, self._last_j, now_j, strict=True)
        )
        self._last_j = now_j


def wrapped_difference_j(before_j: float, after_j: float, *, range_j: float) -> float:
    """Energy between two values of a counter that begins again at zero after its range [J].

    Examples
    --------
    >>> wrapped_difference_j(10.0, 25.0, range_j=100.0), wrapped_difference_j(90.0, 5.0, range_j=100.0)
    (15.0, 15.0)
    """
    return after_j - before_j if after_j >= before_j else after_j - before_j + range_j


class Perf:
    """The package counters as perf prints them, ten times a second.

    Raises
    ------
    MeasurementError
        When perf is missing or refuses, in its own words.
    """

    method: PowerMethod = "perf"
    scope = PACKAGES_SCOPE
    is_estimate = False
    error_frac = 0.0
    update_s = PERF_INTERVAL_S

    def __init__(self, program: str = "perf") -> None:
        interval_ms = str(round(PERF_INTERVAL_S * _MS_PER_S))
        options = ["stat", "-a", "-x", ",", "-I", interval_ms, "--log-fd", "1", "-e", "power/energy-pkg/"]
        try:
            self._process = subprocess.Popen(
                [program, *options],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                # The C locale writes numbers with a point.
                env={**os.environ, "LC_ALL": "C"},
                # An interrupt from the keyboard stops the measurement, which still wants its last reading.
                start_new_session=True,
            )
        except OSError as error:
            raise MeasurementError(f"perf cannot be started ({error}).") from error
        self._energy_j = 0.0
        self._heard = threading.Event()
        self._works = False
        self._listener = threading.Thread(target=self._listen, name="perf", daemon=True)
        self._listener.start()
        self._heard.wait(_PERF_PATIENCE_S)
        if not self._works:
            raise MeasurementError(f"perf gives no energy of the packages ({self._end() or 'it says nothing'}).")

    def read(self) -> MeterReading:
        """Tell the sum of the intervals that have ended."""
        if self._process.poll() is not None:
            raise MeasurementError("perf ended during the measurement; it must run until the end.")
        return MeterReading(time.perf_counter(), self._energy_j)

    def close(self) -> None:
        """End perf."""
        self._end()

    def _listen(self) -> None:
        for line in self._process.stdout or ():
            energy_j = parse_perf_line(line)
            if energy_j is not None:
                self._energy_j += energy_j
                self._works = True
            self._heard.set()
        self._heard.set()

    def _end(self) -> str:
        """End perf and give the first two lines of its complaint."""
        self._process.terminate()
        try:
            self._process.wait(_PERF_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join()
        complaint = ""
        if self._process.stderr and not self._process.stderr.closed:
            lines = [line.strip(" \\_\n") for line in self._process.stderr]
            complaint = " ".join([line for line in lines if line][:2]).rstrip(".")
        for stream in (self._process.stdout, self._process.stderr):
            if stream:
                stream.close()
        return complaint


def parse_perf_line(line: str) -> float | None:
    """Energy of one interval [J]; None for a line without one.

    Examples
    --------
    >>> parse_perf_line("     0.100105243,0.57,Joules,power/energy-pkg/,100106432,100.00,,")
    0.57
    >>> parse_perf_line("     0.100105243,<not supported>,Joules,power/energy-pkg/,0,100.00,,") is None
    True
    """
    match line.split(","):
        case [_, value, "Joules", *_] if re.fullmatch(r"\d+(\.\d+)?", value):
            return float(value)
        case _:
            return None
