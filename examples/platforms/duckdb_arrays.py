"""The network in DuckDB with a row per neuron: a layer is a cross join with `array_inner_product`."""

import duckdb
import numpy as np
import pyarrow as pa

from examples.platforms.weights import ABOUT, CLASSES, FloatArray, layers, make_inputs

SCORES = """
WITH hidden1 AS (
    SELECT id, list(greatest(array_inner_product(values, weights) + bias, 0) ORDER BY neuron)::FLOAT[128] AS values
    FROM inputs CROSS JOIN layer1 GROUP BY id
), hidden2 AS (
    SELECT id, list(greatest(array_inner_product(values, weights) + bias, 0) ORDER BY neuron)::FLOAT[64] AS values
    FROM hidden1 CROSS JOIN layer2 GROUP BY id
)
SELECT array_inner_product(values, weights) + bias AS score
FROM hidden2 CROSS JOIN layer3 ORDER BY id, neuron
"""
"""All layers. Without ORDER BY a list holds its neurons in any order: right for one input and wrong for thirty."""


class DuckdbArrays:
    """A replica: a database in memory with one table for each layer."""

    def __init__(self, threads: int) -> None:
        self._database = duckdb.connect(":memory:", config={"threads": threads})
        for number, layer in enumerate(layers(), start=1):
            neurons = pa.table(
                {
                    "neuron": np.arange(layer.biases.size, dtype=np.int32),
                    "weights": _arrays(layer.weights.T),
                    "bias": layer.biases,
                }
            )
            self._database.register("neurons", neurons)
            self._database.execute(f"CREATE TABLE layer{number} AS SELECT * FROM neurons")
            self._database.unregister("neurons")
        self.about = {
            **ABOUT,
            "runtime": "duckdb",
            "version": duckdb.__version__,
            "options": {"form": "a row per neuron, array_inner_product"},
        }

    def prepare(self, batch_size: int, rng: np.random.Generator) -> FloatArray:
        """Make the inputs of one call."""
        return make_inputs(batch_size, rng)

    def __call__(self, item: FloatArray) -> FloatArray:
        """Lend the inputs to the database as a view of this process's memory, and ask for the scores.

        The Arrow table is not copied, and the statement is parsed and planned in every call. In trials with 1, 32 and
        256 inputs a table found by its variable's name, an INSERT, and PREPARE took as long within a tenth.
        """
        ids = np.arange(len(item), dtype=np.int32)
        self._database.register("inputs", pa.table({"id": ids, "values": _arrays(item)}))
        scores: FloatArray = self._database.execute(SCORES).fetchnumpy()["score"]
        return scores.reshape(-1, CLASSES)

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def _arrays(matrix: FloatArray) -> pa.FixedSizeListArray:
    """One array per row of a matrix."""
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), matrix.shape[1])


def replica(threads: int = 1) -> DuckdbArrays:
    """Make a replica whose database uses so many threads."""
    return DuckdbArrays(threads)
