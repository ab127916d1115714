"""``advisor doctor``: whether this machine is fit to be measured right now."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from advisor.cli.printing import stdout_console
from advisor.profiling.doctor import Finding, examine
from advisor.profiling.gpu import open_gpus

Seconds = Annotated[float, typer.Option(min=0.5, max=60, help="how long to look, in seconds")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON instead of a table")]

STYLES = {"ok": "green", "warning": "yellow", "error": "red"}


def doctor(*, seconds: Seconds = 2.0, as_json: AsJson = False) -> None:
    """Look at this machine and say what would spoil a measurement. Nothing is changed on the machine.

    Commands that would help are printed, never run. Exit code 0: fit to measure; 3: an error or a warning was found.
    """
    gpus = open_gpus()
    try:
        findings = examine(seconds, gpus=gpus.cards)
    finally:
        for card in gpus.cards:
            card.close()
    if as_json:
        typer.echo(as_document(findings, no_gpu=gpus.why))
    else:
        print_findings(findings, stdout_console(), no_gpu=gpus.why)
    if not is_fit(findings):
        raise typer.Exit(3)


def is_fit(findings: Sequence[Finding]) -> bool:
    """Whether nothing speaks against measuring; what the system does not tell is no reason.

    Examples
    --------
    >>> is_fit([Finding("STEAL", "ok", "none", None)]), is_fit([Finding("BATTERY", "warning", "empty soon", None)])
    (True, False)
    """
    return all(finding.level == "ok" for finding in findings)


def verdict(findings: Sequence[Finding]) -> str:
    """Sum up the findings in one sentence.

    Examples
    --------
    >>> verdict([Finding("STEAL", "error", "much", None), Finding("BATTERY", "warning", "empty soon", None)])
    'Not fit to be measured now: STEAL, BATTERY.'
    """
    if is_fit(findings):
        return "Fit to be measured."
    codes = ", ".join(dict.fromkeys(finding.code for finding in findings if finding.level != "ok"))
    if any(finding.level == "error" for finding in findings):
        return f"Not fit to be measured now: {codes}."
    return f"Can be measured, with doubts: {codes}."


def as_document(findings: Sequence[Finding], *, no_gpu: str | None) -> str:
    """All findings as JSON; `no_gpu` says why no card was looked at."""
    document = {
        "fit": is_fit(findings),
        "verdict": verdict(findings),
        "no_gpu": no_gpu,
        "findings": [dataclasses.asdict(finding) for finding in findings],
    }
    return json.dumps(document, indent=1, ensure_ascii=False)


def print_findings(findings: Sequence[Finding], console: Console, *, no_gpu: str | None) -> None:
    """Print a table, then what to do on lines of their own, so that commands can be copied whole."""
    table = Table()
    table.add_column("Code", no_wrap=True)
    table.add_column("Level", no_wrap=True)
    table.add_column("What was seen", overflow="fold")
    for finding in findings:
        # Readers without colors see the level as a word.
        table.add_row(finding.code, Text(finding.level, style=STYLES[finding.level]), finding.evidence)
    console.print(table)
    if no_gpu is not None:
        console.print(f"No GPU was looked at: {no_gpu.rstrip('.')}.", soft_wrap=True)
    console.print(verdict(findings), soft_wrap=True)
    remedies = [finding for finding in findings if finding.remedy is not None]
    if remedies:
        console.print("What to do:")
    for finding in remedies:
        console.print(f"  {finding.code}: {finding.remedy}", soft_wrap=True)
