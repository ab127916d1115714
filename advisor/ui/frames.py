"""Tables on a page: numbers written by their unit in one way, whatever the language of the browser."""

from collections.abc import Callable

import pandas as pd
import streamlit as st

FORMATS = {
    "(USD/month)": "{:,.2f}",
    "(USD/h each)": "{:,.4f}",
    "(req/s)": "{:,.2f}",
    "(items/s)": "{:,.2f}",
    "(ms)": "{:,.5g}",
    "Slower, predicted (%)": "{:,.4f}",
    "Slower, simulated (%)": "{:,.4f}",
    "(%)": "{:,.1f}",
    "(GiB)": "{:,.2f}",
    "(J/item)": "{:,.4g}",
    "(W)": "{:,.4g}",
    "Mean batch": "{:,.2f}",
    "Peak to mean": "{:,.2f}",
    "Index of dispersion": "{:,.2f}",
    "± standard error": "{:,.2f}",
}
WHOLE = "{:,.0f}"
EMPTY = "–"


def number_format(column: str) -> str:
    """Format of the numbers of a column, by the end of its name, mostly a unit; others are counts.

    Examples
    --------
    >>> number_format("Cost (USD/month)").format(12345.6)
    '12,345.60'
    """
    return next((style for unit, style in FORMATS.items() if column.endswith(unit)), WHOLE)


def show_frame(frame: pd.DataFrame, *, key: str, alt: str, first: tuple[str, ...] = ()) -> None:
    """Draw a table; the columns named come first, so that a narrow screen shows them.

    Numbers are formatted here and stay numbers underneath: sorting works.
    """
    numbers: dict[object, str | Callable[[object], str] | None] = {
        name: number_format(str(name)) for name in frame.select_dtypes("number").columns
    }
    styled = frame.style.format(numbers)
    order = [*first, *(str(name) for name in frame.columns if name not in first)]
    st.dataframe(styled, hide_index=True, key=key, alt=alt, column_order=order, placeholder=EMPTY)
