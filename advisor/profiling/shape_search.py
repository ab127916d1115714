"""Search for shapes on which a model runs, and for the axis that is the batch, by running it."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from advisor.errors import InputError, MeasurementError
from advisor.profiling.inputs import BATCH, Array, Feeds, InputPlan
from advisor.profiling.shapes import InputDraft, input_plans, unusual_plans

MOST_TRIES = 100
"""Shapes tried before giving up: a few seconds, since a model that fails does so early. An assumption."""
MOST_UNUSUAL_TRIES = 400
"""Shapes of unusual lengths tried for the sake of a suggestion: an assumption."""
MOST_RUNS = 8
"""Runs without a failure before the best of them is taken: unlike those that fail, they take as long as the model."""
_SEED = 0
_SAME_FRAC = 0.1
"""Answers that differ by less, as a fraction of their norm, are the same. Quantizing with one scale for a whole batch
makes 1 to 2 % in the int8 example models; a recurrent network run along the wrong axis differs by some 60 %."""

Answer = Callable[[Feeds], list[object]]
"""Runs the model; raises MeasurementError where it fails."""


class Verdict(IntEnum):
    """What two items in one call and the last of them alone tell about the batch axis, from bad to good."""

    NO_GROWTH = 0
    """No axis of an output is longer for two items than for one."""
    DEPENDENT = 1
    """The answer for an item depends on the other item of the call, as with the steps of a sequence."""
    GOOD = 2


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of running a plan."""

    plan: InputPlan
    verdict: Verdict
    finite: bool
    """Whether all numbers of the answer are."""


@dataclass(frozen=True, slots=True)
class Found:
    """Inputs on which the model runs."""

    plan: InputPlan
    notes: tuple[str, ...] = ()


def find_inputs(drafts: Sequence[InputDraft], answer: Answer) -> Found:
    """Try plans until the model runs and its answers grow with the batch.

    A named batch axis is believed. A guessed one must make an output longer, and the answer for an item must be the
    same with and without a neighbor in the call; where no plan does both, the best of those that run is taken and a
    note says what is doubtful. Where nothing runs at batch 2, the same plans are tried at batch 1.

    Raises
    ------
    InputError
        When the graph calls two axes of one input the batch, so that there is no plan to try.
    MeasurementError
        When no plan runs; the sentence suggests a shape that does, where one is found.
    """
    trials: list[Trial] = []
    failures: list[MeasurementError] = []
    if next(input_plans(drafts), None) is None:
        names = ", ".join(draft.name for draft in drafts)
        raise InputError("batch axis of the inputs", names, "one axis each; give them with --shape name=batch,...")
    for plan in _first(input_plans(drafts), MOST_TRIES):
        trial = _tried(plan, answer)
        if isinstance(trial, MeasurementError):
            failures.append(trial)
            continue
        trials.append(trial)
        if trial.verdict is Verdict.GOOD or len(trials) == MOST_RUNS:
            break
    if trials:
        best = max(trials, key=lambda trial: trial.verdict)
        return Found(best.plan, _notes(best))
    for plan in _first(input_plans(drafts), MOST_TRIES):
        trial = _tried(replace(plan, fixed_batch_size=plan.fixed_batch_size or 1), answer)
        if not isinstance(trial, MeasurementError):
            note = "FIXED_BATCH: the graph runs at batch 1 and fails at batch 2, so only batch 1 was measured."
            return Found(trial.plan, (note, *_not_finite(trial)))
        failures.append(trial)
    raise _nothing_runs(drafts, failures, answer)


def judge(plan: InputPlan, answer: Answer) -> Trial:
    """Run a plan, and where its batch axis is a guess, check that axis.

    Raises
    ------
    MeasurementError
        When the model fails.
    """
    feeds = plan.feeds(plan.fixed_batch_size or 2, np.random.default_rng(_SEED))
    together = answer(feeds)
    numbers = [output for output in together if isinstance(output, np.ndarray) and output.dtype.kind == "f"]
    finite = all(bool(np.isfinite(output).all()) for output in numbers)
    if plan.fixed_batch_size is not None or plan.batch_named:
        return Trial(plan, Verdict.GOOD, finite)
    pairs = [
        (both, one)
        for both, one in zip(together, answer(plan.last_item(feeds)), strict=True)
        if isinstance(both, np.ndarray) and isinstance(one, np.ndarray) and both.shape != one.shape
    ]
    if not pairs:
        return Trial(plan, Verdict.NO_GROWTH, finite)
    same = all(_same(both, one) for both, one in pairs)
    return Trial(plan, Verdict.GOOD if same else Verdict.DEPENDENT, finite)


