"""A model behind an HTTP address, which the advisor asks and does not run."""

import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import numpy as np

from advisor.domain.profile import Fact, ModelInfo, RuntimeInfo
from advisor.errors import InputError, MeasurementError
from advisor.profiling.engines import Placement, TokenTimes, wire
from advisor.profiling.engines.client_limits import measure_client, measure_events
from advisor.profiling.engines.connection import (
    Address,
    Connection,
    RequestHead,
    parse_address,
    request_head,
    secrets_of,
)
from advisor.profiling.engines.tensors import declared_tensors, tensor_bodies
from advisor.profiling.engines.token_stream import StreamError, TokenStream, read_stream
from advisor.profiling.inputs import InputOptions

PROBE_CALLS = 5
PROBE_S = 2.0
"""Probe calls stop when they have taken so long together [s]: none that slow is bound by the client."""
CLIENT_S = 0.5
"""How long the client is measured [s]."""
CLIENT_BOUND = 5.0
"""Calls shorter than so many round trips of the client alone measure the client: it is more than a fifth of them."""

_SEED = 0


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """What the user may choose about requests."""

    body: Path | None = None
    """One request in a .json file, or several in a .jsonl file."""
    batch_at: str | None = None
    """Dotted path to the list of items in the request."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers of every request; they are kept nowhere."""
    timeout_s: float = 30.0
    """Longest wait for the connection and for each part of an answer [s]."""
    inputs: InputOptions = field(default_factory=InputOptions)
    """Choices about synthetic tensors."""


@dataclass(frozen=True, slots=True)
class Request:
    """One call."""

    content: wire.Content
    """What it carries, so that calls can be joined."""
    data: bytes = field(repr=False)
    """All that is sent."""


