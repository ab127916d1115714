"""What the axes of a model's inputs may be: plans to try, the likeliest first."""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import onnx

from advisor.errors import InputError
from advisor.profiling.inputs import BATCH, Array, Dimension, InputOptions, InputPlan, InputRule, fill_rule
from advisor.profiling.lookup_tables import TableFinder

_BATCH_WORD = re.compile(r"batch", re.IGNORECASE)
_BATCH_LETTER = re.compile(r"^(b|n|bs)$", re.IGNORECASE)
_SEQUENCE_NAME = re.compile(r"seq|len|time|token|frame|^[tsl]$", re.IGNORECASE)

# Lengths in common use, likeliest first: assumptions, and every one that is chosen is printed.
_IMAGE_SIDES = (48, 32, 64, 320, 256, 512, 640, 96, 112, 28)
_AUDIO_CHUNKS = (512, 576, 256, 16_000)
_AUDIO_CLIPS = (16_000, 512, 576, 256)
_CHANNELS = (3, 1, 4)
_LENGTHS = (1, 512, 576, 80, 64, 128, 256, 40, 32, 16, 768, 2, 3, 4, 8, 10)
_UNUSUAL = (*range(1, 65), *range(72, 641, 8))
"""Lengths of one axis that are tried for the sake of a suggestion when no common one runs."""

