"""Files that commands write."""

from pathlib import Path

import typer

from advisor.errors import InputError


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
