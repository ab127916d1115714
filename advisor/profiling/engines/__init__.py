"""Engines: what runs a model. The harness owns clocks, warm-up and concurrency; an engine only does work."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from advisor.domain.profile import Fact, ModelInfo, RuntimeInfo
from advisor.errors import MeasurementError

Item: TypeAlias = Any
"""What one call takes. Only the engine that prepared it knows its type."""

TokenTimes: TypeAlias = Sequence[int]
"""Times at which the parts of a streamed answer came, on the clock of `time.perf_counter_ns` [ns]."""


class OutOfMemory(MeasurementError):  # noqa: N818  # PyTorch has an OutOfMemoryError, from which this one differs
    """A model has no room for a batch; a smaller one may do."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where calls are answered, which decides what this process can tell about them."""

    kind: Literal["cpu", "gpu", "endpoint"] = "cpu"
    """CPUs of this process, a GPU that it drives, or a server that it asks."""
    takes_threads: bool = True
    """Whether a replica can be told how many threads to use."""
    gpu_uuid: str | None = None
    """The GPU, as its driver numbers it."""
    local: bool = True
    """Whether the hardware that answers is that of this machine."""


IN_PROCESS = Placement()


class Memory(Protocol):
    """Memory that replicas live in, of the host or of a GPU; `advisor.profiling.memory` is that of the host."""

    def can_measure_growth(self) -> bool:
        """Whether growth between two readings is what replicas took."""
        ...

    def resident_gib(self) -> float:
        """Memory that this process holds [GiB]."""
        ...

    def available_gib(self) -> float:
        """Memory that it can still get [GiB]."""
        ...


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

    def call(self, item: Item) -> TokenTimes | None:
        """Answer one call and return when the whole answer is there.

        Returns
        -------
        When the parts of a streamed answer came; None where the answer comes as a whole.

        Raises
        ------
        OutOfMemory
            When there is no room for this input.
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
    def model(self) -> ModelInfo:
        """The model, with the inputs chosen for it."""
        ...

    @property
    def placement(self) -> Placement:
        """Where calls are answered."""
        ...

    @property
    def memory(self) -> Memory | None:
        """Memory that replicas take; None when it cannot be seen from here."""
        ...

    @property
    def fixed_batch_size(self) -> int | None:
        """The only batch size that the model takes; None when any will do."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the model that belong to the warnings of its profile."""
        ...

    def facts(self) -> Mapping[str, Fact]:
        """What the engine knows about its surroundings, for the environment of the profile."""
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
