"""Two profiles of one model on one machine, cell by cell: what became slower, and whether it could be noise."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from advisor.domain.profile import Cell, FactValue, Profile
from advisor.errors import InputError

CHANCE_FRAC = 0.025
"""Share of unchanged cells whose 95 % interval lies wholly above 1 by chance: one of its two tails."""

Verdict = Literal["slower", "faster", "same within noise", "unknown (one repeat)"]
Outcome = Literal["pass", "regression", "undecided"]
Key: TypeAlias = tuple[int, int | None, int | None]
"""Batch size, threads, concurrency."""
_Timed: TypeAlias = tuple[float, Cell]
"""Mean service time [s] and its cell."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One statement of the profiles that is not the same in both."""

    field: str
    old: FactValue
    new: FactValue


@dataclass(frozen=True, slots=True)
class Change:
    """A figure beside the mean, for information: no verdict hangs on it."""

    name: Literal["median", "p99", "throughput", "energy", "memory"]
    unit: Literal["s", "1/s", "J", "GiB"]
    old: float
    new: float
    is_estimate: bool = False
    """Whether one of the two was computed from watts that nobody measured."""

    @property
    def ratio(self) -> float | None:
        """New over old; None when the old figure is zero."""
        return self.new / self.old if self.old else None


@dataclass(frozen=True, slots=True)
class CellComparison:
    """The mean service time of one cell, before and after.

    Attributes
    ----------
    batch_size, threads, concurrency
        The cell; None where the source does not say.
    old_s, new_s
        Mean service times [s].
    ratio
        New over old.
    ratio_low, ratio_high
        Its 95 % interval; None when one of the two was not repeated.
    verdict
        What the interval says.
    regression
        Whether the ratio is above the limit and the whole interval is above 1.
    changes
        Other figures that both cells have.
    doubts
        Warnings of the two cells.
    """

    batch_size: int
    threads: int | None
    concurrency: int | None
    old_s: float
    new_s: float
    ratio: float
    ratio_low: float | None
    ratio_high: float | None
    verdict: Verdict
    regression: bool
    changes: tuple[Change, ...]
    doubts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What `compare` found.

    Attributes
    ----------
    old_id, new_id
        Names of the profiles.
    fail_over_frac
        Growth of a mean that is a regression when noise does not explain it.
    cells
        Cells that both have, by replicas, threads and batch size.
    only_old, only_new
        Cells (batch size, threads, concurrency) of one profile, or with a mean time in one of them only.
    mismatches
        Why the two should not be compared; empty unless the user insisted.
    differences
        What else differs: versions, options, settings of the machine.
    doubts
        What speaks against one of the profiles as a whole.
    """

    old_id: str
    new_id: str
    fail_over_frac: float
    cells: tuple[CellComparison, ...]
    only_old: tuple[Key, ...]
    only_new: tuple[Key, ...]
    mismatches: tuple[Difference, ...]
    differences: tuple[Difference, ...]
    doubts: tuple[str, ...]

    @property
    def regressions(self) -> tuple[CellComparison, ...]:
        """Cells that became slower by more than the limit, and not by noise."""
        return tuple(cell for cell in self.cells if cell.regression)

    @property
    def judged(self) -> tuple[CellComparison, ...]:
        """Cells with repeats in both profiles."""
        return tuple(cell for cell in self.cells if cell.ratio_low is not None)

    @property
    def unjudged_over_limit(self) -> tuple[CellComparison, ...]:
        """Cells above the limit of which nobody knows whether it is noise."""
        return tuple(cell for cell in self.cells if cell.ratio_low is None and cell.ratio > 1 + self.fail_over_frac)

    @property
    def noisy_over_limit(self) -> tuple[CellComparison, ...]:
        """Cells above the limit whose interval includes no change: better measurements might tell."""
        return tuple(cell for cell in self.judged if cell.ratio > 1 + self.fail_over_frac and not cell.regression)

    @property
    def by_chance(self) -> float:
        """How many of the judged cells would be called slower if nothing had changed."""
        return CHANCE_FRAC * len(self.judged)

    @property
    def geometric_mean_ratio(self) -> float:
        """Geometric mean of the ratios of all cells: the one average in which a halving undoes a doubling."""
        return math.exp(sum(math.log(cell.ratio) for cell in self.cells) / len(self.cells))

    @property
    def outcome(self) -> Outcome:
        """Regression, undecided or pass.

        Undecided: a cell grew above the limit within its noise, went missing, or has no repeats. A worse measurement
        must not look better.
        """
        if self.regressions:
            return "regression"
        doubtful = self.unjudged_over_limit or self.noisy_over_limit or self.only_old or not self.judged
        return "undecided" if doubtful else "pass"


def compare(old: Profile, new: Profile, *, fail_over_frac: float = 0.05, anyway: bool = False) -> Comparison:
    """Compare two profiles cell by cell.

    A cell is a regression when its ratio is above 1 + `fail_over_frac` and the whole interval is above 1. Both are
    needed: the first alone would fail on noise, the second alone on changes too small to matter.

    Parameters
    ----------
    old, new
        Profiles of the same model on the same kind of machine.
    fail_over_frac
        Growth of the mean that counts.
    anyway
        Whether to compare although model or machine differ.

    Raises
    ------
    InputError
        When model, input or machine differ and nobody insisted, or when no cell is in both.
    """
    by_name = old.model.sha256 is None or new.model.sha256 is None
    mismatches = tuple(_differing(_identity(old, by_name=by_name), _identity(new, by_name=by_name)))
    if mismatches and not anyway:
        raise _refusal(mismatches)
    old_cells, new_cells = _by_key(old), _by_key(new)
    both = sorted(old_cells.keys() & new_cells.keys(), key=_order)
    if not both:
        raise InputError(
            "cells",
            "different in the two profiles",
            "at least one batch size, threads and concurrency with a mean time in both",
        )
    return Comparison(
        old_id=old.profile_id,
        new_id=new.profile_id,
        fail_over_frac=fail_over_frac,
        cells=tuple(_compare_cells(key, old_cells[key], new_cells[key], fail_over_frac) for key in both),
        only_old=tuple(sorted(old_cells.keys() - new_cells.keys(), key=_order)),
        only_new=tuple(sorted(new_cells.keys() - old_cells.keys(), key=_order)),
        mismatches=mismatches,
        differences=(
            *_differing(_circumstances(old), _circumstances(new)),
            *_differing(*_settings_in_both(old, new)),
        ),
        doubts=(*_doubts(old, "old"), *_doubts(new, "new")),
    )


def ratio_interval(ratio: float, old_ci95_frac: float, new_ci95_frac: float) -> tuple[float, float]:
    """95 % interval of a ratio of two means, from the half widths of both as fractions of them.

    On the log scale the errors of independent measurements add as squares: ln r ± √(h_old² + h_new²).

    Examples
    --------
    >>> low, high = ratio_interval(1.0, 0.03, 0.04)
    >>> round(low, 3), round(high, 3)
    (0.951, 1.051)
    """
    half = math.hypot(old_ci95_frac, new_ci95_frac)
    return ratio * math.exp(-half), ratio * math.exp(half)


def _compare_cells(key: Key, old_cell: _Timed, new_cell: _Timed, fail_over_frac: float) -> CellComparison:
    (old_s, old), (new_s, new) = old_cell, new_cell
    ratio = new_s / old_s
    low: float | None = None
    high: float | None = None
    if old.mean_ci95_frac is not None and new.mean_ci95_frac is not None:
        low, high = ratio_interval(ratio, old.mean_ci95_frac, new.mean_ci95_frac)
    return CellComparison(
        *key,
        old_s=old_s,
        new_s=new_s,
        ratio=ratio,
        ratio_low=low,
        ratio_high=high,
        verdict=_verdict(low, high),
        regression=low is not None and low > 1 and ratio > 1 + fail_over_frac,
        changes=tuple(_changes(old, new)),
        doubts=(*(f"old: {text}" for text in old.warnings), *(f"new: {text}" for text in new.warnings)),
    )


def _verdict(low: float | None, high: float | None) -> Verdict:
    if low is None or high is None:
        return "unknown (one repeat)"
    return "slower" if low > 1 else "faster" if high < 1 else "same within noise"


def _changes(old: Cell, new: Cell) -> Iterator[Change]:
    if old.service_p50_s is not None and new.service_p50_s is not None:
        yield Change("median", "s", old.service_p50_s, new.service_p50_s)
    if old.service_p99_s is not None and new.service_p99_s is not None:
        yield Change("p99", "s", old.service_p99_s, new.service_p99_s)
    if old.throughput_rps is not None and new.throughput_rps is not None:
        yield Change("throughput", "1/s", old.throughput_rps, new.throughput_rps)
    if old.energy is not None and new.energy is not None:
        estimate = old.energy.is_estimate or new.energy.is_estimate
        yield Change("energy", "J", old.energy.gross_j, new.energy.gross_j, is_estimate=estimate)
    if old.memory_gib is not None and new.memory_gib is not None:
        yield Change("memory", "GiB", old.memory_gib, new.memory_gib)


def _by_key(profile: Profile) -> dict[Key, _Timed]:
    return {
        (cell.batch_size, cell.threads, cell.concurrency): (cell.service_mean_s, cell)
        for cell in profile.cells
        if cell.batch_size is not None and cell.service_mean_s is not None
    }


def _order(key: Key) -> tuple[int, int, int]:
    batch_size, threads, concurrency = key
    return concurrency or 0, threads or 0, batch_size


def _identity(profile: Profile, *, by_name: bool) -> dict[str, FactValue]:
    """What must agree for times to be comparable: the same work on the same kind of machine.

    The hash tells the model; its name counts where a profile has no hash.
    """
    model, device = profile.model, profile.device
    same: dict[str, FactValue] = {
        "model.sha256": model.sha256,
        "model.precision": model.precision,
        "model.sequence_length": model.sequence_length,
        "device.kind": device.kind,
        "device.gpu_id": device.gpu_id,
        "device.gpus": device.gpus,
    }
    if by_name:
        same["model.name"] = model.name
    same |= {f"model.inputs.{spec.name}": f"{spec.dtype} {_shape(spec.shape)}" for spec in model.inputs}
    if device.kind == "cpu" and device.cpu is not None:
        cpu = device.cpu
        same |= {
            "device.cpu.vendor": cpu.vendor,
            "device.cpu.family": cpu.family,
            "device.cpu.model": cpu.model,
            "device.cpu.logical_cpus": cpu.logical_cpus,
        }
    elif device.kind == "cpu":
        same["device.name"] = device.name
    return same


def _circumstances(profile: Profile) -> dict[str, FactValue]:
    """What may differ and is always told: comparing versions is what a regression test is for."""
    runtime, cpu, protocol = profile.runtime, profile.device.cpu, profile.protocol
    told: dict[str, FactValue] = {"runtime.name": runtime.name, "runtime.version": runtime.version}
    told |= {f"runtime.options.{name}": value for name, value in runtime.options.items()}
    told |= {"device.machine_type": profile.device.machine_type, "tool_version": profile.tool_version}
    if cpu is not None:
        told |= {"device.cpu.flags": " ".join(cpu.flags), "device.cpu.stepping": cpu.stepping}
    if protocol is not None:
        told |= {f"protocol.{name}": value for name, value in protocol.model_dump().items() if name != "order_seed"}
    return told


def _settings_in_both(old: Profile, new: Profile) -> tuple[dict[str, FactValue], dict[str, FactValue]]:
    """Facts of the environment that both profiles asked for.

    Facts with a fraction are readings of the moment, such as the load average: they always differ and are left out.
    """
    both = [
        name
        for name, fact in old.environment.items()
        if name in new.environment
        and not isinstance(fact.value, float)
        and not isinstance(new.environment[name].value, float)
    ]
    before, after = (
        {f"environment.{name}": facts[name].value for name in both} for facts in (old.environment, new.environment)
    )
    return before, after


def _shape(shape: tuple[int | str, ...]) -> str:
    return " × ".join(str(size) for size in shape)


def _differing(old: dict[str, FactValue], new: dict[str, FactValue]) -> Iterator[Difference]:
    for field in (*old, *(name for name in new if name not in old)):
        if old.get(field) != new.get(field):
            yield Difference(field, old.get(field), new.get(field))


def _refusal(mismatches: tuple[Difference, ...]) -> InputError:
    first, *others = mismatches
    wanted = "nothing" if first.old is None else repr(first.old)
    also = f" (also different: {', '.join(difference.field for difference in others)})" if others else ""
    return InputError(
        first.field, first.new, f"{wanted}, as in the old profile{also}; --anyway compares them all the same"
    )


def _doubts(profile: Profile, which: str) -> Iterator[str]:
    if profile.status == "partial":
        yield f"the {which} profile is partial: its measurement was stopped before its end"
    if profile.protocol is not None and profile.protocol.forced:
        yield f"the {which} profile was measured although the machine was not fit for it"
    for warning in profile.warnings:
        yield f"{which}: {warning}"
