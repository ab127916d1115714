"""The network in ONNX Runtime, called from Python as a service would call it."""

import numpy as np
import onnxruntime

from examples.platforms.weights import ABOUT, FloatArray, make_inputs, onnx_bytes


class OnnxMlp:
    """A replica with a session of its own."""

    def __init__(self, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Threads that wait in busy loops would take the CPUs of other replicas.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(onnx_bytes(), options, providers=["CPUExecutionProvider"])
        self.about = {
            **ABOUT,
            "runtime": "onnxruntime",
            "version": onnxruntime.__version__,
            "options": {"provider": "CPUExecutionProvider", "allow_spinning": False},
        }

    def prepare(self, batch_size: int, rng: np.random.Generator) -> FloatArray:
        """Make the inputs of one call."""
        return make_inputs(batch_size, rng)

    def __call__(self, item: FloatArray) -> FloatArray:
        """Compute the scores."""
        scores: FloatArray = self._session.run(None, {"features": item})[0]
        return scores


def replica(threads: int = 1) -> OnnxMlp:
    """Make a replica that computes with so many threads."""
    return OnnxMlp(threads)
