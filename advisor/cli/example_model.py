"""``advisor example-model``: a real architecture with random weights, for those with no model at hand."""

from pathlib import Path
from typing import Annotated

import typer

from advisor.profiling.example_models import EXAMPLE_MODELS, PRECISIONS, build_example_model

Name = Annotated[str, typer.Argument(help=f"one of {', '.join(EXAMPLE_MODELS)}")]
Precision = Annotated[str, typer.Option(help=f"one of {', '.join(PRECISIONS)}")]
Output = Annotated[Path, typer.Argument(help="ONNX file to write")]


def example_model(name: Name, output: Output, *, precision: Precision = "fp32") -> None:
    """Build an example model: real layers and sizes, random weights from a fixed seed."""
    build_example_model(name, output, precision=precision)
    size_mb = output.stat().st_size / 1e6
    typer.echo(
        f"Wrote {output.name}: {name} in {precision}, {size_mb:.1f} MB, random weights. "
        f"Next: advisor profile {output} -o {output.stem}.json"
    )
