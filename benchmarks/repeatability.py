"""Profiles of one model one after the other: do they agree? And do predictions hold? Writes docs/repeatability.md.

Takes twelve minutes on a quiet machine. The second table is that of the load runs that shipped profiles hold.
Stopped after two profiles or more it still writes the page, with the pairs that are there.
"""

import datetime
import itertools
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.domain.measurement import LoadRun, Repeat
from advisor.domain.profile import Cell, Profile
from advisor.profiling.bench import measure
from advisor.profiling.doctor import examine
from advisor.profiling.engines.onnx import OnnxModel
from advisor.profiling.environment import observe_device
from advisor.profiling.example_models import build_example_model
from advisor.profiling.grid import GridPlan, plan_grid
from advisor.profiling.inputs import InputOptions
from advisor.profiling.instruments import Instruments
from advisor.profiling.journal import Journal, Start
from advisor.profiling.power import NoMeter
from advisor.store.paths import PROFILES, ROOT
from advisor.store.profiles import read_profiles
from advisor.units import s_to_ms

PAIRS, BUDGET_S, BATCH_SIZES, SEQUENCE_LENGTH = 10, 60.0, (1, 8), 32
AGREEMENT_FRAC, PAIRS_BAR = 0.05, 8
INSIDE_BAR_FRAC, HIGHEST_LOAD, FEWEST_CLEAN = 0.9, 0.7, 10
JUDGED_MODELS = {"minilm": "MiniLM", "resnet50": "ResNet-50"}
"""Models whose load runs count for the bar: names in profiles, and for people."""
INTERRUPTED_EXIT_CODE = 130


@dataclass(frozen=True)
class Attempt:
    """One profile and what the machine was like before it."""

    profile: Profile
    unfit: tuple[str, ...] = ()
    """What the doctor refused, each a code and what was seen; none: the machine was fit."""

    @property
    def windows(self) -> list[Repeat]:
        """All windows of all cells."""
        return [repeat for cell in self.profile.cells for repeat in cell.repeats]

    @property
    def disturbances(self) -> Counter[str]:
        """How many windows do not count, by the code of each reason."""
        return Counter(_code(reason) for window in self.windows for reason in window.rejected)


def attempt(model: OnnxModel, plan: GridPlan) -> Attempt:
    """Measure once.

    The plan, and with it the seed, is the same for all attempts, as for `advisor profile` given twice: the cells,
    their order and their inputs are equal, and what differs is the machine.

    Raises
    ------
    KeyboardInterrupt
        When it was stopped; what was measured until then is no whole profile.
    """
    unfit = tuple(f"{finding.code}: {finding.evidence}" for finding in examine() if finding.level == "error")
    now = datetime.datetime.now(datetime.UTC)
    journal = Journal.begin(Start(created=now, model=plan.model, device=observe_device(), plan=plan), None)
    profile = measure(model, journal, Instruments(NoMeter("not asked for")), today=now.date())
    if profile.status == "partial":
        raise KeyboardInterrupt
    return Attempt(profile, unfit)


def take_attempts(measure_once: Callable[[], Attempt], count: int, tell: Callable[[str], object]) -> list[Attempt]:
    """Measure so many times and tell each result as it is there; fewer, but at least two, when it is stopped.

    Raises
    ------
    KeyboardInterrupt
        When it was stopped before there was a pair.
    """
    attempts: list[Attempt] = []
    try:
        while len(attempts) < count:
            attempts.append(measure_once())
            tell(f"{len(attempts)} of {count}: {result(attempts)}\n")
    except KeyboardInterrupt:
        if len(attempts) < 2:
            raise
    return attempts


def result(attempts: Sequence[Attempt]) -> str:
    """Last attempt as a line: time of a call, how it was measured, and how it differs from the one before."""
    last = attempts[-1]
    times = [(cell, judged_s(cell)) for cell in last.profile.cells]
    cells = [
        f"batch {cell.batch_size}, {cell.concurrency} × {cell.threads}: "
        f"{'unknown' if mean_s is None else f'{s_to_ms(mean_s):.4g} ms'}"
        for cell, mean_s in times
    ]
    difference = [f"differs by up to {_percent(found)}" for found in differences(attempts[-2:])]
    return "; ".join([*cells, f"{counted(last)} windows count", f"stolen {steal(last)}", doctor(last), *difference])


def judged_s(cell: Cell) -> float | None:
    """Mean time of a call that says most about the work in it [s].

    That is the CPU time, which waiting for a CPU does not touch; of a replica with several threads the wall time, since
    its threads wait for each other in busy loops, which CPU time counts like work.
    """
    return cell.cpu_mean_s if cell.threads == 1 else cell.service_mean_s


