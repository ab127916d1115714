"""A card from a file: readings that were recorded on a real one, given again at the same pace.

A recording is a text file of JSON lines. The first holds the facts of the card, each other line one reading.
"""

import bisect
import dataclasses
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, TypeVar

from pydantic import TypeAdapter, ValidationError

from advisor.domain.profile import Fact
from advisor.errors import InputError
from advisor.profiling.gpu import Gpu, GpuReading

_Parsed = TypeVar("_Parsed")

_FACTS = TypeAdapter(dict[str, Fact])
_READING = TypeAdapter(GpuReading)
_ALLOWED = "a line of JSON as advisor.profiling.replay.RecordingGpu writes it"


@dataclass(frozen=True, slots=True)
class Recording:
    """What was seen on a card, in order of time."""

    facts: dict[str, Fact]
    readings: tuple[GpuReading, ...]


class RecordingGpu:
    """A card whose readings are also written to a stream, one line each."""

    def __init__(self, gpu: Gpu, stream: TextIO) -> None:
        self._gpu, self._stream = gpu, stream
        # A meter polls from a thread of its own: lines must be whole, and in order of time.
        self._lock = threading.Lock()
        self._write(_FACTS.dump_json(gpu.facts(), exclude_defaults=True))

    def facts(self) -> dict[str, Fact]:
        """Facts of the card."""
        return self._gpu.facts()

    def read(self) -> GpuReading:
        """Look at the card and write down what was seen."""
        with self._lock:
            reading = self._gpu.read()
            self._write(_READING.dump_json(reading, exclude_defaults=True))
        return reading

    def close(self) -> None:
        """Close the card; the stream stays open."""
        self._gpu.close()

    def _write(self, line: bytes) -> None:
        self._stream.write(line.decode() + "\n")
        self._stream.flush()


class ReplayGpu:
    """A card that shows at each moment the last reading that its recording had by then.

    Time counts from the first look. After the end of the recording every value is null with that reason.

    Parameters
    ----------
    recording
        What to show.
    clock
        Source of the time [s].

    Examples
    --------
    >>> recording = read_recording(Path("tests/data/gpu_recording.jsonl"))
    >>> clock = iter([100.0, 100.0, 102.0])
    >>> gpu = ReplayGpu(recording, clock=lambda: next(clock))
    >>> first, later = gpu.read(), gpu.read()
    >>> later.at_s - first.at_s
    2.0
    >>> later.energy_j.value - first.energy_j.value
    400.0
    """

    def __init__(self, recording: Recording, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._recording, self._clock = recording, clock
        self._began_s: float | None = None
        self._offsets_s = [reading.at_s - recording.readings[0].at_s for reading in recording.readings]

    def facts(self) -> dict[str, Fact]:
        """Facts of the card that was recorded."""
        return dict(self._recording.facts)

    def read(self) -> GpuReading:
        """Show the recorded reading of this moment, under the time of now."""
        if self._began_s is None:
            self._began_s = self._clock()
        now_s = self._clock()
        elapsed_s = now_s - self._began_s
        if elapsed_s > self._offsets_s[-1]:
            return _ended(now_s, f"the recording ended after {self._offsets_s[-1]:.1f} s")
        index = bisect.bisect_right(self._offsets_s, elapsed_s) - 1
        return dataclasses.replace(self._recording.readings[index], at_s=now_s)

    def close(self) -> None:
        """Nothing is held."""


def read_recording(path: Path) -> Recording:
    """Read a recording.

    Raises
    ------
    InputError
        When the file cannot be read, a line does not fit, it holds no reading, or its times go back.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("recording", path.name, f"a text file of JSON lines ({error})") from error
    if len(lines) < 2:
        raise InputError("recording", f"{len(lines)} lines", "the facts and at least one reading", file=path.name)
    facts = _parse(_FACTS, lines, 0, file=path.name)
    readings = tuple(_parse(_READING, lines, index, file=path.name) for index in range(1, len(lines)))
    for number, (earlier, later) in enumerate(itertools.pairwise(readings), start=3):
        if later.at_s < earlier.at_s:
            raise InputError(
                f"line {number}, at_s", later.at_s, "a time no earlier than the line before", file=path.name
            )
    return Recording(facts, readings)


def _parse(adapter: TypeAdapter[_Parsed], lines: Sequence[str], index: int, *, file: str) -> _Parsed:
    try:
        return adapter.validate_json(lines[index])
    except ValidationError as error:
        raise InputError(f"line {index + 1}", lines[index], _ALLOWED, file=file) from error


def _ended(at_s: float, why: str) -> GpuReading:
    missing = Fact(value=None, why=why)
    values = {field.name: missing for field in dataclasses.fields(GpuReading) if field.name != "at_s"}
    return GpuReading(at_s=at_s, **values)
