"""Small models, built once, and a fake engine behind our own protocol."""

import datetime
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from advisor.domain.measurement import Repeat
from advisor.domain.profile import Fact, ModelInfo, RuntimeInfo
from advisor.errors import MeasurementError
from advisor.profiling import memory as host_memory
from advisor.profiling.engines import IN_PROCESS, OutOfMemory, Placement
from advisor.profiling.engines.onnx import OnnxModel
from advisor.profiling.environment import observe_device
from advisor.profiling.example_models import MlpDimensions, build_mlp
from advisor.profiling.grid import GridPlan
from advisor.profiling.instruments import Instruments
from advisor.profiling.journal import Journal, Sample, Start, pack
from advisor.profiling.power import NoMeter

TINY_MLP = MlpDimensions(widths=(16, 8, 4))


@pytest.fixture(scope="session")
def tiny_mlp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a classifier with 172 weights."""
    path = tmp_path_factory.mktemp("models") / "tiny.onnx"
    onnx.save(build_mlp(TINY_MLP), path)
    return path


@pytest.fixture(scope="session")
def tiny_model(tiny_mlp: Path) -> OnnxModel:
    """Read the same classifier, ready to be opened."""
    return OnnxModel(tiny_mlp)


class SleepingEngine:
    """A replica whose call takes a set time per item and no CPU."""

    def __init__(self, factory: "SleepingModel", threads: int) -> None:
        self.factory, self.threads, self.closed = factory, threads, False

    def describe(self) -> tuple[ModelInfo, RuntimeInfo]:
        """Name the model and its one option."""
        return self.factory.model, RuntimeInfo(name="sleep", options={"threads": self.threads} | self.factory.options)

    def prepare(self, batch_size: int, rng: np.random.Generator) -> int:
        """Take the batch size itself as the input."""
        return batch_size

    def join(self, items: Sequence[int]) -> int:
        """Add the batch sizes."""
        return sum(items)

    def call(self, item: int) -> list[int] | None:
        """Sleep in proportion to the batch size, in as many parts as there are tokens, or fail."""
        self.factory.calls += 1
        if self.factory.fail_after is not None and self.factory.calls > self.factory.fail_after:
            raise MeasurementError("sleeper: it broke.")
        if item > self.factory.room:
            raise OutOfMemory(f"sleeper: no room for batch {item}.")
        if not self.factory.tokens:
            time.sleep(item * self.factory.item_s)
            return None
        times_ns = []
        for _ in range(self.factory.tokens):
            time.sleep(item * self.factory.item_s / self.factory.tokens)
            times_ns.append(time.perf_counter_ns())
        return times_ns

    def close(self) -> None:
        """Remember the end."""
        self.closed = True


class SleepingModel:
    """A model made of sleeping replicas."""

    source = "sleeper.onnx"
    model = ModelInfo(name="sleeper")
    notes = ()
    memory = host_memory

    def __init__(
        self,
        item_s: float = 0.001,
        *,
        fixed_batch_size: int | None = None,
        fail_after: int | None = None,
        room: int = 1000,
        tokens: int = 0,
        placement: Placement = IN_PROCESS,
    ) -> None:
        self.item_s, self.fixed_batch_size, self.fail_after = item_s, fixed_batch_size, fail_after
        self.room, self.tokens, self.placement = room, tokens, placement
        self.options: dict[str, str] = {}
        self.calls = 0
        self.opened: list[SleepingEngine] = []

    def facts(self) -> dict[str, Fact]:
        """Know that nobody dreams."""
        return {"dreams": Fact(value=False)}

    def open(self, threads: int, *, concurrency: int) -> SleepingEngine:
        """Open one more replica."""
        self.opened.append(SleepingEngine(self, threads))
        return self.opened[-1]


@pytest.fixture
def sleeping_model() -> type[SleepingModel]:
    """Give the class, so that each test chooses its speed."""
    return SleepingModel


@pytest.fixture
def quiet() -> Instruments:
    """Instruments of a machine without a power meter and without GPUs."""
    return Instruments(meter=NoMeter("a test reads none"))


@pytest.fixture
def begin() -> Callable[..., Journal]:
    """Give the function that starts the journal of a plan, in memory unless there is a path."""

    def start(plan: GridPlan, path: Path | None = None) -> Journal:
        created = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
        return Journal.begin(Start(created=created, model=plan.model, device=observe_device(), plan=plan), path)

    return start


@pytest.fixture
def sample() -> Callable[..., Sample]:
    """Give the function that makes one window of a cell of one replica, with these calls."""

    def make(batch_size: int, mean_s: float = 0.010, **choices: Any) -> Sample:
        calls_s = np.asarray(choices.pop("calls_s", [mean_s, mean_s]))
        cell = {"turn": 0, "anchor": False, "threads": 1, "outliers": ()} | choices
        repeat = Repeat(
            started_s=cell.get("started_s", 1.0),
            duration_s=float(calls_s.sum()),
            count=calls_s.size,
            service_mean_s=float(calls_s.mean()),
            service_m2_s2=float(np.square(calls_s).mean()),
            service_p50_s=float(np.median(calls_s)),
            service_min_s=float(calls_s.min()),
            service_max_s=float(calls_s.max()),
            cpu_mean_s=float(calls_s.mean()),
            throughput_rps=batch_size / float(calls_s.mean()),
            stall_frac=0.0,
            warmup_calls=3,
            warmup_settled=cell.get("settled", True),
            first_call_s=mean_s,
            energy_j=cell.get("energy_j"),
            rejected=cell.get("rejected", ()),
        )
        return Sample(
            batch_size=batch_size,
            threads=cell["threads"],
            concurrency=1,
            round=cell["turn"],
            anchor=cell["anchor"],
            repeat=repeat,
            calls=float(calls_s.size),
            first_caller_calls=calls_s.size,
            outliers=cell["outliers"],
            service=pack(np.rint(calls_s * 1e9).astype(np.int64)),
        )

    return make
