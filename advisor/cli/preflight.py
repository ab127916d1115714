"""Is the machine fit to be measured? Asked before a measurement; the user may wait, or go on all the same."""

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console

from advisor.cli.duration import parse_duration
from advisor.errors import MeasurementError
from advisor.profiling.doctor import examine, wait_until_quiet
from advisor.profiling.gpu import Gpu

WaitQuiet = Annotated[
    str | None, typer.Option("--wait-quiet", help="wait so long for the machine to become quiet, such as 10m")
]
Force = Annotated[bool, typer.Option("--force", help="measure although the machine is not fit for it, and say so")]


def preflight(gpus: Sequence[Gpu], *, wait: str | None, force: bool, console: Console) -> tuple[str, ...]:
    """Examine the machine; what speaks against measuring, as sentences for the profile.

    Raises
    ------
    MeasurementError
        When something does, and the user did not say to go on all the same.
    """
    if wait is not None:
        limit_s = parse_duration("--wait-quiet", wait)

        def tell(left_s: float, why: str) -> None:
            console.print(f"{why}; waiting, {left_s:.0f} s left", highlight=False, markup=False)

        if wait_until_quiet(limit_s, on_wait=tell, gpus=gpus):
            return ()
    errors = [finding for finding in examine(gpus=gpus) if finding.level == "error"]
    if not errors:
        return ()
    seen = "; ".join(f"{finding.code}: {finding.evidence.rstrip('.')}" for finding in errors)
    if not force:
        advice = "wait with --wait-quiet 10m, " if wait is None else "it did not become quiet in time, "
        raise MeasurementError(
            f"This machine is not fit to be measured now ({seen}); "
            f"{advice}see advisor doctor, or measure all the same with --force."
        )
    return (f"FORCED: measured although the machine was not fit for it ({seen}).",)
