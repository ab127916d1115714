"""``advisor profile``: measure a model on this machine and write its profile."""

import datetime
import functools
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from advisor.capacity.knee import sweeps
from advisor.cli.duration import parse_duration
from advisor.cli.engine_options import (
    Autocast,
    BatchAt,
    Body,
    Compile,
    Header,
    Provider,
    Tf32,
    Timeout,
    TorchDevice,
    target_options,
)
from advisor.cli.hardware import observe_hardware, open_cards
from advisor.cli.instruments import IdleWatts, Watts, open_instruments, user_watts
from advisor.cli.preflight import Force, WaitQuiet, preflight
from advisor.cli.remote import profile_on_host
from advisor.cli.remote_words import words_and_files
from advisor.domain.profile import PROFILE_ID, Device, Profile
from advisor.errors import InputError, MeasurementError
from advisor.profiling.bench import FAILED, measure
from advisor.profiling.cell import Configuration
from advisor.profiling.engines.targets import open_target
from advisor.profiling.environment import usable_cpus
from advisor.profiling.grid import (
    DEFAULT_BATCH_SIZES,
    DEFAULT_BUDGET_S,
    DEFAULT_REPEATS,
    GridPlan,
    plan_grid,
)
from advisor.profiling.inputs import InputOptions, parse_shape, read_samples
from advisor.profiling.journal import Journal, Start, refuse_existing
from advisor.reports.profile_sentences import streaming_sentence, sweep_sentence
from advisor.store.profiles import profile_json, write_profile
from advisor.units import s_to_ms

Target = Annotated[
    str, typer.Argument(help="ONNX or PyTorch file, module:factory, or the address of a server", metavar="MODEL")
]
Host = Annotated[
    str | None, typer.Option(help="measure on this host over ssh, such as user@box, and fetch the profile")
]
HostPython = Annotated[str, typer.Option("--host-python", help="with --host: Python 3.11 or newer there")]
On = Annotated[
    str | None,
    typer.Option(help="what an address runs on, such as 'Tesla K80' or the name of a CPU; default: this machine"),
]
Output = Annotated[Path, typer.Option("-o", "--output", help="profile to write (JSON)")]
Name = Annotated[str | None, typer.Option(help="model name that scenarios ask for; default: the file's name")]
Identifier = Annotated[str | None, typer.Option("--id", help="profile_id; default: model, precision and CPU")]
Batches = Annotated[str, typer.Option(help="batch sizes, separated by commas")]
Threads = Annotated[
    str | None,
    typer.Option(help="threads of a replica, separated by commas; default: 1, all CPUs, and one number between"),
]
Replicas = Annotated[
    str | None,
    typer.Option(help="replicas that run together, separated by commas; default: as many as keep all CPUs busy"),
]
Repeats = Annotated[
    int, typer.Option(min=1, help="interleaved repeats of the whole grid; cells that differ get more, up to 10")
]
Budget = Annotated[str, typer.Option(help="time for the whole measurement, such as 90s or 5m")]
Sequence_ = Annotated[int, typer.Option("--seq", min=1, help="tokens per item, for models of text")]
Shape = Annotated[list[str] | None, typer.Option(help="shape of an input the graph leaves open: name=1,3,48,320")]
Samples = Annotated[Path | None, typer.Option("--inputs", help="arrays to feed, by input (.npz); axis 0 is the items")]
MachineTypeName = Annotated[str | None, typer.Option("--machine-type", help="cloud machine type of this host, if any")]
RecordGpu = Annotated[Path | None, typer.Option(help="write every reading of the GPU to this file (.jsonl)")]
Seed = Annotated[int, typer.Option(min=0, help="seed of inputs and of the order of cells")]
Resume = Annotated[Path | None, typer.Option(help="journal of a measurement that was stopped or killed: go on with it")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="print what would be measured and how long it takes")]
AsJson = Annotated[bool, typer.Option("--json", help="also print the profile on standard output")]
Quiet = Annotated[bool, typer.Option("--quiet", help="no progress bar")]

