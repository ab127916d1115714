"""``advisor profile``: measure a model on this machine and write its profile."""

import datetime
import re
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from advisor.domain.profile import PROFILE_ID, Profile
from advisor.errors import InputError
from advisor.profiling.bench import measure
from advisor.profiling.engines.onnx import OnnxModel
from advisor.profiling.grid import GridPlan, plan_grid
from advisor.profiling.inputs import InputOptions, parse_shape
from advisor.units import s_to_ms

Model = Annotated[Path, typer.Argument(help="ONNX file", metavar="MODEL.onnx")]
Output = Annotated[Path, typer.Option("-o", "--output", help="profile to write (JSON)")]
Name = Annotated[str | None, typer.Option(help="model name that scenarios ask for; default: the file's name")]
Identifier = Annotated[str | None, typer.Option("--id", help="profile_id; default: model, precision and CPU")]
Batches = Annotated[str, typer.Option(help="batch sizes, separated by commas")]
Repeats = Annotated[int, typer.Option(min=1, help="interleaved repeats of the whole grid")]
Budget = Annotated[str, typer.Option(help="time for the whole measurement, such as 90s or 5m")]
Sequence = Annotated[int, typer.Option("--seq", min=1, help="tokens per item, for models of text")]
Shape = Annotated[list[str] | None, typer.Option(help="shape of an input the graph leaves open: name=1,3,48,320")]
MachineTypeName = Annotated[str | None, typer.Option("--machine-type", help="cloud machine type of this host, if any")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="print what would be measured and how long it takes")]
Quiet = Annotated[bool, typer.Option("--quiet", help="no progress bar")]

LARGEST_BATCH = 65_536
DEFAULT_BATCHES = "1,2,4,8,16,32"
DEFAULT_BUDGET = "120s"


def profile(
    model: Model,
    output: Output = Path("profile.json"),
    *,
    name: Name = None,
    identifier: Identifier = None,
    batches: Batches = DEFAULT_BATCHES,
    repeats: Repeats = 3,
    budget: Budget = DEFAULT_BUDGET,
    seq: Sequence = 128,
    shape: Shape = None,
    machine_type: MachineTypeName = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Measure an ONNX model on this machine's CPU and write a profile.

    Stopped with Ctrl-C it writes what was measured so far.
    """
    console = Console(stderr=True, soft_wrap=True)
    _check_targets(output, identifier)
    options = InputOptions(sequence_length=seq, shapes=dict(parse_shape(text) for text in shape or []))
    onnx_model = OnnxModel(model, name=name, options=options)
    plan = plan_grid(onnx_model, batch_sizes=_batch_sizes(batches), repeats=repeats, budget_s=parse_duration(budget))
    _announce(plan, console)
    if dry_run:
        return
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}"),
        console=console,
        disable=quiet,
        transient=True,
    ) as bar:
        task = bar.add_task("measuring", total=len(plan.cells) * plan.repeats, left="")

        def show(done: int, total: int, seconds_left: float, line: str) -> None:
            bar.update(task, completed=done, total=total, left=f"{seconds_left:.0f} s left")
            if line and not quiet:
                bar.console.print(line, highlight=False)

        result = measure(
            onnx_model,
            plan,
            today=datetime.datetime.now(datetime.UTC).date(),
            profile_id=identifier,
            machine_type=machine_type,
            on_progress=show,
        )
    output.write_text(result.model_dump_json(indent=1) + "\n", encoding="utf-8")
    _report(result, output, console)
    if result.status == "partial":
        raise typer.Exit(130)
    if result.warnings or any(cell.warnings for cell in result.cells):
        raise typer.Exit(3)


def _check_targets(output: Path, identifier: str | None) -> None:
    """Refuse what could only fail after the measurement."""
    if output.is_dir() or not output.parent.is_dir():
        raise InputError("--output", str(output), "a file in a folder that exists")
    if identifier is not None and re.fullmatch(PROFILE_ID, identifier) is None:
        raise InputError("--id", identifier, "small letters, digits, dots, dashes and underscores")


def parse_duration(text: str) -> float:
    """Seconds of a duration such as 90s, 5m or 1h.

    Raises
    ------
    InputError
        When the text is no duration.

    Examples
    --------
    >>> parse_duration("5m")
    300.0
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if match is None or float(match[1]) == 0:
        raise InputError("--budget", text, "a time such as 90s, 5m or 1h")
    return float(match[1]) * {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}[match[2]]


def _batch_sizes(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise InputError("--batches", text, "whole numbers above 0, separated by commas") from error
    if min(sizes) < 1 or max(sizes) > LARGEST_BATCH:
        raise InputError("--batches", text, f"whole numbers from 1 to {LARGEST_BATCH}, separated by commas")
    return sizes


def _announce(plan: GridPlan, console: Console) -> None:
    console.print(f"Model {plan.model.name} ({plan.model.precision or 'precision unknown'})", highlight=False)
    for spec in plan.model.inputs:
        console.print(
            f"  input {spec.name}: {spec.dtype} {list(spec.shape)}, {spec.fill}",
            highlight=False,
            markup=False,
        )
    places = ", ".join(f"{place.concurrency} × {place.threads} threads" for place in plan.configurations)
    sizes = ", ".join(str(size) for size in plan.batch_sizes)
    console.print(
        f"Batch sizes {sizes}; replicas {places}; {plan.repeats} repeats; about {plan.estimated_s:.0f} s",
        highlight=False,
    )
    for warning in plan.warnings:
        console.print(warning, style="yellow", highlight=False, markup=False)


def _report(result: Profile, output: Path, console: Console) -> None:
    for cell in result.cells:
        for warning in cell.warnings:
            console.print(
                f"batch {cell.batch_size}, replicas {cell.concurrency} × {cell.threads} threads: {warning}",
                style="yellow",
                highlight=False,
                markup=False,
            )
    fastest = min(result.cells, key=lambda cell: cell.service_mean_s or float("inf"))
    busiest = max(result.cells, key=lambda cell: cell.throughput_rps or 0.0)
    console.print(
        f"Wrote {output.name} ({result.status}): fastest call {s_to_ms(fastest.service_mean_s or 0):.3g} ms "
        f"at batch {fastest.batch_size}; most {busiest.throughput_rps or 0:.4g} items/s at batch {busiest.batch_size}.",
        highlight=False,
    )