def largest_difference_frac(first: Profile, second: Profile) -> float | None:
    """Largest difference of the mean time of a call over all cells, as a fraction of the first.

    None where a cell has no such time: its difference could be the largest.
    """
    pairs = [(judged_s(old), judged_s(new)) for old, new in zip(first.cells, second.cells, strict=True)]
    known = [abs(new_s / old_s - 1) for old_s, new_s in pairs if old_s and new_s]
    return max(known) if len(known) == len(pairs) else None


def differences(attempts: Sequence[Attempt]) -> list[float | None]:
    """Largest difference of each pair of successive attempts, as a fraction."""
    return [largest_difference_frac(old.profile, new.profile) for old, new in itertools.pairwise(attempts)]


def agrees(difference_frac: float | None) -> bool:
    """Whether a pair agrees; one whose difference is not known does not."""
    return difference_frac is not None and difference_frac <= AGREEMENT_FRAC


def agreement(found: Sequence[float | None]) -> str:
    """How many pairs agree, and whether that meets the bar; pairs not measured may leave it open."""
    agreed, missing = sum(map(agrees, found)), PAIRS - len(found)
    text = f"{agreed} of {len(found)} pairs agree within {AGREEMENT_FRAC:.0%} in every cell"
    if missing:
        text += f" (stopped: {PAIRS} pairs were planned)"
    missed = agreed + missing < PAIRS_BAR
    outcome = "met" if agreed >= PAIRS_BAR else ("**missed**" if missed else "not decided")
    return f"{text}; the bar of {PAIRS_BAR} of {PAIRS} is {outcome}."


def counted(found: Attempt) -> str:
    """Windows that count, of all."""
    return f"{sum(not window.rejected for window in found.windows)} of {len(found.windows)}"


def steal(found: Attempt) -> str:
    """CPU time that the hypervisor gave to others in the whole run."""
    return _percent(_fact(found.profile, "steal_frac"))


def other_cpus(found: Attempt) -> str:
    """CPUs that other processes kept busy, mean over all windows."""
    known = [window.surroundings.other_cpus for window in found.windows]
    told = [cpus for cpus in known if cpus is not None]
    return f"{sum(told) / len(told):.2f}" if told else "unknown"


def doctor(found: Attempt) -> str:
    """What the doctor said before it."""
    return "; ".join(found.unfit) or "fit"


def attempt_rows(attempts: Sequence[Attempt]) -> list[str]:
    """Lines of the table of attempts."""
    return [
        f"| {number} | {counted(found)} | {_counts(found.disturbances)} | {steal(found)} | {other_cpus(found)} | "
        f"{doctor(found)} |"
        for number, found in enumerate(attempts, start=1)
    ]


def load_seen(pair: Sequence[Attempt]) -> str:
    """What the doctor and the windows of both attempts saw of other load: codes, and stolen time."""
    codes = dict.fromkeys(code for found in pair for code in (*map(_code, found.unfit), *sorted(found.disturbances)))
    return f"{', '.join(codes) or 'no code'}; stolen {' and '.join(map(steal, pair))}"


def pair_rows(attempts: Sequence[Attempt]) -> list[str]:
    """Lines of the table of pairs."""
    pairs = zip(itertools.pairwise(attempts), differences(attempts), strict=True)
    return [
        f"| {number} and {number + 1} | {_percent(difference)} | {'yes' if agrees(difference) else 'no'} | "
        f"{load_seen(pair)} |"
        for number, (pair, difference) in enumerate(pairs, start=1)
    ]


def run_row(name: str, run: LoadRun) -> str:
    """Line of the table of load runs."""
    p99, place = run.p99, f"{run.concurrency} × {run.threads}, batch ≤ {run.max_batch_size}"
    doubts = ", ".join(dict.fromkeys(map(_code, run.doubts))) or "clean"
    interval = f"{s_to_ms(p99.predicted.low_s):.4g} to {s_to_ms(p99.predicted.high_s):.4g}"
    return (
        f"| {name} | {place} | {run.load:.2f} | {run.count} | {run.mean.error_frac:+.1%} | "
        f"{s_to_ms(p99.observed_s):.4g} | {s_to_ms(p99.predicted.value_s):.4g} ({interval}) | "
        f"{'yes' if p99.inside else 'no'} | {doubts} |"
    )


