"""Trace files: CSV with a column of time stamps, in seconds or as dates, read into arrival times."""

import csv
import hashlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from advisor.domain.trace import Trace
from advisor.errors import InputError

LARGEST_BYTES = 100_000_000
LARGEST_ROWS = 5_000_000
LONGEST_S = 10 * 366 * 86_400.0
"""Ten years: a longer trace is one whose unit was misread."""

UNITS = {
    "s": ("seconds", 1),
    "ms": ("milliseconds", 10**3),
    "us": ("microseconds", 10**6),
    "ns": ("nanoseconds", 10**9),
}
"""Name of each unit, and how many of it make a second."""

UNIT_NAMES = {
    unit: {unit, long[:-1], long, *more}
    for (unit, (long, _)), more in zip(
        UNITS.items(),
        ({"sec", "secs"}, {"msec", "millis"}, {"usec", "µs", "μs", "micros"}, {"nsec", "nanos"}),
        strict=True,
    )
}
EPOCH_ABOVE = ((1e17, "ns"), (1e14, "us"), (1e11, "ms"))
"""Dates counted from 1970 are 1.7e9 s in 2024, thus 1.7e12 ms and so on; 1e11 s would be the year 5138."""

TIME_NAMES = (
    *("t", "ts", "time", "timestamp", "time_stamp", "date", "datetime", "date_time", "request_time", "start_time"),
    *("arrival", "arrivals", "arrived", "arrived_at", "arrival_time", "arrival_timestamp"),
)
# The longest names first, so that arrival_time is not taken for an arrival in a unit called time.
_TIME_COLUMN = re.compile(rf"({'|'.join(sorted(TIME_NAMES, key=len, reverse=True))})(?:[_ \[(]+([a-zµμ]+)[\])]?)?")
# Checked beside pandas, which also reads now and today, and a bare year.
_DATE = r"\d{4}-\d\d-\d\d|\d{4}/\d\d/\d\d|\d{8}T"
_ZONE = r":.*(?:[zZ]|[+-]\d\d(?::?\d\d)?)$"
NUMBER = "a finite number of at least 0"
DATE = "a date and time such as 2023-11-16T18:17:03.98Z, from 1970 on"


@dataclass(frozen=True)
class _Column:
    """Time column of one file as text; rows are numbered as a spreadsheet shows them, the header being row 1."""

    file: str
    name: str
    unit: str | None
    others: tuple[str, ...]
    cells: list[str]
    blank_rows: list[int]

    def error(self, index: int, allowed: str) -> InputError:
        """Refuse one cell."""
        number = index + 2
        for blank in self.blank_rows:
            number += blank <= number
        return InputError(f"row {number}, column {self.name}", self.cells[index] or None, allowed, file=self.file)

    def refuse_first(self, bad: NDArray[np.bool_], allowed: str) -> None:
        """Refuse the first bad cell, if there is one."""
        if bad.any():
            raise self.error(int(bad.argmax()), allowed)


def read_trace(path: Path) -> Trace:
    """Trace from a CSV file.

    Raises
    ------
    InputError
        When the file is missing, too large, or does not fit.
    """
    if not path.is_file():
        raise InputError("trace", path.name, "a trace file that exists")
    _check_size(path.stat().st_size, path.name)
    return parse_trace(path.read_bytes(), file=path.name)


def parse_trace(content: bytes, *, file: str) -> Trace:
    r"""Trace from the bytes of a CSV file, UTF-8 with a header, cells divided by commas or semicolons.

    The time column is found by its name (`TIME_NAMES`, with or without a unit, such as ``t_s`` or ``Timestamp (ms)``)
    or is the only column. Its cells are numbers, offsets or counted from 1970, or dates by ISO 8601; dates without a
    zone are taken as UTC. Time is counted from the first request. Other columns are not used.

    Raises
    ------
    InputError
        When the content does not fit: file, row, column, value and what is allowed.

    Examples
    --------
    >>> parse_trace(b"t_s\n5.0\n5.5\n7.0\n", file="web.csv").times_s.tolist()
    [0.0, 0.5, 2.0]
    """
    _check_size(len(content), file)
    column = _time_column(content, file)
    times_s, warnings = _seconds(column)
    backward = int((np.diff(times_s) < 0).sum())
    if backward:
        rows = "1 row is earlier than the row" if backward == 1 else f"{backward:,} rows are earlier than the rows"
        warnings.append(f"{rows} before: all rows were sorted by time")
        times_s = np.sort(times_s)
    if times_s[-1] - times_s[0] > LONGEST_S:
        span = f"{times_s[-1] - times_s[0]:.3g} s"
        allowed = "at most ten years; a unit other than seconds must be in the name, as in timestamp_ms"
        raise InputError(f"time spanned by column {column.name}", span, allowed, file=file)
    if column.others:
        warnings.append(f"{_listed(column.others)} not used: one row is one request of one item")
    return Trace(file, times_s - times_s[0], hashlib.sha256(content).hexdigest(), tuple(warnings))


def _check_size(size: int, file: str) -> None:
    if size > LARGEST_BYTES:
        raise InputError("size", f"{size / 1e6:,.1f} MB", f"at most {LARGEST_BYTES / 1e6:,.0f} MB", file=file)


