"""What is sent to an endpoint: plain JSON, tensors of KServe v2, or requests for a stream of OpenAI's form."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from advisor.domain.profile import TensorSpec
from advisor.errors import InputError, MeasurementError
from advisor.profiling.inputs import BATCH

WireFormat: TypeAlias = Literal["json", "kserve-v2", "openai"]
Json: TypeAlias = Any
Content: TypeAlias = Any
"""What one request carries. Only the bodies that drew it know its type."""

_KSERVE_PATH = re.compile(r"(.*/v2/models/([^/]+)(?:/versions/[^/]+)?)/infer")
_PLACE = "\0items\0"
"""Text that no body holds, where the items of a batch go."""
_SMALLEST_CHAT = '{"model": "NAME", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 128}'
_SMALLEST_COMPLETION = '{"model": "NAME", "prompt": "Hello", "max_tokens": 128}'


def wire_format(path: str) -> WireFormat:
    """Tell the wire format from the path of the address.

    Examples
    --------
    >>> [wire_format(path) for path in ("/v2/models/resnet/infer", "/v1/chat/completions", "/predict")]
    ['kserve-v2', 'openai', 'json']
    """
    if _KSERVE_PATH.fullmatch(path):
        return "kserve-v2"
    return "openai" if path.endswith(("/chat/completions", "/completions")) else "json"


def model_path(path: str) -> tuple[str, str]:
    """Path of the metadata of a KServe model, and its name.

    Examples
    --------
    >>> model_path("/v2/models/resnet/versions/3/infer")
    ('/v2/models/resnet/versions/3', 'resnet')
    """
    found = _KSERVE_PATH.fullmatch(path)
    if found is None:
        raise InputError("path", path, "/v2/models/NAME/infer")
    return found[1], found[2]


class Bodies(Protocol):
    """Bodies of requests, drawn at random."""

    @property
    def fixed_batch_size(self) -> int | None:
        """The only number of items that a request can have; None when any will do."""
        ...

    @property
    def sequence_length(self) -> int | None:
        """Tokens per item, where they were chosen here."""
        ...

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """What is fed, for the profile."""
        ...

    @property
    def template(self) -> Json:
        """What makes the requests those of this measurement, whatever is drawn."""
        ...

    def draw(self, batch_size: int, rng: np.random.Generator) -> Content:
        """Draw the content of one request."""
        ...

    def join(self, contents: Sequence[Content]) -> Content:
        """Put contents together into one, in their order."""
        ...

    def write(self, content: Content) -> bytes:
        """Write the body of a request."""
        ...


@dataclass(frozen=True, slots=True)
class WholeBodies:
    """Requests of the user, sent as they are."""

    bodies: tuple[bytes, ...] = field(repr=False)
    inputs: tuple[TensorSpec, ...]
    fixed_batch_size: int | None = 1
    sequence_length: int | None = None

    @property
    def template(self) -> Json:
        """All requests."""
        return [body.decode() for body in self.bodies]

    def draw(self, batch_size: int, rng: np.random.Generator) -> bytes:
        """Draw one request."""
        return self.bodies[int(rng.integers(len(self.bodies)))]

    def join(self, contents: Sequence[bytes]) -> bytes:
        """Take the only request; nothing says how two would go together."""
        if len(contents) != 1:
            raise MeasurementError(f"{len(contents)} requests cannot be put together without --batch-at.")
        return contents[0]

    def write(self, content: bytes) -> bytes:
        """Send it as it is."""
        return content


@dataclass(frozen=True, slots=True)
class BatchedBodies:
    """One request of the user with a list of items, which are drawn with replacement."""

    start: bytes = field(repr=False)
    items: tuple[bytes, ...] = field(repr=False)
    end: bytes = field(repr=False)
    inputs: tuple[TensorSpec, ...]
    fixed_batch_size: int | None = None
    sequence_length: int | None = None

    @property
    def template(self) -> Json:
        """The request and all its items."""
        return [text.decode() for text in (self.start, *self.items, self.end)]

    def draw(self, batch_size: int, rng: np.random.Generator) -> tuple[bytes, ...]:
        """Draw items."""
        return tuple(self.items[index] for index in rng.integers(len(self.items), size=batch_size))

    def join(self, contents: Sequence[tuple[bytes, ...]]) -> tuple[bytes, ...]:
        """Put all items into one list."""
        return tuple(item for content in contents for item in content)

    def write(self, content: tuple[bytes, ...]) -> bytes:
        """Put the items into their place."""
        return self.start + b", ".join(content) + self.end


def written(document: Json) -> bytes:
    """A document as it is sent; other letters than ASCII stay as short as they were."""
    return json.dumps(document, ensure_ascii=False).encode()


def json_bodies(path: Path | None, batch_at: str | None) -> Bodies:
    """Requests of plain JSON.

    Raises
    ------
    InputError
        When the file is missing or no JSON, or nothing lies at `batch_at`.
    """
    if path is None:
        raise InputError("--body", None, "a .json file with one request, or a .jsonl file with one in each line")
    documents = read_documents(path)
    if batch_at is None:
        return WholeBodies(tuple(written(document) for document in documents), (_drawn(path, documents),))
    if path.suffix == ".jsonl":
        raise InputError("--batch-at", batch_at, "a .json file with one request as --body", file=path.name)
    items = _at(documents[0], batch_at.split("."), path.name, batch_at)
    if not isinstance(items, list) or not items:
        raise InputError(f"--batch-at {batch_at}", items, "a list with one item or more", file=path.name)
    whole = written(_replaced(documents[0], batch_at.split(".")))
    start, _, end = whole.partition(written(_PLACE))
    spec = _drawn(path, items).model_copy(update={"name": batch_at, "shape": (BATCH,)})
    return BatchedBodies(start + b"[", tuple(map(written, items)), b"]" + end, (spec,))


def kserve_bodies(path: Path) -> Bodies:
    """Requests of the user for a KServe model.

    Raises
    ------
    InputError
        When the file is missing, no JSON, or a request has no inputs.
    """
    documents = read_documents(path)
    for document in documents:
        if not isinstance(document, dict) or not isinstance(document.get("inputs"), list):
            raise InputError("--body", document, 'a request of the form {"inputs": [...]}', file=path.name)
    return WholeBodies(tuple(written(document) for document in documents), (_drawn(path, documents),))


def openai_bodies(path: Path | None, *, chat: bool) -> Bodies:
    """Requests that ask for a stream of tokens.

    Raises
    ------
    InputError
        When the file is missing, no JSON, or a request has no prompt.
    """
    smallest, prompt = (_SMALLEST_CHAT, "messages") if chat else (_SMALLEST_COMPLETION, "prompt")
    if path is None:
        raise InputError("--body", None, f"a .json file such as {smallest}")
    documents = read_documents(path)
    for document in documents:
        if not isinstance(document, dict) or not document.get(prompt):
            raise InputError(f"{prompt} of --body", None, f"a request such as {smallest}", file=path.name)
    streamed = [
        document | {"stream": True, "stream_options": {**(document.get("stream_options") or {}), "include_usage": True}}
        for document in documents
    ]
    return WholeBodies(tuple(written(document) for document in streamed), (_drawn(path, documents),))


def read_documents(path: Path) -> list[Json]:
    """Read the requests of a .json file, or one of each line of a .jsonl file.

    Raises
    ------
    InputError
        When the file is missing, empty, or no JSON.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("--body", path.name, "a file in JSON that exists") from error
    lines = [line for line in text.splitlines() if line.strip()] if path.suffix == ".jsonl" else [text]
    try:
        documents = [json.loads(line) for line in lines]
    except ValueError as error:
        raise InputError("--body", path.name, f"valid JSON, which it is not: {error}") from error
    if not documents:
        raise InputError("--body", path.name, "one request or more")
    return documents


