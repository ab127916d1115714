"""Any Python callable: a model in a framework of its own, a database, a remote call."""

import inspect
import platform
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from pydantic import Field, PositiveInt, ValidationError

from advisor.domain.profile import Fact, FactValue, ModelInfo, RuntimeInfo, TensorSpec
from advisor.domain.record import Record, field_path, first_problem
from advisor.errors import AdvisorError, InputError, MeasurementError
from advisor.profiling import memory
from advisor.profiling.engines import Item, Memory, Placement
from advisor.profiling.engines.factories import Factory, failure, in_one_sentence
from advisor.profiling.engines.items import concatenate, specs
from advisor.profiling.engines.outputs import answer_note, not_finite_note

UserReplica: TypeAlias = Any
"""What the user's factory returns; see `CallableModel`."""

_SEED = 0
_METHODS = {"prepare": "prepare(batch_size, rng)", "__call__": "__call__(item)"}


class About(Record):
    """What a replica may say about itself in an attribute `about`."""

    precision: str | None = None
    sequence_length: PositiveInt | None = None
    parameters: PositiveInt | None = None
    size_bytes: PositiveInt | None = None
    fixed_batch_size: PositiveInt | None = None
    runtime: str = Field(default="python", min_length=1)
    version: str | None = None
    options: dict[str, FactValue] = Field(default_factory=dict)

    def runtime_info(self) -> RuntimeInfo:
        """The software that answers: Python itself where nothing else is named."""
        version = platform.python_version() if self.runtime == "python" else None
        return RuntimeInfo(name=self.runtime, version=self.version or version, options=self.options)


class CallableModel:
    """One factory of the user, called for every replica.

    The factory is called with ``threads=n`` where it takes such a parameter, else without arguments, and returns an
    object with

    - ``prepare(batch_size, rng)``: the input of one call, made outside the timer from a `numpy.random.Generator`,
    - ``__call__(item)``: one call, back when the whole answer is there,
    - optional ``join(items)``: inputs put together as a server that batches does; by default arrays are concatenated
      along their first axis, also in dicts and tuples, and lists are put one after the other,
    - optional ``close()``, and ``about``: a dict with fields of `About`.

    A replica is asked by one thread at a time, which need not be the one that made it. It may use a GPU or a server of
    its own, but only time, CPU and memory of this process are measured.

    The smallest one, in a file ``my_model.py`` for the target ``my_model:Doubler``::

        class Doubler:
            def prepare(self, batch_size, rng):
                return rng.standard_normal((batch_size, 3))

            def __call__(self, item):
                return 2 * item

    Parameters
    ----------
    factory
        The factory; see `find_factory`.
    name
        Name that a scenario asks for; that of the factory by default.

    Raises
    ------
    InputError
        When what the factory returns lacks a method, says something unknown about itself, or answers later than its
        call returns.
    OutOfMemory
        When there is no room for one replica or its first call.
    MeasurementError
        When the factory, or what it returns, fails.
    """

    def __init__(self, factory: Factory, *, name: str | None = None) -> None:
        self._factory = factory
        replica = _replica(factory, 1)
        try:
            about = _about(replica, factory.target)
            inputs, doubts = _probe(replica, factory.target, about.fixed_batch_size)
        finally:
            _close(replica, factory.target)
        self._fixed_batch_size = about.fixed_batch_size
        self._notes = (*doubts, *_unknowns(factory))
        self._model = ModelInfo(
            name=name or factory.target.rpartition(":")[2],
            file=factory.source.name,
            target=factory.target,
            sha256=factory.sha256(),
            precision=about.precision,
            sequence_length=about.sequence_length,
            parameters=about.parameters,
            size_bytes=about.size_bytes,
            inputs=inputs,
        )

    @property
    def source(self) -> str:
        """Module and name."""
        return self._factory.target

    @property
    def model(self) -> ModelInfo:
        """The model, as the first replica described it."""
        return self._model

    @property
    def placement(self) -> Placement:
        """CPUs of this process, as far as can be known."""
        return Placement(takes_threads=self._factory.takes_threads)

    @property
    def memory(self) -> Memory:
        """Memory of this process."""
        return memory

    @property
    def fixed_batch_size(self) -> int | None:
        """The only batch size that the first replica says it takes."""
        return self._fixed_batch_size

    @property
    def notes(self) -> tuple[str, ...]:
        """What is doubtful about the answer to the first call, and what cannot be known about a callable."""
        return self._notes

    def facts(self) -> Mapping[str, Fact]:
        """Nothing: the surroundings are those of this process."""
        return {}

    def open(self, threads: int, *, concurrency: int) -> "CallableEngine":
        """Call the factory for one replica; see `EngineFactory.open`."""
        target = self._factory.target
        replica = _replica(self._factory, threads)
        return CallableEngine(target, replica, self._model, _about(replica, target).runtime_info())


