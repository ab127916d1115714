"""Inputs without a data set: shapes and values made from the graph alone."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import onnx

from advisor.domain.profile import TensorSpec
from advisor.errors import InputError

BATCH: Literal["batch"] = "batch"
DEFAULT_SEQUENCE_LENGTH = 128
DEFAULT_IMAGE_SIDE = 224

_BATCH_NAME = re.compile(r"batch|^(b|n|bs)$", re.IGNORECASE)
_SEQUENCE_NAME = re.compile(r"seq|len|time|token|frame", re.IGNORECASE)
_MASK_NAME = re.compile(r"mask", re.IGNORECASE)
_SEGMENT_NAME = re.compile(r"type|segment", re.IGNORECASE)
_PASSED_THROUGH = {"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"}
_TABLE_WRAPPERS = {"Cast", "Identity", "DequantizeLinear"}

Dimension = int | Literal["batch"]
Feeds = dict[str, npt.NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class InputOptions:
    """What the user may choose about synthetic inputs."""

    sequence_length: int = DEFAULT_SEQUENCE_LENGTH
    image_side: int = DEFAULT_IMAGE_SIDE
    shapes: Mapping[str, tuple[Dimension, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InputRule:
    """How one input is made: normal numbers, integers below `high`, or one constant."""

    name: str
    dtype: np.dtype[np.generic]
    dims: tuple[Dimension, ...]
    kind: Literal["normal", "integers", "ones", "zeros"]
    high: int = 2

    def spec(self) -> TensorSpec:
        """Describe the input for the profile."""
        fill = {
            "normal": "normal numbers, mean 0, deviation 1",
            "integers": f"random integers in [0, {self.high})",
            "ones": "ones",
            "zeros": "zeros",
        }[self.kind]
        return TensorSpec(name=self.name, dtype=str(self.dtype), shape=self.dims, fill=fill)

    def make(self, batch_size: int, rng: np.random.Generator) -> npt.NDArray[np.generic]:
        """Make the values for one call."""
        shape = tuple(batch_size if dim == BATCH else dim for dim in self.dims)
        match self.kind:
            case "normal":
                return rng.standard_normal(shape, dtype=np.float32).astype(self.dtype, copy=False)
            case "integers":
                return rng.integers(0, self.high, shape).astype(self.dtype)
            case "ones":
                return np.ones(shape, self.dtype)
            case "zeros":
                return np.zeros(shape, self.dtype)


@dataclass(frozen=True, slots=True)
class InputPlan:
    """How all inputs of a model are made."""

    rules: tuple[InputRule, ...]
    sequence_length: int | None
    fixed_batch_size: int | None

    def feeds(self, batch_size: int, rng: np.random.Generator) -> Feeds:
        """Make the inputs of one call."""
        return {rule.name: rule.make(batch_size, rng) for rule in self.rules}

    def join(self, items: Sequence[Feeds]) -> Feeds:
        """Concatenate the inputs of several calls along their batch axes; one without such an axis is the first's."""
        return {
            rule.name: np.concatenate([item[rule.name] for item in items], axis=rule.dims.index(BATCH))
            if BATCH in rule.dims
            else items[0][rule.name]
            for rule in self.rules
        }


def parse_shape(text: str) -> tuple[str, tuple[Dimension, ...]]:
    """Read a shape given by the user.

    The word ``batch`` marks the batch axis. Without it a leading 1 on a free axis is the batch axis.

    Raises
    ------
    InputError
        When the text is not a name, an equal sign and positive whole numbers.

    Examples
    --------
    >>> parse_shape("image=1,3,48,320")
    ('image', (1, 3, 48, 320))
    >>> parse_shape("state=2,batch,128")
    ('state', (2, 'batch', 128))
    """
    name, _, numbers = text.rpartition("=")
    parts = [part.strip() for part in numbers.split(",")]
    if not name or not all(part == BATCH or (part.isdecimal() and int(part) > 0) for part in parts):
        raise InputError("--shape", text, "name=1,3,224,224 with whole numbers above 0 or the word batch")
    return name, tuple(BATCH if part == BATCH else int(part) for part in parts)


