"""Record, the frozen and strict value that every type of the domain is, and how one is read from text."""

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from advisor.errors import InputError


class Record(BaseModel):
    """An immutable value. Unknown fields are refused, types are not coerced, NaN and infinity are not numbers."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        protected_namespaces=(),
        ser_json_bytes="base64",
    )


RecordType = TypeVar("RecordType", bound=Record)


def parse_record(record_type: type[RecordType], text: str | bytes, *, file: str) -> RecordType:
    """Read one record from JSON text.

    Parameters
    ----------
    record_type
        The type to read.
    text
        JSON text.
    file
        Name shown in the error.

    Raises
    ------
    InputError
        When the text is not JSON or does not fit the type: one sentence with file, field, value and what is allowed.
    """
    try:
        return record_type.model_validate_json(text)
    except ValidationError as error:
        raise first_problem(error, file=file) from error


def first_problem(
    error: ValidationError, *, file: str, place: Callable[[tuple[int | str, ...]], str] | None = None
) -> InputError:
    """Turn the first problem that pydantic found into our one sentence."""
    problem = error.errors(include_url=False)[0]
    location = tuple(problem["loc"])
    kind = problem["type"]
    if kind == "json_invalid":
        return InputError("content", problem["ctx"]["error"], "a JSON document", file=file)
    value: Any = problem["input"]
    if kind == "missing":
        value = None
    if kind == "extra_forbidden" and value is None:
        value = "null"
    if isinstance(value, (dict, list)):
        value = f"{type(value).__name__} of {len(value)}"
    return InputError((place or field_path)(location), value, _allowed(kind, problem["msg"]), file=file)


def _allowed(kind: str, message: str) -> str:
    """Say what is allowed, from pydantic's kind of problem and message."""
    if kind == "extra_forbidden":
        return "no such field in this schema version"
    if kind == "missing":
        return "the field is required"
    for start in ("Input should be ", "Value error, "):
        if message.startswith(start):
            return message.removeprefix(start)
    return message


def field_path(location: tuple[int | str, ...]) -> str:
    """Path of a field as people write it.

    Examples
    --------
    >>> field_path(("cells", 3, "batch_size"))
    'cells[3].batch_size'
    """
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path or "document"
