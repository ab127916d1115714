"""Where more items per call, or more replicas, stop raising the throughput, and whether a sweep got that far.

A sweep that ended while its throughput still rose tells only a floor: the machine does at least this much.
A floor is no capacity; `Sweep.capacity_rps` is None for it.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from advisor.domain.profile import Cell, Profile

KNEE_FRAC = 0.95
"""Share of the best throughput that counts as having reached it: an assumption."""
SATURATED_GAIN_FRAC = 0.05
"""A last doubling that gains less than this has saturated; the error of a good measurement is about as large."""

Axis = Literal["batch_size", "concurrency"]


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One measured cell of a sweep: the size that was swept and the throughput at it."""

    size: int
    throughput_rps: float


@dataclass(frozen=True, slots=True)
class Sweep:
    """Throughput along one axis of a profile, all else fixed.

    Attributes
    ----------
    axis
        What grew: items per call, or replicas at work at the same time.
    threads
        Threads of one replica; None when the source does not say.
    batch_size
        Items per call of a sweep over replicas; None in one over the batch size.
    concurrency
        Replicas of a sweep over the batch size; None in one over replicas, or when the source does not say.
    points
        What was measured, by size.
    saturated
        Whether the sweep went on until the throughput no longer grew.
    """

    axis: Axis
    threads: int | None
    batch_size: int | None
    concurrency: int | None
    points: tuple[SweepPoint, ...]
    saturated: bool

    @property
    def best_rps(self) -> float:
        """Highest throughput seen [1/s]; a floor unless the sweep saturated."""
        return max(point.throughput_rps for point in self.points)

    @property
    def knee(self) -> SweepPoint:
        """Smallest size that reaches 95 % of the best throughput; beyond it calls only take longer."""
        return next(point for point in self.points if point.throughput_rps >= KNEE_FRAC * self.best_rps)


def sweeps(profile: Profile) -> tuple[Sweep, ...]:
    """All sweeps of a profile: over the batch size first, then over replicas where two counts were measured.

    A batch size measured alone is a sweep too, and a floor: nobody knows what a larger batch would do.
    Cells without a batch size are left out.
    """
    return (*batch_sweeps(profile), *replica_sweeps(profile))


def batch_sweeps(profile: Profile) -> tuple[Sweep, ...]:
    """One sweep over the batch size per threads and concurrency, in the order of the profile.

    It saturated when the last doubling of the batch gained less than 5 %.
    """
    groups: dict[tuple[int | None, int | None], list[SweepPoint]] = {}
    for cell, batch, throughput_rps in _measured(profile):
        groups.setdefault((cell.threads, cell.concurrency), []).append(SweepPoint(batch, throughput_rps))
    return tuple(
        Sweep(
            axis="batch_size",
            threads=threads,
            batch_size=None,
            concurrency=concurrency,
            points=(points := _ordered(found)),
            saturated=_levels_off(points),
        )
        for (threads, concurrency), found in groups.items()
    )


def replica_sweeps(profile: Profile) -> tuple[Sweep, ...]:
    """One sweep over the replicas per threads and batch size that has at least two counts of replicas.

    It saturated when the most replicas had a thread for every logical CPU that the process could use,
    or when the last doubling of the replicas gained less than 5 %.
    """
    groups: dict[tuple[int | None, int], list[SweepPoint]] = {}
    for cell, batch, throughput_rps in _measured(profile):
        if cell.concurrency is not None:
            groups.setdefault((cell.threads, batch), []).append(SweepPoint(cell.concurrency, throughput_rps))
    return tuple(
        Sweep(
            axis="concurrency",
            threads=threads,
            batch_size=batch,
            concurrency=None,
            points=(points := _ordered(found)),
            saturated=_fills_cpus(profile, threads, points[-1].size) or _levels_off(points),
        )
        for (threads, batch), found in groups.items()
        if len(found) > 1
    )


def doubling_gain_frac(points: Sequence[SweepPoint]) -> float | None:
    """Growth of the throughput over the last doubling of the size; None when no doubling was measured.

    It is counted from the best throughput up to half the largest size, so that a dip on the way is no growth.
    At half the largest size the line between its neighbors over log size is read. Where throughput flattens,
    that line lies below it: the gain is taken rather too large than too small.

    Examples
    --------
    >>> doubling_gain_frac((SweepPoint(1, 100.0), SweepPoint(2, 150.0), SweepPoint(4, 165.0)))
    0.1
    >>> doubling_gain_frac((SweepPoint(3, 100.0), SweepPoint(4, 101.0))) is None
    True
    """
    last = points[-1]
    half = last.size / 2
    if points[0].size > half:
        return None
    first_half = [point for point in points if point.size <= half]
    before, after = first_half[-1], points[len(first_half)]
    share = math.log(half / before.size) / math.log(after.size / before.size)
    at_half_rps = before.throughput_rps + share * (after.throughput_rps - before.throughput_rps)
    reached_rps = max(at_half_rps, *(point.throughput_rps for point in first_half))
    return (last.throughput_rps - reached_rps) / reached_rps


def _levels_off(points: Sequence[SweepPoint]) -> bool:
    gain_frac = doubling_gain_frac(points)
    return gain_frac is not None and gain_frac < SATURATED_GAIN_FRAC


def _fills_cpus(profile: Profile, threads: int | None, replicas: int) -> bool:
    cpu = profile.device.cpu
    return (
        profile.device.kind == "cpu"
        and not profile.model.is_address
        and cpu is not None
        and threads is not None
        and threads * replicas >= cpu.logical_cpus
    )


def _measured(profile: Profile) -> Iterator[tuple[Cell, int, float]]:
    """Cells with their batch size and the items per second of all their replicas.

    Where only a time is known, calls follow each other without a pause; a source that names no replicas means one.
    """
    for cell in profile.cells:
        if cell.batch_size is None:
            continue
        if cell.throughput_rps is not None:
            yield cell, cell.batch_size, cell.throughput_rps
        elif cell.service_mean_s is not None:
            yield cell, cell.batch_size, cell.batch_size * (cell.concurrency or 1) / cell.service_mean_s


def _ordered(points: Iterable[SweepPoint]) -> tuple[SweepPoint, ...]:
    return tuple(sorted(points, key=lambda point: point.size))
