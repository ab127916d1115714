"""Journal of a measurement: every result is a line of its own, on the disk before the next one is made.

A measurement that was killed goes on from its journal: what is there counts, what is not there is measured. A last line
that was cut off in the middle is dropped.
"""

import datetime
import os
import zlib
from pathlib import Path
from typing import Literal, Self

import numpy as np
from pydantic import ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt

from advisor import __version__
from advisor.domain.measurement import IdleStart, JoinTime, Outlier, Repeat
from advisor.domain.profile import Device, ModelInfo
from advisor.domain.record import Record, parse_record
from advisor.errors import InputError
from advisor.profiling.cell import Configuration
from advisor.profiling.grid import GridPlan
from advisor.profiling.statistics import FloatArray

_NS_PER_S = 1e9


class Sample(Record):
    """One window with all its calls."""

    model_config = ConfigDict(val_json_bytes="base64")

    batch_size: PositiveInt
    threads: PositiveInt
    concurrency: PositiveInt
    round: NonNegativeInt = Field(description="turn of the grid in which it was measured")
    anchor: bool = Field(description="one of the long windows at the start and at the end")
    repeat: Repeat
    calls: PositiveFloat = Field(description="calls, those across an edge by their share")
    first_caller_calls: NonNegativeInt = Field(description="calls of the first replica; they come first")
    outliers: tuple[Outlier, ...]
    service: bytes = Field(description="wall times [ns]: 64-bit integers, least byte first, deflated")
    first_token: bytes = Field(default=b"", description="times to the first token of each answer [ns], likewise")
    inter_token: bytes = Field(default=b"", description="times between the tokens of an answer [ns], likewise")

    @property
    def configuration(self) -> Configuration:
        """Threads and replicas."""
        return Configuration(self.threads, self.concurrency)

    @property
    def accepted(self) -> bool:
        """Whether it counts."""
        return not self.repeat.rejected

    @property
    def service_s(self) -> FloatArray:
        """Wall times of the calls [s]."""
        return _unpack(self.service)

    @property
    def first_token_s(self) -> FloatArray:
        """Times to the first token [s]; empty where answers come whole."""
        return _unpack(self.first_token)

    @property
    def inter_token_s(self) -> FloatArray:
        """Times between tokens [s]; empty where answers come whole or are single tokens."""
        return _unpack(self.inter_token)


def _unpack(packed: bytes) -> FloatArray:
    return np.frombuffer(zlib.decompress(packed) if packed else b"", dtype="<i8") / _NS_PER_S


def pack(service_ns: np.ndarray[tuple[int], np.dtype[np.int64]]) -> bytes:
    """Wall times [ns] as a sample keeps them."""
    return zlib.compress(service_ns.astype("<i8").tobytes())


class Start(Record):
    """First line: what is measured, on what, and how."""

    journal_version: Literal[1] = 1
    tool_version: str = __version__
    created: datetime.datetime
    model: ModelInfo
    device: Device
    plan: GridPlan
    command: str | None = Field(default=None, description="command line, without the folders of files")


class Entry(Record):
    """One line: one of these things."""

    start: Start | None = None
    findings: tuple[str, ...] | None = Field(
        default=None, description="begin of a sitting: what spoke against measuring, as sentences"
    )
    meter: str | None = Field(default=None, description="power meter: method and what it covers; empty: none")
    meter_failure: str | None = Field(default=None, description="what the power meter said when it failed")
    idle_before_w: float | None = None
    sample: Sample | None = None
    idle_start: IdleStart | None = None
    join_time: JoinTime | None = None


class Journal:
    """The entries of one measurement, in a file or, without one, in memory alone.

    Parameters
    ----------
    entries
        What is there already; the first one is the start.
    path
        File that every further entry is appended to.
    """

    def __init__(self, entries: list[Entry], path: Path | None) -> None:
        self._entries, self._path = entries, path

    @classmethod
    def begin(cls, start: Start, path: Path | None) -> Self:
        """Start a new one.

        Raises
        ------
        InputError
            When the file exists: it may hold the only copy of another measurement.
        """
        if path is not None:
            refuse_existing(path)
        journal = cls([], path)
        journal.append(Entry(start=start))
        return journal

    @classmethod
    def resume(cls, path: Path) -> Self:
        """Go on with the journal of a measurement that was stopped or killed.

        Raises
        ------
        InputError
            When the file is missing, is no journal, or a line that is not the last one does not fit.
        """
        entries, whole_bytes = read_entries(path)
        with path.open("r+b") as stream:
            stream.truncate(whole_bytes)
        return cls(entries, path)

    def append(self, entry: Entry) -> None:
        """Keep one entry; it is on the disk when this returns."""
        if self._path is not None:
            with self._path.open("ab") as stream:
                stream.write(entry.model_dump_json(exclude_unset=True).encode() + b"\n")
                stream.flush()
                os.fsync(stream.fileno())
        self._entries.append(entry)

    @property
    def start(self) -> Start:
        """The first entry."""
        start = self._entries[0].start
        assert start is not None  # begin writes it and read_entries checks it
        return start

    @property
    def sittings(self) -> int:
        """How many times the measurement was begun or gone on with."""
        return sum(entry.findings is not None for entry in self._entries)

    @property
    def findings(self) -> tuple[str, ...]:
        """What spoke against measuring, at any sitting, each once."""
        return tuple(dict.fromkeys(text for entry in self._entries for text in entry.findings or ()))

    @property
    def meter(self) -> str | None:
        """The power meter of the first sitting; None before it was chosen."""
        return next((entry.meter for entry in self._entries if entry.meter is not None), None)

    @property
    def meter_failures(self) -> tuple[str, ...]:
        """What the power meter said when it failed, at any sitting."""
        return tuple(entry.meter_failure for entry in self._entries if entry.meter_failure is not None)

    @property
    def samples(self) -> tuple[Sample, ...]:
        """All windows in order of time."""
        return tuple(entry.sample for entry in self._entries if entry.sample is not None)

    @property
    def idle_starts(self) -> tuple[IdleStart, ...]:
        """Calls of idle replicas."""
        return tuple(entry.idle_start for entry in self._entries if entry.idle_start is not None)

    @property
    def join_times(self) -> tuple[JoinTime, ...]:
        """Times to put batches together."""
        return tuple(entry.join_time for entry in self._entries if entry.join_time is not None)

    @property
    def idle_before_w(self) -> float | None:
        """Idle power at the first start [W]."""
        return next((entry.idle_before_w for entry in self._entries if entry.idle_before_w is not None), None)


def refuse_existing(path: Path) -> None:
    """Refuse a journal that would overwrite another.

    Raises
    ------
    InputError
        When the file exists.
    """
    if path.exists():
        raise InputError("journal", path.name, f"no such file yet; go on with it by --resume {path.name}, or remove it")


def read_entries(path: Path) -> tuple[list[Entry], int]:
    """Whole entries of a journal file, and how many bytes they take.

    Raises
    ------
    InputError
        When the file is missing, is no journal, or a line that is not the last one does not fit.
    """
    if not path.is_file():
        raise InputError("--resume", path.name, "a journal file that exists")
    entries, whole_bytes = [], 0
    lines = path.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            break  # cut off while it was written: its window is measured again
        entries.append(parse_record(Entry, line, file=f"{path.name}, line {number}"))
        whole_bytes += len(line)
    if not entries or entries[0].start is None:
        raise InputError("--resume", path.name, "a journal that advisor profile has written")
    return entries, whole_bytes
