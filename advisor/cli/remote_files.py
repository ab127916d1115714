"""What goes to another host for a measurement there: this package, its tables and the files of the user, as one tar."""

import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from advisor.errors import InputError
from advisor.store.paths import DATA, ROOT

CODE = "code"
"""Folder there with the package and its tables."""
FILES = "files"
"""Folder there with the files of the user; the measurement runs in it."""


def model_files(model: Path) -> tuple[Path, ...]:
    """An ONNX file and the files beside it that hold its weights; what is no ONNX model stands alone.

    Raises
    ------
    InputError
        When weights lie in another folder than the model, or their file is missing.
    """
    import onnx  # noqa: PLC0415  # the other side imports this module, too, and other models need no onnx
    from google.protobuf import message  # type: ignore[import-untyped]  # noqa: PLC0415  # same; it ships no types

    try:
        graph = onnx.load(model, load_external_data=False).graph
    except (message.DecodeError, OSError):
        return (model,)  # the measurement refuses it in a sentence of its own
    places = {item.value for tensor in graph.initializer for item in tensor.external_data if item.key == "location"}
    for place in sorted(places):
        if Path(place).name != place or not (model.parent / place).is_file():
            raise InputError("external data", place, "a file in the folder of the model", file=model.name)
    return (model, *(model.parent / place for place in sorted(places)))


def check_files(files: Sequence[Path]) -> None:
    """Refuse what could not be sent.

    Raises
    ------
    InputError
        When a file is missing, or two have one name: they lie in one folder there.
    """
    names = set()
    for file in files:
        if not file.is_file():
            raise InputError("file", file.name, "a file that exists")
        if file.name in names:
            raise InputError("file", file.name, "files of different names, since they go into one folder of the host")
        names.add(file.name)


def write_archive(stream: IO[bytes], files: Sequence[Path]) -> None:
    """Write code and files as a tar stream, without owners, since names of people do not belong there."""
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        for path, name in (*_code(), *((file, f"{FILES}/{file.name}") for file in files)):
            archive.add(path.resolve(), arcname=name, recursive=False, filter=_anonymous)


def _code() -> Iterator[tuple[Path, str]]:
    """Sources of this package and the tables that it reads, each with its name in the archive."""
    package = ROOT / "advisor"
    for path in (*sorted(package.rglob("*.py")), *sorted(DATA.glob("*.csv"))):
        yield path, f"{CODE}/{path.relative_to(ROOT).as_posix()}"


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Take owner, group and rights away: the folder there belongs to one account alone."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o600
    return member
