"""The command line of ``advisor profile`` as another host needs it: files by their names alone."""

from collections.abc import Iterator
from pathlib import Path

import typer

from advisor.cli.remote_files import model_files
from advisor.errors import InputError
from advisor.profiling.engines.factories import TARGET

_STAY_HERE = frozenset({"host", "host_python", "output", "as_json", "quiet"})
_FILES = frozenset({"inputs", "body", "resume"})


def words_and_files(context: typer.Context) -> tuple[list[str], list[Path]]:
    """Words of this command line for the other side, and the files that they name.

    Raises
    ------
    InputError
        When the model is a package of several modules, or weights lie in another folder than their model.
    """
    words: list[str] = []
    files: list[Path] = []
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name in _STAY_HERE or source is None or source.name != "COMMANDLINE":
            continue
        value = context.params[name]
        if name == "model":
            found = list(_files_of_model(str(value)))
            files += found
            words.append(found[0].name if found and TARGET.fullmatch(str(value)) is None else str(value))
        elif name in _FILES:
            files.append(Path(value))
            words.append(f"{parameter.opts[-1]}={Path(value).name}")
        elif isinstance(value, bool):
            words.append(parameter.opts[-1])
        else:
            several = value if isinstance(value, list | tuple) else (value,)
            words += [f"{parameter.opts[-1]}={item}" for item in several]
    return words, files


def _files_of_model(model: str) -> Iterator[Path]:
    """Files that a model needs; none for an address, or a module that is not in this folder and so installed there."""
    if "://" in model:
        return
    if TARGET.fullmatch(model) is None or Path(model).exists():
        path = Path(model)
        yield from model_files(path) if path.suffix == ".onnx" else (path,)
        return
    module = model.partition(":")[0]
    if "." in module and Path(module.partition(".")[0]).is_dir():
        raise InputError("model", model, "with --host a module that is one file in this folder, or installed there")
    source = Path(f"{module}.py")
    if source.is_file():
        yield source
