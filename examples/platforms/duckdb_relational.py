"""The network in DuckDB with a row per weight: a layer is a join, a sum per neuron, and a join with the biases."""

import duckdb
import numpy as np
import pyarrow as pa

from examples.platforms.weights import ABOUT, CLASSES, FloatArray, layers, make_inputs

SCORES = """
WITH sums1 AS (
    SELECT id, neuron, sum(value * weight) AS total FROM inputs JOIN weights1 USING (source) GROUP BY id, neuron
), hidden1 AS (
    SELECT id, neuron AS source, greatest(total + bias, 0)::FLOAT AS value FROM sums1 JOIN biases1 USING (neuron)
), sums2 AS (
    SELECT id, neuron, sum(value * weight) AS total FROM hidden1 JOIN weights2 USING (source) GROUP BY id, neuron
), hidden2 AS (
    SELECT id, neuron AS source, greatest(total + bias, 0)::FLOAT AS value FROM sums2 JOIN biases2 USING (neuron)
), sums3 AS (
    SELECT id, neuron, sum(value * weight) AS total FROM hidden2 JOIN weights3 USING (source) GROUP BY id, neuron
)
SELECT (total + bias)::FLOAT AS score FROM sums3 JOIN biases3 USING (neuron) ORDER BY id, neuron
"""
"""All layers. DuckDB adds up in double precision; values between the layers are float32, as on the other platforms."""


class DuckdbRelational:
    """A replica: a database in memory with two tables for each layer."""

    def __init__(self, threads: int) -> None:
        self._database = duckdb.connect(":memory:", config={"threads": threads})
        for number, layer in enumerate(layers(), start=1):
            sources, neurons = np.indices(layer.weights.shape, dtype=np.int32).reshape(2, -1)
            weights = {"source": sources, "neuron": neurons, "weight": layer.weights.reshape(-1)}
            biases = {"neuron": np.arange(layer.biases.size, dtype=np.int32), "bias": layer.biases}
            for name, columns in (("weights", weights), ("biases", biases)):
                self._database.register("rows", pa.table(columns))
                self._database.execute(f"CREATE TABLE {name}{number} AS SELECT * FROM rows")
                self._database.unregister("rows")
        self.about = {
            **ABOUT,
            "runtime": "duckdb",
            "version": duckdb.__version__,
            "options": {"form": "a row per weight, join and sum"},
        }

    def prepare(self, batch_size: int, rng: np.random.Generator) -> FloatArray:
        """Make the inputs of one call."""
        return make_inputs(batch_size, rng)

    def __call__(self, item: FloatArray) -> FloatArray:
        """Lend the inputs to the database, a row per feature, and ask for the scores; see `duckdb_arrays`."""
        inputs, features = item.shape
        rows = {
            "id": np.repeat(np.arange(inputs, dtype=np.int32), features),
            "source": np.tile(np.arange(features, dtype=np.int32), inputs),
            "value": item.reshape(-1),
        }
        self._database.register("inputs", pa.table(rows))
        scores: FloatArray = self._database.execute(SCORES).fetchnumpy()["score"]
        return scores.reshape(-1, CLASSES)

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def replica(threads: int = 1) -> DuckdbRelational:
    """Make a replica whose database uses so many threads."""
    return DuckdbRelational(threads)
