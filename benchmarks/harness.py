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
CALL_S = 0.005
"""Time of the call that is timed in both ways [s]; the sequence length that comes nearest depends on the machine."""
SEQUENCE_LENGTHS = (2, 4, 8, 16, 32, 64)
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


def nearest_call() -> tuple[Engine, object, int]:
    """MiniLM with the sequence length whose bare call comes nearest to 5 ms: the engine, its input, the length."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "minilm.onnx"
        build_example_model("minilm", path)
        for length in SEQUENCE_LENGTHS:
            engine = OnnxModel(path, options=InputOptions(sequence_length=length)).open(1, concurrency=1)
            item = engine.prepare(1, np.random.default_rng(0))
            bare_mean_s(engine, item)
            found.append((abs(bare_mean_s(engine, item) - CALL_S), length, engine, item))
    _, length, engine, item = min(found, key=lambda trial: trial[0])
    for *_, other, _ in found:
        if other is not engine:
            other.close()
    return engine, item, length


def mean_ratio() -> tuple[float, float, int]:
    """Mean of a window over the mean of a bare loop, median of pairs timed in turn; the bare mean [s]; the length."""
    engine, item, length = nearest_call()
    pairs = []
    for pair in range(PAIRS):
        order: list[Callable[[], float]] = [
            lambda: bare_mean_s(engine, item),
            lambda: float(run_window([engine], [item], RULES, threads=1, observe=nothing).service_s.mean()),
        ]
        first, second = order[pair % 2](), order[1 - pair % 2]()
        bare, harness = (first, second) if pair % 2 == 0 else (second, first)
        pairs.append((bare, harness))
    ratio = statistics.median(harness / bare for bare, harness in pairs)
    return ratio, statistics.median(bare for bare, _ in pairs), length


def rows() -> list[str]:
    """Lines of the table; a bar that is missed is said so."""
    added_us = overhead_us()
    ratio, bare_s, length = mean_ratio()
    return [
        f"| from call to call, a callable that returns at once, median | {added_us:.2f} µs | "
        f"≤ {OVERHEAD_BAR_US:.0f} µs{'' if added_us <= OVERHEAD_BAR_US else ' **missed**'} |",
        f"| mean of a call over that of a bare loop, {bare_s * 1e3:.1f} ms (MiniLM, {length} tokens), "
        f"median of {PAIRS} pairs | {ratio:.4f} | "
        f"within {MEAN_BAR_FRAC:.0%}{'' if abs(ratio - 1) <= MEAN_BAR_FRAC else ' **missed**'} |",
    ]