NOTES = frozenset(
    {"BUDGET", "FEW_SAMPLES", "FIXED_BATCH", "HASH", "MEMORY", "MEMORY_UNKNOWN", "NO_KEEP_ALIVE", "OVERSUBSCRIBED"}
)
"""Warnings that say what was measured and what was not; the others give reason to doubt the numbers."""
LARGEST_BATCH = 65_536
LARGEST_COUNT = 1024
DEFAULT_BATCHES = ",".join(map(str, DEFAULT_BATCH_SIZES))
DEFAULT_BUDGET = f"{DEFAULT_BUDGET_S:.0f}s"


def profile(
    context: typer.Context,
    model: Target,
    output: Output = Path("profile.json"),
    *,
    host: Host = None,
    host_python: HostPython = "python3",
    on: On = None,
    provider: Provider = None,
    device: TorchDevice = None,
    autocast: Autocast = None,
    compiled: Compile = False,
    tf32: Tf32 = False,
    body: Body = None,
    batch_at: BatchAt = None,
    header: Header = None,
    timeout: Timeout = None,
    name: Name = None,
    identifier: Identifier = None,
    batches: Batches = DEFAULT_BATCHES,
    threads: Threads = None,
    replicas: Replicas = None,
    repeats: Repeats = DEFAULT_REPEATS,
    budget: Budget = DEFAULT_BUDGET,
    seq: Sequence_ = 128,
    shape: Shape = None,
    inputs: Samples = None,
    machine_type: MachineTypeName = None,
    watts: Watts = None,
    idle_watts: IdleWatts = None,
    record_gpu: RecordGpu = None,
    seed: Seed = 0,
    resume: Resume = None,
    wait_quiet: WaitQuiet = None,
    force: Force = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Measure a model and write a profile: a file, a Python callable, or a server behind an address.

    Stopped with Ctrl-C it writes what was measured so far. Everything measured goes into a journal beside the profile
    at once; --resume goes on with it, also after a crash. The journal is removed when the profile is complete.
    """
    console = Console(stderr=True, soft_wrap=True)
    if resume is not None and dry_run:
        raise InputError("--dry-run", "given with --resume", "one of the two: a journal holds its plan already")
    path = resume or output.with_suffix(".journal.jsonl")
    _check_targets(output, identifier, new_journal=None if resume or dry_run else path)
    if host is not None:
        words, files = words_and_files(context)
        code = profile_on_host(
            host, words, files=files, journal=path, output=output, python=host_python, console=console
        )
        if as_json and not dry_run and code in {0, 3}:
            typer.echo(output.read_text(encoding="utf-8"), nl=False)
        raise typer.Exit(code)
    plan_for = functools.partial(
        plan_grid,
        batch_sizes=_numbers("--batches", batches, LARGEST_BATCH),
        configurations=configurations(threads, replicas, usable_cpus()),
        repeats=repeats,
        budget_s=parse_duration("--budget", budget),
        seed=seed,
    )
    given = user_watts(watts, idle_watts)
    options = target_options(
        InputOptions(
            sequence_length=seq,
            shapes=dict(parse_shape(text) for text in shape or []),
            samples=read_samples(inputs) if inputs is not None else {},
        ),
        provider=provider,
        device=device,
        autocast=autocast,
        compiled=compiled,
        tf32=tf32,
        body=body,
        batch_at=batch_at,
        header=header,
        timeout=timeout,
    )
    subject = open_target(model, name=name, options=options)
    with open_cards(subject.placement, record=record_gpu) as cards:
        hardware = observe_hardware(subject.placement, cards, on=on, machine_type=machine_type)
        findings = () if dry_run else preflight(cards, wait=wait_quiet, force=force, console=console)
        if resume is not None:
            journal = Journal.resume(resume)
            console.print(f"Going on with {resume.name}: {len(journal.samples)} windows are there.", highlight=False)
            _announce(journal.start.plan, hardware, console)
        else:
            plan = plan_for(subject)
            _announce(plan, hardware, console)
            if dry_run:
                return
            journal = _begin(plan, path, hardware)
        try:
            with (
                open_instruments(hardware, subject.placement, cards, given) as instruments,
                _progress_bar(console, quiet=quiet) as show,
            ):
                result = measure(
                    subject,
                    journal,
                    instruments,
                    today=datetime.datetime.now(datetime.UTC).date(),
                    device=hardware,
                    profile_id=identifier,
                    findings=findings,
                    on_progress=show,
                )
        except (KeyboardInterrupt, MeasurementError):
            if not journal.samples:
                path.unlink()
            raise
    write_profile(result, output)
    if as_json:
        typer.echo(profile_json(result), nl=False)
    _report(result, output, console, told=journal.start.plan.warnings)
    _finish(result, path, console)


def command_line(arguments: Sequence[str]) -> str:
    """Command line of a profile, without what tells about people and not about speed.

    Files stand by their names alone, addresses without user and query, headers without their values.

    Examples
    --------
    >>> command_line(["profile", "/home/me/my model.onnx", "--inputs=/data/x.npz", "--seq", "32"])
    "advisor profile 'my model.onnx' --inputs=x.npz --seq 32"
    >>> command_line(["profile", "http://me:secret@box:8000/predict?key=1", "--header", "Authorization: secret"])
    "advisor profile http://box:8000/predict --header 'Authorization: ...'"
    """
    kept, before = ["advisor"], ""
    for word in arguments:
        option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        kept.append(f"{option}{equals}{_public(value, option=option or before)}")
        before = word
    return shlex.join(kept)


def _public(value: str, *, option: str) -> str:
    """Value of an option, or a word of its own, as far as others may see it."""
    if option == "--header":
        return f"{value.partition(':')[0]}: ..."
    if "://" in value:
        address = urlsplit(value)
        return f"{address.scheme}://{address.netloc.rpartition('@')[2]}{address.path}"
    return Path(value).name or value


def _begin(plan: GridPlan, path: Path, hardware: Device) -> Journal:
    """Start the journal of a plan on this hardware."""
    start = Start(
        created=datetime.datetime.now(datetime.UTC),
        model=plan.model,
        device=hardware,
        plan=plan,
        command=command_line(sys.argv[1:]),
    )
    return Journal.begin(start, path)


def _finish(result: Profile, journal: Path, console: Console) -> None:
    """Remove the journal of a complete profile, and leave with an exit code.

    130: it was stopped; 1: the model failed on the way; 3: there are doubts.
    """
    if result.status == "partial":
        console.print(
            f"Go on with the same command and --resume {journal.name} (the options of the grid are in it).",
            highlight=False,
        )
        raise typer.Exit(1 if any(warning.startswith(FAILED) for warning in result.warnings) else 130)
    journal.unlink()
    if is_doubtful(result):
        raise typer.Exit(3)


def is_doubtful(result: Profile) -> bool:
    """Whether a warning gives reason to doubt the numbers, beyond saying what was measured and what was not."""
    warnings = (*result.warnings, *(warning for cell in result.cells for warning in cell.warnings))
    return any(warning.split(":")[0] not in NOTES for warning in warnings)


def configurations(threads: str | None, replicas: str | None, cpus: int) -> tuple[Configuration, ...] | None:
    """Every thread count with every number of replicas; without replicas as many as keep all CPUs busy.

    None where nothing is given: what is usual depends on where calls are answered.

    Raises
    ------
    InputError
        When a text is no list of numbers.

    Examples
    --------
    >>> configurations("1,4", None, 8)
    (Configuration(threads=1, concurrency=8), Configuration(threads=4, concurrency=2))
    >>> configurations("2", "1,3", 8)
    (Configuration(threads=2, concurrency=1), Configuration(threads=2, concurrency=3))
    """
    if threads is None and replicas is None:
        return None
    counts = _numbers("--threads", threads or "1", LARGEST_COUNT)
    if replicas is None:
        return tuple(Configuration(count, max(1, cpus // count)) for count in counts)
    together = _numbers("--replicas", replicas, LARGEST_COUNT)
    return tuple(Configuration(count, copies) for count in counts for copies in together)


def _numbers(option: str, text: str, largest: int) -> tuple[int, ...]:
    """Whole numbers of a list given to an option."""
    allowed = f"whole numbers from 1 to {largest}, separated by commas"
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(option, text, allowed) from error
    if min(numbers) < 1 or max(numbers) > largest:
        raise InputError(option, text, allowed)
    return numbers


def _check_targets(output: Path, identifier: str | None, *, new_journal: Path | None) -> None:
    """Refuse what could only fail after the measurement."""
    if new_journal is not None:
        refuse_existing(new_journal)
    if output.is_dir() or not output.parent.is_dir():
        raise InputError("--output", str(output), "a file in a folder that exists")
    if identifier is not None and re.fullmatch(PROFILE_ID, identifier) is None:
        raise InputError("--id", identifier, "small letters, digits, dots, dashes and underscores")


@contextmanager
def _progress_bar(console: Console, *, quiet: bool) -> Iterator[Callable[[int, int, float, str], None]]:
    """A bar on a terminal, plain lines elsewhere; the function to call after every window."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}"),
        console=console,
        disable=quiet,
        transient=True,
    ) as bar:
        task = bar.add_task("measuring", total=None, left="")

        def show(done: int, total: int, seconds_left: float, line: str) -> None:
            bar.update(task, completed=done, total=total, left=f"{seconds_left:.0f} s left")
            if line and not quiet:
                bar.console.print(line, highlight=False)

        yield show


