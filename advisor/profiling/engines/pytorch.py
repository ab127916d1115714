"""PyTorch on the CPU or on one NVIDIA GPU."""

import contextlib
import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from advisor.domain.profile import Fact, ModelInfo, RuntimeInfo
from advisor.errors import AdvisorError, InputError, MeasurementError
from advisor.profiling import memory
from advisor.profiling.engines import Memory, OutOfMemory, Placement
from advisor.profiling.engines.factories import Factory
from advisor.profiling.engines.outputs import answer_note, not_finite_note
from advisor.profiling.engines.pytorch_devices import (
    Boundary,
    Tensors,
    Torch,
    TorchSettings,
    boundary,
    is_out_of_memory,
    library_facts,
    load_torch,
    placement,
    reason,
    torch_failure,
)
from advisor.profiling.engines.pytorch_files import (
    ModuleCopy,
    parameter_count,
    precision,
    read_copy,
    weight_bytes,
)
from advisor.profiling.engines.pytorch_inputs import Inputs, PlannedInputs, PreparedInputs, join_inputs
from advisor.profiling.gpu import GpuMemory
from advisor.profiling.inputs import InputOptions

__all__ = ["TorchEngine", "TorchModel", "TorchSettings", "is_torch_module"]

_MOST_COMPILED = 1024
"""Shapes that one module is compiled for. PyTorch's own limit is 8, beyond which it runs uncompiled code and only logs
that, so that a profile of nine batch sizes would show two kinds of code."""
_SEED = 0


class CompilationError(MeasurementError):
    """`torch.compile` fails, with whatever inputs."""


