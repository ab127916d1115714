"""Engines: what runs a model. The harness owns clocks, warm-up and concurrency; an engine only does work."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from advisor.domain.profile import ModelInfo, RuntimeInfo

Item: TypeAlias = Any
"""What one call takes. Only the engine that prepared it knows its type."""


class Engine(Protocol):
    """One replica of a model, ready to answer calls from one thread at a time."""

    def describe(self) -> tuple[ModelInfo, RuntimeInfo]:
        """Say which model this is and which software runs it, with the options that change speed."""
        ...

    def prepare(self, batch_size: int, rng: np.random.Generator) -> Item:
        """Make the input of one call; the harness does this outside the timer."""
        ...

    def join(self, items: Sequence[Item]) -> Item:
        """Put items together into the input of one call, in their order, as a server that batches does."""
        ...

    def call(self, item: Item) -> None:
        """Answer one call and return when the answer is there.

        Raises
        ------
        MeasurementError
            When the model fails on this input.
        """
        ...

    def close(self) -> None:
        """Give back what the replica holds."""
        ...


class EngineFactory(Protocol):
    """One model that can be opened as many times as the measurement needs replicas."""

    @property
    def source(self) -> str:
        """Name of the model for the evidence: a file name without its folder, or an address."""
        ...

    @property
    def fixed_batch_size(self) -> int | None:
        """The only batch size that the model takes; None when any will do."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the model that belong to the warnings of its profile."""
        ...

    def open(self, threads: int, *, concurrency: int) -> Engine:
        """Open one replica.

        Parameters
        ----------
        threads
            Threads of the replica inside an operator.
        concurrency
            Replicas that will run at the same time, this one included.

        Raises
        ------
        MeasurementError
            When the model cannot be loaded.
        """
        ...
