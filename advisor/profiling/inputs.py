"""Inputs without a data set: what the user may choose, and how the values of each input are made."""

import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from advisor.domain.profile import TensorSpec
from advisor.errors import InputError

BATCH: Literal["batch"] = "batch"
DEFAULT_SEQUENCE_LENGTH = 128
DEFAULT_IMAGE_SIDE = 224
SAMPLE_RATE_HZ = 16_000
"""Sample rate that models of speech are trained for: an assumption, printed with the inputs."""

_MASK_NAME = re.compile(r"mask", re.IGNORECASE)
_SEGMENT_NAME = re.compile(r"type|segment", re.IGNORECASE)
_RATE_NAME = re.compile(r"^sr$|sampl\w*_?rate", re.IGNORECASE)
_LENGTH_NAME = re.compile(r"len(gth)?s?$", re.IGNORECASE)

Dimension = int | Literal["batch"]
Array = npt.NDArray[np.generic]
Feeds = dict[str, Array]


@dataclass(frozen=True, slots=True)
class InputOptions:
    """What the user may choose about the inputs."""

    sequence_length: int = DEFAULT_SEQUENCE_LENGTH
    image_side: int = DEFAULT_IMAGE_SIDE
    shapes: Mapping[str, tuple[Dimension, ...]] = field(default_factory=dict)
    samples: Mapping[str, Array] = field(default_factory=dict)
    """Values to draw from, by input; see `read_samples`."""


@dataclass(frozen=True, slots=True)
class InputRule:
    """How one input is made: normal numbers, integers below `number`, that number alone, or samples of the user."""

    name: str
    dtype: np.dtype[np.generic]
    dims: tuple[Dimension, ...]
    kind: Literal["normal", "integers", "constant", "samples"]
    number: int = 0
    found_by_trying: bool = False
    """Whether an axis got a length that neither the graph nor the user gives."""
    sample: Array | None = field(default=None, compare=False)

    def spec(self) -> TensorSpec:
        """Describe the input for the profile."""
        fill = {
            "normal": "normal numbers, mean 0, deviation 1",
            "integers": f"random integers in [0, {self.number})",
            "constant": {0: "zeros", 1: "ones"}.get(self.number, f"the number {self.number}"),
            "samples": "samples given by the user",
        }[self.kind]
        found = "; shape found by trying" if self.found_by_trying else ""
        return TensorSpec(name=self.name, dtype=str(self.dtype), shape=self.dims, fill=fill + found)

    def make(self, items: npt.NDArray[np.int64], rng: np.random.Generator) -> Array:
        """Make the values of one call of so many `items`; their numbers choose among the user's samples."""
        shape = tuple(items.size if dim == BATCH else dim for dim in self.dims)
        if self.sample is not None:
            return np.take(self.sample, items, axis=self.dims.index(BATCH)) if BATCH in self.dims else self.sample
        match self.kind:
            case "normal":
                return rng.standard_normal(shape, dtype=np.float32).astype(self.dtype, copy=False)
            case "integers":
                return rng.integers(0, self.number, shape).astype(self.dtype)
            case _:
                return np.full(shape, self.number, self.dtype)


@dataclass(frozen=True, slots=True)
class InputPlan:
    """How all inputs of a model are made."""

    rules: tuple[InputRule, ...]
    sequence_length: int | None
    fixed_batch_size: int | None
    batch_named: bool = True
    """Whether the graph or the user names the batch axis; else it is a guess."""

    def feeds(self, batch_size: int, rng: np.random.Generator) -> Feeds:
        """Make the inputs of one call; samples of the user are drawn with replacement, together in all inputs."""
        there = [
            rule.sample.shape[rule.dims.index(BATCH)]
            for rule in self.rules
            if rule.sample is not None and BATCH in rule.dims
        ]
        items = rng.integers(0, there[0], batch_size) if there else np.zeros(batch_size, np.int64)
        return {rule.name: rule.make(items, rng) for rule in self.rules}

    def join(self, items: Sequence[Feeds]) -> Feeds:
        """Concatenate the inputs of several calls along their batch axes; one without such an axis is the first's."""
        return {
            rule.name: np.concatenate([item[rule.name] for item in items], axis=rule.dims.index(BATCH))
            if BATCH in rule.dims
            else items[0][rule.name]
            for rule in self.rules
        }

    def last_item(self, feeds: Feeds) -> Feeds:
        """Inputs of the last item of a call alone."""
        return {
            rule.name: np.take(feeds[rule.name], [-1], axis=rule.dims.index(BATCH))
            if BATCH in rule.dims
            else feeds[rule.name]
            for rule in self.rules
        }


def parse_shape(text: str) -> tuple[str, tuple[Dimension, ...]]:
    """Read a shape given by the user.

    The word ``batch`` marks the batch axis. Without it a leading 1 on a free axis is the batch axis.

    Raises
    ------
    InputError
        When the text is not a name, an equal sign and positive whole numbers.

    Examples
    --------
    >>> parse_shape("image=1,3,48,320")
    ('image', (1, 3, 48, 320))
    >>> parse_shape("state=2,batch,128")
    ('state', (2, 'batch', 128))
    """
    name, _, numbers = text.rpartition("=")
    parts = [part.strip() for part in numbers.split(",")]
    if parts.count(BATCH) > 1:
        raise InputError("--shape", text, "the word batch once at most")
    if not name or not all(part == BATCH or (part.isdecimal() and int(part) > 0) for part in parts):
        raise InputError("--shape", text, "name=1,3,224,224 with whole numbers above 0 or the word batch")
    return name, tuple(BATCH if part == BATCH else int(part) for part in parts)


def read_samples(path: Path) -> dict[str, Array]:
    """Read the user's samples: one array per input, with several items along its batch axis.

    Raises
    ------
    InputError
        When the file is missing or holds no arrays.
    """
    allowed = "a NumPy .npz file with one array per input"
    if not path.is_file() or not zipfile.is_zipfile(path):
        raise InputError("--inputs", path.name, allowed)
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: np.asarray(arrays[name]) for name in arrays.files}
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError("--inputs", path.name, allowed) from error


def fill_rule(
    name: str, dtype: np.dtype[np.generic], dims: tuple[Dimension, ...], *, high: int | None, length: int | None
) -> InputRule:
    """Choose the values of one input by its name and type.

    Parameters
    ----------
    name, dtype, dims
        The input.
    high
        Rows of the lookup table that its integers index, if any.
    length
        Longest axis of the other inputs, which an input of lengths tells; None when nothing tells it.
    """
    if _MASK_NAME.search(name) or dtype.kind == "b":
        return InputRule(name, dtype, dims, "constant", 1)
    if dtype.kind == "f":
        return InputRule(name, dtype, dims, "normal")
    if high is None and len(dims) <= 1 and _RATE_NAME.search(name):
        return InputRule(name, dtype, dims, "constant", SAMPLE_RATE_HZ)
    if high is None and len(dims) <= 1 and length is not None and _LENGTH_NAME.search(name):
        return InputRule(name, dtype, dims, "constant", length)
    if _SEGMENT_NAME.search(name):
        return InputRule(name, dtype, dims, "constant", 0)
    if high is None and dtype == np.uint8 and len(dims) == 4:
        high = 256
    return InputRule(name, dtype, dims, "integers", high if high is not None else 2)
