"""Inputs of PyTorch models: from what a file declares, from names and shapes given, or made by the module itself."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from advisor.domain.profile import TensorSpec
from advisor.errors import InputError
from advisor.profiling.engines.factories import in_one_sentence
from advisor.profiling.engines.pytorch_devices import Tensor, Tensors, Torch
from advisor.profiling.inputs import BATCH, Dimension, InputOptions, InputPlan, InputRule, fill_rule

_WHOLE_NUMBERS = re.compile(r"(^|_)ids?$|mask|type|segment", re.IGNORECASE)
_SEED = 0


@dataclass(frozen=True, slots=True)
class Declared:
    """What a model says of one of its inputs."""

    name: str
    dtype: object
    """PyTorch's element type."""
    axes: tuple[int | str, ...] | None = None
    """Lengths of the axes, and symbols of those that are free; None where the model says nothing."""
    high: int | None = None
    """Rows of the lookup table that the input indexes, if any."""
    optional: bool = False
    """Whether a call may leave it out."""


class Inputs(Protocol):
    """How the inputs of a model are made."""

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """The inputs for the profile."""
        ...

    @property
    def axes(self) -> Mapping[str, int | None]:
        """Batch axis of every input; None for one without."""
        ...

    @property
    def fixed_batch_size(self) -> int | None:
        """The only batch size that the model takes; None when any will do."""
        ...

    @property
    def sequence_length(self) -> int | None:
        """Tokens per item, for models of text."""
        ...

    @property
    def positional(self) -> bool:
        """Whether inputs go to the module in their order rather than by name."""
        ...

    def make(self, module: object, batch_size: int, rng: np.random.Generator) -> Tensors:
        """Make the inputs of one call to a replica."""
        ...


def is_whole_number(name: str) -> bool:
    """Whether an input of this name takes whole numbers, where the model does not say.

    Examples
    --------
    >>> [is_whole_number(name) for name in ("input_ids", "attention_mask", "token_type_ids", "image", "grid")]
    [True, True, True, False, False]
    """
    return _WHOLE_NUMBERS.search(name) is not None


def join_inputs(torch: Torch, inputs: Inputs, items: Sequence[Tensors]) -> Tensors:
    """Concatenate inputs along their batch axes; an input without one is taken from the first item."""
    return {
        name: items[0][name] if axis is None else torch.cat([item[name] for item in items], dim=axis)
        for name, axis in inputs.axes.items()
    }


class PlannedInputs:
    """Inputs made by rules, as those of ONNX models are.

    Parameters
    ----------
    torch
        The library.
    declared
        What the model says.
    options
        What the user chose: shapes by name, the length of sequences, the side of images.

    Raises
    ------
    InputError
        When a shape is missing, unknown or does not fit.
    """

    positional = False

    def __init__(self, torch: Torch, declared: Sequence[Declared], options: InputOptions) -> None:
        self._torch = torch
        shapes = _shapes(declared, options)
        chosen = [entry for entry in declared if entry.name in shapes]
        self._dtypes = {entry.name: entry.dtype for entry in chosen}
        self._plan = _plan(torch, chosen, shapes)

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """The rules as text, with PyTorch's own element types."""
        return tuple(
            rule.spec().model_copy(update={"dtype": _type_name(self._dtypes[rule.name])}) for rule in self._plan.rules
        )

    @property
    def axes(self) -> Mapping[str, int | None]:
        """Place of the word batch in every shape."""
        return {rule.name: rule.dims.index(BATCH) if BATCH in rule.dims else None for rule in self._plan.rules}

    @property
    def fixed_batch_size(self) -> int | None:
        """The first length of the first input, where no shape has a batch axis."""
        return self._plan.fixed_batch_size

    @property
    def sequence_length(self) -> int | None:
        """Length of inputs of tokens."""
        return self._plan.sequence_length

    def make(self, module: object, batch_size: int, rng: np.random.Generator) -> Tensors:
        """Make numbers by the rules; NumPy has no bf16, so they are converted at the end."""
        return {
            name: self._torch.as_tensor(np.asarray(values)).to(self._dtypes[name])
            for name, values in self._plan.feeds(batch_size, rng).items()
        }


