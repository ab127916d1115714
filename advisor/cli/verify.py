"""``advisor verify``: serve a profiled model under real load here, and see whether the prediction holds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from pydantic import TypeAdapter
from rich.console import Console
from scipy.stats import binom

from advisor.cli.duration import parse_duration
from advisor.cli.engine_options import BatchAt, Body, Header, Timeout, target_options
from advisor.cli.hardware import observe_hardware, open_cards
from advisor.cli.printing import print_table
from advisor.domain.measurement import Checked, LoadRun
from advisor.domain.profile import Profile
from advisor.errors import InputError
from advisor.profiling.engines import EngineFactory, Placement
from advisor.profiling.engines.targets import open_target, provider_word
from advisor.profiling.environment import usable_cpus
from advisor.profiling.inputs import BATCH, Dimension, InputOptions, read_samples
from advisor.profiling.verification import verify
from advisor.profiling.verification_plan import VerificationPlan, plan_verification, refuse_other_machine
from advisor.store.profiles import read_profile_file, write_profile
from advisor.units import ms_to_s, s_to_ms

ProfileFile = Annotated[Path, typer.Argument(help="profile to check, measured on this machine", metavar="PROFILE.json")]
Rates = Annotated[str, typer.Option(help="loads, as fractions of the saturated throughput, separated by commas")]
Model = Annotated[
    str | None,
    typer.Option(help="file, module:factory or address; default: the profile's, a file beside it or in this folder"),
]
Inputs = Annotated[Path | None, typer.Option(help="samples that the profile was measured with (.npz)")]
Duration = Annotated[str, typer.Option(help="time of each run that counts, such as 30s; more for low rates")]
Threads = Annotated[int | None, typer.Option(min=1, help="threads of a replica; default: see the plan it prints")]
Replicas = Annotated[int | None, typer.Option(min=1, help="replicas; default: see the plan it prints")]
MaxBatch = Annotated[int | None, typer.Option("--max-batch", min=1, help="largest batch; default: the knee")]
BatchDelay = Annotated[
    float, typer.Option("--batch-delay-ms", min=0, help="longest wait of a free replica for its batch to fill")
]
Seed = Annotated[
    int | None, typer.Option(min=0, help="seed of the arrivals; default: one that no run in the profile has had")
]
Output = Annotated[Path | None, typer.Option("-o", "--output", help="profile to write; default: the same file")]
Anyway = Annotated[bool, typer.Option("--anyway", help="check on a machine that is not the profiled one")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="print what would be done and how long it takes")]
AsJson = Annotated[bool, typer.Option("--json", help="print the runs as JSON instead of a table")]
Quiet = Annotated[bool, typer.Option("--quiet", help="no progress")]

DEFAULT_RATES = "0.3,0.5,0.7,0.8"
MISS_FRAC, CHANCE_QUANTILE = 0.05, 0.975
"""A right 95 % interval is missed so often, and so certain it must be that it is not right."""


def verify_profile(
    profile: ProfileFile,
    *,
    rates: Rates = DEFAULT_RATES,
    model: Model = None,
    inputs: Inputs = None,
    body: Body = None,
    batch_at: BatchAt = None,
    header: Header = None,
    timeout: Timeout = None,
    duration: Duration = "30s",
    threads: Threads = None,
    replicas: Replicas = None,
    max_batch: MaxBatch = None,
    batch_delay_ms: BatchDelay = 0.0,
    seed: Seed = None,
    output: Output = None,
    anyway: Anyway = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Serve the model under real load here and compare response times with what the profile predicts.

    Each run is added to the profile as evidence when it is over. Exit code 0: there are clean runs, and no more of
    them have their observed p99 outside the 95 % interval than chance explains; 3: not so.
    """
    console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    target = output or profile
    if target.is_dir() or not target.parent.is_dir():
        raise InputError("--output", str(target), "a file in a folder that exists")
    found = read_profile_file(profile)
    plan = plan_verification(
        found,
        parse_loads(rates),
        duration_s=parse_duration("--duration", duration),
        cpus=usable_cpus(),
        threads=threads,
        replicas=replicas,
        max_batch=max_batch,
        batch_delay_s=ms_to_s(batch_delay_ms),
        seed=next_seed(found) if seed is None else seed,
        anyway=anyway,
    )
    subject = open_target(
        profiled_target(found, model, beside=profile.parent),
        name=found.model.name,
        options=target_options(
            profiled_inputs(found, inputs),
            **profiled_settings(found),
            body=body,
            batch_at=batch_at,
            header=header,
            timeout=timeout,
        ),
    )
    refuse_other_model(found, subject)
    if not anyway:
        _refuse_other_hardware(found, subject.placement)
    _announce(plan, console)
    if not dry_run:
        runs, stopped = _carry_out(subject, plan, found, target=target, console=console, quiet=quiet)
        _show(runs, as_json=as_json)
        if stopped:
            raise typer.Exit(130)
        if not holds(runs):
            raise typer.Exit(3)