class EndpointModel:
    """A model that a server at an address answers for, asked once or a few times to learn what it says.

    Parameters
    ----------
    url
        Address that answers requests. Its path tells the form: `/v2/models/NAME/infer` is KServe's,
        `/chat/completions` and `/completions` are OpenAI's, and any other takes JSON.
    name
        Name that a scenario asks for; that of the model in the path or in the request, or the end of the path.
    options
        Choices about requests.

    Raises
    ------
    InputError
        When the address or the request does not fit.
    MeasurementError
        When the server cannot be reached or does not answer as it should.
    """

    def __init__(self, url: str, *, name: str | None = None, options: EndpointOptions | None = None) -> None:
        options = options or EndpointOptions()
        if not (math.isfinite(options.timeout_s) and options.timeout_s > 0):
            raise InputError("--timeout", options.timeout_s, "a number of seconds above 0")
        self._address, self._options = parse_address(url), options
        self._format = wire.wire_format(self._address.path)
        self._head = request_head(self._address, options.headers)
        self._bodies = self._find_bodies()
        self._model = ModelInfo(
            name=name or _name(self._address, self._format, self._bodies),
            target=self._address.shown,
            sha256=_sha256([self._format, self._address.path, self._bodies.template]),
            sequence_length=self._bodies.sequence_length,
            inputs=self._bodies.inputs,
        )
        self._notes: tuple[str, ...] = ()
        self._facts: dict[str, Fact] = {}
        self._probe()

    @property
    def source(self) -> str:
        """The address without user, password and query."""
        return self._address.shown

    @property
    def model(self) -> ModelInfo:
        """The model; its hash is that of the form, the path and the requests."""
        return self._model

    @property
    def placement(self) -> Placement:
        """A server, on this machine where the address is that of the loopback network."""
        return Placement(kind="endpoint", takes_threads=False, local=self._address.local)

    @property
    def memory(self) -> None:
        """Nothing: the memory of a server cannot be seen from here."""

    @property
    def fixed_batch_size(self) -> int | None:
        """1 where a request cannot be made larger; None where any number of items will do."""
        return self._bodies.fixed_batch_size

    @property
    def notes(self) -> tuple[str, ...]:
        """What the probe calls found, as sentences."""
        return self._notes

    def facts(self) -> Mapping[str, Fact]:
        """What the client alone can do with requests and answers of this size, and what the server calls itself."""
        return self._facts

    def open(self, threads: int, *, concurrency: int) -> "EndpointEngine":
        """Open one connection; the server decides about its threads. See `EngineFactory.open`."""
        connection = self._connection()
        connection.open()
        runtime = RuntimeInfo(name="http endpoint", options={"wire_format": self._format})
        return EndpointEngine(
            connection, self._head, self._bodies, model=self._model, runtime=runtime, wire_format=self._format
        )

    def _connection(self) -> Connection:
        """A connection to the server, not yet open."""
        secrets = secrets_of(self._address, self._options.headers)
        return Connection(self._address, timeout_s=self._options.timeout_s, secrets=secrets)

    def _find_bodies(self) -> wire.Bodies:
        """Find what to send."""
        body, batch_at = self._options.body, self._options.batch_at
        if self._format == "json":
            return wire.json_bodies(body, batch_at)
        if batch_at is not None:
            raise InputError("--batch-at", batch_at, f"nothing for the path {self._address.path}, only for plain JSON")
        if self._format == "openai":
            return wire.openai_bodies(body, chat=self._address.path.endswith("/chat/completions"))
        if body is not None:
            return wire.kserve_bodies(body)
        path, _ = wire.model_path(self._address.path)
        head = request_head(self._address, self._options.headers, method="GET", path=path)
        with closing(self._connection()) as connection:
            answer = connection.ask(head.request(b""))
            try:
                declared = declared_tensors(answer)
            except ValueError as error:
                what = "the metadata of the model names no inputs with datatype and shape"
                raise connection.complaint(what, _shown(answer)) from error
        return tensor_bodies(declared, self._options.inputs)

    def _probe(self) -> None:
        """Ask a few times, and measure what the client costs at the same sizes."""
        rng = np.random.default_rng(_SEED)
        with closing(self.open(1, concurrency=1)) as engine:
            times_s: list[float] = []
            request = engine.prepare(1, rng)
            first = engine.probe(request)
            while len(times_s) < PROBE_CALLS and sum(times_s) < PROBE_S:
                started_s = time.perf_counter()
                engine.call(request)
                times_s.append(time.perf_counter() - started_s)
            reopens = engine.times_opened > len(times_s)
        body_bytes = len(request.data.partition(b"\r\n\r\n")[2])
        limits = measure_client(body_bytes, first.answer_bytes, CLIENT_S)
        self._facts = {
            "endpoint_server": _fact(first.server, "the server does not say"),
            "client_round_trip_p50_s": Fact(value=limits.round_trip_p50_s),
            "client_round_trip_p99_s": Fact(value=limits.round_trip_p99_s),
            "client_calls_per_s": Fact(value=limits.calls_per_s),
        }
        if first.stream is not None:
            events, tokens = len(first.stream.times_ns), first.stream.tokens
            self._facts["client_events_per_s"] = Fact(value=measure_events(first.answer_bytes // events, CLIENT_S))
            per_event = None if tokens is None else tokens / events
            self._facts["tokens_per_event"] = _fact(per_event, "the server does not count tokens")
        notes = []
        if self._format == "kserve-v2" and self._options.body is None and self.fixed_batch_size is not None:
            notes.append("FIXED_BATCH: no input has a free first axis, so every request counts as one item.")
        if reopens:
            notes.append("NO_KEEP_ALIVE: the server closes the connection after each answer, so every call opens one.")
        if not first.finite:
            notes.append("NOT_FINITE: some numbers of the answer are NaN or infinite, which can change speed.")
        median_s = float(np.median(times_s))
        if median_s < CLIENT_BOUND * limits.round_trip_p50_s:
            notes.append(
                f"CLIENT_BOUND: a call takes {median_s * 1e3:.2g} ms and the client alone "
                f"{limits.round_trip_p50_s * 1e3:.2g} ms, so that a large part of what is measured is the client."
            )
        self._notes = tuple(notes)


def _name(address: Address, wire_format: wire.WireFormat, bodies: wire.Bodies) -> str:
    """Name of the model as the path or the request has it."""
    if wire_format == "kserve-v2":
        return unquote(wire.model_path(address.path)[1])
    if wire_format == "openai":
        asked = json.loads(bodies.template[0]).get("model")
        if asked:
            return str(asked)
    return unquote(address.path.rstrip("/").rpartition("/")[2]) or address.host


def _sha256(document: wire.Json) -> str:
    """Hash a document."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _fact(value: str | float | None, why: str) -> Fact:
    """A fact, or why it is not known."""
    return Fact(value=value, why=why if value is None else None)


def _shown(answer: bytes) -> str:
    """An answer as text."""
    return answer.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class FirstAnswer:
    """What the first answer tells."""

    answer_bytes: int
    """Size of its body [B]."""
    server: str | None
    """What the server calls itself."""
    finite: bool = True
    """Whether all its numbers are."""
    stream: TokenStream | None = None
    """Its tokens, where it comes as a stream."""


class EndpointEngine:
    """One connection to the server."""

    def __init__(
        self,
        connection: Connection,
        head: RequestHead,
        bodies: wire.Bodies,
        *,
        model: ModelInfo,
        runtime: RuntimeInfo,
        wire_format: wire.WireFormat,
    ) -> None:
        self._connection: Connection | None = connection
        self._head, self._bodies, self._format = head, bodies, wire_format
        self._model, self._runtime = model, runtime

    def describe(self) -> tuple[ModelInfo, RuntimeInfo]:
        """Return the model and how it is asked."""
        return self._model, self._runtime

    def prepare(self, batch_size: int, rng: np.random.Generator) -> Request:
        """Draw a request and write all that will be sent."""
        return self._request(self._bodies.draw(batch_size, rng))

    def join(self, items: Sequence[Request]) -> Request:
        """Put the items of several requests into one."""
        return self._request(self._bodies.join([item.content for item in items]))

    def call(self, item: Request) -> TokenTimes | None:
        """Send a request and read the whole answer; see `Engine.call`."""
        if self._format == "openai":
            return self._stream(item).times_ns
        self._answer(item)
        return None

    def probe(self, item: Request) -> FirstAnswer:
        """Call once and read what the answer says, which `call` leaves out.

        Raises
        ------
        MeasurementError
            When the answer is not of the form that it should have.
        """
        connection = self._opened()
        if self._format == "openai":
            stream = self._stream(item)
            return FirstAnswer(stream.size_bytes, connection.server, stream=stream)
        answer = self._answer(item)
        try:
            document = json.loads(answer)
        except ValueError as error:
            if self._format == "json":
                return FirstAnswer(len(answer), connection.server)
            raise connection.complaint("the answer is no JSON", _shown(answer)) from error
        if self._format == "kserve-v2" and not (isinstance(document, dict) and document.get("outputs")):
            raise connection.complaint("the answer has no outputs", _shown(answer))
        return FirstAnswer(len(answer), connection.server, finite=_all_finite(document))

    @property
    def times_opened(self) -> int:
        """How often the connection was opened."""
        return self._opened().times_opened

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _opened(self) -> Connection:
        """The connection, unless it was ended."""
        if self._connection is None:
            raise MeasurementError(f"{self._model.target}: the connection is closed.")
        return self._connection

    def _request(self, content: wire.Content) -> Request:
        """Write all that is sent for some content."""
        return Request(content, self._head.request(self._bodies.write(content)))

    def _answer(self, item: Request) -> bytes:
        """The body of an answer that comes as a whole."""
        connection = self._opened()
        answer = connection.ask(item.data)
        # To parse every answer would be work of the client on the clock of the server.
        if self._format == "kserve-v2" and b'"outputs"' not in answer:
            raise connection.complaint("the answer has no outputs", _shown(answer))
        return answer

    def _stream(self, item: Request) -> TokenStream:
        """The tokens of an answer."""
        connection = self._opened()
        with closing(connection.lines(item.data)) as lines:
            try:
                stream = read_stream(lines)
            except StreamError as error:
                raise connection.complaint(error.what, error.said) from error
        if not stream.times_ns:
            what = "the answer holds no token; it must come as a stream of events, and max_tokens must allow some"
            raise connection.complaint(what)
        if not stream.finished:
            raise connection.complaint("the stream ended before the server said that it was done")
        return stream


def _all_finite(document: wire.Json) -> bool:
    """Whether no number of a document is NaN or infinite.

    Examples
    --------
    >>> _all_finite({"outputs": [{"data": [1.0, 2]}]}), _all_finite([float("nan")])
    (True, False)
    """
    if isinstance(document, dict):
        return all(map(_all_finite, document.values()))
    if isinstance(document, list):
        return all(map(_all_finite, document))
    return not isinstance(document, float) or math.isfinite(document)
