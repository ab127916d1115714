"""``advisor catalog``: what can be had, where, for how much."""

from pathlib import Path
from typing import Annotated

import typer

from advisor.catalog import find_offers, load_catalog
from advisor.cli.printing import print_table
from advisor.errors import InputError
from advisor.reports.tables import frame_csv, offers_table
from advisor.store.paths import DATA

Gpu = Annotated[str | None, typer.Option(help="GPU, such as L4 or A100-SXM-80GB")]
Region = Annotated[str | None, typer.Option(help="provider/region, or a bare region")]
Provider = Annotated[str | None, typer.Option(help="provider, such as aws")]
Text = Annotated[str | None, typer.Option("--name", help="part of the machine type's name")]
Limit = Annotated[int, typer.Option(min=1, help="rows to print")]
Csv = Annotated[Path | None, typer.Option(help="write all rows to a CSV file; - for standard output")]


def catalog(
    *,
    gpu: Gpu = None,
    region: Region = None,
    provider: Provider = None,
    name: Text = None,
    limit: Limit = 25,
    csv: Csv = None,
) -> None:
    """List machine types and on-demand offers, cheapest first."""
    check_targets(csv)
    found = find_offers(load_catalog(DATA), gpu=gpu, region=region, provider=provider, text=name)
    table = offers_table(found)
    if csv is not None:
        write_bytes(csv, frame_csv(table))
        return
    print_table(table.head(limit))
    typer.echo(f"{len(table)} offers" + (f", the {limit} cheapest shown." if len(table) > limit else "."))


def check_targets(*targets: Path | None) -> None:
    """Refuse files that cannot be written, before any work: no folder, a folder itself, or two on standard output.

    Raises
    ------
    InputError
        With the target and what is allowed.
    """
    given = [target for target in targets if target is not None]
    for target in given:
        if str(target) != "-" and (target.is_dir() or not target.parent.is_dir()):
            raise InputError("output", str(target), "a file in a folder that exists")
    if sum(str(target) == "-" for target in given) > 1:
        raise InputError("output", "- twice", "standard output for one format only")


def write_bytes(target: Path, content: bytes) -> None:
    """Write a file, or to standard output for ``-``."""
    if str(target) == "-":
        typer.get_binary_stream("stdout").write(content)
        return
    target.write_bytes(content)
    typer.echo(f"Wrote {target.name}.", err=True)
