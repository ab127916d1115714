"""Service times for the simulator: one law per batch size, drawn in compiled loops."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]

_TABLE, _LOGNORMAL, _EXPONENTIAL, _SERIES = 0, 1, 2, 3
_GUIDES = 64
"""Starting points of the search in a table, evenly spread over the probabilities."""


class LawArrays(NamedTuple):
    """What the compiled loops need; a named tuple, since they cannot take objects."""

    kind: int
    edges_s: Array
    cumulative: Array
    guide: NDArray[np.int64]
    mean_s: Array
    sigma: Array
    series_s: Array
    block: int
    idle_start_s: Array


@dataclass(frozen=True)
class ServiceLaw:
    """Distribution of the service time per batch size b = 1 … B.

    Attributes
    ----------
    mean_s
        Mean time of a batch of b [s]; shape (B,).
    edges_s, cumulative
        Table: row b-1 has increasing edges [s] and P(S ≤ edge) from 0 to 1, linear between; shape (B, points).
    sigma
        Lognormal: standard deviation of ln S per batch size; shape (B,).
    exponential
        Whether S is exponential.
    series_s
        Calls in the order in which they were measured [s], per batch size; shape (B, calls). Blocks of ``block``
        successive calls are drawn from a random start, so that stalls come in bursts as they were measured.
    block
        Calls per block.
    idle_start_s
        Sample of what a batch takes longer when its server was idle before it, such as the waking of a worker and cold
        caches [s]; a value of it is drawn for each such batch. None: nothing.

    References
    ----------
    Künsch, The jackknife and the bootstrap for general stationary observations, Annals of Statistics 17, 1989.
    """

    mean_s: Array
    edges_s: Array | None = None
    cumulative: Array | None = None
    sigma: Array | None = None
    exponential: bool = False
    series_s: Array | None = None
    block: int = 0
    idle_start_s: Array | None = None

    @property
    def max_batch(self) -> int:
        """Largest batch B."""
        return int(self.mean_s.size)

    @cached_property
    def arrays(self) -> LawArrays:
        """The law as the compiled loops take it."""
        empty = np.zeros((1, 1))
        kind, guide = _TABLE, np.zeros((1, 1), dtype=np.int64)
        edges, cumulative = empty, empty
        if self.series_s is not None:
            kind = _SERIES
        elif self.exponential:
            kind = _EXPONENTIAL
        elif self.sigma is not None:
            kind = _LOGNORMAL
        elif self.edges_s is not None and self.cumulative is not None:
            edges, cumulative = np.ascontiguousarray(self.edges_s), np.ascontiguousarray(self.cumulative)
            starts = np.arange(_GUIDES) / _GUIDES
            guide = np.array(
                [np.clip(np.searchsorted(row, starts, side="right") - 1, 0, row.size - 2) for row in cumulative]
            )
        else:
            raise ValueError("a service law needs a table, a sigma, a series, or to be exponential")
        return LawArrays(
            kind,
            edges,
            cumulative,
            guide,
            np.ascontiguousarray(self.mean_s, dtype=float),
            np.zeros(1) if self.sigma is None else np.ascontiguousarray(self.sigma, dtype=float),
            empty if self.series_s is None else np.ascontiguousarray(self.series_s),
            self.block,
            np.zeros(0) if self.idle_start_s is None else np.ascontiguousarray(self.idle_start_s, dtype=float),
        )


def constant_service(batch_time_s: Array) -> ServiceLaw:
    """Service without spread."""
    times = np.asarray(batch_time_s, dtype=float)
    edges = np.repeat(times[:, None], 2, axis=1)
    return ServiceLaw(times, edges, np.repeat(np.array([[0.0, 1.0]]), times.size, axis=0))


def lognormal_service(batch_time_s: Array, scv: float) -> ServiceLaw:
    """Lognormal service with one squared coefficient of variation at every batch size; σ² = ln(1 + SCV)."""
    times = np.asarray(batch_time_s, dtype=float)
    return ServiceLaw(times, sigma=np.full(times.size, np.sqrt(np.log1p(scv))))


def exponential_service(batch_time_s: Array) -> ServiceLaw:
    """Exponential service, the law of the textbook models."""
    return ServiceLaw(np.asarray(batch_time_s, dtype=float), exponential=True)


def series_service(series_s: Array, block: int) -> ServiceLaw:
    """Measured calls replayed in blocks of successive ones; rows are batch sizes."""
    return ServiceLaw(series_s.mean(axis=1), series_s=np.asarray(series_s, dtype=float), block=block)


@njit(cache=True, nogil=True)
def draw(law, size, state, rng):  # type: ignore[no-untyped-def]  # numba infers types
    """One service time of a batch.

    ``state`` belongs to a server: where it stands in the series, and how many calls of its block are left.
    """
    row = size - 1
    if law.kind == _LOGNORMAL:
        sigma = law.sigma[row]
        return law.mean_s[row] * np.exp(sigma * rng.standard_normal() - sigma * sigma / 2)
    if law.kind == _EXPONENTIAL:
        return law.mean_s[row] * rng.standard_exponential()
    if law.kind == _SERIES:
        if state[1] == 0:
            state[0] = int(rng.random() * law.series_s.shape[1])
            state[1] = law.block
        value = law.series_s[row, state[0] % law.series_s.shape[1]]
        state[0] += 1
        state[1] -= 1
        return value
    edges, cumulative = law.edges_s[row], law.cumulative[row]
    if edges[0] == edges[-1]:
        return edges[0]
    uniform = rng.random()
    k = law.guide[row, int(uniform * law.guide.shape[1])]
    while k < edges.size - 2 and cumulative[k + 1] <= uniform:
        k += 1
    width = cumulative[k + 1] - cumulative[k]
    share = (uniform - cumulative[k]) / width if width > 0 else 0.0
    return edges[k] + share * (edges[k + 1] - edges[k])


@njit(cache=True, nogil=True)
def idle_extra(law, idle, rng):  # type: ignore[no-untyped-def]  # numba infers types
    """Time that a batch takes longer because its server was idle; a law without such times draws no random number."""
    if not idle or law.idle_start_s.size == 0:
        return 0.0
    return law.idle_start_s[int(rng.random() * law.idle_start_s.size)]
