# mypy: disallow-subclassing-any=False
# PyTorch is not a dependency: where it is missing, its classes are of unknown type.
"""Real architectures as PyTorch modules with random weights: targets to profile without a download.

They have the layers of `advisor.profiling.example_models`, and its weights: the same numbers in the same order.
Attention is `scaled_dot_product_attention`, as models for PyTorch 2 use it. Use them as
``advisor profile advisor.profiling.example_torch:resnet50``.
"""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from advisor.errors import InputError, MeasurementError
from advisor.profiling.example_dimensions import (
    BERT_BASE,
    GPT2,
    MINILM_L6,
    RESIDUAL_SCALE,
    RESNET50,
    TABLE_DEVIATION,
    WEIGHT_SEED,
    DecoderDimensions,
    EncoderDimensions,
    ResNetDimensions,
)

Precision: TypeAlias = Literal["fp32", "fp16", "bf16"]
"""Type of weights and activations."""

Module = TypeVar("Module", bound=nn.Module)

_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class ResNet(nn.Module):
    """A ResNet v1.5: ``image`` [batch, 3, side, side] to logits [batch, classes]; batch norm is folded."""

    def __init__(self, dims: ResNetDimensions = RESNET50) -> None:
        super().__init__()
        weights = _Weights()
        self._side = dims.image_side
        self.stem = weights.convolution(3, dims.width, side=7, stride=2)
        blocks, channels = [], dims.width
        for stage, count in enumerate(dims.blocks):
            inner, outer = dims.width << stage, 4 * dims.width << stage
            for block in range(count):
                stride = 2 if block == 0 and stage > 0 else 1
                blocks.append(_Bottleneck(weights, channels, inner, outer, stride=stride))
                channels = outer
        self.blocks = nn.Sequential(*blocks)
        self.head = weights.dense(channels, dims.classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Score images."""
        value = functional.max_pool2d(functional.relu(self.stem(image)), 3, stride=2, padding=1)
        logits: torch.Tensor = self.head(self.blocks(value).mean((2, 3)))
        return logits

    def prepare(self, batch_size: int, rng: np.random.Generator) -> dict[str, torch.Tensor]:
        """Make images of normal numbers."""
        image = rng.standard_normal((batch_size, 3, self._side, self._side), dtype=np.float32)
        return {"image": torch.from_numpy(image).to(self.head.weight.dtype)}


class Encoder(nn.Module):
    """A BERT encoder without pooler or head, ending in one vector per token.

    Parameters
    ----------
    dims
        Its size.
    sequence_length
        Tokens of the inputs that it makes.
    """

    def __init__(self, dims: EncoderDimensions = BERT_BASE, *, sequence_length: int = 128) -> None:
        super().__init__()
        weights = _Weights()
        self._length = sequence_length
        self.words = weights.table(dims.vocabulary, dims.hidden)
        self.positions = weights.table(dims.positions, dims.hidden)
        self.segments = weights.table(dims.segments, dims.hidden)
        self.norm = weights.layer_norm(dims.hidden, epsilon=1e-12)
        self.layers = nn.ModuleList(_EncoderLayer(weights, dims) for _ in range(dims.layers))

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> torch.Tensor:
        """Encode tokens."""
        positions = self.positions.weight[: input_ids.shape[1]]
        value: torch.Tensor = self.norm(self.words(input_ids) + self.segments(token_type_ids) + positions)
        allowed = attention_mask[:, None, None, :].bool()
        for layer in self.layers:
            value = layer(value, allowed)
        return value

    def prepare(self, batch_size: int, rng: np.random.Generator) -> dict[str, torch.Tensor]:
        """Make random tokens of one segment, none of them masked."""
        shape = (batch_size, self._length)
        return {
            "input_ids": _tokens(rng, self.words.num_embeddings, shape),
            "attention_mask": torch.ones(shape, dtype=torch.int64),
            "token_type_ids": torch.zeros(shape, dtype=torch.int64),
        }


class Decoder(nn.Module):
    """A GPT-2 decoder that reads a prompt without a cache and scores the token after it.

    Parameters
    ----------
    dims
        Its size.
    sequence_length
        Tokens of the prompts that it makes.
    """

    def __init__(self, dims: DecoderDimensions = GPT2, *, sequence_length: int = 128) -> None:
        super().__init__()
        weights = _Weights()
        self._length = sequence_length
        self.words = weights.table(dims.vocabulary, dims.hidden)
        self.positions = weights.table(dims.positions, dims.hidden)
        self.layers = nn.ModuleList(_DecoderLayer(weights, dims) for _ in range(dims.layers))
        self.norm = weights.layer_norm(dims.hidden, epsilon=1e-5)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Score the next token, [batch, vocabulary]."""
        value = self.words(input_ids) + self.positions.weight[: input_ids.shape[1]]
        for layer in self.layers:
            value = layer(value)
        return functional.linear(self.norm(value[:, -1]), self.words.weight)

    def prepare(self, batch_size: int, rng: np.random.Generator) -> dict[str, torch.Tensor]:
        """Make prompts of random tokens."""
        return {"input_ids": _tokens(rng, self.words.num_embeddings, (batch_size, self._length))}


def resnet50(precision: Precision = "fp32") -> ResNet:
    """ResNet-50 v1.5 on images of 224 × 224."""
    return _cast(ResNet(), precision)


def minilm(precision: Precision = "fp32") -> Encoder:
    """MiniLM-L6 on 128 tokens."""
    return _cast(Encoder(MINILM_L6), precision)


def bert_base_128(precision: Precision = "fp32") -> Encoder:
    """BERT-base on 128 tokens."""
    return _cast(Encoder(), precision)


def bert_base_384(precision: Precision = "fp32") -> Encoder:
    """BERT-base on 384 tokens, the length of question answering in MLPerf Inference."""
    return _cast(Encoder(sequence_length=384), precision)


def decoder_128(precision: Precision = "fp32") -> Decoder:
    """GPT-2 of 124 million weights on prompts of 128 tokens."""
    return _cast(Decoder(), precision)


def load_onnx_weights(module: ResNet | Encoder, path: Path) -> None:
    """Fill a module with the weights of an example model in ONNX of the same dimensions.

    Parameters
    ----------
    module
        The module to fill.
    path
        A file of `advisor.profiling.example_models.build_example_model` in fp32.

    Raises
    ------
    MeasurementError
        When the package onnx is not installed.
    InputError
        When the file has other weights.
    """
    try:
        onnx = importlib.import_module("onnx")
    except ModuleNotFoundError as error:
        raise MeasurementError("The package onnx is not installed; pip install onnx.") from error
    tensors = [tensor for tensor in onnx.load(path).graph.initializer if tensor.dims]
    arrays = [array for array in map(onnx.numpy_helper.to_array, tensors) if array.dtype == np.float32]
    places = list(_parameters(module))
    shapes = [tuple(place.shape) for place in places]
    if [array.shape for array in arrays] != shapes:
        weights = sum(array.size for array in arrays)
        allowed = f"a file whose {len(shapes)} tensors have the shapes of the module"
        raise InputError("model", f"{path.name} with {len(arrays)} tensors and {weights} weights", allowed)
    with torch.no_grad():
        for place, array in zip(places, arrays, strict=True):
            place.copy_(torch.from_numpy(array.copy()))


class _Weights:
    """Layers with random weights, drawn in the order in which they are made.

    They are made on the device "meta" first, which spares the random numbers that PyTorch would fill them with.
    """

    def __init__(self) -> None:
        self._rng = np.random.default_rng(WEIGHT_SEED)

    def dense(self, rows: int, columns: int, *, scale: float = 1.0) -> nn.Linear:
        """Matrix and bias; the result has `scale`² times the variance of the input."""
        layer = nn.Linear(rows, columns, device="meta").to_empty(device="cpu")
        self._fill(layer.weight.T, scale * (1.0 / rows) ** 0.5)
        self._fill(layer.bias, TABLE_DEVIATION)
        return layer

    def convolution(self, channels: int, filters: int, *, side: int, stride: int = 1, scale: float = 1.0) -> nn.Conv2d:
        """Square kernels and bias, padded to keep the size; variance kept through a ReLU."""
        layer = nn.Conv2d(channels, filters, side, stride, side // 2, device="meta").to_empty(device="cpu")
        weight, bias = layer.parameters()
        self._fill(weight, scale * (2.0 / (channels * side * side)) ** 0.5)
        self._fill(bias, TABLE_DEVIATION)
        return layer

    def table(self, rows: int, columns: int) -> nn.Embedding:
        """Lookup table."""
        layer = nn.Embedding(rows, columns, device="meta").to_empty(device="cpu")
        self._fill(layer.weight, TABLE_DEVIATION)
        return layer

    def layer_norm(self, width: int, *, epsilon: float) -> nn.LayerNorm:
        """Normalize the last axis, then scale by one and shift by zero."""
        return nn.LayerNorm(width, eps=epsilon)

    def _fill(self, place: torch.Tensor, deviation: float) -> None:
        """Draw normal numbers in the order of the axes of a view."""
        values = self._rng.standard_normal(tuple(place.shape), dtype=np.float32) * np.float32(deviation)
        with torch.no_grad():
            place.copy_(torch.from_numpy(values))


class _Bottleneck(nn.Module):
    """1×1, 3×3 with the stride, 1×1, and a shortcut that is projected where shapes differ."""

    def __init__(self, weights: _Weights, channels: int, inner: int, outer: int, *, stride: int) -> None:
        super().__init__()
        self.first = weights.convolution(channels, inner, side=1)
        self.second = weights.convolution(inner, inner, side=3, stride=stride)
        self.third = weights.convolution(inner, outer, side=1, scale=RESIDUAL_SCALE)
        projected = channels != outer
        self.shortcut = (
            weights.convolution(channels, outer, side=1, stride=stride, scale=0.5**0.5) if projected else nn.Identity()
        )

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Add the branch to the shortcut."""
        branch = functional.relu(self.second(functional.relu(self.first(value))))
        return functional.relu(self.third(branch) + self.shortcut(value))


class _EncoderLayer(nn.Module):
    """Attention and two dense layers, each normalized after it is added."""

    def __init__(self, weights: _Weights, dims: EncoderDimensions) -> None:
        super().__init__()
        self._heads = dims.heads
        self.query = weights.dense(dims.hidden, dims.hidden)
        self.key = weights.dense(dims.hidden, dims.hidden)
        self.content = weights.dense(dims.hidden, dims.hidden)
        self.merge = weights.dense(dims.hidden, dims.hidden)
        self.attention_norm = weights.layer_norm(dims.hidden, epsilon=1e-12)
        self.inner = weights.dense(dims.hidden, dims.intermediate)
        self.outer = weights.dense(dims.intermediate, dims.hidden)
        self.norm = weights.layer_norm(dims.hidden, epsilon=1e-12)

    def forward(self, value: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
        """Attend to the tokens that the mask allows."""
        query, key, content = (_split(part(value), self._heads) for part in (self.query, self.key, self.content))
        mixed = functional.scaled_dot_product_attention(query, key, content, attn_mask=allowed)
        value = self.attention_norm(value + self.merge(mixed.transpose(1, 2).flatten(2)))
        value = self.norm(value + self.outer(functional.gelu(self.inner(value))))
        return value


class _DecoderLayer(nn.Module):
    """Causal attention and two dense layers, each normalized before it."""

    def __init__(self, weights: _Weights, dims: DecoderDimensions) -> None:
        super().__init__()
        self._heads = dims.heads
        self.attention_norm = weights.layer_norm(dims.hidden, epsilon=1e-5)
        self.projections = weights.dense(dims.hidden, 3 * dims.hidden)
        self.merge = weights.dense(dims.hidden, dims.hidden, scale=RESIDUAL_SCALE)
        self.norm = weights.layer_norm(dims.hidden, epsilon=1e-5)
        self.inner = weights.dense(dims.hidden, dims.intermediate)
        self.outer = weights.dense(dims.intermediate, dims.hidden, scale=RESIDUAL_SCALE)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Attend to the tokens before."""
        projected = self.projections(self.attention_norm(value)).chunk(3, dim=-1)
        query, key, content = (_split(part, self._heads) for part in projected)
        mixed = functional.scaled_dot_product_attention(query, key, content, is_causal=True)
        value = value + self.merge(mixed.transpose(1, 2).flatten(2))
        branch: torch.Tensor = self.outer(functional.gelu(self.inner(self.norm(value)), approximate="tanh"))
        return value + branch


def _split(value: torch.Tensor, heads: int) -> torch.Tensor:
    """[batch, sequence, hidden] as [batch, heads, sequence, width]."""
    return value.view(*value.shape[:-1], heads, -1).transpose(1, 2)


def _tokens(rng: np.random.Generator, vocabulary: int, shape: tuple[int, int]) -> torch.Tensor:
    """Random tokens."""
    ids: npt.NDArray[np.int64] = rng.integers(0, vocabulary, shape)
    return torch.from_numpy(ids)


def _parameters(module: nn.Module) -> Iterator[Any]:
    """Weights in the order and with the axes of ONNX, where a matrix has its inputs first."""
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            yield parameter.T if isinstance(part, nn.Linear) and name == "weight" else parameter


def _cast(module: Module, precision: Precision) -> Module:
    """Convert the weights.

    Raises
    ------
    InputError
        When there is no such precision.
    """
    if precision not in _DTYPES:
        raise InputError("precision", precision, f"one of {', '.join(_DTYPES)}")
    module.to(_DTYPES[precision]).eval()
    return module
