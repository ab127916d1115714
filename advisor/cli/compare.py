"""``advisor compare``: whether a new profile is slower than an old one, for people and for continuous integration."""

import dataclasses
import json as json_module
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from advisor.errors import InputError
from advisor.profiling.comparison import CellComparison, Change, Comparison, Difference, Key, compare
from advisor.store.profiles import read_profile_file
from advisor.units import s_to_ms

Old = Annotated[Path, typer.Argument(help="profile before", metavar="OLD.json")]
New = Annotated[Path, typer.Argument(help="profile after", metavar="NEW.json")]
FailOver = Annotated[
    str,
    typer.Option(
        "--fail-over", help="growth of a mean time that is a regression, in percent, when noise does not explain it"
    ),
]
Anyway = Annotated[
    bool, typer.Option("--anyway", help="compare although model or machine differ, and say what differs")
]
Json = Annotated[bool, typer.Option("--json", help="print JSON instead of Markdown")]

WIDTH = 80
EMPTY = "–"
GLUE = "\u00a0"
SHORT_VERDICTS = {"same within noise": "within noise", "unknown (one repeat)": "one repeat"}
INFORMATION = {"median": "Median", "p99": "p99", "throughput": "Items/s", "energy": "J/item", "memory": "Memory"}


def compare_profiles(
    old: Old, new: New, *, fail_over: FailOver = "5%", anyway: Anyway = False, json: Json = False
) -> None:
    """Compare two profiles of one model on one kind of machine, cell by cell.

    A cell is a regression when its mean time grew by more than --fail-over and the 95 % interval of the growth lies
    wholly above zero. Exit code 3: a regression, or undecided, because a cell grew above the limit within its noise,
    went missing, or has no repeats to judge it by.
    """
    limit_frac = parse_percent(fail_over)
    result = compare(read_profile_file(old), read_profile_file(new), fail_over_frac=limit_frac, anyway=anyway)
    typer.echo(result_json(result) if json else result_markdown(result), nl=False)
    if result.outcome != "pass":
        raise typer.Exit(3)


def parse_percent(text: str) -> float:
    """Fraction of a percentage written as 5% or 5.

    Without its sign a number below 1 is refused: 0.05 could mean 5 % as well as 0.05 %.

    Raises
    ------
    InputError
        When the text is no percentage from 0 to 1000.

    Examples
    --------
    >>> parse_percent("5%"), parse_percent("5"), parse_percent("0.5 %")
    (0.05, 0.05, 0.005)
    """
    match = re.fullmatch(r"(\d{1,4}(?:\.\d+)?)\s*(%?)", text.strip())
    if match is None or float(match[1]) > 1000 or (not match[2] and 0 < float(match[1]) < 1):
        raise InputError("--fail-over", text, "a percentage from 0 to 1000, such as 5% or 5")
    return float(match[1]) / 100


def result_json(result: Comparison) -> str:
    """Whole comparison as JSON, in SI units."""
    document = {
        "outcome": result.outcome,
        "geometric_mean_ratio": result.geometric_mean_ratio,
        "slower_by_chance": result.by_chance,
        **dataclasses.asdict(result),
    }
    return json_module.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def result_markdown(result: Comparison) -> str:
    """Comparison as GitHub-flavored Markdown that is also readable as plain text in 80 columns."""
    parts = [f"## {_headline(result)}", _paragraph(_subjects(result))]
    if result.mismatches:
        parts += [_paragraph("**These profiles are not of the same work on the same machine:**")]
        parts += [_bullets(map(_difference, result.mismatches))]
    parts += ["### Mean time per call", _means_table(result.cells), _bullets(_reading(result))]
    information = _information_table(result.cells)
    if information:
        parts += ["### Other figures, for information", information]
    for title, lines in (
        ("Cells that are in one profile only", [*_lone(result.only_old, "old"), *_lone(result.only_new, "new")]),
        ("Doubts", [_plain(doubt) for doubt in (*result.doubts, *_cell_doubts(result.cells))]),
        ("What else differs", [_difference(difference) for difference in result.differences]),
    ):
        if lines:
            parts += [f"### {title}", _bullets(lines)]
    return "\n\n".join(parts) + "\n"


def _why_undecided(result: Comparison) -> str:
    reasons = []
    if result.noisy_over_limit:
        reasons.append(f"{_cells(len(result.noisy_over_limit))} grew above the limit within noise")
    if result.unjudged_over_limit or not result.judged:
        reasons.append("without repeats nobody knows what is noise")
    if result.only_old:
        reasons.append(f"{_cells(len(result.only_old))} of the old profile are missing")
    return f"{' and '.join(reasons)}; measure again"


def _headline(result: Comparison) -> str:
    limit = _percent(result.fail_over_frac)
    count = len(result.regressions)
    match result.outcome:
        case "regression":
            return f"Regression: {_cells(count)} more than {limit} slower"
        case "undecided":
            return f"Undecided: {_why_undecided(result)}"
        case "pass":
            return f"No regression above {limit} in {_cells(len(result.judged))}"


def _subjects(result: Comparison) -> str:
    return (
        f"{_code(result.new_id)} against {_code(result.old_id)}. "
        f"Geometric mean of the ratios, new over old: {result.geometric_mean_ratio:.3f} "
        f"({_growth(result.geometric_mean_ratio)} %)."
    )