def plan_inputs(graph: onnx.GraphProto, options: InputOptions) -> InputPlan:
    """Choose shape and values of every input of a graph.

    Raises
    ------
    InputError
        When an input cannot be made without the user's help; the sentence names it.
    """
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    unknown = sorted(set(options.shapes) - {value.name for value in inputs})
    if unknown:
        raise InputError("--shape", unknown[0], f"an input of the model: {', '.join(value.name for value in inputs)}")
    tables = TableFinder(graph)
    chosen = [_plan_input(value, options, tables) for value in inputs]
    rules = tuple(rule for rule, _ in chosen)
    lengths = [length for _, length in chosen if length is not None]
    return InputPlan(
        rules=rules,
        sequence_length=max(lengths, default=None),
        fixed_batch_size=None if any(BATCH in rule.dims for rule in rules) else _leading_dim(rules),
    )


def _leading_dim(rules: tuple[InputRule, ...]) -> int:
    """Batch size of a graph without a free axis: first dimension of its first tensor of rank two or more."""
    for rule in rules:
        if len(rule.dims) > 1 and isinstance(rule.dims[0], int):
            return rule.dims[0]
    return 1


def _plan_input(
    value: onnx.ValueInfoProto, options: InputOptions, tables: "TableFinder"
) -> tuple[InputRule, int | None]:
    """Rule of one input, and its sequence length when it has one."""
    if value.type.WhichOneof("value") != "tensor_type":
        raise InputError(
            f"input {value.name}", value.type.WhichOneof("value"), "a tensor; others cannot be synthesized"
        )
    dtype = _numpy_type(value)
    declared = list(value.type.tensor_type.shape.dim) if value.type.tensor_type.HasField("shape") else None
    sequence_axis: int | None = None
    if value.name in options.shapes:
        dims = _given_dims(value.name, options.shapes[value.name], declared)
    elif declared is None:
        raise _unknown_shape(value.name, "a shape of unknown rank")
    else:
        dims, sequence_axis = _choose_dims(value.name, declared, dtype, options)
    high = tables.rows_reached_from(value.name) if dtype.kind in "iu" else None
    if sequence_axis is None and high is not None and len(dims) == 2:
        sequence_axis = 1
    length = dims[sequence_axis] if sequence_axis is not None else None
    return _fill(value.name, dtype, dims, high), length if isinstance(length, int) else None


def _numpy_type(value: onnx.ValueInfoProto) -> np.dtype[np.generic]:
    """Element type of an input, when plain numpy arrays can carry it."""
    element = value.type.tensor_type.elem_type
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element))
    if dtype.kind not in "fiub" or dtype.names is not None or element == onnx.TensorProto.STRING:
        name = onnx.TensorProto.DataType.Name(element).lower()
        raise InputError(f"input {value.name}", name, "float, integer or bool tensors; others cannot be synthesized")
    return dtype


def _unknown_shape(name: str, found: str) -> InputError:
    """Make the one sentence for a shape that nobody can guess."""
    return InputError(
        f"input {name}", found, f"dimensions that are known or named; give them with --shape {name}=1,..."
    )


def _free_axes(declared: list[onnx.TensorShapeProto.Dimension]) -> list[int]:
    """Axes whose length the graph leaves open."""
    return [axis for axis, dim in enumerate(declared) if dim.WhichOneof("value") != "dim_value" or dim.dim_value <= 0]


def _given_dims(
    name: str, given: tuple[Dimension, ...], declared: list[onnx.TensorShapeProto.Dimension] | None
) -> tuple[Dimension, ...]:
    """Shape given by the user, checked against the graph."""
    if declared is None:
        return given
    if len(given) != len(declared):
        raise InputError(f"--shape {name}", ",".join(map(str, given)), f"{len(declared)} dimensions")
    free = _free_axes(declared)
    for axis, (chosen, dim) in enumerate(zip(given, declared, strict=True)):
        if axis not in free and chosen != dim.dim_value:
            raise InputError(f"--shape {name}", ",".join(map(str, given)), f"{dim.dim_value} on axis {axis}")
    if BATCH not in given and 0 in free and given[0] == 1:
        return (BATCH, *given[1:])
    return given


