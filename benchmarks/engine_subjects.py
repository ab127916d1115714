"""What `benchmarks.engines` measures: one ONNX file as a Python callable, as a PyTorch module, and behind HTTP.

The file comes from the environment variable ENGINE_SUBJECT, so that the targets are plain ``module:factory``.
"""

import base64
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

SEQUENCE_LENGTH = 128
IMAGE = (3, 224, 224)
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


def make_inputs(names: list[str], batch_size: int, rng: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    """Inputs of an image or a text model, as the advisor makes them from the graph."""
    if len(names) == 1:
        return {names[0]: rng.standard_normal((batch_size, *IMAGE), dtype=np.float32)}
    shape = (batch_size, SEQUENCE_LENGTH)
    made = {
        "input_ids": rng.integers(0, VOCABULARY, shape),
        "attention_mask": np.ones(shape, np.int64),
        "token_type_ids": np.zeros(shape, np.int64),
    }
    return {name: made[name] for name in names}


class OnnxCallable:
    """ONNX Runtime called by the user's own code."""

    def __init__(self, threads: int = 1) -> None:
        self._session = session(threads)
        self._names = [found.name for found in self._session.get_inputs()]

    def prepare(self, batch_size: int, rng: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
        """Make the inputs of one call."""
        return make_inputs(self._names, batch_size, rng)

    def __call__(self, item: dict[str, np.ndarray[Any, Any]]) -> list[Any]:
        """Run the model once."""
        return list(self._session.run(None, item))


def encode(inputs: dict[str, np.ndarray[Any, Any]]) -> str:
    """One item as text: the bytes of the largest input, since the others are constants."""
    return base64.b64encode(max(inputs.values(), key=lambda array: array.nbytes).tobytes()).decode()


def decode(items: list[str], names: list[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Inputs of one call from the items of a request."""
    if len(names) == 1:
        pixels = [np.frombuffer(base64.b64decode(item), np.float32).reshape(IMAGE) for item in items]
        return {names[0]: np.stack(pixels)}
    ids = np.stack([np.frombuffer(base64.b64decode(item), np.int64) for item in items])
    made = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    return {name: made[name] for name in names}
