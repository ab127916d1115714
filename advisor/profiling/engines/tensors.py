"""Synthetic tensors for a model behind the Open Inference Protocol, which KServe and Triton speak."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from advisor.domain.profile import TensorSpec
from advisor.errors import InputError
from advisor.profiling.engines.wire import Json, written
from advisor.profiling.inputs import BATCH, Array, Dimension, Feeds, InputOptions, InputPlan, InputRule, fill_rule

DeclaredTensor: TypeAlias = tuple[str, tuple[int, ...]]
"""Type on the wire and lengths of the axes, -1 where they are free."""

_DECIMALS = 4
"""Decimals of synthetic numbers: as text, all digits of a float would make requests twice as long."""
_TYPES = {
    "BOOL": "?",
    **{f"UINT{bits}": f"u{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"INT{bits}": f"i{bits // 8}" for bits in (8, 16, 32, 64)},
    "FP16": "f2",
    "FP32": "f4",
    "FP64": "f8",
    # NumPy has no such type, and as text the numbers are the same.
    "BF16": "f4",
}
"""Types of the Open Inference Protocol (kserve/open-inference-protocol, inference_rest.md) as NumPy's."""


@dataclass(frozen=True, slots=True)
class TensorBodies:
    """Synthetic tensors for a KServe model."""

    plan: InputPlan
    datatypes: Mapping[str, str]

    @property
    def fixed_batch_size(self) -> int | None:
        """That of the plan."""
        return self.plan.fixed_batch_size

    @property
    def sequence_length(self) -> int | None:
        """That of the plan."""
        return self.plan.sequence_length

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The tensors and how they are made."""
        return tuple(rule.spec() for rule in self.plan.rules)

    @property
    def template(self) -> Json:
        """The tensors, with their types on the wire, without values."""
        return [[spec.model_dump(mode="json"), self.datatypes[spec.name]] for spec in self.inputs]

    def draw(self, batch_size: int, rng: np.random.Generator) -> Feeds:
        """Make the tensors of one call."""
        return self.plan.feeds(batch_size, rng)

    def join(self, contents: Sequence[Feeds]) -> Feeds:
        """Concatenate along the batch axes."""
        return self.plan.join(contents)

    def write(self, content: Feeds) -> bytes:
        """Write the tensors flat, in row-major order."""
        tensors = [
            {"name": name, "shape": list(array.shape), "datatype": self.datatypes[name], "data": _flat(array)}
            for name, array in content.items()
        ]
        return written({"inputs": tensors})


def _flat(array: Array) -> list[Json]:
    """Elements of an array as numbers of JSON."""
    if array.dtype.kind == "f":
        array = np.round(array.astype(np.float64), _DECIMALS)
    flat: list[Json] = array.ravel().tolist()
    return flat


def declared_tensors(metadata: bytes) -> dict[str, DeclaredTensor]:
    """Inputs of a model, by name, as the metadata of a KServe server has them.

    Raises
    ------
    ValueError
        When the metadata has another form.

    Examples
    --------
    >>> declared_tensors(b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]}')
    {'x': ('FP32', (-1, 4))}
    """
    try:
        inputs = json.loads(metadata)["inputs"]
        return {str(one["name"]): (str(one["datatype"]), tuple(map(int, one["shape"]))) for one in inputs}
    except (KeyError, TypeError) as error:
        raise ValueError("inputs with name, datatype and shape") from error


def tensor_bodies(declared: Mapping[str, DeclaredTensor], options: InputOptions) -> TensorBodies:
    """Synthetic inputs of a KServe model.

    A free first axis is the batch; a free axis behind it is the sequence where the input holds integers.

    Raises
    ------
    InputError
        When an input cannot be made without the user's help; the sentence names it.
    """
    for option, given in (("--shape", options.shapes), ("--inputs", options.samples)):
        unknown = sorted(set(given) - set(declared))
        if unknown:
            raise InputError(option, unknown[0], f"an input of the model: {', '.join(declared)}")
    rules = [_rule(name, *tensor, options) for name, tensor in declared.items()]
    counts = {
        rule.name: rule.sample.shape[rule.dims.index(BATCH)]
        for rule in rules
        if rule.sample is not None and BATCH in rule.dims
    }
    if len(set(counts.values())) > 1:
        raise InputError("--inputs", counts, "as many items in every array")
    lengths = [
        dim
        for rule in rules
        for dim, length in list(zip(rule.dims, declared[rule.name][1], strict=True))[1:]
        if rule.dtype.kind in "iu" and length < 0 and isinstance(dim, int)
    ]
    batched = any(BATCH in rule.dims for rule in rules)
    plan = InputPlan(tuple(rules), max(lengths, default=None), None if batched else 1)
    return TensorBodies(plan, {name: datatype for name, (datatype, _) in declared.items()})


def _rule(name: str, datatype: str, shape: tuple[int, ...], options: InputOptions) -> InputRule:
    """How one input is made: from the user's samples, or synthetic."""
    if datatype not in _TYPES:
        allowed = "a type of numbers; give requests with others as --body FILE.json"
        raise InputError(f"datatype of input {name}", datatype, allowed)
    dtype, sample = np.dtype(_TYPES[datatype]), options.samples.get(name)
    if name in options.shapes:
        dims = options.shapes[name]
        if BATCH not in dims and dims[0] == 1 and shape[:1] == (-1,):
            dims = (BATCH, *dims[1:])
    elif sample is not None:
        dims = tuple(BATCH if axis == 0 and shape[:1] == (-1,) else length for axis, length in enumerate(sample.shape))
    else:
        dims = _synthetic_dims(name, dtype, shape, options)
    if not _fits(dims, shape):
        option = "--shape" if name in options.shapes else "--inputs"
        raise InputError(f"{option} {name}", _text(dims), f"lengths that fit {list(shape)}, where -1 is free")
    if sample is None:
        return fill_rule(name, dtype, dims, high=None, length=None)
    if (
        sample.dtype != dtype
        or not sample.size
        or not _fits(sample.shape, tuple(-1 if d == BATCH else d for d in dims))
    ):
        found = f"{sample.dtype} of shape {list(sample.shape)}"
        raise InputError(f"--inputs {name}", found, f"{dtype} of shape {_text(dims)}")
    return InputRule(name, dtype, dims, "samples", sample=sample)


def _synthetic_dims(
    name: str, dtype: np.dtype[np.generic], shape: tuple[int, ...], options: InputOptions
) -> tuple[Dimension, ...]:
    """Lengths of the axes of an input of which the user says nothing."""
    free = [axis for axis, length in enumerate(shape) if length < 0 and axis > 0]
    if free and dtype.kind not in "iub":
        example = ",".join(str(BATCH if axis == 0 else abs(length)) for axis, length in enumerate(shape))
        allowed = f"a length for each free axis, such as --shape {name}={example}"
        raise InputError(f"shape of input {name}", list(shape), allowed)
    return tuple(
        options.sequence_length if axis in free else BATCH if length < 0 else length
        for axis, length in enumerate(shape)
    )


def _fits(dims: Sequence[Dimension], shape: tuple[int, ...]) -> bool:
    """Whether lengths are those of a shape, in which -1 is free."""
    return len(dims) == len(shape) and all(length < 0 or dim == length for dim, length in zip(dims, shape, strict=True))


def _text(dims: Sequence[Dimension]) -> str:
    """Lengths as the user writes them."""
    return ",".join(map(str, dims))