def _announce(plan: GridPlan, hardware: Device, console: Console) -> None:
    console.print(
        f"Model {plan.model.name} ({plan.model.precision or 'precision unknown'}), {plan.runtime.name}"
        f"{f' {plan.runtime.version}' if plan.runtime.version else ''} on {hardware.name}",
        highlight=False,
        markup=False,
    )
    for spec in plan.model.inputs:
        console.print(
            f"  input {spec.name}: {spec.dtype} {list(spec.shape)}, {spec.fill}",
            highlight=False,
            markup=False,
        )
    places = ", ".join(f"{place.concurrency} × {place.threads} threads" for place in plan.configurations)
    sizes = ", ".join(str(size) for size in plan.batch_sizes)
    further = f", up to {plan.budget_s:.0f} s where repeats were disturbed or differ"
    console.print(
        f"Batch sizes {sizes}; replicas {places}; {plan.repeats} repeats; about {plan.estimated_s:.0f} s"
        f"{further if plan.budget_s > plan.estimated_s else ''}",
        highlight=False,
    )
    for warning in plan.warnings:
        console.print(warning, style="yellow", highlight=False, markup=False)


def _report(result: Profile, output: Path, console: Console, *, told: Sequence[str]) -> None:
    """Say what is doubtful and was not told before, where throughput levels off, and what was written."""
    for warning in result.warnings:
        if warning in told:
            continue
        console.print(warning, style="yellow", highlight=False, markup=False)
    for cell in result.cells:
        for warning in cell.warnings:
            console.print(
                f"batch {cell.batch_size}, replicas {cell.concurrency} × {cell.threads} threads: {warning}",
                style="yellow",
                highlight=False,
                markup=False,
            )
    for cell in result.cells:
        if tokens := streaming_sentence(cell):
            console.print(tokens, highlight=False)
    for sweep in sweeps(result):
        console.print(sweep_sentence(sweep), highlight=False)
    fastest = min(result.cells, key=lambda cell: cell.service_mean_s or float("inf"))
    busiest = max(result.cells, key=lambda cell: cell.throughput_rps or 0.0)
    console.print(
        f"Wrote {output.name} ({result.status}): fastest call {s_to_ms(fastest.service_mean_s or 0):.3g} ms "
        f"at batch {fastest.batch_size}; most {busiest.throughput_rps or 0:.4g} items/s at batch {busiest.batch_size}.",
        highlight=False,
    )