class TorchModel:
    """One PyTorch model, probed once, that opens as many replicas as asked; each has weights of its own.

    Modules run in `eval` and `inference_mode`, with one thread between operators. An exported program keeps the mode
    that it was traced in.

    Parameters
    ----------
    target
        A file of `torch.export.save` (``.pt2``) or of `torch.jit.save` (``.pt``, ``.pth``, ``.ts``), or a factory of
        `torch.nn.Module`. A module with a method ``prepare(batch_size, rng)`` makes its inputs itself, as a tuple or
        dict of tensors or arrays. Other modules and TorchScript need ``--shape`` for every input, by the names that
        their forward method gives. An exported program says its shapes; a free first axis is its batch.
    name
        Name that a scenario asks for; the file name without its ending, or that of the factory, by default.
    inputs
        Choices about synthetic inputs.
    settings
        How to run the model.

    Raises
    ------
    InputError
        When the target is none of these, or a shape is missing or does not fit.
    OutOfMemory
        When there is no room for one replica or its first call.
    MeasurementError
        When PyTorch or the device is missing, or the model cannot be loaded or fails.
    """

    def __init__(
        self, target: Path | Factory, *, name: str | None = None, inputs: InputOptions, settings: TorchSettings
    ) -> None:
        self._torch = load_torch()
        self._target, self._settings = target, settings
        self._name = name or (target.target.rpartition(":")[2] if isinstance(target, Factory) else target.stem)
        self._placement = placement(self._torch, settings.device)
        copy = read_copy(self._torch, target, settings.device, 1)
        if settings.compile and isinstance(copy.module, self._torch.jit.ScriptModule):
            raise InputError("--compile", self.source, "with a .pt2 file or module:factory, TorchScript has its own")
        self._inputs = self._find_inputs(copy, inputs)
        self._fixed_batch_size = self._inputs.fixed_batch_size
        self._model = self._describe(copy)
        probe = self._engine(copy, 1)
        # While this name held the weights, the card could not get their memory back, and replicas would seem small.
        del copy
        try:
            self._notes = (*self._probe(probe), *_hash_note(target))
        finally:
            probe.close()

    @property
    def source(self) -> str:
        """File name without its folder, or module and factory."""
        return self._target.target if isinstance(self._target, Factory) else self._target.name

    @property
    def model(self) -> ModelInfo:
        """The model, with the inputs chosen for it."""
        return self._model

    @property
    def placement(self) -> Placement:
        """The CPUs of this process or one GPU."""
        return self._placement

    @property
    def memory(self) -> Memory:
        """Memory that the weights are in."""
        return memory if self._placement.gpu_uuid is None else GpuMemory(self._placement.gpu_uuid)

    @property
    def fixed_batch_size(self) -> int | None:
        """The only batch size that the model takes; None when any will do."""
        return self._fixed_batch_size

    @property
    def notes(self) -> tuple[str, ...]:
        """What the probe found, and what the hash does not cover."""
        return self._notes

    def facts(self) -> Mapping[str, Fact]:
        """Versions of PyTorch and what it found on this machine."""
        why = "this build of PyTorch has no CUDA"
        return {
            name: Fact(value=value, why=why if value is None else None)
            for name, value in library_facts(self._torch).items()
        }

    def open(self, threads: int, *, concurrency: int) -> "TorchEngine":
        """Load the file or call the factory once more; see `EngineFactory.open`."""
        return self._engine(read_copy(self._torch, self._target, self._settings.device, threads), threads)

    def _engine(self, copy: ModuleCopy, threads: int) -> "TorchEngine":
        """Make a replica of one copy."""
        return TorchEngine(
            self._torch,
            copy,
            boundary(self._torch, self._settings, threads),
            inputs=self._inputs,
            model=self._model,
            settings=self._settings,
        )

    def _find_inputs(self, copy: ModuleCopy, options: InputOptions) -> Inputs:
        """Let the module make its inputs where it can, else plan them."""
        if callable(getattr(copy.module, "prepare", None)):
            if options.shapes:
                shape = next(iter(options.shapes))
                raise InputError("--shape", shape, f"none, since {self.source} makes its inputs by prepare()")
            return PreparedInputs(self._torch, self.source, copy.module, [entry.name for entry in copy.declared])
        planned = PlannedInputs(self._torch, copy.declared, options)
        if not planned.specs:
            raise InputError("inputs", self.source, "a forward method with named parameters, or a method prepare()")
        return planned

    def _describe(self, copy: ModuleCopy) -> ModelInfo:
        """Describe the model by its weights and its source."""
        target, module = self._target, copy.module
        found = self._settings.autocast or precision(module)
        if found == "fp32" and self._settings.tf32 and self._placement.kind == "gpu":
            found = "tf32"
        return ModelInfo(
            name=self._name,
            file=target.source.name if isinstance(target, Factory) else target.name,
            target=target.target if isinstance(target, Factory) else None,
            sha256=target.sha256() if isinstance(target, Factory) else _sha256(target),
            precision=found,
            sequence_length=self._inputs.sequence_length,
            size_bytes=(weight_bytes(module) if isinstance(target, Factory) else target.stat().st_size) or None,
            parameters=parameter_count(module) or None,
            inputs=self._inputs.specs,
        )

    def _probe(self, engine: "TorchEngine") -> tuple[str, ...]:
        """Run the model once; where it fails on two items, one at a time may do."""
        try:
            return _probed(engine, self._fixed_batch_size or 2)
        except (OutOfMemory, CompilationError):
            raise
        except MeasurementError as error:
            if self._fixed_batch_size is None:
                with contextlib.suppress(MeasurementError):
                    notes = _probed(engine, 1)
                    self._fixed_batch_size = 1
                    note = "FIXED_BATCH: the model runs at batch 1 and fails at batch 2, so only batch 1 was measured."
                    return (note, *notes)
            if self._inputs.positional or not isinstance(self._inputs, PlannedInputs):
                raise
            raise MeasurementError(f"{str(error).rstrip('.')}; give other dimensions with --shape.") from error


