"""Measure how far the queueing models are off, against the simulator, and write the tables into the documentation.

Each cell is a queue that both can answer. Without batching, cells are every combination of load, servers and service
distribution, with the three arrival processes taken in turn, so that any two of the factors meet about equally often:
a third of the full grid. With batching, every combination of batch cap, shape of the curve and load, for constant and
for variable service.
"""

import argparse
import datetime
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from advisor import __version__
from advisor.queueing.approximations import P99_ERROR_FRAC, VARIABLE_P99_ERROR_FRAC, gigc
from advisor.queueing.batch import batch_queue
from advisor.queueing.exact import lognormal_points, mmc
from advisor.queueing.gaps import renewal_law
from advisor.queueing.noise import lognormal_noise, no_noise
from advisor.queueing.qbd import gimc
from advisor.queueing.response import ResponseTime
from advisor.simulation.arrivals import Arrivals, PoissonProcess, RenewalProcess
from advisor.simulation.engine import Pool
from advisor.simulation.metrics import Stream, simulate
from advisor.simulation.service import ServiceLaw, constant_service, exponential_service, lognormal_service
from advisor.store.paths import ROOT

LOADS = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
SERVERS = (1, 2, 4, 16, 64)
SERVICES: tuple[tuple[Literal["lognormal", "exponential"], float], ...] = (
    ("lognormal", 0.0),
    ("lognormal", 0.1),
    ("lognormal", 0.5),
    ("lognormal", 1.0),
    ("lognormal", 4.0),
    ("exponential", 1.0),
)
ARRIVAL_SCVS = (1.0, 2.0, 4.0)
BATCH_CAPS = (4, 8, 32)
CURVES: dict[str, tuple[float, float]] = {"gpu": (10 / 11, 1 / 11), "cpu": (0.05, 0.95)}
"""Time of a batch of b as fixed + each · b, in units of the time of one request."""
FIGURES: dict[str, float | None] = {"mean": None, "p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}

SEED = 20_261_130
TARGET_FRAC = 0.01
"""Half width of the simulated interval of p99 at which a cell is done."""
FIRST_REQUESTS = 2_000_000
MOST_REQUESTS, MOST_BATCHED = 32_000_000, 64_000_000
"""Caps on simulated requests; a batch server needs more of them for the same interval, and less time for each."""
PERCENTILE_RTOL = 1e-5
MEDIAN_BAR_FRAC, BATCH_BAR_FRAC = 0.01, 0.02
PAGE, GUIDE = ROOT / "docs" / "accuracy.md", ROOT / "docs" / "queueing.md"
MARKERS = ("<!-- written by make accuracy: begin -->", "<!-- written by make accuracy: end -->")


@dataclass(frozen=True)
class Cell:
    """One queue that a model and the simulator answer; one request alone takes 1 on average.

    Attributes
    ----------
    load
        ρ, of the saturated throughput.
    servers
        c behind one queue.
    service, scv
        Family and squared coefficient of variation of the service time; 0 is constant.
    arrival_scv
        Of the times between arrivals: 1 Poisson, above hyperexponential with balanced means.
    curve, max_batch
        Name of the curve of batch times, and batch cap; one request at a time where the name is empty.
    """

    load: float
    servers: int
    service: Literal["lognormal", "exponential"]
    scv: float
    arrival_scv: float = 1.0
    curve: str = ""
    max_batch: int = 1

    @property
    def times(self) -> np.ndarray:
        """Mean time of a batch of 1 … B."""
        fixed, each = CURVES.get(self.curve, (0.0, 1.0))
        return fixed + each * np.arange(1.0, self.max_batch + 1)

    @property
    def rate(self) -> float:
        """λ of all servers together."""
        return self.load * self.servers * self.max_batch / float(self.times[-1])

    @property
    def name(self) -> str:
        """What it is, in a few words."""
        if self.curve:
            return f"{self.curve} curve, batches of {self.max_batch}, ρ {self.load:g}, service SCV {self.scv:g}"
        spread = "exponential service" if self.service == "exponential" else f"service SCV {self.scv:g}"
        servers = "1 server" if self.servers == 1 else f"{self.servers} servers"
        return f"{servers}, ρ {self.load:g}, {spread}, arrival SCV {self.arrival_scv:g}"

    def respond(self) -> ResponseTime:
        """Answer of the model that the advisor takes."""
        if self.curve:
            noise = lognormal_noise(self.scv) if self.scv else no_noise()
            return batch_queue(self.rate, self.times, (noise,) * self.max_batch)
        law = None if self.arrival_scv == 1 else renewal_law(self.arrival_scv)
        if self.service == "exponential":
            return mmc(self.rate, 1.0, self.servers) if law is None else gimc(self.rate, law, 1.0, self.servers)
        points = lognormal_points(1.0, self.scv) if self.scv else (np.ones(1), np.ones(1))
        return gigc(self.rate, law, *points, servers=self.servers)

    def stream(self) -> Stream:
        """The same for the simulator."""
        law: ServiceLaw
        if self.service == "exponential":
            law = exponential_service(self.times)
        else:
            law = lognormal_service(self.times, self.scv) if self.scv else constant_service(self.times)
        gaps = renewal_law(self.arrival_scv)
        arrivals: Arrivals = PoissonProcess(self.rate)
        if self.arrival_scv != 1:
            arrivals = RenewalProcess(self.rate, gaps.weights, gaps.stages, gaps.rates)
        return Stream(arrivals, (Pool(self.servers, law),))


@dataclass(frozen=True)
class Row:
    """What came out for one cell.

    Attributes
    ----------
    cell, model
        The queue, and the model that answered.
    error_frac
        Model over simulation less 1, by figure.
    interval_frac
        Half width of the simulation's 95 % interval relative to its value, by figure.
    requests
        Simulated requests.
    """

    cell: Cell
    model: str
    error_frac: dict[str, float]
    interval_frac: dict[str, float]
    requests: int

    def outside(self, figure: str) -> bool:
        """Whether the model lies outside the simulation's own interval."""
        return abs(self.error_frac[figure]) > self.interval_frac[figure]


def queue_cells() -> list[Cell]:
    """Queues without batching: load × servers × service, arrivals in turn."""
    return [
        Cell(load, servers, *service, arrival_scv=ARRIVAL_SCVS[(i + j + k) % len(ARRIVAL_SCVS)])
        for i, load in enumerate(LOADS)
        for j, servers in enumerate(SERVERS)
        for k, service in enumerate(SERVICES)
    ]


def batch_cells() -> list[Cell]:
    """One batch server with Poisson arrivals: cap × curve × load × service."""
    return [
        Cell(load, 1, "lognormal", scv, curve=curve, max_batch=cap)
        for scv in (0.0, 0.5)
        for curve in CURVES
        for cap in BATCH_CAPS
        for load in LOADS
    ]


def measure(cell: Cell, *, seed: int, most_requests: int | None = None, executor: Executor | None = None) -> Row:
    """Answer one cell with both, the simulation until its p99 is known well enough or the cap is reached."""
    model = cell.respond()
    cap = most_requests or (MOST_BATCHED if cell.curve else MOST_REQUESTS)
    simulated = simulate(
        (cell.stream(),),
        seed=seed,
        requests=min(cap, FIRST_REQUESTS if cell.load < 0.9 else 2 * FIRST_REQUESTS),
        most_requests=cap,
        enough=lambda result: result.percentile(0.99).ci95_frac <= TARGET_FRAC,
        executor=executor,
    )
    errors, intervals = {}, {}
    for figure, q in FIGURES.items():
        estimate = simulated.mean if q is None else simulated.percentile(q)
        found = model.mean_s if q is None else model.percentile(q, rtol=PERCENTILE_RTOL)
        errors[figure] = found / estimate.value_s - 1
        intervals[figure] = estimate.ci95_frac
    return Row(cell, model.model, errors, intervals, simulated.requests)


def _plain(cell: Cell) -> bool:
    return not cell.curve


GROUPS: tuple[tuple[str, Callable[[Cell], bool]], ...] = (
    ("no batching, all", _plain),
    ("ρ ≤ 0.9, service SCV ≤ 1", lambda cell: _plain(cell) and cell.load <= 0.9 and cell.scv <= 1),
    ("ρ = 0.95", lambda cell: _plain(cell) and cell.load > 0.9),
    ("one server (exact)", lambda cell: _plain(cell) and cell.servers == 1),
    ("constant service (exact)", lambda cell: _plain(cell) and cell.scv == 0),
    ("exponential service (exact)", lambda cell: cell.service == "exponential"),
    ("2 to 64 servers, service SCV 0.1 to 1", lambda cell: _hybrid(cell) and cell.scv <= 1),
    ("2 to 64 servers, service SCV 4 ¹", lambda cell: _hybrid(cell) and cell.scv > 1),
    ("batches, constant service (exact)", lambda cell: bool(cell.curve) and cell.scv == 0),
    ("batches, service SCV 0.5, ρ ≤ 0.9 (exact)", lambda cell: bool(cell.curve) and cell.scv > 0 and cell.load <= 0.9),
    ("batches, service SCV 0.5, ρ = 0.95 (exact)", lambda cell: bool(cell.curve) and cell.scv > 0 and cell.load > 0.9),
)


def _hybrid(cell: Cell) -> bool:
    return _plain(cell) and cell.servers > 1 and cell.scv > 0 and cell.service == "lognormal"


def percent(values: Iterable[float]) -> str:
    """Median and largest of sizes, in percent."""
    sizes = [100 * abs(value) for value in values]
    return f"{statistics.median(sizes):.2f} / {max(sizes):.1f}"


def table(rows: list[Row]) -> list[str]:
    """Median and largest error by group, beside what the simulation itself leaves open."""
    lines = [
        "| Queues | cells | mean | p50 | p95 | p99 | p99.9 | interval of p99 |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, belongs in GROUPS:
        group = [row for row in rows if belongs(row.cell)]
        if group:
            errors = " | ".join(percent(row.error_frac[figure] for row in group) for figure in FIGURES)
            open_frac = percent(row.interval_frac["p99"] for row in group)
            lines.append(f"| {name} | {len(group)} | {errors} | ±{open_frac} |")
    return lines


def bars(rows: list[Row]) -> list[tuple[str, float, float]]:
    """What is promised of p99, what was found, and the most that is allowed."""
    plain = [row for row in rows if _plain(row.cell)]
    tame = [row for row in plain if row.cell.scv <= 1 and row.cell.load <= 0.9]
    constant = [row for row in rows if row.cell.curve and row.cell.scv == 0]

    def largest(group: list[Row]) -> float:
        return max((abs(row.error_frac["p99"]) for row in group), default=0.0)

    median = statistics.median(abs(row.error_frac["p99"]) for row in plain)
    return [
        ("median, no batching", median, MEDIAN_BAR_FRAC),
        ("largest, ρ ≤ 0.9 and service SCV ≤ 1", largest(tame), P99_ERROR_FRAC),
        ("largest, ρ ≤ 0.95 and service SCV ≤ 4", largest(plain), VARIABLE_P99_ERROR_FRAC),
        ("largest, batches with constant service", largest(constant), BATCH_BAR_FRAC),
    ]


def outside_lines(rows: list[Row]) -> list[str]:
    """Cells that lie outside the simulation's own interval in any figure."""
    lines = ["| Queue | model | figures outside: error (interval) |", "|---|---|---|"]
    for row in rows:
        figures = [
            f"{figure} {row.error_frac[figure]:+.2%} (±{row.interval_frac[figure]:.2%})"
            for figure in FIGURES
            if row.outside(figure)
        ]
        if figures:
            lines.append(f"| {row.cell.name} | {row.model} | {', '.join(figures)} |")
    return lines


def provenance(rows: list[Row], cpu_s: float) -> str:
    """Sentence on when and how the figures were found."""
    total = sum(row.requests for row in rows)
    today = datetime.datetime.now(datetime.UTC).date()
    return (
        f"Version {__version__}, {today.isoformat()}, seed {SEED}: {len(rows)} queues, {total / 1e9:.1f} billion "
        f"simulated requests, {cpu_s / 60:.0f} minutes of CPU time."
    )


LEGEND = (
    "Median / largest error of the model against the simulation, in percent of the response time (wait and service); "
    "last column: median / largest half width of the simulation's own 95 % interval of p99. Where it is as large as "
    "the error, the error may be the simulation's. ¹ Here plans are simulated; the figures are of the approximation "
    "that they avoid."
)


def pages(rows: list[Row], cpu_s: float) -> tuple[str, str]:
    """Text of the page, and of the part of the guide between the markers."""
    source, summary = provenance(rows, cpu_s), table(rows)
    compared = len(rows) * len(FIGURES)
    beyond = sum(row.outside(figure) for row in rows for figure in FIGURES)
    exact = [row for row in rows if "approximation" not in row.model]
    exact_beyond = sum(row.outside(figure) for row in exact for figure in FIGURES)
    checks = [f"| {name} | {found:.2%} | {bar:.0%} |" for name, found, bar in bars(rows)]
    page = [
        "# Accuracy of the queueing models",
        "",
        f"Written by `make accuracy`. {source}",
        "",
        LEGEND,
        "",
        *summary,
        "",
        "| Promise on p99 | found | allowed |",
        "|---|---:|---:|",
        *checks,
        "",
        "## How the queues were chosen",
        "",
        f"Without batching: loads {_listed(LOADS)}; {_listed(SERVERS)} servers behind one queue; service constant, "
        "lognormal with SCV 0.1, 0.5, 1 and 4, and exponential. Every combination once, with arrival SCV "
        f"{_listed(ARRIVAL_SCVS)} in turn: a third of the full grid. With batching: one server, caps "
        f"{_listed(BATCH_CAPS)}, the same loads, a curve like that of a GPU (a batch of b takes (10 + b)/11) and one "
        "like that of a CPU (0.05 + 0.95 b), constant and lognormal service. Each is simulated until the interval of "
        f"p99 is ±{TARGET_FRAC:.0%}, or for {MOST_REQUESTS / 1e6:.0f} million requests, "
        f"{MOST_BATCHED / 1e6:.0f} million with batching.",
        "",
        "## Outside the simulation's interval",
        "",
        f"Of {compared:,} comparisons {beyond} lie outside, {exact_beyond} of them among the "
        f"{len(exact) * len(FIGURES):,} of exact models: one in twenty would by chance.",
        "",
        *outside_lines(rows),
        "",
    ]
    return "\n".join(page), "\n".join([f"{source} All queues: [accuracy.md](accuracy.md).", "", LEGEND, "", *summary])


def _listed(values: Iterable[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def put_between_markers(path: Path, text: str) -> None:
    """Replace what stands between the markers of a page."""
    page = path.read_text(encoding="utf-8")
    before, found, rest = page.partition(MARKERS[0])
    _old, ends, after = rest.partition(MARKERS[1])
    if not found or not ends:
        raise ValueError(f"{path.name} lacks the markers between which the table goes")
    path.write_text(f"{before}{MARKERS[0]}\n{text}\n{MARKERS[1]}{after}", encoding="utf-8")


def main() -> None:
    """Measure all cells, write the pages, and fail when a promise is not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="every eighth cell, two million requests, nothing written")
    quick = parser.parse_args().quick
    cells = (queue_cells() + batch_cells())[:: 8 if quick else 1]
    rows = []
    start = time.process_time()
    with ThreadPoolExecutor(2) as executor:
        for index, cell in enumerate(cells):
            cap = FIRST_REQUESTS if quick else None
            rows.append(measure(cell, seed=SEED + index, most_requests=cap, executor=executor))
            sys.stderr.write(f"\r{index + 1} of {len(cells)}: {cell.name:70}")
    sys.stderr.write("\n")
    page, part = pages(rows, time.process_time() - start)
    if quick:
        sys.stdout.write(page)
        return
    PAGE.write_text(page, encoding="utf-8")
    put_between_markers(GUIDE, part)
    missed = [f"{name}: {found:.2%}, allowed {bar:.0%}" for name, found, bar in bars(rows) if found > bar]
    if missed:
        raise SystemExit("p99 is off by more than promised: " + "; ".join(missed))


if __name__ == "__main__":
    main()
