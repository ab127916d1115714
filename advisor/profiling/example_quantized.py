"""Example models in int8, quantized by ONNX Runtime.

Activations are unsigned and weights signed, one scale per output channel, with weights in 7 bits. On x86 CPUs with
AVX2 or AVX-512 but without VNNI, ONNX Runtime multiplies such numbers with VPMADDUBSW, which adds two products of 8 by
8 bits in 16 bits and saturates; with 7-bit weights (at most 64 in size) 2 × 255 × 64 = 32,640 always fits. So the
answers are the same with and without VNNI, and the speed is that of 8 bits.

Products of matrices get their activation scale at run time. Convolutions get it from calibration, since ONNX Runtime
has fast kernels for them only with known scales.

References
----------
ONNX Runtime, "Quantize ONNX models", https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html:
dynamic quantization for transformers and static for convolutional networks; reduce_range where U8S8 saturates.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

from advisor.profiling.inputs import Feeds


def save_with_quantized_products(model: onnx.ModelProto, path: Path) -> None:
    """Write a model with its constant matrices in int8 and the scale of activations found at run time."""
    with _no_advice():
        quantize_dynamic(model, path, per_channel=True, reduce_range=True, weight_type=QuantType.QInt8)


def save_with_quantized_convolutions(model: onnx.ModelProto, path: Path, calibration: Sequence[Feeds]) -> None:
    """Write a model with weights and activations in int8, the range of activations taken from calibration inputs."""
    with _no_advice():
        quantize_static(
            model,
            path,
            _Calibration(calibration),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            reduce_range=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )


class _Calibration(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime ships no types
    """Calibration inputs, one after the other."""

    def __init__(self, feeds: Sequence[Feeds]) -> None:
        self._feeds = iter(feeds)

    def get_next(self) -> Feeds | None:
        """Return the next inputs; None at the end."""
        return next(self._feeds, None)


@contextmanager
def _no_advice() -> Iterator[None]:
    """Keep back the quantizer's advice to optimize the graph before, which these graphs do not need."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)