def _drawn(path: Path, choices: Sequence[Json]) -> TensorSpec:
    """Say what is drawn from a file of the user."""
    fill = f"drawn from {len(choices)} in {path.name}" if len(choices) > 1 else f"as in {path.name}"
    return TensorSpec(name="body", dtype="json", shape=(), fill=fill)


def _at(document: Json, keys: Sequence[str], file: str, batch_at: str) -> Json:
    """What lies at a dotted path; a number is a place in a list."""
    found = document
    for key in keys:
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            there = ", ".join(found) if isinstance(found, dict) else "no fields"
            raise InputError(
                "--batch-at", batch_at, f"fields that are there, dots between; at {key!r}: {there}", file=file
            )
    return found


def _replaced(document: Json, keys: Sequence[str]) -> Json:
    r"""A document with the placeholder at the end of a path that is there.

    Examples
    --------
    >>> _replaced({"a": [{"b": 1}, 2]}, ["a", "0", "b"])
    {'a': [{'b': '\x00items\x00'}, 2]}
    """
    if not keys:
        return _PLACE
    if isinstance(document, dict):
        return document | {keys[0]: _replaced(document[keys[0]], keys[1:])}
    place = int(keys[0])
    return [*document[:place], _replaced(document[place], keys[1:]), *document[place + 1 :]]
