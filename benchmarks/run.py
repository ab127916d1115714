"""Time what users wait for, and write the figures to docs/benchmarks.md.

Ratios are taken between two things timed in turn in the same run, so that they survive a noisy machine; absolute times
are CPU seconds of this process.
"""

import datetime
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from advisor.capacity.curve import ServiceCurve, service_curves
from advisor.capacity.method import response_time
from advisor.capacity.pool import Cache, Limits, Question, batch_caps, cap_capacity
from advisor.catalog import load_catalog
from advisor.domain.profile import Profile
from advisor.domain.workload import Scenario
from advisor.planning import plan
from advisor.simulation.service import constant_service, exponential_service
from advisor.store.capacities import CapacityStore
from advisor.store.paths import DATA, PROFILES, ROOT, SCENARIOS
from advisor.store.profiles import read_profiles
from advisor.store.scenarios import read_scenario
from benchmarks import harness
from benchmarks.rivals import ciw_exponential, ours, plain_batches, simpy_batches, simpy_exponential

RUNS = 5
REQUESTS = 200_000
SIMPY_BAR, CIW_BAR, SIMPY_BATCH_BAR = 80, 150, 15
QUESTIONS = 1000
FRESH_BAR_S, STORED_BAR_S = 60, 1
FACTORS = (4.0, 8.0, 16.0, 2.5, 32.0)
"""Limits of p99, in services of one request; as many as it takes to have all questions."""
T4, CAP, LIMIT_S, RATE_RPS = "bert-base-t4-tensorrt-fp16-s128-1d6bf3", 16, 0.1, 400.0
"""A question as plans ask it many times: P(T > limit) of one replica at a rate."""


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of one call [s]."""
    start = time.process_time()
    work()
    return time.process_time() - start


def median_pair(first: Callable[[], object], second: Callable[[], object]) -> tuple[float, float, float]:
    """Median CPU seconds of two pieces of work timed in turn, and the median of their ratios."""
    pairs = [(cpu_seconds(first), cpu_seconds(second)) for _ in range(RUNS)]
    return (
        statistics.median(a for a, _ in pairs),
        statistics.median(b for _, b in pairs),
        statistics.median(b / a for a, b in pairs),
    )


def row(what: str, times: tuple[float, float, float], bar: int | None = None) -> str:
    """Line of the table of ratios; a bar that is missed is said so."""
    fast, slow, ratio = times
    wanted = "" if bar is None else f"≥ {bar}×" if ratio >= bar else f"≥ {bar}× **missed**"
    return f"| {what} | {fast:.4f} s | {slow:.3f} s | {ratio:.0f}× | {wanted} |"


def simulator_rows() -> list[str]:
    """Compiled simulator against others on the same queues."""
    one, many = np.ones(1), (10 + np.arange(1.0, 9.0)) / 11
    rate = 0.7 * 2 * many.size / float(many[-1])
    exponential, batches = exponential_service(one), constant_service(many)

    def single() -> float:
        return ours(2.8, exponential, 4, REQUESTS)

    def two() -> float:
        return ours(rate, batches, 2, REQUESTS)

    def alone() -> float:
        return ours(rate / 2, batches, 1, REQUESTS)

    single(), two(), alone()
    count = f"{REQUESTS:,} requests"
    return [
        row(
            f"M/M/4 at 70 % load, {count}; SimPy",
            median_pair(single, lambda: simpy_exponential(2.8, 1.0, 4, REQUESTS)),
            SIMPY_BAR,
        ),
        row("the same; Ciw", median_pair(single, lambda: ciw_exponential(2.8, 1.0, 4, REQUESTS)), CIW_BAR),
        row(
            f"two servers, batches of 8, 70 % load, {count}; SimPy",
            median_pair(two, lambda: simpy_batches(rate, many, 2, REQUESTS)),
            SIMPY_BATCH_BAR,
        ),
        row(
            f"one server, batches of 8, {count}; plain Python",
            median_pair(alone, lambda: plain_batches(rate / 2, many, REQUESTS)),
        ),
    ]


def model_row(profiles: tuple[Profile, ...]) -> str:
    """One exact tail against a simulation of the same queue."""
    profile = next(profile for profile in profiles if profile.profile_id == T4)
    curve = service_curves(profile)[0]
    law = curve.service_law(CAP)
    times = median_pair(
        lambda: response_time(curve, CAP, RATE_RPS, cells=160).tail(LIMIT_S),
        lambda: ours(RATE_RPS, law, 1, 10 * REQUESTS),
    )
    return row(f"one P(T > limit) of a batch queue; our simulation of {10 * REQUESTS:,} requests", times)


def questions(profiles: tuple[Profile, ...]) -> Iterator[tuple[ServiceCurve, int, Limits]]:
    """Pairs of a configuration and a batch cap that fits a limit, limit by limit."""
    curves = [curve.at_slow_end() for profile in profiles for curve in service_curves(profile)]
    for factor, curve in itertools.product(FACTORS, curves):
        limits: Limits = ((0.99, factor * float(curve.batch_time_s[0])),)
        for cap in batch_caps(curve, limits):
            yield curve, cap, limits


def capacity_rows(profiles: tuple[Profile, ...]) -> list[str]:
    """CPU seconds for the capacity of many pairs, found anew and read from the store."""
    pairs = list(itertools.islice(questions(profiles), QUESTIONS))

    def ask(cache: Cache) -> None:
        for curve, cap, limits in pairs:
            cap_capacity(curve, cap, 1, Question(limits, cache=cache))

    with tempfile.TemporaryDirectory() as folder:
        store = CapacityStore(Path(folder) / "capacities.sqlite")
        fresh = cpu_seconds(lambda: ask(store))
        stored = statistics.median(cpu_seconds(lambda: ask(store)) for _ in range(RUNS))
        distinct = len(store)
        store.close()
    what = f"{len(pairs):,} configurations with a batch cap, random routing ({distinct:,} distinct)"
    return [seconds_row(what, fresh, FRESH_BAR_S), seconds_row("the same, from the store", stored, STORED_BAR_S)]


def seconds_row(what: str, seconds: float, bar_s: int) -> str:
    """Line of the table of times; a bar that is missed is said so."""
    return f"| {what} | {seconds:.2f} s | ≤ {bar_s} s{'' if seconds <= bar_s else ' **missed**'} |"


def plan_rows(profiles: tuple[Profile, ...]) -> list[str]:
    """CPU seconds of whole plans, simulation included."""
    catalog = load_catalog(DATA)
    today = datetime.datetime.now(datetime.UTC).date()
    rows = []
    for name, overrides in (("resnet-online", ()), ("bert-online", ()), ("resnet-online", ("regions=[]",))):
        scenario = read_scenario(SCENARIOS / f"{name}.yaml", overrides).scenario
        if not isinstance(scenario, Scenario):
            raise TypeError(f"{name} is not a scenario of online traffic")

        def work(question: Scenario = scenario) -> object:
            return plan(question, profiles, catalog, today=today)

        work()
        seconds = statistics.median(cpu_seconds(work) for _ in range(RUNS))
        where = ", ".join(scenario.regions) or "the whole catalog"
        rows.append(f"| {name}, {where} | {seconds:.2f} s | |")
    return rows


def main() -> None:
    """Run everything and write the page."""
    profiles = read_profiles(PROFILES)
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`. CPU seconds of one process, on whatever machine it ran; ratios are medians of "
        f"{RUNS} pairs timed in turn, and vary less between machines than seconds do. Our simulator also finds the "
        "percentiles with their intervals; the others only collect response times and sort them.",
        "",
        "| what; other | ours | other | other/ours | bar |",
        "| --- | ---: | ---: | ---: | ---: |",
        *simulator_rows(),
        model_row(profiles),
        "",
        "| what | CPU time | bar |",
        "| --- | ---: | ---: |",
        *capacity_rows(profiles),
        *plan_rows(profiles),
        "",
        "| the profiler's loop | wall time | bar |",
        "| --- | ---: | ---: |",
        *harness.rows(),
        "",
    ]
    text = "\n".join(lines)
    Path(ROOT / "docs" / "benchmarks.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