def _carry_out(
    model: EngineFactory, plan: VerificationPlan, profile: Profile, *, target: Path, console: Console, quiet: bool
) -> tuple[list[LoadRun], bool]:
    """Make the runs and keep each as soon as it is over; the runs, and whether somebody stopped them."""
    runs: list[LoadRun] = []

    def tell(line: str) -> None:
        if not quiet:
            console.print(line)

    try:
        for run in verify(model, plan, on_step=tell):
            runs.append(run)
            write_profile(profile.model_copy(update={"load_runs": (*profile.load_runs, *runs)}), target)
            tell(run_sentence(run))
    except KeyboardInterrupt:
        return runs, True
    finally:
        if runs:
            console.print(f"Wrote {target.name} with {len(runs)} more runs under load.")
    return runs, False


def holds(runs: Sequence[LoadRun]) -> bool:
    """Whether there are clean runs, and no more of them lie outside their interval than chance explains.

    Of n right predictions with 95 % intervals as many miss as a binomial law says; its 97.5 % quantile is allowed.
    """
    clean = [run for run in runs if run.clean]
    missed = sum(not run.p99.inside for run in clean)
    return bool(clean) and missed <= int(binom.ppf(CHANCE_QUANTILE, len(clean), MISS_FRAC))


def next_seed(profile: Profile) -> int:
    """First seed above those of the runs in the profile: the same arrivals twice would not be two trials.

    Examples
    --------
    >>> from advisor.store.paths import PROFILES
    >>> next_seed(read_profile_file(PROFILES / "published/bert-base-t4-tensorrt-fp16-s128-1d6bf3.json"))
    0
    """
    return max((run.seed + 1 for run in profile.load_runs), default=0)


def parse_loads(text: str) -> tuple[float, ...]:
    """Loads of a list such as 0.3,0.5.

    Raises
    ------
    InputError
        When the text is no list of numbers above 0 and up to 2.

    Examples
    --------
    >>> parse_loads("0.3,0.5")
    (0.3, 0.5)
    """
    allowed = "numbers above 0 and up to 2, separated by commas, such as 0.3,0.5"
    try:
        loads = tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise InputError("--rates", text, allowed) from error
    if not all(0 < load <= 2 for load in loads):
        raise InputError("--rates", text, allowed)
    return loads


def profiled_target(profile: Profile, given: str | None, *, beside: Path) -> str:
    """What a profile was taken of: what is given, else its callable or address, else its file beside it or here.

    Raises
    ------
    InputError
        When there is none.
    """
    if given is not None or profile.model.target is not None:
        return given or profile.model.target or ""
    name = profile.model.file
    if name is None:
        raise InputError("--model", None, "the file, callable or address, since the profile names none")
    places = [folder / name for folder in (beside, Path())]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise InputError("--model", None, f"the path of {name}, which is neither beside the profile nor here")
    return str(found)


def profiled_settings(profile: Profile) -> dict[str, Any]:
    """Settings of the engine that a profile was taken with, as `target_options` takes them."""
    options = profile.runtime.options
    provider, device, autocast = (options.get(name) for name in ("provider", "device", "autocast"))
    return {
        "provider": None if provider is None else provider_word(str(provider)),
        "device": None if device is None else str(device),
        "autocast": None if autocast is None else str(autocast),
        "compiled": bool(options.get("compile")),
        "tf32": bool(options.get("tf32")),
    }


def profiled_inputs(profile: Profile, samples: Path | None) -> InputOptions:
    """Inputs as the profile was measured with.

    Raises
    ------
    InputError
        When they were samples of the user, and none are given.
    """
    specs = profile.model.inputs
    if samples is None and any(spec.fill.startswith("samples") for spec in specs):
        raise InputError("--inputs", None, "the samples that the profile was measured with")
    # What the model itself or the body of a request makes has no shape to choose.
    shapes: dict[str, tuple[Dimension, ...]] = {
        spec.name: tuple(BATCH if dim == BATCH else int(dim) for dim in spec.shape)
        for spec in specs
        if spec.dtype != "json" and not spec.fill.startswith("made by")
    }
    return InputOptions(shapes=shapes, samples={} if samples is None else read_samples(samples))


