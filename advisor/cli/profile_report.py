"""What ``advisor profile`` tells people: the plan, its progress, the result, and the command line that it keeps."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from advisor.capacity.knee import sweeps
from advisor.domain.profile import Device, Profile
from advisor.profiling.grid import GridPlan
from advisor.reports.profile_sentences import streaming_sentence, sweep_sentence
from advisor.units import s_to_ms

NOTES = frozenset(
    {"BUDGET", "FEW_SAMPLES", "FIXED_BATCH", "HASH", "MEMORY", "MEMORY_UNKNOWN", "NO_KEEP_ALIVE", "OVERSUBSCRIBED"}
)
"""Warnings that say what was measured and what was not; the others give reason to doubt the numbers."""


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
        named = option or before
        kept.append(f"{option}{equals}{_public(value, option=named)}" if equals or not option else word)
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


def is_doubtful(result: Profile) -> bool:
    """Whether a warning gives reason to doubt the numbers, beyond saying what was measured and what was not."""
    warnings = (*result.warnings, *(warning for cell in result.cells for warning in cell.warnings))
    return any(warning.split(":")[0] not in NOTES for warning in warnings)


@contextmanager
def progress_bar(console: Console, *, quiet: bool) -> Iterator[Callable[[int, int, float, str], None]]:
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


def announce(plan: GridPlan, hardware: Device, console: Console) -> None:
    """Say what will be measured, on what, and how long it takes."""
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


def report(result: Profile, output: Path, console: Console, *, told: Sequence[str]) -> None:
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