def _choose_dims(
    name: str,
    declared: list[onnx.TensorShapeProto.Dimension],
    dtype: np.dtype[np.generic],
    options: InputOptions,
) -> tuple[tuple[Dimension, ...], int | None]:
    """Lengths of all axes, and the axis of the sequence when there is one."""
    free = _free_axes(declared)
    spatial = [axis for axis in free if axis > 0]
    sequence_axis: int | None = None
    dims: list[Dimension] = []
    for axis, dim in enumerate(declared):
        if axis not in free:
            dims.append(dim.dim_value)
        elif _BATCH_NAME.search(dim.dim_param) or (axis == 0 and not _SEQUENCE_NAME.search(dim.dim_param)):
            dims.append(BATCH)
        elif _SEQUENCE_NAME.search(dim.dim_param) or (len(declared) == 2 and dtype.kind in "iub"):
            dims.append(options.sequence_length)
            sequence_axis = axis
        elif len(declared) == 4 and dtype.kind == "f" and len(spatial) < 3:
            dims.append(options.image_side)
        else:
            raise _unknown_shape(name, f"free on axis {axis} ('{dim.dim_param}')")
    return tuple(dims), sequence_axis


def _fill(name: str, dtype: np.dtype[np.generic], dims: tuple[Dimension, ...], high: int | None) -> InputRule:
    """Choose the values of one input by its name and type."""
    if _MASK_NAME.search(name) or dtype.kind == "b":
        return InputRule(name, dtype, dims, "ones")
    if dtype.kind == "f":
        return InputRule(name, dtype, dims, "normal")
    if _SEGMENT_NAME.search(name):
        return InputRule(name, dtype, dims, "zeros")
    if high is None and dtype == np.uint8 and len(dims) == 4:
        high = 256
    return InputRule(name, dtype, dims, "integers", high if high is not None else 2)


class TableFinder:
    """Which lookup tables an integer input reaches: its values must stay below their number of rows."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._tensors = {tensor.name: tensor for tensor in graph.initializer}
        self._producers: dict[str, onnx.NodeProto] = {}
        self._consumers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
                self._tensors[node.output[0]] = node.attribute[0].t
            self._producers.update(dict.fromkeys(node.output, node))
            for name in node.input:
                self._consumers.setdefault(name, []).append(node)

    def rows_reached_from(self, name: str) -> int | None:
        """Rows of the smallest table that the values of an input index; None when there is no table."""
        return min(self._rows(name, seen=set()), default=None)

    def _rows(self, name: str, *, seen: set[str]) -> Iterator[int]:
        """Follow one value through nodes that only pass it on."""
        if name in seen:
            return
        seen.add(name)
        for node in self._consumers.get(name, []):
            if node.op_type == "Gather" and node.input[1] == name:
                yield from self._table_length(node)
            elif node.op_type == "OneHot" and node.input[0] == name and node.input[1] in self._tensors:
                yield int(onnx.numpy_helper.to_array(self._tensors[node.input[1]]).reshape(-1)[0])
            elif node.op_type in _PASSED_THROUGH and node.input[0] == name:
                yield from self._rows(node.output[0], seen=seen)

    def _table_length(self, gather: onnx.NodeProto) -> Iterator[int]:
        """Length of the gathered axis, when the table is a constant."""
        table = gather.input[0]
        while table not in self._tensors:
            producer = self._producers.get(table)
            if producer is None or producer.op_type not in _TABLE_WRAPPERS:
                return
            table = producer.input[0]
        axis = next((attribute.i for attribute in gather.attribute if attribute.name == "axis"), 0)
        yield self._tensors[table].dims[axis]
