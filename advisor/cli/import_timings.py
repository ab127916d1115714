"""``advisor import``: a profile from timings that were taken where `advisor profile` does not run."""

import datetime
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from advisor.catalog import load_catalog
from advisor.cli.devices import find_device
from advisor.cli.files import check_targets
from advisor.cli.profile_report import command_line, is_doubtful
from advisor.domain.profile import Profile
from advisor.errors import InputError
from advisor.profiling.timings import GivenFacts, read_timings
from advisor.store.paths import DATA
from advisor.store.profiles import write_profile
from advisor.units import s_to_ms

Timings = Annotated[
    Path, typer.Argument(help="one row per call (CSV), as scripts/time_inference.py writes them", metavar="FILE.csv")
]
Output = Annotated[Path, typer.Option("-o", "--output", help="profile to write (JSON)")]
Model = Annotated[str | None, typer.Option(help="model name that scenarios ask for; default: that of the file")]
On = Annotated[
    str | None, typer.Option("--on", help="GPU or CPU that answered, such as K80; default: that of the file")
]
MachineTypeName = Annotated[
    str | None, typer.Option("--machine-type", help="cloud machine type of that host, if any, such as p2.xlarge")
]
Precision = Annotated[str | None, typer.Option(help="fp32, tf32, fp16, bf16 or int8; default: that of the file")]
SequenceLength = Annotated[
    int | None, typer.Option("--sequence-length", min=1, help="tokens per item; default: that of the file")
]
Identifier = Annotated[str | None, typer.Option("--id", help="profile_id; default: model, precision and hardware")]


def import_timings(
    file: Timings,
    output: Output = Path("profile.json"),
    *,
    model: Model = None,
    on: On = None,
    machine_type: MachineTypeName = None,
    precision: Precision = None,
    sequence_length: SequenceLength = None,
    identifier: Identifier = None,
) -> None:
    """Make a profile of timings from another host; exit code 3 when there is reason to doubt them."""
    check_targets(output)
    if not file.is_file():
        raise InputError("timings", file.name, "a CSV file that exists")
    specs = load_catalog(DATA).gpu_specs
    found = read_timings(
        file.read_bytes(),
        file=file.name,
        facts=GivenFacts(model, on, precision, sequence_length, identifier),
        find_device=lambda name: find_device(name, specs, machine_type),
        today=datetime.datetime.now(datetime.UTC).date(),
    )
    result = found.model_copy(update={"command": command_line(sys.argv[1:])})
    write_profile(result, output)
    _report(result, output, Console(stderr=True, soft_wrap=True, highlight=False, markup=False))
    if is_doubtful(result):
        raise typer.Exit(3)


def _report(result: Profile, output: Path, console: Console) -> None:
    """Say what is doubtful, what was written and what can be done with it."""
    for cell in result.cells:
        for warning in cell.warnings:
            console.print(f"batch {cell.batch_size}, callers {cell.concurrency}: {warning}", style="yellow")
    fastest = min(result.cells, key=lambda cell: cell.service_mean_s or float("inf"))
    console.print(
        f"Wrote {output.name} (imported, {result.model.name} on {result.device.name}): fastest call "
        f"{s_to_ms(fastest.service_mean_s or 0):.3g} ms at batch {fastest.batch_size}. {_next_step(result, output)}"
    )


def _next_step(result: Profile, output: Path) -> str:
    """What a profile is good for: a CPU without its CPUID speaks for no machine of the catalog."""
    if result.device.kind == "gpu":
        return f"Next: advisor plan SCENARIO.yaml --profile {output.name}, or upload it on the Profiles page."
    return (
        "Plans do not use a CPU that was not identified and seen with all cores busy; "
        "upload it on the Profiles page to see it beside others."
    )
