"""Inputs that the user's code makes: described for a profile, and put together as a server does."""

from collections.abc import Mapping, Sequence

import numpy as np

from advisor.domain.profile import TensorSpec
from advisor.errors import MeasurementError
from advisor.profiling.engines import Item
from advisor.profiling.inputs import BATCH, Array


def concatenate(items: Sequence[Item]) -> Item:
    """Items as one: arrays along their first axis, lists one after the other, dicts and tuples part by part.

    Raises
    ------
    MeasurementError
        When the items are of another kind.

    Examples
    --------
    >>> concatenate([["a"], ["b", "c"]])
    ['a', 'b', 'c']
    >>> {name: array.shape for name, array in concatenate([{"x": np.ones((1, 3))}, {"x": np.ones((1, 3))}]).items()}
    {'x': (2, 3)}
    """
    first = items[0]
    match first:
        case np.ndarray():
            return np.concatenate(items)
        case list():
            return [part for item in items for part in item]
        case tuple():
            return tuple(concatenate(parts) for parts in zip(*items, strict=True))
        case Mapping():
            return {key: concatenate([item[key] for item in items]) for key in first}
        case _:
            kind = type(first).__name__
            raise MeasurementError(f"Items of type {kind} cannot be joined; give the replica a method join(items).")


def specs(single: Item, pair: Item) -> tuple[TensorSpec, ...]:
    """Describe the inputs of a model that makes them itself.

    Parameters
    ----------
    single
        Input of one item.
    pair
        Input of two items, in which a longer axis is that of the batch; the same again where only one size is possible.

    Returns
    -------
    One for each array, where the input is an array or a dict or tuple of them; none for anything else.

    Examples
    --------
    >>> [(spec.name, spec.shape) for spec in specs({"x": np.ones((1, 3))}, {"x": np.ones((2, 3))})]
    [('x', ('batch', 3))]
    """
    ones, twos = _arrays(single), _arrays(pair)
    return tuple(
        TensorSpec(
            name=name,
            dtype=str(one.dtype),
            shape=tuple(dim if dim == other else BATCH for dim, other in zip(one.shape, twos[name].shape, strict=True)),
            fill="made by the callable's prepare()",
        )
        for name, one in ones.items()
        if name in twos and twos[name].ndim == one.ndim
    )


def _arrays(item: Item) -> dict[str, Array]:
    """Arrays of an input by name."""
    match item:
        case np.ndarray():
            return {"input": item}
        case Mapping():
            named = {str(key): value for key, value in item.items()}
        case tuple():
            named = {f"input {number}": value for number, value in enumerate(item)}
        case _:
            return {}
    return {name: value for name, value in named.items() if isinstance(value, np.ndarray)}