class PreparedInputs:
    """Inputs that a module makes by a method ``prepare(batch_size, rng)``, as a tuple or dict of tensors or arrays.

    Parameters
    ----------
    torch
        The library.
    target
        Module and name, for sentences.
    module
        The module; its inputs for one item and for two tell the batch axes.
    names
        Parameters of its forward method, which a tuple follows.

    Raises
    ------
    AdvisorError
        When the method fails or makes something else.
    """

    def __init__(self, torch: Torch, target: str, module: object, names: Sequence[str]) -> None:
        self._torch, self._target, self._names = torch, target, names
        rng = np.random.default_rng(_SEED)
        one, self.positional = self._prepared(module, 1, rng)
        two, _ = self._prepared(module, 2, rng)
        if list(one) != list(two) or any(one[name].ndim != two[name].ndim for name in one):
            raise InputError("prepare", target, "as many inputs and axes for a batch of 1 as for one of 2")
        self.specs = tuple(_observed(name, one[name], two[name]) for name in one)
        self.axes: Mapping[str, int | None] = {
            spec.name: spec.shape.index(BATCH) if BATCH in spec.shape else None for spec in self.specs
        }
        self.fixed_batch_size = None if any(axis is not None for axis in self.axes.values()) else 1
        self.sequence_length = _tokens(
            (not tensor.is_floating_point(), spec.shape) for spec, tensor in zip(self.specs, one.values(), strict=True)
        )

    def make(self, module: object, batch_size: int, rng: np.random.Generator) -> Tensors:
        """Let the replica's own module make its inputs."""
        return self._prepared(module, batch_size, rng)[0]

    def _prepared(self, module: object, batch_size: int, rng: np.random.Generator) -> tuple[Tensors, bool]:
        """Inputs by name, and whether they came without names."""
        with in_one_sentence(f"{self._target}: prepare({batch_size}) fails"):
            made = module.prepare(batch_size, rng)  # type: ignore[attr-defined]  # looked for by the caller
            if isinstance(made, Mapping):
                return {str(name): self._torch.as_tensor(value) for name, value in made.items()}, False
            if isinstance(made, tuple):
                names = [*self._names, *(f"input {number}" for number in range(len(self._names), len(made)))]
                return {name: self._torch.as_tensor(value) for name, value in zip(names, made, strict=False)}, True
        raise InputError(f"prepare of {self._target}", type(made).__name__, "a tuple or dict of tensors or arrays")


def _shapes(declared: Sequence[Declared], options: InputOptions) -> dict[str, tuple[Dimension, ...]]:
    """Shape of every input: given by the user, or the declared one with lengths for its free axes."""
    unknown = sorted(set(options.shapes) - {entry.name for entry in declared})
    if unknown:
        raise InputError("--shape", unknown[0], f"an input of the model: {', '.join(entry.name for entry in declared)}")
    shapes: dict[str, tuple[Dimension, ...]] = {}
    lengths: dict[str, Dimension] = {}
    for entry in declared:
        if entry.name in options.shapes:
            shapes[entry.name] = _given(entry, options.shapes[entry.name])
            for axis, dim in zip(entry.axes or (), shapes[entry.name], strict=False):
                if isinstance(axis, str):
                    lengths[axis] = dim
    batch = _batch_symbol(declared)
    if batch is not None:
        lengths.setdefault(batch, BATCH)
    for entry in declared:
        if entry.name in shapes or (entry.axes is None and entry.optional):
            continue
        if entry.axes is None:
            raise InputError(
                f"shape of input {entry.name}", None, f"one given as in --shape {entry.name}=batch,3,224,224"
            )
        usual = options.image_side if len(entry.axes) == 4 else options.sequence_length
        shapes[entry.name] = tuple(
            lengths.setdefault(axis, usual) if isinstance(axis, str) else axis for axis in entry.axes
        )
    return shapes


