"""A CSV of timings cut into cells, each read with its place in the file."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from advisor.errors import InputError

CALL_COLUMNS = ("batch_size", "concurrency", "repeat", "caller", "call", "start_s", "service_s")
"""Columns of a call; the first and the last must be there."""
FACT_COLUMNS = (
    *("model", "device", "precision", "runtime", "runtime_version", "sequence_length"),
    *("date", "tool", "python", "os", "target"),
)
"""Columns of facts that hold for the whole file: one row with a value is enough, empty cells say nothing."""

LARGEST_BYTES = 100_000_000
LARGEST = {"batch_size": 65_536, "concurrency": 1024, "repeat": 10_000, "caller": 1024, "call": 10**9}
SHORTEST_S, LONGEST_S = 1e-9, 1e6
"""Times between one step of the finest clock and eleven days; outside the unit was misread."""

WHOLE = re.compile(r"[0-9]{1,10}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


@dataclass(frozen=True, slots=True)
class Table:
    """A CSV file cut into cells; rows are numbered as a spreadsheet shows them, the header being row 1."""

    file: str
    header: tuple[str, ...]
    rows: dict[int, dict[str, str]] = field(repr=False)

    def error(self, row: int, column: str, allowed: str) -> InputError:
        """Refuse one cell."""
        return InputError(f"row {row}, column {column}", self.rows[row][column] or None, allowed, file=self.file)

    def counts(self, column: str) -> dict[int, int]:
        """Whole numbers of a column by row; empty when no row has one.

        Raises
        ------
        InputError
            When some rows have one and others do not, or a cell is something else.
        """
        allowed = f"a whole number from 1 to {LARGEST[column]:,}"
        found = {}
        for row, text in self._filled(column).items():
            if not WHOLE.fullmatch(text) or not 1 <= int(text) <= LARGEST[column]:
                raise self.error(row, column, allowed)
            found[row] = int(text)
        return found

    def times_s(self, column: str, *, least_s: float) -> dict[int, float]:
        """Times of a column by row [s]; empty when no row has one.

        Raises
        ------
        InputError
            When some rows have one and others do not, or a cell is something else.
        """
        allowed = f"a number of seconds from {least_s:g} to {LONGEST_S:g}, with a point before decimals"
        found = {}
        for row, text in self._filled(column).items():
            if not _NUMBER.fullmatch(text) or not least_s <= float(text) <= LONGEST_S:
                raise self.error(row, column, allowed)
            found[row] = float(text)
        return found

    def _filled(self, column: str) -> dict[int, str]:
        """Cells of a column by row: those of all rows, or none at all."""
        if column not in self.header:
            return {}
        filled = {row: cells[column] for row, cells in self.rows.items() if cells[column]}
        if filled and len(filled) < len(self.rows):
            empty = next(row for row in self.rows if row not in filled)
            raise self.error(empty, column, "a value in every row, or in none")
        return filled

    def fact(self, column: str) -> str | None:
        """Value of a fact; None when no row states it.

        Raises
        ------
        InputError
            When two rows differ.
        """
        if column not in self.header:
            return None
        stated: tuple[int, str] | None = None
        for row, cells in self.rows.items():
            if not cells[column]:
                continue
            if stated is not None and cells[column] != stated[1]:
                raise self.error(row, column, f"{stated[1]}, as in row {stated[0]}: one file is one measurement")
            stated = stated or (row, cells[column])
        return stated[1] if stated else None


def cut_table(content: bytes, file: str) -> Table:
    """Cut a file into cells; rows without any content, as spreadsheets leave them, are no rows."""
    if len(content) > LARGEST_BYTES:
        size = f"{len(content) / 1e6:,.1f} MB"
        raise InputError("size", size, f"at most {LARGEST_BYTES / 1e6:,.0f} MB", file=file)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError("content", "bytes that are no text", "UTF-8 text", file=file) from error
    first_line = text.partition("\n")[0]
    separator = ";" if first_line.count(";") > first_line.count(",") else ","
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        header = _header(next(reader, []), file)
        rows = {
            number: _cells(number, cells, header, file)
            for number, cells in enumerate(reader, start=2)
            if any(cell.strip() for cell in cells)
        }
    except csv.Error as error:
        raise InputError(f"line {reader.line_num}", str(error), "a row of a CSV file", file=file) from error
    if not rows:
        raise InputError("rows", 0, "at least one call below the header", file=file)
    return Table(file, header, rows)


def _header(cells: Sequence[str], file: str) -> tuple[str, ...]:
    """Names of the columns, each known and there once."""
    names = tuple(cell.strip() for cell in cells)
    known = (*CALL_COLUMNS, *FACT_COLUMNS)
    for name in names:
        if name not in known or names.count(name) > 1:
            raise InputError("row 1, column", name, f"each at most once: {', '.join(known)}", file=file)
    for name in ("batch_size", "service_s"):
        if name not in names:
            raise InputError(
                f"row 1, column {name}", None, "a header with at least batch_size and service_s", file=file
            )
    return names


def _cells(number: int, cells: Sequence[str], header: tuple[str, ...], file: str) -> dict[str, str]:
    """Cells of one row by column."""
    if len(cells) != len(header):
        found = f"{len(cells)} cell{'s' * (len(cells) > 1)}"
        raise InputError(f"row {number}", found, f"{len(header)}, as in the header", file=file)
    return {name: cell.strip() for name, cell in zip(header, cells, strict=True)}