class CallableEngine:
    """One replica that the user's factory returned."""

    def __init__(self, target: str, replica: UserReplica, model: ModelInfo, runtime: RuntimeInfo) -> None:
        self._target, self._replica, self._model, self._runtime = target, replica, model, runtime
        self._answer = replica.__call__  # bound once, since each look-up would be in the time of a call

    def describe(self) -> tuple[ModelInfo, RuntimeInfo]:
        """Return the model and the runtime that this replica named."""
        return self._model, self._runtime

    def prepare(self, batch_size: int, rng: np.random.Generator) -> Item:
        """Let the replica make an input."""
        return _prepared(self._replica, self._target, batch_size, rng)

    def join(self, items: Sequence[Item]) -> Item:
        """Put items together by the replica's own `join`, else by `concatenate`."""
        own = getattr(self._replica, "join", None)
        with in_one_sentence(f"{self._target}: {len(items)} items cannot be joined"):
            return concatenate(items) if own is None else own(items)

    def call(self, item: Item) -> None:
        """Call the replica once; see `Engine.call`."""
        try:
            self._answer(item)
        except AdvisorError:
            raise
        except (Exception, SystemExit) as error:
            raise failure(f"{self._target}: the call fails", error) from error

    def close(self) -> None:
        """Close the replica where it has a method for that, and let it go."""
        replica, self._replica, self._answer = self._replica, None, self._refuse
        _close(replica, self._target)

    def _refuse(self, item: Item) -> None:
        """Stand in for a replica that is gone."""
        raise MeasurementError(f"{self._target}: the replica is closed.")


def _replica(factory: Factory, threads: int) -> UserReplica:
    """Call the factory once, and see that what it returns can be prepared for and called."""
    replica = factory.make(threads)
    missing = [form for method, form in _METHODS.items() if not callable(getattr(replica, method, None))]
    if missing:
        wanted, lacking = " and ".join(_METHODS.values()), " and ".join(missing)
        kind = type(replica).__name__
        raise InputError(
            "model",
            factory.target,
            f"a factory of objects with the methods {wanted}; it made a {kind} without {lacking}",
        )
    return replica


def _about(replica: UserReplica, target: str) -> About:
    """Read what a replica says about itself."""
    with in_one_sentence(f"{target}: its about cannot be read"):
        said = getattr(replica, "about", {})
    try:
        return About.model_validate(said)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        if problem["type"] == "extra_forbidden":
            fields = ", ".join(About.model_fields)
            raise InputError("a field of about", problem["loc"][0], f"one of {fields}", file=target) from error
        raise first_problem(
            error, file=target, place=lambda path: f"about.{field_path(path)}" if path else "about"
        ) from error


def _prepared(replica: UserReplica, target: str, batch_size: int, rng: np.random.Generator) -> Item:
    """Let a replica make an input; an exception becomes one sentence."""
    with in_one_sentence(f"{target}: prepare({batch_size}) fails"):
        return replica.prepare(batch_size, rng)


def _probe(
    replica: UserReplica, target: str, fixed_batch_size: int | None
) -> tuple[tuple[TensorSpec, ...], tuple[str, ...]]:
    """Call a replica once; its inputs where they are arrays, and doubts about its answer."""
    rng = np.random.default_rng(_SEED)
    size = fixed_batch_size or 2
    item = _prepared(replica, target, size, rng)
    hint = "" if fixed_batch_size else ", where about names no fixed_batch_size"
    with in_one_sentence(f"{target}: the call fails on a batch of {size}{hint}"):
        output = replica(item)
    if inspect.isawaitable(output) or inspect.isgenerator(output) or inspect.isasyncgen(output):
        kind = type(output).__name__
        raise InputError("answer", kind, "the whole answer, there when the call returns", file=target)
    notes = (*not_finite_note(output), *answer_note(output, size))
    single = item if fixed_batch_size else _prepared(replica, target, 1, rng)
    return specs(single, item), notes


def _unknowns(factory: Factory) -> list[str]:
    """What a profile of a callable cannot know."""
    unknowns = [f"HASH: the hash covers {factory.source.name} alone, not what it imports or reads."]
    if not factory.takes_threads:
        unknowns.append(
            f"THREADS: {factory.target} takes no parameter 'threads', so a replica may use more than the one thread "
            "that its cells name; compare their CPU time with their wall time."
        )
    return unknowns


def _close(replica: UserReplica, target: str) -> None:
    """Close a replica that can be closed."""
    close = getattr(replica, "close", None)
    if callable(close):
        with in_one_sentence(f"{target}: close() fails"):
            close()
