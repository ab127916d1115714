"""Profiles of one model one after the other: do they agree? And do predictions hold? Writes docs/repeatability.md.

Takes twelve minutes on a quiet machine. The second table is that of the load runs that shipped profiles hold.
"""

import datetime
import itertools
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from advisor.domain.measurement import LoadRun
from advisor.domain.profile import Profile
from advisor.errors import InputError
from advisor.profiling.bench import measure
from advisor.profiling.doctor import examine
from advisor.profiling.engines.onnx import OnnxModel
from advisor.profiling.environment import observe_device
from advisor.profiling.example_models import build_example_model
from advisor.profiling.grid import plan_grid
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


@dataclass(frozen=True)
class Attempt:
    """One profile and what the machine was like before it."""

    profile: Profile
    unfit: tuple[str, ...]


def attempt(model: OnnxModel) -> Attempt:
    """Measure once."""
    unfit = tuple(finding.code for finding in examine() if finding.level == "error")
    now = datetime.datetime.now(datetime.UTC)
    plan = plan_grid(model, batch_sizes=BATCH_SIZES, budget_s=BUDGET_S)
    journal = Journal.begin(Start(created=now, model=plan.model, device=observe_device(), plan=plan), None)
    profile = measure(model, journal, Instruments(NoMeter("not asked for")), today=now.date())
    return Attempt(profile, unfit)


def largest_difference_frac(first: Profile, second: Profile) -> float:
    """Largest difference of the mean CPU time of a call over all cells, as a fraction of the first."""
    pairs = zip(first.cells, second.cells, strict=True)
    return max(abs((new.cpu_mean_s or 0) / (old.cpu_mean_s or 0) - 1) for old, new in pairs)


def counted(profile: Profile) -> str:
    """Windows that count, of all."""
    repeats = [repeat for cell in profile.cells for repeat in cell.repeats]
    return f"{sum(not repeat.rejected for repeat in repeats)} of {len(repeats)}"


def steal(profile: Profile) -> str:
    """CPU time that the hypervisor gave to others in the whole run."""
    value = profile.environment["steal_frac"].value
    return f"{value:.1%}" if isinstance(value, float) else "unknown"


def pair_rows(attempts: list[Attempt]) -> tuple[list[str], int]:
    """Lines of the table of pairs, and how many pairs agree."""
    rows, agreed = [], 0
    for number, (old, new) in enumerate(itertools.pairwise(attempts), start=1):
        difference = largest_difference_frac(old.profile, new.profile)
        agreed += difference <= AGREEMENT_FRAC
        doctor = "fit" if not new.unfit else ", ".join(new.unfit)
        rows.append(
            f"| {number} | {difference:.1%} | {'yes' if difference <= AGREEMENT_FRAC else 'no'} | "
            f"{counted(new.profile)} | {steal(new.profile)} | {doctor} |"
        )
    return rows, agreed


def run_row(name: str, run: LoadRun) -> str:
    """Line of the table of load runs."""
    p99, place = run.p99, f"{run.concurrency} × {run.threads}, batch ≤ {run.max_batch_size}"
    doubts = ", ".join(dict.fromkeys(doubt.split(":")[0] for doubt in run.doubts)) or "clean"
    interval = f"{s_to_ms(p99.predicted.low_s):.4g} to {s_to_ms(p99.predicted.high_s):.4g}"
    return (
        f"| {name} | {place} | {run.load:.2f} | {run.count} | {run.mean.error_frac:+.1%} | "
        f"{s_to_ms(p99.observed_s):.4g} | {s_to_ms(p99.predicted.value_s):.4g} ({interval}) | "
        f"{'yes' if p99.inside else 'no'} | {doubts} |"
    )


def verdict(runs: list[LoadRun]) -> str:
    """How many clean runs up to 70 % load lie inside, and whether that meets the bar."""
    clean = [run for run in runs if run.clean and run.load <= HIGHEST_LOAD + 1e-9]
    inside = sum(run.p99.inside for run in clean)
    text = f"{inside} of {len(clean)} clean runs up to {HIGHEST_LOAD:.0%} load have their p99 in the interval"
    if len(clean) < FEWEST_CLEAN:
        return f"{text}; fewer than {FEWEST_CLEAN} clean runs decide nothing."
    met = inside >= INSIDE_BAR_FRAC * len(clean)
    return f"{text}; the bar of {INSIDE_BAR_FRAC:.0%} is {'met' if met else '**missed**'}."


def page(attempts: list[Attempt]) -> str:
    """Make the whole page."""
    rows, agreed = pair_rows(attempts)
    runs = [(profile.profile_id, run) for profile in read_profiles(PROFILES) for run in profile.load_runs]
    first = attempts[0].profile
    return "\n".join(
        [
            "# Do measurements agree, and do predictions hold?",
            "",
            f"Written by `make repeatability`, {first.evidence.date}, on {first.device.name} with "
            f"{first.device.cpu.logical_cpus if first.device.cpu else '?'} CPUs, hypervisor: "
            f"{first.environment['hypervisor'].value}.",
            "",
            "## Profiles one after the other",
            "",
            f"MiniLM, {SEQUENCE_LENGTH} tokens, batches {', '.join(map(str, BATCH_SIZES))}, a minute each. "
            "Difference of the mean CPU time of a call between successive profiles, the largest of all cells.",
            "",
            f"{agreed} of {len(rows)} pairs agree within {AGREEMENT_FRAC:.0%} in every cell; "
            f"the bar is {PAIRS_BAR}{'' if agreed >= PAIRS_BAR else ' and **missed**'}.",
            "",
            "| pair | largest difference | within 5 % | windows that count | stolen CPU time | doctor |",
            "| ---: | ---: | --- | ---: | ---: | --- |",
            *rows,
            "",
            "## Predictions under load",
            "",
            "Every run of `advisor verify` that the shipped profiles hold. "
            "Errors are predicted over observed, minus one.",
            "",
            verdict([run for _, run in runs]),
            "",
            "| profile | replicas | load | requests | error of mean | p99 seen, ms | predicted, ms | inside | doubts |",
            "| --- | --- | ---: | ---: | ---: | ---: | --- | --- | --- |",
            *(run_row(name, run) for name, run in runs),
            "",
        ]
    )


def main() -> None:
    """Measure and write the page."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "minilm.onnx"
        build_example_model("minilm", path)
        model = OnnxModel(path, options=InputOptions(sequence_length=SEQUENCE_LENGTH))
        attempts = []
        for number in range(PAIRS + 1):
            attempts.append(attempt(model))
            sys.stderr.write(f"{number + 1} of {PAIRS + 1}\n")
    if len({len(found.profile.cells) for found in attempts}) > 1:
        raise InputError("cells", "different", "the same in all profiles: the budget left some out")
    text = page(attempts)
    (ROOT / "docs" / "repeatability.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