def _given(entry: Declared, given: tuple[Dimension, ...]) -> tuple[Dimension, ...]:
    """Shape given by the user, checked against the declared one; a leading 1 on a free axis is the batch."""
    text = ",".join(map(str, given))
    if entry.axes is not None:
        if len(given) != len(entry.axes):
            raise InputError(f"--shape {entry.name}", text, f"{len(entry.axes)} dimensions")
        for number, (chosen, axis) in enumerate(zip(given, entry.axes, strict=True)):
            if isinstance(axis, int) and chosen != axis:
                raise InputError(f"--shape {entry.name}", text, f"{axis} on axis {number}")
    is_free = entry.axes is None or isinstance(entry.axes[0], str)
    return (BATCH, *given[1:]) if BATCH not in given and given[0] == 1 and is_free else given


def _batch_symbol(declared: Sequence[Declared]) -> str | None:
    """Free axis that is the batch: the first one of an input, and of them the one that most inputs share.

    Where no first axis is free, the first free axis is taken, unless the first length of all is 1: then the file takes
    one item at a time.

    Examples
    --------
    >>> _batch_symbol([Declared("ids", "int64", ("s0", "s1")), Declared("table", "float32", (5, "s1"))])
    's0'
    >>> _batch_symbol([Declared("state", "float32", (2, "s0", 64))]), _batch_symbol([Declared("x", "int64", (1, "s0"))])
    ('s0', None)
    """
    shapes = [entry.axes for entry in declared if entry.axes]
    leading = [axes[0] for axes in shapes if isinstance(axes[0], str)]
    if leading:
        return max(leading, key=lambda symbol: sum(symbol in axes for axes in shapes))
    if any(axes[0] == 1 for axes in shapes):
        return None
    return next((axis for axes in shapes for axis in axes if isinstance(axis, str)), None)


def _plan(torch: Torch, declared: Sequence[Declared], shapes: Mapping[str, tuple[Dimension, ...]]) -> InputPlan:
    """Rules for inputs of these shapes."""
    rules: list[InputRule] = []
    for entry in declared:
        dtype, dims = _numpy_type(torch, entry), shapes[entry.name]
        rules.append(fill_rule(entry.name, dtype, dims, high=entry.high, length=None))
    leading = next((rule.dims[0] for rule in rules if len(rule.dims) > 1 and isinstance(rule.dims[0], int)), 1)
    return InputPlan(
        rules=tuple(rules),
        sequence_length=_tokens((rule.dtype.kind in "iu", rule.dims) for rule in rules),
        fixed_batch_size=None if any(BATCH in rule.dims for rule in rules) else leading,
    )


def _tokens(inputs: Iterator[tuple[bool, tuple[int | str, ...]]]) -> int | None:
    """Tokens per item: the second length of the longest input of whole numbers with two axes.

    Examples
    --------
    >>> _tokens(iter([(True, ("batch", 128)), (False, ("batch", 512))])), _tokens(iter([(False, ("batch", 784))]))
    (128, None)
    """
    lengths = [dims[1] for whole, dims in inputs if whole and len(dims) == 2 and isinstance(dims[1], int)]
    return max(lengths, default=None)


def _numpy_type(torch: Torch, entry: Declared) -> np.dtype[np.generic]:
    """Element type that NumPy makes the numbers of an input in."""
    plain = (torch.float64, torch.float32, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8)
    if entry.dtype in (*plain, torch.uint8, torch.bool):
        return np.dtype(_type_name(entry.dtype))
    if entry.dtype == torch.bfloat16:
        return np.dtype(np.float32)
    raise InputError(f"input {entry.name}", _type_name(entry.dtype), "float, integer or bool tensors")


def _observed(name: str, one: Tensor, two: Tensor) -> TensorSpec:
    """Describe an input of which there are samples for one item and for two."""
    shape = tuple(dim if dim == other else BATCH for dim, other in zip(one.shape, two.shape, strict=True))
    return TensorSpec(name=name, dtype=_type_name(one.dtype), shape=shape, fill="made by the module's prepare()")


def _type_name(dtype: object) -> str:
    """Name of an element type without that of the library.

    Examples
    --------
    >>> _type_name("torch.float32")
    'float32'
    """
    return str(dtype).removeprefix("torch.")