def verdict(runs: Sequence[tuple[str, LoadRun]]) -> str:
    """How many clean runs of the judged models up to 70 % load lie inside, and whether that meets the bar.

    Parameters
    ----------
    runs
        Name of the model, and the run.
    """
    clean = [run for name, run in runs if name in JUDGED_MODELS and run.clean and run.load <= HIGHEST_LOAD]
    inside = sum(run.p99.inside for run in clean)
    if len(clean) < FEWEST_CLEAN:
        outcome = f"fewer than {FEWEST_CLEAN} clean runs decide nothing"
    else:
        met = inside >= INSIDE_BAR_FRAC * len(clean)
        outcome = f"the bar of {INSIDE_BAR_FRAC:.0%} is {'met' if met else '**missed**'}"
    return (
        f"{inside} of {len(clean)} clean runs of {' and '.join(JUDGED_MODELS.values())} up to {HIGHEST_LOAD:.0%} load "
        f"have their p99 in the interval; {outcome}. Runs of other models are listed and not counted."
    )


def page(attempts: Sequence[Attempt], shipped: Sequence[Profile]) -> str:
    """Make the whole page."""
    return "\n".join([*_agreement_part(attempts), *_load_part(shipped)])


def _agreement_part(attempts: Sequence[Attempt]) -> list[str]:
    """Title, and the tables of pairs and attempts."""
    first = attempts[0].profile
    batches = dict.fromkeys(str(cell.batch_size) for cell in first.cells)
    return [
        "# Do measurements agree, and do predictions hold?",
        "",
        f"Written by `make repeatability`, {first.evidence.date}, on {first.device.name} with "
        f"{first.device.cpu.logical_cpus if first.device.cpu else '?'} CPUs, hypervisor: "
        f"{_fact(first, 'hypervisor') or 'not told'}.",
        "",
        "## Profiles one after the other",
        "",
        f"MiniLM, {SEQUENCE_LENGTH} tokens, batches {', '.join(batches)}, {BUDGET_S:.0f} s each, all by the same plan. "
        "Difference of the mean time of a call between successive profiles, the largest of all cells: CPU time of "
        "replicas with one thread, wall time of those with two, whose threads wait for each other in busy loops.",
        "",
        agreement(differences(attempts)),
        "",
        f"| attempts | largest difference | within {AGREEMENT_FRAC:.0%} | other load seen in either |",
        "| --- | ---: | --- | --- |",
        *pair_rows(attempts),
        "",
        "What the machine was like: windows disturbed, by reason; CPU time that the hypervisor gave to others; "
        "CPUs that other processes kept busy, on average; and what the doctor refused just before.",
        "",
        "| attempt | windows that count | disturbed | stolen | other CPUs busy | doctor |",
        "| ---: | ---: | --- | ---: | ---: | --- |",
        *attempt_rows(attempts),
        "",
    ]


def _load_part(shipped: Sequence[Profile]) -> list[str]:
    """Predictions beside what was seen under load."""
    runs = [(profile, run) for profile in shipped for run in profile.load_runs]
    return [
        "## Predictions under load",
        "",
        "Every run of `advisor verify` that the shipped profiles hold. Errors are predicted over observed, minus one.",
        "",
        verdict([(profile.model.name, run) for profile, run in runs]),
        "",
        "| profile | replicas | load | requests | error of mean | p99 seen, ms | predicted, ms | inside | doubts |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- | --- | --- |",
        *(run_row(profile.profile_id, run) for profile, run in runs),
        "",
    ]


def _code(sentence: str) -> str:
    """Code that a sentence starts with."""
    return sentence.partition(":")[0]


def _counts(found: Counter[str]) -> str:
    """Codes with their counts, the commonest first."""
    return ", ".join(f"{code} {count}" for code, count in found.most_common()) or "none"


def _fact(profile: Profile, key: str) -> object:
    """Value of a fact about the machine; None where the system does not tell."""
    fact = profile.environment.get(key)
    return None if fact is None else fact.value


def _percent(value: object) -> str:
    """Fraction as a percentage; unknown where there is none."""
    return f"{value:.1%}" if isinstance(value, float) else "unknown"


def main() -> None:
    """Measure and write the page."""
    # Before the minutes of measuring: a file that does not fit stops it here.
    shipped = read_profiles(PROFILES)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "minilm.onnx"
        build_example_model("minilm", path)
        model = OnnxModel(path, options=InputOptions(sequence_length=SEQUENCE_LENGTH))
        plan = plan_grid(model, batch_sizes=BATCH_SIZES, budget_s=BUDGET_S)
        attempts = take_attempts(lambda: attempt(model, plan), PAIRS + 1, sys.stderr.write)
    text = page(attempts, shipped)
    (ROOT / "docs" / "repeatability.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    if len(attempts) <= PAIRS:
        sys.exit(INTERRUPTED_EXIT_CODE)


if __name__ == "__main__":
    main()
