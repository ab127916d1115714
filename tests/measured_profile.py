"""A made-up measured profile that holds everything a profile can hold: repeats, energy, idle starts, load runs."""

import datetime

from advisor.domain.measurement import (
    Anchor,
    Checked,
    Energy,
    Histogram,
    IdlePower,
    IdleStart,
    LoadRun,
    Predicted,
    Repeat,
    Surroundings,
)
from advisor.domain.profile import Cell, Fact, Profile
from tests.conftest import TODAY, cpu_profile

TIMES_S = {1: 0.0060, 2: 0.0098, 4: 0.0170, 8: 0.0320, 16: 0.0635}
HISTOGRAM = Histogram(first_bin=-200, counts=(5, 90, 5))
MIDNIGHT = datetime.datetime.combine(TODAY, datetime.time(), tzinfo=datetime.UTC)


def repeat(mean_s: float, batch_size: int, *, rejected: tuple[str, ...] = (), started_s: float = 0.0) -> Repeat:
    """One window of two replicas."""
    return Repeat(
        started_s=started_s,
        duration_s=1.0,
        count=round(2 / mean_s),
        service_mean_s=mean_s,
        service_m2_s2=1.01 * mean_s**2,
        service_p50_s=0.99 * mean_s,
        service_min_s=0.95 * mean_s,
        service_max_s=1.4 * mean_s,
        cpu_mean_s=0.98 * mean_s,
        throughput_rps=2 * batch_size / mean_s,
        stall_frac=0.0,
        warmup_calls=5,
        warmup_settled=True,
        first_call_s=1.3 * mean_s,
        surroundings=Surroundings(run_delay_frac=0.002, other_cpus=0.03),
        rejected=rejected,
    )


def measured_cell(batch_size: int, mean_s: float, *, threads: int, concurrency: int, is_estimate: bool) -> Cell:
    """Cell with three windows that count and one that does not."""
    disturbed = ("OTHER_LOAD: other processes kept 0.50 CPUs busy.", "STALLS: 1.2% of the calls took over 1.5 times.")
    return Cell(
        batch_size=batch_size,
        threads=threads,
        concurrency=concurrency,
        count=round(6 / mean_s),
        service_mean_s=mean_s,
        service_m2_s2=1.01 * mean_s**2,
        service_p50_s=0.99 * mean_s,
        service_p95_s=1.15 * mean_s,
        service_p99_s=1.35 * mean_s,
        mean_ci95_frac=0.012,
        throughput_rps=concurrency * batch_size / mean_s,
        memory_gib=0.31,
        power_w=24.0,
        power_method="tdp_estimate" if is_estimate else "rapl",
        energy=Energy(
            scope="all CPU packages",
            is_estimate=is_estimate,
            gross_j=24.0 * mean_s / (concurrency * batch_size),
            gross_half_j=0.5 * mean_s / (concurrency * batch_size),
            net_j=12.0 * mean_s / (concurrency * batch_size),
            net_half_j=0.6 * mean_s / (concurrency * batch_size),
            window_s=5.0,
        ),
        repeats=(
            *(repeat(mean_s * factor, batch_size) for factor in (0.995, 1.0, 1.005)),
            repeat(1.4 * mean_s, batch_size, rejected=disturbed),
        ),
    )


def checked(observed_s: float, predicted_s: float, *, band_frac: float = 0.1) -> Checked:
    """Observed figure beside a prediction with a symmetric interval."""
    low_s, high_s = predicted_s * (1 - band_frac), predicted_s * (1 + band_frac)
    return Checked(observed_s=observed_s, predicted=Predicted(value_s=predicted_s, low_s=low_s, high_s=high_s))


def load_run(load: float, *, p99_error_frac: float = 0.03, doubts: tuple[str, ...] = ()) -> LoadRun:
    """Run at a load, whose p99 was observed so much above the prediction."""
    mean_s = 0.006 / (1 - load) ** 0.6
    return LoadRun(
        created=MIDNIGHT,
        tool_version="0.1.0",
        threads=1,
        concurrency=2,
        max_batch_size=8,
        batch_delay_s=0.0,
        rate_rps=500 * load,
        load=load,
        seed=0,
        count=5_000,
        duration_s=30.0,
        mean_batch=1 + load,
        mean=checked(1.01 * mean_s, mean_s),
        p95=checked(2.05 * mean_s, 2.0 * mean_s),
        p99=checked((1 + p99_error_frac) * 3.0 * mean_s, 3.0 * mean_s),
        planned_p99_s=0.0191,
        drift_frac=0.004,
        drift_after_frac=-0.002,
        lateness_p99_s=0.0004,
        doubts=doubts,
        response=HISTOGRAM,
    )


LOAD_RUNS = (
    load_run(0.3),
    load_run(0.5),
    load_run(0.7, p99_error_frac=0.2),
    load_run(0.8, p99_error_frac=0.9, doubts=("GENERATOR_LATE: the load generator was late.",)),
)


def full_profile(*, is_estimate: bool = False, profile_id: str = "everything-zen3") -> Profile:
    """Measured profile with every part filled: replicas saturate, one replica of two threads does not."""
    base = cpu_profile({1: 0.01}, model="everything", profile_id=profile_id)
    cells = (
        *(
            measured_cell(batch, mean_s, threads=1, concurrency=2, is_estimate=is_estimate)
            for batch, mean_s in TIMES_S.items()
        ),
        measured_cell(1, 0.0032, threads=2, concurrency=1, is_estimate=is_estimate),
        measured_cell(2, 0.0048, threads=2, concurrency=1, is_estimate=is_estimate),
    )
    content = {
        **dict(base),
        "created": MIDNIGHT,
        "tool_version": "0.1.0",
        "command": "advisor profile net.onnx -o net.json",
        "cells": cells,
        "load_runs": LOAD_RUNS,
        "idle_power": IdlePower(method="tdp_estimate" if is_estimate else "rapl", before_w=12.0, after_w=12.4),
        "anchors": tuple(
            Anchor(at_s=at_s, batch_size=1, threads=1, concurrency=2, count=300, service_mean_s=mean_s)
            for at_s, mean_s in ((2.0, 0.0060), (118.0, 0.00612))
        ),
        "idle_starts": (
            IdleStart(
                threads=1,
                batch_size=1,
                count=400,
                gap=HISTOGRAM,
                gap_mean_s=0.00004,
                service=HISTOGRAM,
                service_mean_s=0.0063,
            ),
        ),
        "environment": {
            "python": Fact(value="3.11.7"),
            "governor": Fact(value=None, why="no cpufreq interface is visible"),
            "load_average_1min": Fact(value=0.12),
        },
    }
    return Profile.model_validate(content)
