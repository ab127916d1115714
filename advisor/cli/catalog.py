"""``advisor catalog``: what can be had, where, for how much."""

from pathlib import Path
from typing import Annotated

import typer

from advisor.catalog import find_offers, load_catalog
from advisor.cli.files import check_targets, write_bytes
from advisor.cli.printing import print_table
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
