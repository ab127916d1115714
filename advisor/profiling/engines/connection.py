"""One keep-alive HTTP connection to a server, and the address that it goes to."""

import base64
import http.client
import ipaddress
import re
import select
import socket
import ssl
import time
import urllib.parse
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from advisor.errors import InputError, MeasurementError
from advisor.profiling.engines import OutOfMemory

LATE_CLOSE_S = 0.1
"""A used connection that ends sooner than this after a request was sent was being closed before it. An assumption."""

_SHOWN_CHARACTERS = 200
_SECRET_CHARACTERS = 4
"""Shorter values of headers are no secrets, and would be cut out of words."""
_ANSWERED = (HTTPStatus.OK, HTTPStatus.CREATED)
_NO_ROOM_STATUS = (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.INSUFFICIENT_STORAGE)
# PyTorch, CUDA and ONNX Runtime say the first or the second, Triton the last of a batch above its max_batch_size.
_NO_ROOM_TEXT = re.compile(r"out of memory|OutOfMemory|failed to allocate memory|batch-size must be <=", re.IGNORECASE)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OWN_HEADERS = frozenset({"content-length", "transfer-encoding"})


@dataclass(frozen=True, slots=True)
class Address:
    """Where requests go; what is secret in it is never shown."""

    scheme: str
    host: str
    port: int | None
    path: str
    query: str = field(default="", repr=False)
    credentials: str | None = field(default=None, repr=False)
    """User and password with a colon between them."""

    @property
    def shown(self) -> str:
        """The address without user, password and query."""
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def authority(self) -> str:
        """Host and port, as the header Host has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    @property
    def local(self) -> bool:
        """Whether it names this machine.

        Examples
        --------
        >>> [parse_address(f"http://{host}/").local for host in ("localhost:8000", "127.0.1.1", "[::1]", "10.0.0.1")]
        [True, True, True, False]
        """
        if self.host == "localhost" or self.host.endswith(".localhost"):
            return True
        try:
            found = ipaddress.ip_address(self.host)
        except ValueError:
            return False
        mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
        return (mapped or found).is_loopback


def parse_address(url: str) -> Address:
    """Take a URL apart.

    Raises
    ------
    InputError
        When it is no address of HTTP or HTTPS; what may be a password is not repeated.

    Examples
    --------
    >>> parse_address("http://me:secret@host:8000/predict?key=1").shown
    'http://host:8000/predict'
    """
    shown = re.sub(r"//.*@", "//", url.partition("?")[0])
    refusal = InputError("address", shown, "http://host:port/path or https://host:port/path, in ASCII without spaces")
    if re.search(r"[^!-~]", url):
        raise refusal
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise refusal from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise refusal
    credentials = None
    if parts.username is not None:
        credentials = urllib.parse.unquote(f"{parts.username}:{parts.password or ''}")
    return Address(parts.scheme, parts.hostname, port, parts.path or "/", parts.query, credentials)


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The part of a request before its body."""

    start: bytes = field(repr=False)

    def request(self, body: bytes) -> bytes:
        """Put a request together, ready to be sent in one piece."""
        return b"%bContent-Length: %d\r\n\r\n%b" % (self.start, len(body), body)


def request_head(
    address: Address, headers: Mapping[str, str], *, method: str = "POST", path: str | None = None
) -> RequestHead:
    r"""Make the head of all requests to one path.

    Parameters
    ----------
    address
        Where they go.
    headers
        Headers of the user, which replace those of the advisor.
    method, path
        Kind of request, and another path on the same server.

    Raises
    ------
    InputError
        When a header cannot be sent; its value is not repeated.

    Examples
    --------
    >>> request_head(parse_address("http://host/a"), {}).start.split(b"\r\n")[:2]
    [b'POST /a HTTP/1.1', b'Host: host']
    """
    own = {
        "Host": address.authority,
        "User-Agent": "advisor",
        "Accept": "*/*",
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
    }
    if address.credentials is not None:
        own["Authorization"] = f"Basic {base64.b64encode(address.credentials.encode()).decode()}"
    given = {name.lower() for name in headers}
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _OWN_HEADERS:
            allowed = "a name of letters, digits and hyphens, and not Content-Length or Transfer-Encoding"
            raise InputError("--header", name, allowed)
        if re.search(r"[^\t -~\x80-\xff]", value):
            raise InputError(f"value of --header {name}", "not repeated here", "one line of Latin-1 characters")
    sent = {name: value for name, value in own.items() if name.lower() not in given} | dict(headers)
    target = (address.path if path is None else path) + (f"?{address.query}" if address.query else "")
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), ""]
    return RequestHead("\r\n".join(lines).encode("latin-1"))


