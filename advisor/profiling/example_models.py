"""Real architectures with random weights, built with the onnx helper: subjects to profile without a download.

The weights come from a fixed seed and are scaled so that activations stay near one: nothing overflows and
nothing becomes a denormal number, so the timing is that of a trained model of the same shape.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from advisor.errors import InputError
from advisor.profiling.example_dimensions import (
    BERT_BASE,
    MINILM_L6,
    MLP,
    RESIDUAL_SCALE,
    RESNET50,
    TABLE_DEVIATION,
    WEIGHT_SEED,
    EncoderDimensions,
    MlpDimensions,
    ResNetDimensions,
)
from advisor.profiling.example_quantized import save_with_quantized_convolutions, save_with_quantized_products
from advisor.profiling.inputs import InputOptions
from advisor.profiling.shapes import plan_inputs

PRECISIONS = ("fp32", "int8")
_OPSET = 17
_IR_VERSION = 8
_CALIBRATION_ITEMS = 8
"""Images that set the range of activations. Their maximum over so many normal numbers hardly grows with more: an
assumption that holds for random inputs only."""


def build_example_model(name: str, path: Path, *, precision: str = "fp32") -> None:
    """Write one of the example models as an ONNX file.

    Parameters
    ----------
    name
        ``mlp``, ``resnet50``, ``minilm`` or ``bert-base``.
    path
        File to write; its folder must exist.
    precision
        ``fp32`` or ``int8``; `advisor.profiling.example_quantized` says how the latter is made.

    Raises
    ------
    InputError
        When there is no example of this name or precision, or the folder does not exist.
    """
    if name not in EXAMPLE_MODELS:
        raise InputError("example model", name, f"one of {', '.join(EXAMPLE_MODELS)}")
    if precision not in PRECISIONS:
        raise InputError("--precision", precision, f"one of {', '.join(PRECISIONS)}")
    if not path.parent.is_dir():
        raise InputError("folder of the model file", path.parent.name, "a folder that exists")
    model = EXAMPLE_MODELS[name]()
    if precision == "int8":
        save_quantized(model, path)
    else:
        onnx.save(model, path)


def save_quantized(model: onnx.ModelProto, path: Path) -> None:
    """Write a model of this module in int8, calibrated with synthetic inputs where it has convolutions."""
    if any(node.op_type == "Conv" for node in model.graph.node):
        plan, rng = plan_inputs(model.graph, InputOptions()), np.random.default_rng(WEIGHT_SEED)
        feeds = [plan.feeds(1, rng) for _ in range(_CALIBRATION_ITEMS)]
        save_with_quantized_convolutions(model, path, feeds)
    else:
        save_with_quantized_products(model, path)


def build_mlp(dims: MlpDimensions = MLP) -> onnx.ModelProto:
    """Build the classifier: ``features`` [batch, width] to ``logits`` [batch, classes]."""
    graph = GraphBuilder("mlp")
    value = graph.input("features", onnx.TensorProto.FLOAT, ["batch", dims.widths[0]])
    for index, (rows, columns) in enumerate(zip(dims.widths, dims.widths[1:], strict=False)):
        if index:
            value = graph.add("Relu", value)
        value = graph.dense(value, rows, columns, gain=2.0)
    return graph.finish(value, "logits", ["batch", dims.widths[-1]])


def build_resnet(dims: ResNetDimensions = RESNET50) -> onnx.ModelProto:
    """Build a ResNet v1.5: ``image`` [batch, 3, side, side] to ``logits`` [batch, classes].

    Version 1.5 puts the stride of a block in its 3×3 convolution. Batch norm is folded into weights and
    biases, as every inference engine does on loading.
    """
    graph = GraphBuilder("resnet")
    value = graph.input("image", onnx.TensorProto.FLOAT, ["batch", 3, dims.image_side, dims.image_side])
    value = graph.add("Relu", graph.convolution(value, 3, dims.width, side=7, stride=2))
    value = graph.add("MaxPool", value, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = dims.width
    for stage, count in enumerate(dims.blocks):
        inner, outer = dims.width << stage, 4 * dims.width << stage
        for block in range(count):
            stride = 2 if block == 0 and stage > 0 else 1
            value = _bottleneck(graph, value, channels, inner, outer, stride=stride)
            channels = outer
    value = graph.add("Flatten", graph.add("GlobalAveragePool", value), axis=1)
    value = graph.dense(value, channels, dims.classes)
    return graph.finish(value, "logits", ["batch", dims.classes])


def build_encoder(dims: EncoderDimensions = BERT_BASE) -> onnx.ModelProto:
    """Build a BERT encoder with free batch and sequence length, ending in ``last_hidden_state``."""
    graph = GraphBuilder("encoder")
    axes = ["batch", "sequence"]
    ids, mask, segments = (
        graph.input(name, onnx.TensorProto.INT64, axes) for name in ("input_ids", "attention_mask", "token_type_ids")
    )
    value = _embeddings(graph, dims, ids, segments)
    bias = _mask_bias(graph, mask)
    for _ in range(dims.layers):
        attended = _attention(graph, dims, value, bias)
        value = graph.layer_norm(graph.add("Add", value, attended), dims.hidden)
        inner = graph.dense(value, dims.hidden, dims.intermediate)
        outer = graph.dense(_gelu(graph, inner), dims.intermediate, dims.hidden)
        value = graph.layer_norm(graph.add("Add", value, outer), dims.hidden)
    return graph.finish(value, "last_hidden_state", [*axes, dims.hidden])


EXAMPLE_MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "mlp": build_mlp,
    "resnet50": build_resnet,
    "minilm": lambda: build_encoder(MINILM_L6),
    "bert-base": build_encoder,
}
"""Builders by name, from small to large."""


class GraphBuilder:
    """Nodes and random weights of a graph under construction; every method returns the name of its result."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rng = np.random.default_rng(WEIGHT_SEED)
        self._nodes: list[onnx.NodeProto] = []
        self._tensors: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, element: int, dims: Sequence[int | str]) -> str:
        """Declare an input."""
        self._inputs.append(onnx.helper.make_tensor_value_info(name, element, dims))
        return name

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Append a node with one output."""
        output = f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(onnx.helper.make_node(operator, list(inputs), [output], name=output, **attributes))
        return output

    def constant(self, values: npt.ArrayLike, dtype: npt.DTypeLike = np.int64) -> str:
        """Store a constant."""
        name = f"constant_{len(self._tensors)}"
        self._tensors.append(onnx.numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def weight(self, shape: Sequence[int], deviation: float) -> str:
        """Store random weights of mean zero."""
        values = self._rng.standard_normal(shape, dtype=np.float32)
        return self.constant(values * np.float32(deviation), np.float32)

    def dense(self, value: str, rows: int, columns: int, *, gain: float = 1.0) -> str:
        """Multiply by a matrix and add a bias; the result has `gain` times the variance of the input."""
        product = self.add("MatMul", value, self.weight((rows, columns), (gain / rows) ** 0.5))
        return self.add("Add", product, self.weight((columns,), TABLE_DEVIATION))

    def convolution(
        self, value: str, channels: int, filters: int, *, side: int, stride: int = 1, scale: float = 1.0
    ) -> str:
        """Convolve with square kernels and bias, padded to keep the size; variance kept through a ReLU."""
        deviation = scale * (2.0 / (channels * side * side)) ** 0.5
        weight = self.weight((filters, channels, side, side), deviation)
        return self.add(
            "Conv",
            value,
            weight,
            self.weight((filters,), TABLE_DEVIATION),
            kernel_shape=[side, side],
            strides=[stride, stride],
            pads=[side // 2] * 4,
        )

    def layer_norm(self, value: str, width: int) -> str:
        """Normalize the last axis, then scale by one and shift by zero."""
        scale, shift = self.constant(np.ones(width), np.float32), self.constant(np.zeros(width), np.float32)
        return self.add("LayerNormalization", value, scale, shift, axis=-1, epsilon=1e-12)

    def finish(self, value: str, name: str, dims: Sequence[int | str]) -> onnx.ModelProto:
        """Name the output and close the graph."""
        self._nodes.append(onnx.helper.make_node("Identity", [value], [name], name=name))
        output = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims)
        graph = onnx.helper.make_graph(self._nodes, self._name, self._inputs, [output], self._tensors)
        return onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION
        )


def _bottleneck(graph: GraphBuilder, value: str, channels: int, inner: int, outer: int, *, stride: int) -> str:
    """1×1, 3×3 with the stride, 1×1, and a shortcut that is projected where shapes differ."""
    branch = graph.add("Relu", graph.convolution(value, channels, inner, side=1))
    branch = graph.add("Relu", graph.convolution(branch, inner, inner, side=3, stride=stride))
    branch = graph.convolution(branch, inner, outer, side=1, scale=RESIDUAL_SCALE)
    if channels != outer:
        value = graph.convolution(value, channels, outer, side=1, stride=stride, scale=0.5**0.5)
    return graph.add("Relu", graph.add("Add", branch, value))


def _embeddings(graph: GraphBuilder, dims: EncoderDimensions, ids: str, segments: str) -> str:
    """Sum of word, position and segment embeddings, normalized.

    Positions are a slice of their table: a Gather by Range trips a fusion of ONNX Runtime 1.32.
    """
    words = graph.add("Gather", graph.weight((dims.vocabulary, dims.hidden), TABLE_DEVIATION), ids)
    length = graph.add("Slice", graph.add("Shape", ids), graph.constant([1]), graph.constant([2]))
    table = graph.weight((dims.positions, dims.hidden), TABLE_DEVIATION)
    positions = graph.add("Slice", table, graph.constant([0]), length, graph.constant([0]))
    kinds = graph.add("Gather", graph.weight((dims.segments, dims.hidden), TABLE_DEVIATION), segments)
    value = graph.add("Add", graph.add("Add", words, kinds), positions)
    return graph.layer_norm(value, dims.hidden)


def _mask_bias(graph: GraphBuilder, mask: str) -> str:
    """Zero where attention is allowed and a large negative number elsewhere, [batch, 1, 1, sequence]."""
    widened = graph.add("Unsqueeze", mask, graph.constant([1, 2]))
    numbers = graph.add("Cast", widened, to=onnx.TensorProto.FLOAT)
    forbidden = graph.add("Sub", graph.constant(1.0, np.float32), numbers)
    return graph.add("Mul", forbidden, graph.constant(-10000.0, np.float32))


def _attention(graph: GraphBuilder, dims: EncoderDimensions, value: str, bias: str) -> str:
    """Multi-head self-attention with its output layer."""
    head = dims.hidden // dims.heads
    split = graph.constant([0, 0, dims.heads, head])

    def heads(order: list[int]) -> str:
        """One projection of the input, split into heads."""
        projected = graph.dense(value, dims.hidden, dims.hidden)
        return graph.add("Transpose", graph.add("Reshape", projected, split), perm=order)

    query, key, content = heads([0, 2, 1, 3]), heads([0, 2, 3, 1]), heads([0, 2, 1, 3])
    scores = graph.add("Div", graph.add("MatMul", query, key), graph.constant(head**0.5, np.float32))
    weights = graph.add("Softmax", graph.add("Add", scores, bias), axis=-1)
    mixed = graph.add("Transpose", graph.add("MatMul", weights, content), perm=[0, 2, 1, 3])
    merged = graph.add("Reshape", mixed, graph.constant([0, 0, dims.hidden]))
    return graph.dense(merged, dims.hidden, dims.hidden)


def _gelu(graph: GraphBuilder, value: str) -> str:
    """x·Φ(x) = x/2·(1 + erf(x/√2)), in the form that ONNX Runtime fuses."""
    half = graph.add("Erf", graph.add("Div", value, graph.constant(2.0**0.5, np.float32)))
    raised = graph.add("Add", half, graph.constant(1.0, np.float32))
    return graph.add("Mul", graph.add("Mul", value, raised), graph.constant(0.5, np.float32))