def _reading(result: Comparison) -> Iterator[str]:
    limit = _percent(result.fail_over_frac)
    yield "R × T: replicas at work together × threads of each. Change: new over old, minus one."
    yield (
        f"A regression is a mean that grew by more than {limit} and whose 95 % interval, in brackets, "
        "lies wholly above zero: the first alone may be noise, the second alone may be too small to matter."
    )
    if result.judged:
        slower = sum(cell.verdict == "slower" for cell in result.judged)
        yield (
            f"{_cells(len(result.judged))} judged, {slower} slower. If nothing had changed, {result.by_chance:.2g} "
            "would be expected to look slower by chance."
        )
    noisy = len(result.noisy_over_limit)
    if noisy:
        yield f"{_cells(noisy)} grew by more than {limit} within noise: more repeats on a quieter machine would tell."
    once = len(result.cells) - len(result.judged)
    if once:
        over = len(result.unjudged_over_limit)
        yield (
            f"{_cells(once)} measured only once in a profile: no interval, no verdict. "
            f"{over} of them more than {limit} slower."
        )


def _means_table(cells: Sequence[CellComparison]) -> str:
    rows = [
        (
            str(cell.batch_size),
            _place(cell.threads, cell.concurrency),
            _ms(cell.old_s),
            _ms(cell.new_s),
            _ratio(cell),
            "**REGRESSION**" if cell.regression else SHORT_VERDICTS.get(cell.verdict, cell.verdict),
        )
        for cell in cells
    ]
    return _table(("Batch", "R × T", "Old ms", "New ms", "Change", "Verdict"), rows)


def _information_table(cells: Sequence[CellComparison]) -> str:
    """Changes of the figures that at least one pair of cells has; empty when there are none."""
    known = [name for name in INFORMATION if any(change.name == name for cell in cells for change in cell.changes)]
    if not known:
        return ""
    rows = []
    for cell in cells:
        shown: dict[str, str] = {change.name: _change(change) for change in cell.changes}
        figures = (shown.get(name, EMPTY) for name in known)
        rows.append((str(cell.batch_size), _place(cell.threads, cell.concurrency), *figures))
    return _table(("Batch", "R × T", *(INFORMATION[name] for name in known)), rows)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown table with padded columns; all but the last to the right."""
    widths = [max(3, len(title), *(len(row[index]) for row in rows)) for index, title in enumerate(header)]

    def line(texts: Iterable[str]) -> str:
        return f"| {' | '.join(text.rjust(width) for text, width in zip(texts, widths, strict=True))} |"

    rule = f"| {' | '.join('-' * (width - 1) + ':' for width in widths)} |"
    return "\n".join([line(header), rule, *map(line, rows)])


def _ratio(cell: CellComparison) -> str:
    change = f"{_growth(cell.ratio)} %"
    if cell.ratio_low is None or cell.ratio_high is None:
        return change
    return f"{change} ({_growth(cell.ratio_low)} … {_growth(cell.ratio_high)})"


def _change(change: Change) -> str:
    if change.ratio is None:
        return EMPTY
    return f"{_growth(change.ratio)} %{' (estimate)' if change.is_estimate else ''}"


def _place(threads: int | None, concurrency: int | None) -> str:
    """Replicas × threads of each."""
    return f"{concurrency or '?'} × {threads or '?'}"


def _lone(keys: Iterable[Key], which: str) -> Iterator[str]:
    for batch_size, threads, concurrency in keys:
        yield f"{which}: batch {batch_size}, R × T {_place(threads, concurrency)}"


def _cell_doubts(cells: Iterable[CellComparison]) -> Iterator[str]:
    """One line per doubtful cell: the codes of its warnings, whose words are in the profiles."""
    for cell in cells:
        if cell.doubts:
            codes = dict.fromkeys(":".join(doubt.split(":")[:2]) for doubt in cell.doubts)
            yield f"batch {cell.batch_size}, R × T {_place(cell.threads, cell.concurrency)}: {', '.join(codes)}"


def _difference(difference: Difference) -> str:
    old, new = ("not stated" if value is None else _code(str(value)) for value in (difference.old, difference.new))
    return f"{_code(difference.field)}: {old} before, {new} now"


def _code(text: str) -> str:
    """Text that Markdown shows as it is."""
    return f"`{text.replace('`', chr(39))}`"


def _plain(text: str) -> str:
    """Free text with the characters escaped that Markdown would read as formats or tags."""
    return re.sub(r"([\\`*<\[|])", r"\\\1", text)


def _cells(count: int) -> str:
    return f"{count} cell" if count == 1 else f"{count} cells"


def _percent(frac: float) -> str:
    return f"{100 * frac:.4g} %"


def _ms(seconds: float) -> str:
    ms = s_to_ms(seconds)
    return f"{ms:,.0f}" if ms >= 1000 else f"{ms:.4g}"


def _growth(ratio: float) -> str:
    """Ratio minus one in percent, with its sign."""
    pct = 100 * (ratio - 1)
    return f"{pct:+,.0f}" if abs(pct) >= 100 else f"{pct:+.1f}"


def _paragraph(text: str) -> str:
    return _wrapped(text, first="", others="")


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(_wrapped(line, first="- ", others="  ") for line in lines)


def _wrapped(text: str, *, first: str, others: str) -> str:
    """Text in 80 columns; a number stays with its percent sign, and × with what it multiplies."""
    glued = re.sub(r" (?=[%×…])|(?<=[×…]) ", GLUE, " ".join(text.split()))
    lines = textwrap.fill(
        glued, WIDTH, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
    )
    return lines.replace(GLUE, " ")