def refuse_other_model(profile: Profile, model: EngineFactory) -> None:
    """Refuse a model file, source or request with other bytes than the profiled one.

    Raises
    ------
    InputError
        When the hashes differ.
    """
    if profile.model.sha256 is None:
        raise InputError("profile", "without a hash of its model", "a profile that advisor profile has written")
    if model.model.sha256 != profile.model.sha256:
        what = "request" if profile.model.is_address else "file"
        raise InputError("--model", model.source, f"the {what} that was profiled, with sha256 {profile.model.sha256}")


def _refuse_other_hardware(profile: Profile, placement: Placement) -> None:
    """Refuse another machine; that behind an address of elsewhere cannot be seen, and is taken to be the same."""
    if placement.local:
        device = profile.device
        told = placement.kind == "endpoint" and device.cpu is None
        on = (device.gpu_id or device.name) if told else None
        with open_cards(placement) as cards:
            # A card that had to be named when it was profiled is known by the name of its driver.
            if any(card.facts()["gpu_name"].value == device.name for card in cards):
                on = device.gpu_id
            refuse_other_machine(profile, observe_hardware(placement, cards, on=on, machine_type=None))


def run_sentence(run: LoadRun) -> str:
    """What one run showed of the 99th percentile, on which the verdict is, with the codes of its doubts."""
    p99 = run.p99
    figure = (
        f"Load {run.load:.2f}: p99 {s_to_ms(p99.observed_s):.3g} ms observed, {s_to_ms(p99.predicted.value_s):.3g} ms "
        f"predicted ({s_to_ms(p99.predicted.low_s):.3g} to {s_to_ms(p99.predicted.high_s):.3g}): {verdict(run)}."
    )
    return " ".join((figure, *_codes(run)))


def verdict(run: LoadRun) -> str:
    """One of: inside, outside, or doubtful with where it lies."""
    place = "inside" if run.p99.inside else "outside"
    return place if run.clean else f"doubtful, {place}"


def _codes(run: LoadRun) -> tuple[str, ...]:
    return tuple(dict.fromkeys(doubt.split(":")[0] for doubt in run.doubts))


def _announce(plan: VerificationPlan, console: Console) -> None:
    for note in plan.notes:
        console.print(note)
    saturated_rps = plan.model.saturated_rps
    rates = ", ".join(f"{load:g} (about {load * saturated_rps:.4g}/s)" for load in plan.loads)
    console.print(
        f"Saturated throughput {saturated_rps:.4g} requests/s in the profile; loads {rates}, rescaled by the anchor."
    )
    console.print(f"The anchor rescales these rates. About {plan.estimated_s:.0f} s.")


def _show(runs: Sequence[LoadRun], *, as_json: bool) -> None:
    if as_json:
        typer.echo(TypeAdapter(list[LoadRun]).dump_json(list(runs), indent=1).decode())
        return
    if not runs:
        return
    print_table(pd.DataFrame([_row(run) for run in runs]))
    for run in runs:
        for doubt in run.doubts:
            typer.echo(f"Load {run.load:.2f}: {doubt}")


def _row(run: LoadRun) -> dict[str, str]:
    return {
        "Load": f"{run.load:.2f}",
        "Rate (1/s)": f"{run.rate_rps:.4g}",
        "Requests": str(run.count),
        "Batch": f"{run.mean_batch:.2f}",
        "Service": "" if run.service_frac is None else f"{run.service_frac:+.1%}",
        "Mean (ms)": _figure(run.mean),
        "p95 (ms)": _figure(run.p95),
        "p99 (ms)": _figure(run.p99),
        "Late p99 (ms)": f"{s_to_ms(run.lateness_p99_s):.3g}",
        "Verdict on p99": verdict(run),
        "p99 of plans (ms)": f"{s_to_ms(run.planned_p99_s):.3g}",
        "Doubts": ", ".join(_codes(run)) or "none",
    }


def _figure(checked: Checked) -> str:
    """Observed, then predicted with its interval; an observed figure outside of it is marked."""
    predicted = checked.predicted
    low, value, high = (f"{s_to_ms(end):.3g}" for end in (predicted.low_s, predicted.value_s, predicted.high_s))
    return f"{s_to_ms(checked.observed_s):.3g}{'' if checked.inside else ' !'} vs {value} [{low}, {high}]"
