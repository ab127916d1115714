"""What `benchmarks.engines` measures: one ONNX file as a Python callable, as a PyTorch module, and behind HTTP.

The file comes from the environment variable ENGINE_SUBJECT, so that the targets are plain ``module:factory``.
"""

import base64
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

SEQUENCE_LENGTH = 128
VOCABULARY = 30522


def subject() -> Path:
    """The ONNX file."""
    return Path(os.environ["ENGINE_SUBJECT"])


def session(threads: int) -> onnxruntime.InferenceSession:
    """Open the file as the ONNX engine of the advisor does for one replica."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(subject(), options, providers=["CPUExecutionProvider"])


def make_inputs(declared: Sequence[Any], batch_size: int, rng: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    """Inputs of a model of numbers or of text, as the advisor makes them from the graph."""
    if len(declared) == 1:
        shape = (batch_size, *declared[0].shape[1:])
        return {declared[0].name: rng.standard_normal(shape, dtype=np.float32)}
    return _of_tokens(declared, rng.integers(0, VOCABULARY, (batch_size, SEQUENCE_LENGTH)))


def _of_tokens(declared: Sequence[Any], ids: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Inputs of a model of text: tokens of one segment, none of them masked."""
    made = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    return {found.name: made[found.name] for found in declared}


class OnnxCallable:
    """ONNX Runtime called by the user's own code."""

    def __init__(self, threads: int = 1) -> None:
        self._session = session(threads)
        self._declared = self._session.get_inputs()

    def prepare(self, batch_size: int, rng: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
        """Make the inputs of one call."""
        return make_inputs(self._declared, batch_size, rng)

    def __call__(self, item: dict[str, np.ndarray[Any, Any]]) -> list[Any]:
        """Run the model once."""
        return list(self._session.run(None, item))


def encode(inputs: dict[str, np.ndarray[Any, Any]]) -> str:
    """One item as text: the bytes of the largest input, since the others are constants."""
    return base64.b64encode(max(inputs.values(), key=lambda array: array.nbytes).tobytes()).decode()


def decode(items: list[str], declared: Sequence[Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Inputs of one call from the items of a request."""
    data = [base64.b64decode(item) for item in items]
    if len(declared) == 1:
        shape = declared[0].shape[1:]
        return {declared[0].name: np.stack([np.frombuffer(each, np.float32).reshape(shape) for each in data])}
    return _of_tokens(declared, np.stack([np.frombuffer(each, np.int64) for each in data]))
