"""Tables and paragraphs in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:  # commands that print no table run without pandas
    import pandas as pd


def stdout_console() -> Console:
    """Console that wraps at the terminal's width and marks nothing up by itself."""
    return Console(highlight=False, markup=False)


def print_table(table: pd.DataFrame) -> None:
    """Print a table; numbers to the right."""
    shown = Table()
    for column in table.columns:
        numeric = table[column].dtype.kind in "biufc"
        shown.add_column(str(column), justify="right" if numeric else "left", overflow="fold")
    for row, blank in zip(table.itertuples(index=False), table.isna().itertuples(index=False), strict=True):
        shown.add_row(*("" if is_blank else _text(value) for value, is_blank in zip(row, blank, strict=True)))
    console = stdout_console()
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=200)
    console.print(shown)


def _text(value: object) -> str:
    return f"{value:,.10g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