Kind = Literal["fixed", "batch", "sequence", "side", "unknown"]


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of an input; axes of one symbol have one length."""

    symbol: str
    kind: Kind
    choices: tuple[Dimension, ...]
    named: bool = True
    """Whether the graph or the user says what the axis is."""
    given: bool = False
    """Whether the user gave the length, which then holds for the other axes of the symbol too."""


@dataclass(frozen=True, slots=True)
class InputDraft:
    """One input with the choices for its axes."""

    name: str
    dtype: np.dtype[np.generic]
    axes: tuple[Axis, ...]
    high: int | None
    sample: Array | None

    def dims(self, chosen: dict[str, Dimension]) -> tuple[Dimension, ...]:
        """Lengths of all axes under one choice."""
        return tuple(axis.choices[0] if axis.given else chosen[axis.symbol] for axis in self.axes)

    def was_tried(self, chosen: dict[str, Dimension]) -> bool:
        """Whether a length is neither given nor the one that its name stands for."""
        return any(
            not axis.given
            and axis.kind != "fixed"
            and (dim != axis.choices[0] or (axis.kind == "unknown" and dim != BATCH))
            for axis, dim in zip(self.axes, self.dims(chosen), strict=True)
        )


def draft_inputs(graph: onnx.GraphProto, options: InputOptions) -> tuple[InputDraft, ...]:
    """Say for every input of a graph what its axes may be.

    Raises
    ------
    InputError
        When an input cannot be made without the user's help; the sentence names it.
    """
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    for option, given in (("--shape", options.shapes), ("--inputs", options.samples)):
        unknown = sorted(set(given) - {value.name for value in inputs})
        if unknown:
            raise InputError(option, unknown[0], f"an input of the model: {', '.join(value.name for value in inputs)}")
    tables = TableFinder(graph)
    streaming = sum(_numpy_type(value).kind == "f" for value in inputs) > 1
    drafts = tuple(_draft(value, options, tables, streaming=streaming) for value in inputs)
    counts = {
        draft.name: draft.sample.shape[axis]
        for draft in drafts
        if draft.sample is not None
        for axis, found in enumerate(draft.axes)
        if found.choices == (BATCH,)
    }
    if len(set(counts.values())) > 1:
        raise InputError("--inputs", counts, "as many items in every array")
    return drafts


def input_plans(drafts: Sequence[InputDraft]) -> Iterator[InputPlan]:
    """All plans, in the order of how far they are from the likeliest choice of every axis.

    Two axes of one input are never both the batch, and where the likeliest choice has a batch axis, all have one.
    """
    groups: dict[str, Axis] = {}
    for axis in (axis for draft in drafts for axis in draft.axes):
        if axis.given:
            groups[axis.symbol] = axis
        groups.setdefault(axis.symbol, axis)
    wants_batch = any(axis.choices[0] == BATCH for axis in groups.values())
    likeliest = {axis.symbol: axis.choices[0] for axis in groups.values()}
    undecided = [axis for axis in groups.values() if len(axis.choices) > 1]
    counts = [len(axis.choices) for axis in undecided]
    for farness in range(sum(counts) - len(counts) + 1):
        for picks in _picks(counts, farness):
            picked = {axis.symbol: axis.choices[pick] for axis, pick in zip(undecided, picks, strict=True)}
            chosen = likeliest | picked
            batch_axes = [draft.dims(chosen).count(BATCH) for draft in drafts]
            if max(batch_axes, default=0) <= 1 and (any(batch_axes) or not wants_batch):
                yield _plan(drafts, chosen)


def unusual_plans(drafts: Sequence[InputDraft]) -> Iterator[InputPlan]:
    """Plans with one axis of an unusual length and the likeliest choice elsewhere."""
    axes = [
        axis
        for draft in drafts
        for axis in draft.axes
        if axis.kind in ("sequence", "side", "unknown") and not axis.given
    ]
    for length, symbol in itertools.product(_UNUSUAL, dict.fromkeys(axis.symbol for axis in axes)):
        changed = [
            replace(
                draft, axes=tuple(_narrowed(axis, length if axis.symbol == symbol else None) for axis in draft.axes)
            )
            for draft in drafts
        ]
        yield from input_plans(changed)


def _narrowed(axis: Axis, length: int | None) -> Axis:
    """The same axis with one choice: a length, or its likeliest."""
    return replace(axis, choices=(length,) if length is not None else axis.choices[:1])


def plan_inputs(graph: onnx.GraphProto, options: InputOptions) -> InputPlan:
    """The likeliest plan, before anything was tried.

    Raises
    ------
    InputError
        When an input cannot be made without the user's help; the sentence names it.
    """
    return next(input_plans(draft_inputs(graph, options)))


def _picks(counts: Sequence[int], farness: int) -> Iterator[tuple[int, ...]]:
    """Whole numbers below `counts` that add up to `farness`, in the order of the first of them.

    Examples
    --------
    >>> list(_picks([2, 1, 3], 2))
    [(0, 0, 2), (1, 0, 1)]
    """
    if not counts:
        if farness == 0:
            yield ()
        return
    for first in range(min(counts[0] - 1, farness) + 1):
        for rest in _picks(counts[1:], farness - first):
            yield (first, *rest)


def _plan(drafts: Sequence[InputDraft], chosen: dict[str, Dimension]) -> InputPlan:
    """Inputs under one choice of all axes."""
    rules: list[InputRule] = []
    longest = [
        dim
        for draft in drafts
        for axis, dim in zip(draft.axes, draft.dims(chosen), strict=True)
        if axis.kind in ("sequence", "unknown") and isinstance(dim, int)
    ]
    for draft in drafts:
        dims = draft.dims(chosen)
        if draft.sample is not None:
            rules.append(InputRule(draft.name, draft.dtype, dims, "samples", sample=draft.sample))
            continue
        rule = fill_rule(draft.name, draft.dtype, dims, high=draft.high, length=max(longest, default=None))
        rules.append(replace(rule, found_by_trying=draft.was_tried(chosen)))
    batch_axes = [
        axis for draft in drafts for axis, dim in zip(draft.axes, draft.dims(chosen), strict=True) if dim == BATCH
    ]
    lengths = [
        dim
        for draft in drafts
        for axis, dim in zip(draft.axes, draft.dims(chosen), strict=True)
        if isinstance(dim, int) and _counts_tokens(draft, axis)
    ]
    return InputPlan(
        rules=tuple(rules),
        sequence_length=max(lengths, default=None),
        fixed_batch_size=None if batch_axes else _declared_batch(drafts),
        batch_named=any(axis.named for axis in batch_axes),
    )


def _counts_tokens(draft: InputDraft, axis: Axis) -> bool:
    """Whether the axis is one of tokens: a float input of rank two is a signal."""
    if axis.kind == "sequence":
        return draft.dtype.kind != "f" or len(draft.axes) > 2
    return draft.high is not None and len(draft.axes) == 2 and axis is draft.axes[1]


def _declared_batch(drafts: Sequence[InputDraft]) -> int:
    """Batch size of a graph without a free batch axis: the first length of its first tensor of rank two or more.

    A leading axis of another kind, such as a sequence, means one item.
    """
    for draft in drafts:
        if len(draft.axes) > 1:
            leading = draft.axes[0]
            return leading.choices[0] if leading.kind == "fixed" and isinstance(leading.choices[0], int) else 1
    return 1


def _draft(value: onnx.ValueInfoProto, options: InputOptions, tables: TableFinder, *, streaming: bool) -> InputDraft:
    """Choices for one input."""
    dtype = _numpy_type(value)
    declared = list(value.type.tensor_type.shape.dim) if value.type.tensor_type.HasField("shape") else None
    sample = options.samples.get(value.name)
    if sample is not None and sample.dtype != dtype:
        raise InputError(f"--inputs {value.name}", sample.dtype, f"numbers of type {dtype}")
    if value.name in options.shapes:
        axes = _given_axes(value.name, options.shapes[value.name], declared, option="--shape")
    elif sample is not None:
        axes = _sample_axes(value.name, sample, declared, streaming=streaming)
    elif declared is None:
        raise InputError(
            f"input {value.name}",
            "a shape of unknown rank",
            f"a shape; give it with --shape {value.name}=batch,...",
        )
    else:
        axes = _free_axes(value.name, declared, dtype, options, streaming=streaming)
    if sample is not None and not _fits(sample, axes):
        dims = ",".join(str(axis.choices[0]) for axis in axes)
        raise InputError(f"--inputs {value.name}", f"an array of shape {list(sample.shape)}", f"the shape {dims}")
    high = tables.rows_reached_from(value.name) if dtype.kind in "iu" else None
    return InputDraft(value.name, dtype, axes, high, sample)


def _numpy_type(value: onnx.ValueInfoProto) -> np.dtype[np.generic]:
    """Element type of an input, when plain numpy arrays can carry it."""
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise InputError(f"input {value.name}", kind, "a tensor; others cannot be synthesized")
    element = value.type.tensor_type.elem_type
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element))
    if dtype.kind not in "fiub" or dtype.names is not None or element == onnx.TensorProto.STRING:
        name = onnx.TensorProto.DataType.Name(element).lower()
        raise InputError(f"input {value.name}", name, "float, integer or bool tensors; others cannot be synthesized")
    return dtype


def _is_free(dim: onnx.TensorShapeProto.Dimension) -> bool:
    """Whether the graph leaves the length of an axis open."""
    return dim.WhichOneof("value") != "dim_value" or dim.dim_value <= 0


def _given_axes(
    name: str,
    given: tuple[Dimension, ...],
    declared: list[onnx.TensorShapeProto.Dimension] | None,
    *,
    option: Literal["--shape", "--inputs"],
) -> tuple[Axis, ...]:
    """Shape given by the user, checked against the graph; a leading 1 on a free axis is the batch."""
    text = ",".join(map(str, given))
    if declared is not None:
        if len(given) != len(declared):
            raise InputError(f"{option} {name}", text, f"{len(declared)} dimensions")
        for axis, (chosen, dim) in enumerate(zip(given, declared, strict=True)):
            if not _is_free(dim) and chosen != dim.dim_value:
                raise InputError(f"{option} {name}", text, f"{dim.dim_value} on axis {axis}")
        if BATCH not in given and given and given[0] == 1 and _is_free(declared[0]):
            given = (BATCH, *given[1:])
    axes = []
    for axis, length in enumerate(given):
        param = declared[axis].dim_param if declared is not None and _is_free(declared[axis]) else ""
        kind: Kind = "batch" if length == BATCH else "sequence" if _SEQUENCE_NAME.search(param) else "fixed"
        axes.append(Axis(_symbol(name, axis, param), kind, (length,), given=True))
    return tuple(axes)


def _symbol(name: str, axis: int, param: str) -> str:
    """Name of the length of an axis: that of the graph, or one of its own."""
    return f"symbol {param}" if param else f"{name} {axis}"


def _sample_axes(
    name: str, sample: Array, declared: list[onnx.TensorShapeProto.Dimension] | None, *, streaming: bool
) -> tuple[Axis, ...]:
    """Shape of the user's samples, with the batch where the graph has it."""
    batch_axis = 0 if declared is None and sample.ndim else _batch_axis(declared or [], streaming=streaming)
    dims = [BATCH if axis == batch_axis else length for axis, length in enumerate(sample.shape)]
    return _given_axes(name, tuple(dims), declared, option="--inputs")


