"""Small models, built once, and a fake engine behind our own protocol."""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from advisor.domain.profile import ModelInfo, RuntimeInfo
from advisor.errors import MeasurementError
from advisor.profiling.engines.onnx import OnnxModel
from advisor.profiling.example_models import MlpDimensions, build_mlp

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
        return ModelInfo(name="sleeper"), RuntimeInfo(name="sleep", options={"threads": self.threads})

    def prepare(self, batch_size: int, rng: np.random.Generator) -> int:
        """Take the batch size itself as the input."""
        return batch_size

    def join(self, items: Sequence[int]) -> int:
        """Add the batch sizes."""
        return sum(items)

    def call(self, item: int) -> None:
        """Sleep in proportion to the batch size, or fail."""
        self.factory.calls += 1
        if self.factory.fail_after is not None and self.factory.calls > self.factory.fail_after:
            raise MeasurementError("sleeper: it broke.")
        time.sleep(item * self.factory.item_s)

    def close(self) -> None:
        """Remember the end."""
        self.closed = True


class SleepingModel:
    """A model made of sleeping replicas."""

    source = "sleeper.onnx"
    notes = ()

    def __init__(
        self, item_s: float = 0.001, *, fixed_batch_size: int | None = None, fail_after: int | None = None
    ) -> None:
        self.item_s, self.fixed_batch_size, self.fail_after = item_s, fixed_batch_size, fail_after
        self.calls = 0
        self.opened: list[SleepingEngine] = []

    def open(self, threads: int, *, concurrency: int) -> SleepingEngine:
        """Open one more replica."""
        self.opened.append(SleepingEngine(self, threads))
        return self.opened[-1]


@pytest.fixture
def sleeping_model() -> type[SleepingModel]:
    """Give the class, so that each test chooses its speed."""
    return SleepingModel
