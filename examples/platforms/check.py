"""Do all platforms give the same scores? Compares each with numpy in double precision and prints the difference."""

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from examples.platforms.weights import FEATURES, exact_scores, make_inputs

BATCH_SIZES = (1, 32, 256)
TOLERANCE_FRAC = FEATURES * 2.0**-24
"""Bound of the relative error of a float32 sum of so many terms, number times unit roundoff (Higham, Accuracy and
Stability of Numerical Algorithms, chapter 3); here of the largest score."""
_SEED = 0


@dataclass(frozen=True, slots=True)
class Platform:
    """One way to run the network."""

    name: str
    """For people."""
    module: str
    """Module of this folder."""
    package: str
    """What must be installed."""

    @property
    def target(self) -> str:
        """What ``advisor profile`` is given."""
        return f"{__package__}.{self.module}:replica"

    def is_installed(self) -> bool:
        """Whether the package is there."""
        return importlib.util.find_spec(self.package) is not None

    def replica(self, threads: int = 1) -> Any:
        """Make a replica."""
        return importlib.import_module(f"{__package__}.{self.module}").replica(threads)


PLATFORMS = (
    Platform("ONNX Runtime", "onnx_mlp", "onnxruntime"),
    Platform("numpy", "numpy_mlp", "numpy"),
    Platform("PyTorch", "torch_mlp", "torch"),
    Platform("DuckDB, a row per neuron", "duckdb_arrays", "duckdb"),
    Platform("DuckDB, a row per weight", "duckdb_relational", "duckdb"),
)


def largest_difference_frac(platform: Platform, batch_sizes: Sequence[int] = BATCH_SIZES) -> float:
    """Largest difference from the exact scores over all batches, as a fraction of the largest score."""
    rng = np.random.default_rng(_SEED)
    replica = platform.replica()
    found = []
    for size in batch_sizes:
        inputs = make_inputs(size, rng)
        exact = exact_scores(inputs)
        found.append(float(np.abs(replica(inputs) - exact).max() / np.abs(exact).max()))
    if hasattr(replica, "close"):
        replica.close()
    return max(found)


def main() -> None:
    """Compare the platforms that are installed; leave with 1 where one differs."""
    failed = False
    for platform in PLATFORMS:
        if not platform.is_installed():
            sys.stdout.write(f"{platform.name}: {platform.package} is not installed\n")
            continue
        difference_frac = largest_difference_frac(platform)
        differs = difference_frac > TOLERANCE_FRAC
        failed |= differs
        verdict = "differs" if differs else "equal"
        sys.stdout.write(f"{platform.name}: {verdict}, at most {difference_frac:.1e} of the largest score\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