def _fits(sample: Array, axes: tuple[Axis, ...]) -> bool:
    """Whether an array has the lengths of the axes, and one item or more."""
    return (
        sample.size > 0
        and sample.ndim == len(axes)
        and all(axis.choices[0] in (BATCH, length) for axis, length in zip(axes, sample.shape, strict=True))
    )


def _batch_axis(declared: list[onnx.TensorShapeProto.Dimension], *, streaming: bool) -> int | None:
    """Likeliest batch axis: the one of that name, a letter that stands for it, the free first one.

    Beside another float input [layers, free, width] is taken for a recurrent state, whose batch is in the middle.
    """
    names = {axis: dim.dim_param for axis, dim in enumerate(declared) if _is_free(dim)}
    for pattern in (_BATCH_WORD, _BATCH_LETTER):
        named = [axis for axis, name in names.items() if pattern.search(name)]
        if named:
            return named[0]
    if 0 in names:
        return None if _SEQUENCE_NAME.search(names[0]) else 0
    is_state = streaming and list(names) == [1] and len(declared) == 3 and not _SEQUENCE_NAME.search(names[1])
    return 1 if is_state else None


def _free_axes(
    name: str,
    declared: list[onnx.TensorShapeProto.Dimension],
    dtype: np.dtype[np.generic],
    options: InputOptions,
    *,
    streaming: bool,
) -> tuple[Axis, ...]:
    """Choices for the axes of an input of which the user says nothing."""
    batch_axis = _batch_axis(declared, streaming=streaming)
    named = batch_axis is not None and bool(_BATCH_WORD.search(declared[batch_axis].dim_param))
    has_sequence = len(declared) == 3 or (len(declared) == 2 and dtype.kind in "iu")
    doubtful = batch_axis is not None and not named and has_sequence
    axes = []
    for axis, dim in enumerate(declared):
        if not _is_free(dim):
            axes.append(Axis(_symbol(name, axis, ""), "fixed", (dim.dim_value,)))
            continue
        symbol = _symbol(name, axis, dim.dim_param)
        kind, lengths = _lengths(axis, declared, dtype, options, streaming=streaming)
        if axis == batch_axis:
            others = (lengths[0], 1) if doubtful else ()
            axes.append(Axis(symbol, "batch", (BATCH, *others), named=named))
        else:
            maybe = (BATCH,) if doubtful and kind != "side" else ()
            axes.append(Axis(symbol, kind, (*lengths[:1], *maybe, *lengths[1:]), named=False))
    return tuple(axes)


