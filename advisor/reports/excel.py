"""Excel workbook of a result: live formulas with cached values, a break-even chart, evidence and rejections."""

import io

import pandas as pd
import xlsxwriter
from xlsxwriter.format import Format
from xlsxwriter.workbook import Workbook
from xlsxwriter.worksheet import Worksheet

from advisor.domain.plan import FleetLine, Infeasible, JobPlan, Plan
from advisor.reports.sentences import budget_sentence, headline, overload_sentence, simulation_sentence, why
from advisor.reports.tables import (
    alternatives_table,
    break_even_table,
    distribution_table,
    evidence_table,
    jobs_table,
    limits_table,
    rejection_table,
)
from advisor.units import HOURS_PER_MONTH

TEXT_WIDTH = 110


def result_xlsx(result: Plan | Infeasible | JobPlan) -> bytes:
    """Workbook as bytes; opening it needs no network and runs no text as a formula."""
    buffer = io.BytesIO()
    book = xlsxwriter.Workbook(buffer, {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False})
    book.set_properties(
        {
            "title": headline(result)[:250],
            "comments": f"program version {result.provenance.version}",
            # The file is a function of the plan: same plan, same bytes.
            "created": pd.Timestamp(result.provenance.today).to_pydatetime(),
        }
    )
    styles = _Styles(book)
    match result:
        case Plan():
            _recommendation(book, styles, result, result.fleet)
            _sheet(book, styles, "Response time", limits_table(result))
            _distribution(book, styles, result)
            _sheet(book, styles, "Alternatives", alternatives_table(result))
            _break_even(book, styles, result)
        case Infeasible():
            _recommendation(book, styles, result, result.cheapest)
        case JobPlan():
            _recommendation(book, styles, result, ())
            _sheet(book, styles, "Options", jobs_table(result))
    _sheet(book, styles, "Evidence", evidence_table(result))
    if not isinstance(result, JobPlan):
        _sheet(book, styles, "Rejected", rejection_table(result.rejections))
    book.close()
    return buffer.getvalue()


class _Styles:
    """Formats of the workbook."""

    def __init__(self, book: Workbook) -> None:
        self.title: Format = book.add_format({"bold": True, "font_size": 14, "text_wrap": True, "valign": "top"})
        self.head: Format = book.add_format({"bold": True, "bottom": 1, "text_wrap": True, "valign": "top"})
        self.text: Format = book.add_format({"text_wrap": True, "valign": "top"})
        self.money: Format = book.add_format({"num_format": "#,##0.00"})
        self.price: Format = book.add_format({"num_format": "#,##0.0000", "bg_color": "#FFF7CC"})
        self.count: Format = book.add_format({"num_format": "0", "bg_color": "#FFF7CC"})
        self.total: Format = book.add_format({"num_format": "#,##0.00", "bold": True, "top": 1})


