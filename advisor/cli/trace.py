"""``advisor trace``: how bursty recorded arrivals are, and whether queueing models may stand for them."""

import math
from pathlib import Path
from typing import Annotated

import typer

from advisor.cli.printing import print_table, stdout_console
from advisor.domain.trace import Trace
from advisor.errors import InputError
from advisor.queueing.dispersion import TraceStatistics, renewal_verdict, trace_statistics
from advisor.reports.sentences import rate
from advisor.reports.tables import trace_table
from advisor.store.traces import read_trace
from advisor.units import ms_to_s

SHORTEST_MS, LONGEST_MS = 1e-3, 1e9

TracePath = Annotated[Path, typer.Argument(help="time stamps of requests (CSV with a header)", metavar="FILE.csv")]
Service = Annotated[
    float | None,
    typer.Option(
        "--service-ms", min=0.0, help="mean service time in ms; also judges whether a queueing model may be used"
    ),
]


def trace(file: TracePath, *, service_ms: Service = None) -> None:
    """Tell how bursty the arrivals of a trace are; exit code 3 when models do not hold and it must be replayed."""
    if service_ms is not None and not SHORTEST_MS <= service_ms <= LONGEST_MS:
        raise InputError("--service-ms", service_ms, f"a number from {SHORTEST_MS:g} to {LONGEST_MS:g}")
    found = read_trace(file)
    service_s = None if service_ms is None else ms_to_s(service_ms)
    statistics = trace_statistics(found.times_s, service_time_s=service_s)
    console = stdout_console()
    console.print(_headline(found), style="bold")
    for sentence in _words(statistics):
        console.print(sentence)
    if statistics.windows:
        print_table(trace_table(statistics))
    verdict = None if service_s is None else renewal_verdict(found.times_s, service_s)
    if verdict is not None:
        console.print(_sentence(verdict.reason))
    if found.warnings:
        console.print("Warnings", style="bold")
        for warning in found.warnings:
            console.print(f"  • {_sentence(warning)}")
    if verdict is not None and not verdict.honest:
        raise typer.Exit(3)


def _headline(found: Trace) -> str:
    return f"{found.name}: {found.requests:,} requests in {found.duration_s:,.5g} s, {rate(found.rate_rps)} on average."


def _words(statistics: TraceStatistics) -> list[str]:
    """Statistics that are no column of the table."""
    words = []
    if not math.isnan(statistics.interarrival_scv):
        words.append(f"Times between requests: SCV {statistics.interarrival_scv:.3g} (1 for Poisson arrivals).")
    if not math.isnan(statistics.lag1_autocorrelation):
        words.append(
            f"Correlation of each with the next: {statistics.lag1_autocorrelation:z.2f} (0 for Poisson arrivals)."
        )
    if statistics.quantum_s is not None:
        step = f"{statistics.quantum_s:.3g} s"
        words.append(f"Time stamps step by {step}: the SCV, and windows of a few steps or less, show the steps too.")
    if not statistics.windows:
        words.append("The trace is too short for statistics of windows.")
    return words


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