def _lengths(
    axis: int,
    declared: list[onnx.TensorShapeProto.Dimension],
    dtype: np.dtype[np.generic],
    options: InputOptions,
    *,
    streaming: bool,
) -> tuple[Kind, tuple[int, ...]]:
    """What a free axis is, if it is not the batch, and the lengths that it may have."""
    name, rank = declared[axis].dim_param, len(declared)
    named_sequence = bool(_SEQUENCE_NAME.search(name))
    if dtype.kind == "f" and rank <= 2 and axis == rank - 1:
        signal = _AUDIO_CHUNKS if streaming else _AUDIO_CLIPS
        return "unknown", tuple(dict.fromkeys((*signal, *_LENGTHS)))
    if named_sequence or (rank == 2 and dtype.kind in "iub"):
        return "sequence", tuple(dict.fromkeys((options.sequence_length, *_LENGTHS[1:])))
    if rank == 4 and (dtype.kind == "f" or dtype == np.uint8):
        sides = tuple(dict.fromkeys((options.image_side, *_IMAGE_SIDES)))
        if not all(_is_free(dim) for dim in declared[1:]) or axis == 2:
            return "side", sides
        return ("unknown", (*_CHANNELS, *sides)) if axis == 1 else ("side", (*sides, *_CHANNELS))
    return "unknown", tuple(dict.fromkeys((options.sequence_length, *_LENGTHS)))
