"""The network in numpy: three matrix products."""

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from examples.platforms.weights import ABOUT, FloatArray, layers, make_inputs


class NumpyMlp:
    """A replica; inputs and scores never leave the client's memory."""

    def __init__(self, threads: int) -> None:
        # The limit is that of the whole process: replicas that run together have the same number of threads. It is
        # not taken back when one of them closes, since the others still compute.
        threadpool_limits(threads, user_api="blas")
        *self._hidden, self._last = layers()
        self.about = {**ABOUT, "runtime": "numpy", "version": np.__version__, "options": {"blas": _blas()}}

    def prepare(self, batch_size: int, rng: np.random.Generator) -> FloatArray:
        """Make the inputs of one call."""
        return make_inputs(batch_size, rng)

    def __call__(self, item: FloatArray) -> FloatArray:
        """Compute the scores."""
        values = item
        for layer in self._hidden:
            values = values @ layer.weights
            values += layer.biases
            np.maximum(values, 0, out=values)
        scores: FloatArray = values @ self._last.weights
        scores += self._last.biases
        return scores


def _blas() -> str:
    """Libraries of linear algebra in this process, each with its version; numpy uses one of them."""
    found = (library for library in threadpool_info() if library["user_api"] == "blas")
    return ", ".join(sorted({f"{library['internal_api']} {library['version']}" for library in found}))


def replica(threads: int = 1) -> NumpyMlp:
    """Make a replica that computes with so many threads."""
    return NumpyMlp(threads)
