"""What an answer tells about a model without knowing the model: whether it is numbers, and one for each item."""

import cmath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Numbers found in one place of an answer."""

    place: str
    count: int
    bad: int
    """NaN or infinite ones."""


def not_finite_note(output: object) -> tuple[str, ...]:
    """Note about an answer with NaN or infinity, whose arithmetic may be faster or slower than usual.

    Looks into dicts, lists and tuples, and at whatever NumPy takes for an array of floats.

    Parameters
    ----------
    output
        Answer of a model to one call.

    Returns
    -------
    One sentence that counts these numbers and names the first place; none where all numbers are finite.

    Examples
    --------
    >>> not_finite_note({"label": ["cat"], "score": np.array([1.0, np.nan])})
    ("NOT_FINITE: 1 of 2 numbers of the answer are NaN or infinite, first in output['score'], which can change speed.",)
    >>> not_finite_note([0.0, 1.0])
    ()
    """
    found = list(_numbers(output, "output"))
    first = next((numbers.place for numbers in found if numbers.bad), None)
    if first is None:
        return ()
    bad, count = sum(numbers.bad for numbers in found), sum(numbers.count for numbers in found)
    which = f"{bad} of {count} numbers of the answer are NaN or infinite, first in {first}"
    return (f"NOT_FINITE: {which}, which can change speed.",)


def answer_note(output: object, batch_size: int) -> tuple[str, ...]:
    """Note about an answer that does not look like one answer for each item of the batch.

    Arrays count by their first axis and lists by their length; of the parts of a dict or tuple, one that fits will do.
    Nothing is said about an answer without arrays and lists.

    Parameters
    ----------
    output
        Answer of a model to one call.
    batch_size
        Items of the call.

    Examples
    --------
    >>> answer_note(np.zeros((2, 10)), 2)
    ()
    >>> answer_note(np.zeros((1, 10)), 2)
    ('ANSWER: the answer to a batch of 2 has length 1, so it is doubtful that every item is answered.',)
    """
    match output:
        case Mapping():
            parts = list(output.values())
        case tuple():
            parts = list(output)
        case _:
            parts = [output]
    lengths = [length for length in map(_length, parts) if length is not None]
    if not lengths or batch_size in lengths:
        return ()
    told = "length " + " and ".join(map(str, dict.fromkeys(lengths)))
    return (
        f"ANSWER: the answer to a batch of {batch_size} has {told}, so it is doubtful that every item is answered.",
    )


def _length(part: object) -> int | None:
    """Length of a list or of the first axis of an array; None for anything else."""
    if isinstance(part, list):
        return len(part)
    shape = getattr(part, "shape", ()) if hasattr(part, "__array__") else ()
    return int(shape[0]) if shape else None


def _numbers(value: Any, place: str) -> Iterator[_Numbers]:
    """Floats of an answer, each array as one."""
    match value:
        case Mapping():
            for key, part in value.items():
                yield from _numbers(part, f"{place}[{key!r}]")
        case list() | tuple():
            for number, part in enumerate(value):
                yield from _numbers(part, f"{place}[{number}]")
        case float() | complex():
            yield _Numbers(place, 1, int(not cmath.isfinite(value)))
        case np.ndarray() | np.generic():
            if np.issubdtype(value.dtype, np.inexact):
                yield _Numbers(place, value.size, value.size - int(np.count_nonzero(np.isfinite(value))))
        case _ if hasattr(value, "__array__"):
            yield from _numbers(_as_array(value), place)


def _as_array(value: Any) -> Any:
    """The array that an object says it is; None where it cannot be had, as of a tensor that lies on a GPU."""
    try:
        return np.asarray(value)
    except Exception:  # the object is of an unknown library, which may raise anything
        return None