def _tried(plan: InputPlan, answer: Answer) -> Trial | MeasurementError:
    """Judge a plan, or give the reason for which the model fails on it."""
    try:
        return judge(plan, answer)
    except MeasurementError as error:
        return error


def _same(both: Array, one: Array) -> bool:
    """Whether the last part of an answer for two items is the answer for the last item alone.

    Answers that cannot be compared, such as class numbers or one that is longer on two axes, count as the same.
    """
    grown = [axis for axis, (long, short) in enumerate(zip(both.shape, one.shape, strict=False)) if long != short]
    if both.ndim != one.ndim or len(grown) != 1 or both.dtype.kind != "f" or both.shape[grown[0]] < one.shape[grown[0]]:
        return True
    first = both.shape[grown[0]] - one.shape[grown[0]]
    part = np.take(both, range(first, both.shape[grown[0]]), axis=grown[0]).astype(np.float64)
    size = float(np.linalg.norm(one.astype(np.float64)))
    if not np.isfinite(size) or size == 0:
        return True
    return bool(np.linalg.norm(part - one.astype(np.float64)) <= _SAME_FRAC * size)


def _notes(trial: Trial) -> tuple[str, ...]:
    """What a run that was accepted leaves to be said."""
    plan, notes = trial.plan, _not_finite(trial)
    if plan.fixed_batch_size is not None:
        fixed = f"the graph has no free batch axis, so only batch {plan.fixed_batch_size} was measured"
        return f"FIXED_BATCH: {fixed}.", *notes
    doubts = {
        Verdict.NO_GROWTH: "no output grows with the batch axis that was guessed",
        Verdict.DEPENDENT: "the answer for an item depends on its neighbor in the call, so the batch axis that was "
        "guessed may be one of a sequence",
    }
    doubt = doubts.get(trial.verdict)
    return (f"BATCH_AXIS: {doubt}; name it as in {_override(plan)}.", *notes) if doubt else notes


def _not_finite(trial: Trial) -> tuple[str, ...]:
    """Note about answers that are no numbers."""
    note = "NOT_FINITE: some outputs for the inputs are NaN or infinite, which can change speed."
    return () if trial.finite else (note,)


def _nothing_runs(
    drafts: Sequence[InputDraft], failures: Sequence[MeasurementError], answer: Answer
) -> MeasurementError:
    """Make the sentence for a model that fails on everything tried, with the override that helps or the likeliest."""
    tries = len(failures) // 2
    reason = str(failures[tries]).rstrip(".")
    if tries == 1:
        return MeasurementError(f"{reason}; give other dimensions with --shape, or samples with --inputs FILE.npz.")
    likeliest = next(input_plans(drafts))
    for plan in _first(unusual_plans(drafts), MOST_UNUSUAL_TRIES):
        singles = (plan, replace(plan, fixed_batch_size=plan.fixed_batch_size or 1))
        if any(isinstance(_tried(candidate, answer), Trial) for candidate in singles):
            return MeasurementError(f"{reason}; it runs with {_override(plan, likeliest)}.")
    return MeasurementError(
        f"{reason}; {tries - 1} other shapes fail too, so give the right one in the form "
        f"{_override(likeliest)}, or samples with --inputs FILE.npz."
    )


def _override(plan: InputPlan, likeliest: InputPlan | None = None) -> str:
    """Options that give the shapes of a plan: of the inputs that differ from the likeliest plan, or of the first.

    Examples
    --------
    >>> from advisor.profiling.inputs import InputRule
    >>> rule = InputRule("x", np.dtype("float32"), (BATCH, 3, 48, 320), "normal")
    >>> _override(InputPlan((rule,), sequence_length=None, fixed_batch_size=None))
    '--shape x=batch,3,48,320'
    """
    rules = [rule for rule in plan.rules if BATCH in rule.dims][:1] or list(plan.rules[:1])
    if likeliest is not None:
        rules = [
            rule for rule, usual in zip(plan.rules, likeliest.rules, strict=True) if rule.dims != usual.dims
        ] or rules
    return " ".join(f"--shape {rule.name}={','.join(map(str, rule.dims))}" for rule in rules)


def _first(plans: Iterable[InputPlan], count: int) -> Iterator[InputPlan]:
    """The first plans of many."""
    return itertools.islice(plans, count)