def _listed(columns: tuple[str, ...]) -> str:
    if len(columns) == 1:
        return f"column {columns[0]} is"
    more = f" and {len(columns) - 6} more" if len(columns) > 7 else ""
    return f"columns {', '.join(columns[:6] if more else columns)}{more} are"


def _time_column(content: bytes, file: str) -> _Column:
    """Cut the time column out of the file."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError("content", "bytes that are no text", "UTF-8 text", file=file) from error
    if not text.strip():
        raise InputError("content", "empty", "a header and at least 2 rows", file=file)
    first_line = text[: text.find("\n")] if "\n" in text else text
    separator = ";" if first_line.count(";") > first_line.count(",") else ","
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        return _cut(rows, file)
    except csv.Error as error:
        raise InputError(f"line {rows.line_num}", str(error), "a row of a CSV file", file=file) from error


def _cut(rows: Iterator[list[str]], file: str) -> _Column:
    header = [cell.strip() for cell in next(rows)]
    place, unit = _find_time(header, file)
    cells: list[str] = []
    blank_rows: list[int] = []
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            if not row:
                blank_rows.append(number)
                continue
            cut = f"{len(row)} cell{'s' * (len(row) > 1)}"
            raise InputError(f"row {number}", cut, f"{len(header)}, as in the header", file=file)
        cells.append(row[place].strip())
        if len(cells) > LARGEST_ROWS:
            raise InputError("rows", f"more than {LARGEST_ROWS:,}", f"at most {LARGEST_ROWS:,}", file=file)
    if len(cells) < 2:
        raise InputError("rows", len(cells), "at least 2 besides the header", file=file)
    others = tuple(name or f"no. {index + 1}" for index, name in enumerate(header) if index != place)
    return _Column(file, header[place], unit, others, cells, blank_rows)


def _find_time(header: list[str], file: str) -> tuple[int, str | None]:
    """Place of the time column and the unit in its name."""
    if all(_is_number(cell) or _is_date(cell) for cell in header):
        raise InputError("row 1", ", ".join(header), "a header with the names of the columns", file=file)
    found: dict[int, str | None] = {}
    for place, name in enumerate(header):
        match = _TIME_COLUMN.fullmatch(name.lower())
        if match:
            units = [unit for unit, names in UNIT_NAMES.items() if match[2] in names]
            if units or match[2] in (None, "utc", "iso"):
                found[place] = units[0] if units else None
    if not found and len(header) == 1:
        return 0, None
    if len(found) != 1:
        names = ", ".join(header[place] for place in found or range(len(header)))
        allowed = "exactly one column of times, named such as t_s, time, timestamp, timestamp_ms or arrival_time"
        raise InputError("row 1, columns" if not found else "row 1, columns of times", names, allowed, file=file)
    return next(iter(found.items()))


def _is_number(cell: str) -> bool:
    # pandas decides, not float(): float also reads 1_000.
    return cell.lower() == "nan" or not pd.to_numeric(pd.Series([cell], dtype=str), errors="coerce").isna().any()


def _is_date(cell: str) -> bool:
    return bool(_dates(pd.Series([cell], dtype=str)).notna().all())


def _dates(texts: "pd.Series[str]") -> "pd.Series[pd.Timestamp]":
    """Dates by ISO 8601 in UTC; NaT for what is none."""
    return pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce").where(texts.str.match(_DATE))


def _seconds(column: _Column) -> tuple[NDArray[np.float64], list[str]]:
    """Times since the earliest [s] in the order of the rows, with warnings."""
    first = column.cells[0]
    if _is_number(first):
        return _from_numbers(column)
    if _is_date(first):
        return _from_dates(column), []
    raise column.error(0, f"{NUMBER}, or {DATE}")


def _from_numbers(column: _Column) -> tuple[NDArray[np.float64], list[str]]:
    # Text of whole numbers becomes int64: a float would cut nanoseconds since 1970 to steps of 256.
    numbers = pd.to_numeric(pd.Series(column.cells, dtype=str), errors="coerce").to_numpy()
    with np.errstate(invalid="ignore"):
        column.refuse_first(~(np.isfinite(numbers) & (numbers >= 0)), f"{NUMBER}, as in the first row")
    low = numbers.min()
    by_size = next((unit for above, unit in EPOCH_ABOVE if low > above), "s")
    unit = column.unit or by_size
    name, per_s = UNITS[unit]
    times_s = (numbers - low).astype(np.float64) / per_s
    if unit == "s":
        return times_s, []
    if column.unit:
        return times_s, [f"column {column.name} is read as {name}, as its name says"]
    return times_s, [f"column {column.name} holds numbers from {low:.4g} on: read as {name} since 1970"]


def _from_dates(column: _Column) -> NDArray[np.float64]:
    texts = pd.Series(column.cells, dtype=str)
    stamps = _dates(texts).dt.tz_localize(None).to_numpy()
    column.refuse_first(~(stamps >= np.datetime64("1970-01-01")), f"{DATE}, as in the first row")
    zoned = texts.str.contains(_ZONE).to_numpy(dtype=bool)
    column.refuse_first(zoned != zoned[0], "a time zone in every row, or in none")
    seconds: NDArray[np.float64] = (stamps - stamps.min()) / np.timedelta64(1, "s")
    return seconds