def secrets_of(address: Address, headers: Mapping[str, str]) -> tuple[str, ...]:
    """Texts that a server may repeat in its answer and that no sentence may hold, the longest first.

    Examples
    --------
    >>> secrets_of(parse_address("http://host/a?key=abcde"), {"Authorization": "Bearer s3cret"})
    ('Bearer s3cret', 'key=abcde', 'Bearer', 's3cret', 'abcde')
    """
    query = (address.query, urllib.parse.unquote_plus(address.query))
    credentials = address.credentials or ""
    encoded = base64.b64encode(credentials.encode()).decode()
    texts = [*headers.values(), *query, credentials, urllib.parse.quote(credentials), encoded]
    parts = [part for text in texts for part in re.split(r"[ =&:;,]", text)]
    kept = {text for text in (*texts, *parts) if len(text) >= _SECRET_CHARACTERS}
    return tuple(sorted(kept, key=lambda text: (-len(text), text)))


class Connection:
    """One connection, opened again where the server closed it between calls.

    Parameters
    ----------
    address
        The server.
    timeout_s
        Longest wait for the connection and for each part of an answer [s].
    secrets
        Texts that are cut out of what the server says; see `secrets_of`.
    """

    def __init__(self, address: Address, *, timeout_s: float, secrets: tuple[str, ...] = ()) -> None:
        self._address, self._timeout_s, self._secrets = address, timeout_s, secrets
        # One context for all connections: reading the certificates takes milliseconds, which a server that closes
        # after every answer would add to each call.
        self._context = ssl.create_default_context() if address.scheme == "https" else None
        self._socket: socket.socket | None = None
        self.server: str | None = None
        """What the server calls itself in its last answer."""
        self.times_opened = 0
        """How often it was opened."""

    def open(self) -> None:
        """Connect, so that the first call need not.

        Raises
        ------
        MeasurementError
            When the server cannot be reached.
        """
        try:
            self._connect()
        except (OSError, UnicodeError) as error:  # a name that cannot be written as one of the internet
            raise self._failure(error) from error

    def close(self) -> None:
        """End the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(self, request: bytes) -> bytes:
        """Send a request and return the body of the answer.

        Raises
        ------
        OutOfMemory
            When the server says that it has no room for the request.
        MeasurementError
            When the server cannot be reached, fails, or takes longer than the timeout.
        """
        try:
            response = self._begin(request)
            with response:
                body = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._failure(error) from error
        if response.will_close:
            self.close()
        if response.status not in _ANSWERED:
            raise self._refusal(response, body)
        return body

    def lines(self, request: bytes) -> Generator[tuple[int, bytes], None, None]:
        """Send a request and give each line of the answer with the time at which its end was read.

        The times are on the clock of `time.perf_counter_ns` [ns]; an answer of unknown length may end anywhere.

        Raises
        ------
        OutOfMemory, MeasurementError
            As `ask` does.
        """
        complete = False
        try:
            with self._begin(request) as response:
                if response.status not in _ANSWERED:
                    raise self._refusal(response, response.read())
                yield from _stamped_lines(response)
            complete = not response.will_close
        except (OSError, http.client.HTTPException) as error:
            raise self._failure(error) from error
        finally:
            # What is left of an answer that was not read to its end would be taken for the next one.
            if not complete:
                self.close()

    def _connect(self) -> socket.socket:
        """Open a new connection; `http.client` sets TCP_NODELAY."""
        self.close()
        host, port = self._address.host, self._address.port
        made: http.client.HTTPConnection
        if self._context is not None:
            made = http.client.HTTPSConnection(host, port, timeout=self._timeout_s, context=self._context)
        else:
            made = http.client.HTTPConnection(host, port, timeout=self._timeout_s)
        made.connect()
        self._socket = opened = made.sock
        self.times_opened += 1
        return opened

    def _begin(self, request: bytes) -> http.client.HTTPResponse:
        """Send a request and read the head of the answer."""
        used = self._socket
        # Between calls nothing can be read but the end of the connection, or a farewell before it.
        if used is not None and not select.select([used], [], [], 0)[0]:
            sent_s = time.perf_counter()
            try:
                return self._exchange(used, request)
            except ConnectionError:
                if time.perf_counter() - sent_s > LATE_CLOSE_S:
                    raise
        return self._exchange(self._connect(), request)

    def _exchange(self, connection: socket.socket, request: bytes) -> http.client.HTTPResponse:
        """Send a request and read the head of the answer."""
        refused: ConnectionError | None = None
        try:
            connection.sendall(request)
        except ConnectionError as error:
            # A server may answer that a request is too large, and close, before it has read all of it.
            refused = error
        response = http.client.HTTPResponse(connection, method=request[: request.index(b" ")].decode())
        try:
            response.begin()
        except BaseException as error:
            response.close()
            if refused is not None and isinstance(error, OSError | http.client.HTTPException):
                raise refused from error
            raise
        self.server = response.getheader("Server")
        return response

    def _failure(self, error: Exception) -> MeasurementError:
        """Turn a failure of the network into one sentence."""
        match error:
            case TimeoutError():
                wait = f"{self._timeout_s:g} s"
                reason = f"nothing came for {wait}; allow more with --timeout or send a smaller request"
            case ConnectionRefusedError():
                reason = "the connection was refused; start the server or correct the port"
            case socket.gaierror():
                reason = "no machine of this name is known; correct the host"
            case ssl.SSLError() if not isinstance(error, ssl.SSLEOFError):
                reason = f"no secure connection can be made: {error.reason or 'the server does not speak TLS'}"
                if isinstance(error, ssl.SSLCertVerificationError):
                    found = error.verify_message.rstrip(". ")
                    reason = f"its certificate is not trusted ({found}); name its authority in SSL_CERT_FILE"
            case ConnectionError() | ssl.SSLEOFError() | http.client.IncompleteRead():
                reason = "the server closed the connection before its answer was complete"
            case http.client.HTTPException():
                reason = "what the server sends is no HTTP; correct the port, or http to https"
            case _:
                reason = f"the server cannot be reached: {getattr(error, 'strerror', None) or type(error).__name__}"
        return MeasurementError(f"{self._address.shown}: {one_line(reason)}.")

    def _refusal(self, response: http.client.HTTPResponse, body: bytes) -> MeasurementError:
        """Turn an answer with another status than OK into one sentence."""
        text = body.decode("utf-8", errors="replace")
        location = response.getheader("Location")
        if location is not None and 300 <= response.status < 400:
            text = f"it redirects to {re.sub(r'//.*@', '//', location.partition('?')[0])}; give that address"
        complaint = f"the server answers with status {response.status}"
        return self.complaint(complaint, text, full=response.status in _NO_ROOM_STATUS)

    def complaint(self, what: str, said: str = "", *, full: bool = False) -> MeasurementError:
        """Put a failure of the server into one sentence; `OutOfMemory` where it is `full` or says so.

        Parameters
        ----------
        what
            What happened, as a part of a sentence.
        said
            What the server said; what is secret is cut out, and what is long is cut off.
        full
            Whether the server has no room for the request.
        """
        full = full or _NO_ROOM_TEXT.search(said) is not None
        for secret in self._secrets:
            said = said.replace(secret, "...")
        said = one_line(said)
        sentence = f"{self._address.shown}: {what}{said and f': {said}'}."
        return (OutOfMemory if full else MeasurementError)(sentence)


def one_line(text: str) -> str:
    r"""At most 200 characters of a text, as a part of a sentence.

    Examples
    --------
    >>> one_line("Bad request.  Try\nagain.")
    'Bad request; Try again'
    """
    text = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    text = text.rstrip(". ").replace(". ", "; ")
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS].rstrip(". ")


def _stamped_lines(response: http.client.HTTPResponse) -> Iterator[tuple[int, bytes]]:
    """Lines of an answer, without their ends, each with the time at which its last byte was read."""
    left = b""
    while piece := response.read1():
        now_ns = time.perf_counter_ns()
        *whole, left = (left + piece).split(b"\n")
        for line in whole:
            yield now_ns, line
    # An answer of a declared length that ends early is reported by no one else.
    if response.length:
        raise http.client.IncompleteRead(left, response.length)
    if left:
        yield now_ns, left