class TorchEngine:
    """One replica: a module with weights of its own."""

    def __init__(
        self,
        torch: Torch,
        copy: ModuleCopy,
        at: Boundary,
        *,
        inputs: Inputs,
        model: ModelInfo,
        settings: TorchSettings,
    ) -> None:
        self._torch, self._at, self._inputs, self._model = torch, at, inputs, model
        self._copy: ModuleCopy | None = copy
        self._runtime = RuntimeInfo(name="pytorch", version=str(torch.__version__), options={**settings.options()})
        self._compiles = settings.compile
        self._forward: Callable[[Tensors], object] | None = _forward(torch, copy, inputs, settings)

    def describe(self) -> tuple[ModelInfo, RuntimeInfo]:
        """Return the model and the settings."""
        return self._model, self._runtime

    def prepare(self, batch_size: int, rng: np.random.Generator) -> Tensors:
        """Make the inputs of one call in memory of the host, pinned where a GPU reads them."""
        made = self._inputs.make(self._opened().module, batch_size, rng)
        return self._held(made, f"batch {batch_size} cannot be held for the device")

    def join(self, items: Sequence[Tensors]) -> Tensors:
        """Concatenate inputs along their batch axes; an input without one is taken from the first item."""
        what = f"inputs of {len(items)} calls cannot be put together"
        try:
            joined = join_inputs(self._torch, self._inputs, items)
        except RuntimeError as error:
            raise torch_failure(self._torch, f"{self._model.name}: {what}", error) from error
        return self._held(joined, what)

    def _held(self, tensors: Tensors, what: str) -> Tensors:
        """Inputs where the device reads them; a failure becomes one sentence."""
        try:
            return {name: self._at.hold(tensor) for name, tensor in tensors.items()}
        except RuntimeError as error:
            raise torch_failure(self._torch, f"{self._model.name}: {what}", error) from error

    def call(self, item: Tensors) -> None:
        """Run the model once; see `Engine.call`, and `CudaBoundary` for what it covers on a GPU."""
        self.answer(item)

    def answer(self, item: Tensors) -> object:
        """Run the model once and return its outputs in memory of the host; an exception becomes one sentence."""
        if self._forward is None:
            raise MeasurementError(f"{self._model.name}: the replica is closed.")
        try:
            return self._at.run(self._forward, item)
        except AdvisorError:
            raise
        except Exception as error:  # a module is the user's code, which may raise anything
            raise self._failure(item, error) from error

    def close(self) -> None:
        """Let the module go."""
        self._copy = self._forward = None
        self._at.release()

    def _opened(self) -> ModuleCopy:
        """The copy, while there is one."""
        if self._copy is None:
            raise MeasurementError(f"{self._model.name}: the replica is closed.")
        return self._copy

    def _failure(self, item: Tensors, error: Exception) -> MeasurementError:
        """Make the sentence for a call that failed, and room for another where memory was full."""
        if is_out_of_memory(self._torch, error):
            self._at.release()
        elif self._compiles and type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            what = f"{self._model.name}: torch.compile fails, which needs a C++ compiler such as g++ on the CPU"
            return CompilationError(f"{what}: {reason(error)}.")
        shapes = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in item.items())
        return torch_failure(self._torch, f"{self._model.name}: the model fails on inputs {shapes}", error)


def is_torch_module(thing: object) -> bool:
    """Whether an object is a `torch.nn.Module`; answers without importing PyTorch.

    Examples
    --------
    >>> is_torch_module([])
    False
    """
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(thing, torch.nn.Module)


def _forward(torch: Torch, copy: ModuleCopy, inputs: Inputs, settings: TorchSettings) -> Callable[[Tensors], object]:
    """The module as it is called: compiled and cast as the settings say, without gradients."""
    module = copy.module
    if settings.compile:
        module = torch.compile(module, dynamic=False, recompile_limit=_MOST_COMPILED)
    kind = settings.device.partition(":")[0]
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16, None: None}[settings.autocast]

    def forward(tensors: Tensors) -> object:
        cast = contextlib.nullcontext() if dtype is None else torch.autocast(kind, dtype=dtype)
        with torch.inference_mode(), cast:
            return copy.call(module, inputs, tensors)

    return forward


def _probed(engine: TorchEngine, batch_size: int) -> tuple[str, ...]:
    """Run the model once and say what is doubtful about its answer."""
    output = engine.answer(engine.prepare(batch_size, np.random.default_rng(_SEED)))
    numbers = _as_arrays(output)
    return (*not_finite_note(numbers), *answer_note(numbers, batch_size))


def _as_arrays(output: Any) -> object:
    """Outputs with arrays for tensors; NumPy knows no bf16."""
    if isinstance(output, Mapping):
        return {key: _as_arrays(part) for key, part in output.items()}
    if isinstance(output, tuple):
        return tuple(_as_arrays(part) for part in output)
    if isinstance(output, list):
        return [_as_arrays(part) for part in output]
    if not hasattr(output, "is_floating_point"):
        return output
    try:
        array: object = (output.float() if output.is_floating_point() else output).cpu().numpy()
    except (RuntimeError, TypeError):
        return output  # sparse or lazily conjugated: nothing is said about its numbers
    return array


def _sha256(path: Path) -> str:
    """Hash a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _hash_note(target: Path | Factory) -> tuple[str, ...]:
    """What the hash of a factory leaves out."""
    if not isinstance(target, Factory):
        return ()
    return (f"HASH: the hash covers {target.source.name} alone, not what it imports or reads, such as weights.",)
