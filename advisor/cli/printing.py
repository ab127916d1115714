"""Tables and paragraphs in the terminal."""

import pandas as pd
from rich.console import Console
from rich.table import Table


def stdout_console() -> Console:
    """Console that wraps at the terminal's width and marks nothing up by itself."""
    return Console(highlight=False, markup=False)


def print_table(table: pd.DataFrame) -> None:
    """Print a table; numbers to the right."""
    shown = Table()
    for column in table.columns:
        numeric = pd.api.types.is_numeric_dtype(table[column])
        shown.add_column(str(column), justify="right" if numeric else "left", overflow="fold")
    for row in table.itertuples(index=False):
        shown.add_row(*("" if pd.isna(value) else _text(value) for value in row))
    console = stdout_console()
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=200)
    console.print(shown)


def _text(value: object) -> str:
    return f"{value:,.10g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