def _recommendation(
    book: Workbook, styles: _Styles, result: Plan | Infeasible | JobPlan, lines: tuple[FleetLine, ...]
) -> None:
    """Headline, the bill of the fleet with live formulas, and the reasons."""
    sheet = book.add_worksheet("Recommendation")
    sheet.set_landscape()
    sheet.fit_to_pages(1, 0)
    sheet.set_column(0, 0, 34)
    sheet.set_column(1, 6, 16)
    sheet.merge_range(0, 0, 0, 6, "", styles.title)
    sheet.write_string(0, 0, headline(result), styles.title)
    sheet.set_row(0, 60)
    row = 2
    if lines:
        row = _bill(sheet, styles, lines, row) + 1
    for sentence in _reasons(result):
        sheet.merge_range(row, 0, row, 6, "", styles.text)
        sheet.write_string(row, 0, sentence, styles.text)
        sheet.set_row(row, 15 * (1 + len(sentence) // TEXT_WIDTH))
        row += 1


def _bill(sheet: Worksheet, styles: _Styles, lines: tuple[FleetLine, ...], row: int) -> int:
    """Rows count × price × hours with a total; yellow cells may be edited."""
    hours_row = row
    sheet.write_string(hours_row, 0, "Hours per month (h)", styles.text)
    sheet.write_number(hours_row, 1, HOURS_PER_MONTH, styles.count)
    head = row + 2
    for column, name in enumerate(
        ("Machine", "Region", "Offer", "Count", "Price (USD/h each)", "Cost (USD/month)", "Price date")
    ):
        sheet.write_string(head, column, name, styles.head)
    first = head + 1
    for index, line in enumerate(lines):
        at = first + index
        for column, text in (
            (0, line.label),
            (1, line.region),
            (2, line.offer.replace("_", " ")),
            (6, line.price_date.isoformat()),
        ):
            sheet.write_string(at, column, text, styles.text)
        sheet.write_number(at, 3, line.count, styles.count)
        sheet.write_number(at, 4, line.price_usd_per_h, styles.price)
        sheet.write_formula(at, 5, f"=D{at + 1}*E{at + 1}*$B${hours_row + 1}", styles.money, line.cost_usd_per_month)
    last = first + len(lines)
    total = round(sum(line.cost_usd_per_month for line in lines), 2)
    sheet.write_string(last, 0, "Total", styles.head)
    sheet.write_formula(last, 5, f"=SUM(F{first + 1}:F{last})", styles.total, total)
    return last + 1


def _reasons(result: Plan | Infeasible | JobPlan) -> list[str]:
    match result:
        case Plan():
            budget = budget_sentence(result)
            found = [*([budget] if budget else []), *why(result), simulation_sentence(result)]
            return [*found, *result.warnings, *result.assumptions]
        case Infeasible():
            late = overload_sentence(result)
            found = [*(relaxation.sentence for relaxation in result.relaxations), *([late] if late else [])]
            if result.cheapest:
                found.append(
                    "The machines above are the cheapest fleet that meets the other limits; it breaks this one."
                )
            return [*found, *result.warnings]
        case JobPlan():
            notes = [f"{answer.name}: {sentence}." for answer in result.answers for sentence in answer.assumptions]
            return [*result.warnings, *notes]


def _distribution(book: Workbook, styles: _Styles, plan: Plan) -> None:
    """Share of requests slower than a time, predicted and simulated, and its chart."""
    table = distribution_table(plan)
    sheet = _sheet(book, styles, "Distribution", table)
    chart = book.add_chart({"type": "scatter", "subtype": "straight"})
    for column, (name, color) in enumerate((("Predicted", "#0072B2"), ("Simulated", "#D55E00")), start=1):
        chart.add_series(
            {
                "name": name,
                "categories": ["Distribution", 1, 0, len(table), 0],
                "values": ["Distribution", 1, column, len(table), column],
                "line": {"color": color},
            }
        )
    chart.set_x_axis({"name": "Response time (ms)", "log_base": 10})
    chart.set_y_axis({"name": "Slower requests (%)"})
    chart.set_title({"name": "Share of requests that are slower than a time"})
    sheet.insert_chart("E2", chart, {"description": "Share of requests slower than a time, predicted and simulated"})


def _break_even(book: Workbook, styles: _Styles, plan: Plan) -> None:
    """Steps of the three cost curves and their chart."""
    table = break_even_table(plan.break_even)
    sheet = _sheet(book, styles, "Break-even", table)
    chart = book.add_chart({"type": "scatter", "subtype": "straight"})
    for name, color in (("CPU", "#0072B2"), ("GPU", "#D55E00")):
        rows = table.index[table["Fleet"] == name]
        if rows.empty:
            continue
        first, last = int(rows[0]) + 1, int(rows[-1]) + 1
        chart.add_series(
            {
                "name": f"Cheapest all-{name} fleet",
                "categories": ["Break-even", first, 1, last, 1],
                "values": ["Break-even", first, 2, last, 2],
                "line": {"color": color},
            }
        )
    chart.set_x_axis({"name": "Traffic (req/s)", "log_base": 10})
    chart.set_y_axis({"name": "Cost (USD/month)"})
    chart.set_title({"name": "Cost of the cheapest fleet against traffic"})
    sheet.insert_chart("E2", chart, {"description": "Cost of the cheapest all-CPU and all-GPU fleet against traffic"})


def _sheet(book: Workbook, styles: _Styles, name: str, table: pd.DataFrame) -> Worksheet:
    """Worksheet with one table."""
    sheet = book.add_worksheet(name)
    sheet.freeze_panes(1, 0)
    for column, title in enumerate(table.columns):
        texts = [str(title), *(str(value) for value in table[title].head(200))]
        sheet.set_column(column, column, min(60, 2 + max(len(text) for text in texts)))
        sheet.write_string(0, column, str(title), styles.head)
        for row, value in enumerate(table[title], start=1):
            if pd.isna(value):
                continue
            if isinstance(value, str):
                sheet.write_string(row, column, value)
            else:
                sheet.write_number(row, column, float(value))
    return sheet
