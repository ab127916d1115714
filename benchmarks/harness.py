"""What the profiler's loop adds to the calls that it times."""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from advisor.profiling.engines import Engine
from advisor.profiling.engines.onnx import OnnxModel
from advisor.profiling.example_models import build_example_model
from advisor.profiling.inputs import InputOptions
from advisor.profiling.window import WindowRules, nothing, run_window

OVERHEAD_BAR_US, MEAN_BAR_FRAC = 5.0, 0.01
PAIRS, CALLS = 21, 100
SEQUENCE_LENGTH = 32
"""MiniLM takes some 5 ms a call at this length."""
RULES = WindowRules(warmup_calls=3, warmup_s=0.0, min_calls=CALLS, min_s=0.0, settle=False)


class ReturningAtOnce:
    """A replica whose calls do nothing."""

    def call(self, item: object) -> None:
        """Return."""


def overhead_us() -> float:
    """Time from one call to the next of a replica that returns at once, median [µs]."""
    rules = WindowRules(warmup_calls=3, warmup_s=0.0, min_calls=100_000, min_s=0.0, settle=False)
    engine: Any = ReturningAtOnce()
    window = run_window([engine], [0], rules, threads=1, observe=nothing)
    return float(np.median(np.diff(window.starts_ns))) / 1e3


def bare_mean_s(engine: Engine, item: object) -> float:
    """Mean of the same number of calls in a loop that only reads the clock [s]."""
    times = []
    for _ in range(CALLS):
        started = time.perf_counter()
        engine.call(item)
        times.append(time.perf_counter() - started)
    return statistics.fmean(times)


def mean_ratio() -> tuple[float, float]:
    """Mean of a window over the mean of a bare loop, median of pairs timed in turn, and the mean time [s]."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "minilm.onnx"
        build_example_model("minilm", path)
        engine = OnnxModel(path, options=InputOptions(sequence_length=SEQUENCE_LENGTH)).open(1, concurrency=1)
    item = engine.prepare(1, np.random.default_rng(0))
    bare_mean_s(engine, item)
    pairs = []
    for pair in range(PAIRS):
        order: list[Callable[[], float]] = [
            lambda: bare_mean_s(engine, item),
            lambda: float(run_window([engine], [item], RULES, threads=1, observe=nothing).service_s.mean()),
        ]
        first, second = order[pair % 2](), order[1 - pair % 2]()
        bare, harness = (first, second) if pair % 2 == 0 else (second, first)
        pairs.append((bare, harness))
    return statistics.median(harness / bare for bare, harness in pairs), statistics.median(bare for bare, _ in pairs)


def rows() -> list[str]:
    """Lines of the table; a bar that is missed is said so."""
    added_us = overhead_us()
    ratio, mean_s = mean_ratio()
    return [
        f"| from call to call, a callable that returns at once, median | {added_us:.2f} µs | "
        f"≤ {OVERHEAD_BAR_US:.0f} µs{'' if added_us <= OVERHEAD_BAR_US else ' **missed**'} |",
        f"| mean of a {mean_s * 1e3:.1f} ms call over that of a bare loop, median of {PAIRS} pairs | {ratio:.4f} | "
        f"within {MEAN_BAR_FRAC:.0%}{'' if abs(ratio - 1) <= MEAN_BAR_FRAC else ' **missed**'} |",
    ]
