"""Time what users wait for, and write the figures to docs/benchmarks.md.

Ratios are taken between two things timed in turn in the same run, so that they survive a noisy machine; absolute times
are CPU seconds of this process.
"""

import datetime
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from advisor.capacity.curve import service_curves
from advisor.capacity.pool import response_time
from advisor.catalog import load_catalog
from advisor.domain.workload import Scenario
from advisor.planning import plan
from advisor.simulation.engine import constant_service, simulate_pool
from advisor.store.paths import DATA, PROFILES, ROOT, SCENARIOS
from advisor.store.profiles import read_profiles
from advisor.store.scenarios import read_scenario

RUNS = 5


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


def plain_simulation(arrivals: np.ndarray, service_s: list[float], largest: int) -> float:
    """Serve one batch server in plain Python: the same system as the compiled loop."""
    free, head, total, times = 0.0, 0, 0.0, arrivals.tolist()
    while head < len(times):
        start = max(free, times[head])
        size = 1
        while size < largest and head + size < len(times) and times[head + size] <= start:
            size += 1
        free = start + service_s[size - 1]
        total += sum(free - arrival for arrival in times[head : head + size])
        head += size
    return total


def simulator_rows() -> list[str]:
    """Compiled simulator against plain Python, and one exact tail against a simulation of the same queue."""
    times = 0.01 + 0.002 * np.arange(1.0, 9.0)
    rate, requests = 0.8 * 8 / times[-1], 200_000
    law = constant_service(times)

    def compiled() -> object:
        return simulate_pool(rate, law, servers=1, requests=requests, rng=np.random.default_rng(1))

    def plain() -> object:
        arrivals = np.cumsum(np.random.default_rng(1).exponential(1 / rate, requests))
        return plain_simulation(arrivals, times.tolist(), 8)

    compiled()
    fast, slow, ratio = median_pair(compiled, plain)
    profile = next(p for p in read_profiles(PROFILES) if p.profile_id == "bert-base-t4-tensorrt-fp16-s128-1d6bf3")
    curve = service_curves(profile)[0]
    exact, simulated, gain = median_pair(
        lambda: response_time(curve, 16, 400.0, cells=160).tail(0.1),
        lambda: simulate_pool(
            400.0, curve.service_law(16), servers=1, requests=2_000_000, rng=np.random.default_rng(1)
        ),
    )
    return [
        f"| {requests:,} requests of one batch server, plain Python | {fast:.3f} s | {slow:.3f} s | {ratio:.0f}× |",
        f"| one P(T > limit), simulation of 2,000,000 requests | {exact:.4f} s | {simulated:.3f} s | {gain:.0f}× |",
    ]


def plan_rows() -> list[str]:
    """CPU seconds of whole plans, simulation included."""
    profiles, catalog = read_profiles(PROFILES), load_catalog(DATA)
    rows = []
    for name, overrides in (("resnet-online", ()), ("bert-online", ()), ("resnet-online", ("regions=[]",))):
        scenario = read_scenario(SCENARIOS / f"{name}.yaml", overrides)
        if not isinstance(scenario, Scenario):
            raise TypeError(f"{name} is not a scenario of online traffic")
        today = datetime.datetime.now(datetime.UTC).date()

        def work(question: Scenario = scenario, day: datetime.date = today) -> object:
            return plan(question, profiles, catalog, today=day)

        work()
        seconds = statistics.median(cpu_seconds(work) for _ in range(RUNS))
        where = ", ".join(scenario.regions) or "the whole catalog"
        rows.append(f"| {name}, {where} | {seconds:.2f} s |")
    return rows


def main() -> None:
    """Run everything and write the page."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`. Medians of five runs, CPU seconds of one process; ratios of pairs timed in turn.",
        "",
        "| what | ours | other | other/ours |",
        "| --- | ---: | ---: | ---: |",
        *simulator_rows(),
        "",
        "| whole plan, simulation included | CPU time |",
        "| --- | ---: |",
        *plan_rows(),
        "",
    ]
    Path(ROOT / "docs" / "benchmarks.md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
