"""``advisor profile``: measure a model on this machine and write its profile."""

import datetime
import functools
import re
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

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
from advisor.cli.profile_report import announce, command_line, is_doubtful, progress_bar, report
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
from advisor.store.profiles import profile_json, write_profile

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
        shown = as_json and not dry_run
        _leave_for(host, context, python=host_python, journal=path, output=output, console=console, shown=shown)
    wanted = configurations(threads, replicas, usable_cpus())
    plan_for = functools.partial(
        plan_grid,
        batch_sizes=_numbers("--batches", batches, LARGEST_BATCH),
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
            announce(journal.start.plan, hardware, console)
        else:
            # As many replicas as keep the CPUs busy mean nothing to a GPU or a server.
            elsewhere = replicas is None and threads in (None, "1") and subject.placement.kind != "cpu"
            plan = plan_for(subject, configurations=None if elsewhere else wanted)
            announce(plan, hardware, console)
            if dry_run:
                return
            journal = _begin(plan, path, hardware)
        try:
            with (
                open_instruments(hardware, subject.placement, cards, given) as instruments,
                progress_bar(console, quiet=quiet) as show,
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
    report(result, output, console, told=journal.start.plan.warnings)
    _finish(result, path, console)


def _leave_for(
    host: str, context: typer.Context, *, python: str, journal: Path, output: Path, console: Console, shown: bool
) -> NoReturn:
    """Run this command on another host, show its profile if asked to, and leave with its exit code there."""
    words, files = words_and_files(context)
    code = profile_on_host(host, words, files=files, journal=journal, output=output, python=python, console=console)
    if shown and code in {0, 3}:
        typer.echo(output.read_text(encoding="utf-8"), nl=False)
    raise typer.Exit(code)


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
