"""The network of all platforms: fully connected 784-128-64-10 with ReLU, float32, as ``advisor example-model mlp``."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx

from advisor.profiling.example_dimensions import MLP
from advisor.profiling.example_models import build_mlp

FloatArray = npt.NDArray[np.float32]

FEATURES, CLASSES = MLP.widths[0], MLP.widths[-1]
ABOUT = {
    "precision": "fp32",
    "parameters": MLP.parameters,
    "size_bytes": MLP.parameters * np.dtype(np.float32).itemsize,
}
"""What every platform says about the network."""


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """One fully connected layer."""

    weights: FloatArray
    """[inputs, neurons]."""
    biases: FloatArray
    """[neurons]."""


def onnx_bytes() -> bytes:
    """Return the ONNX file of ``advisor example-model mlp``."""
    content: bytes = build_mlp().SerializeToString()
    return content


def layers() -> tuple[Layer, ...]:
    """Layers from the input on, with the weights of the ONNX file.

    Examples
    --------
    >>> [layer.weights.shape for layer in layers()]
    [(784, 128), (128, 64), (64, 10)]
    """
    tensors = [onnx.numpy_helper.to_array(tensor) for tensor in build_mlp().graph.initializer]
    return tuple(map(Layer, tensors[::2], tensors[1::2]))


def make_inputs(batch_size: int, rng: np.random.Generator) -> FloatArray:
    """Inputs of one call: normal numbers, mean 0, deviation 1 [batch, features]."""
    return rng.standard_normal((batch_size, FEATURES), dtype=np.float32)


def exact_scores(inputs: FloatArray) -> npt.NDArray[np.float64]:
    """Scores in double precision [batch, classes], with which the platforms are compared."""
    *hidden, last = layers()
    values = inputs.astype(np.float64)
    for layer in hidden:
        values = np.maximum(values @ layer.weights.astype(np.float64) + layer.biases, 0)
    return values @ last.weights.astype(np.float64) + last.biases
