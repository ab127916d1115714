"""Command line: parse, call one function, print. One module per command, imported when that command is called."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperGroup

from advisor.errors import AdvisorError


@dataclass(frozen=True, slots=True)
class Command:
    """Where a command stands, and what the list of commands says of it."""

    module: str
    """Module of `advisor.cli`."""
    function: str
    help: str
    """First paragraph of the function's docstring: the list must not import the function to show it."""
    extra: str = "all"
    """Smallest extra of the package that has all that the command imports."""


COMMANDS = {
    "plan": Command("plan", "plan", "Recommend the cheapest fleet that answers in time, and say why."),
    "doctor": Command(
        "doctor",
        "doctor",
        "Look at this machine and say what would spoil a measurement. Nothing is changed on the machine.",
    ),
    "profile": Command(
        "profile",
        "profile",
        "Measure a model and write a profile: a file, a Python callable, or a server behind an address.",
        extra="profile",
    ),
    "import": Command(
        "import_timings",
        "import_timings",
        "Make a profile of timings from another host; exit code 3 when there is reason to doubt them.",
        extra="profile",
    ),
    "verify": Command(
        "verify",
        "verify_profile",
        "Serve the model under real load here and compare response times with what the profile predicts.",
        extra="verify",
    ),
    "compare": Command(
        "compare", "compare_profiles", "Compare two profiles of one model on one kind of machine, cell by cell."
    ),
    "example-model": Command(
        "example_model",
        "example_model",
        "Build an example model: real layers and sizes, random weights from a fixed seed.",
        extra="profile",
    ),
    "catalog": Command("catalog", "catalog", "List machine types and on-demand offers, cheapest first."),
    "queue": Command(
        "queue",
        "queue",
        "Response time without batching: exact for one server and for SCV 0 and 1, else an approximation.",
    ),
    "schema": Command("schema", "schema", "Write the JSON Schemas of all file formats."),
    "trace": Command(
        "trace",
        "trace",
        "Tell how bursty the arrivals of a trace are; exit code 3 when models do not hold and it must be replayed.",
    ),
}
"""Commands by name, in the order in which they are listed."""


def load_command(name: str) -> Any:  # typer does not export the type of its commands
    """Import a command and make it ready to run.

    Raises
    ------
    AdvisorError
        When it needs a package that is not installed.
    """
    command = COMMANDS[name]
    with told_what_to_install(name):
        function = getattr(importlib.import_module(f"advisor.cli.{command.module}"), command.function)
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    # Some commands import a runtime only once they know which one they need: hence around the call, too.
    alone.command(name)(told_what_to_install(name)(function))
    return typer.main.get_command(alone)


@contextmanager
def told_what_to_install(name: str) -> Iterator[None]:
    """Turn the lack of a package into a sentence about the command that needs it.

    Raises
    ------
    AdvisorError
        With the package and what installs it.

    Examples
    --------
    >>> with told_what_to_install("plan"):
    ...     raise ModuleNotFoundError(name="numba.core")
    Traceback (most recent call last):
    advisor.errors.AdvisorError: advisor plan needs numba; this installs it: pip install "inference-fleet-advisor[all]".
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "advisor").partition(".")[0]
        if package == "advisor":  # a fault of ours, for which there is nothing to install
            raise
        extra = f"inference-fleet-advisor[{COMMANDS[name].extra}]"
        raise AdvisorError(f'advisor {name} needs {package}; this installs it: pip install "{extra}".') from error


class _Commands(TyperGroup):
    """Commands of which only the one that is called is imported: the rest is known by name and help."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else load_command(name), rest


app = typer.Typer(
    name="advisor",
    cls=_Commands,
    help="Which machines, CPU or GPU, how many, at what cost, so that a trained model answers in time.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _stand_in() -> None:
    """Stand in the list of commands; `_Commands` puts the command itself in its place."""


for _name, _command in COMMANDS.items():
    app.command(_name, help=_command.help)(_stand_in)
