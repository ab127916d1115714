"""A server without a model, whose answers cost nothing: what a client of it measures is the client.

It serves one connection and ends. The path of a request says what is to come back: `/answer/N` a body of N bytes,
`/events/K/N` a stream of K events of N bytes each. It runs as a file of its own and imports nothing of the advisor.
"""

import functools
import socket
import sys

_ACCEPT_S = 30.0
"""Longest wait for the client [s]: whoever started it may have ended."""
_EVENT_START, _EVENT_END = b'data: {"choices": [{"index": 0, "delta": {"content": "', b'"}}]}\n\n'


def serve(listener: socket.socket) -> None:
    """Answer the requests of one connection until the client closes it."""
    listener.settimeout(_ACCEPT_S)
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffer = bytearray(1 << 20)
        while path := read_request(connection, buffer):
            connection.sendall(answer(path))


def read_request(connection: socket.socket, buffer: bytearray) -> str:
    """Read one request with its body and return its path; an empty one at the end of the connection."""
    head = b""
    while b"\r\n\r\n" not in head:
        piece = connection.recv(1 << 16)
        if not piece:
            return ""
        head += piece
    head, _, body = head.partition(b"\r\n\r\n")
    left = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0) - len(body)
    while left > 0:
        left -= connection.recv_into(buffer, min(left, len(buffer))) or left
    return head.split(b" ", 2)[1].decode()


@functools.cache
def answer(path: str) -> bytes:
    r"""Make the whole answer to a request for a path.

    Examples
    --------
    >>> answer("/answer/3")[-7:]
    b'\r\n\r\n   '
    >>> answer("/events/1/80").count(b"data: ")
    1
    """
    kind, *numbers = path.strip("/").split("/")
    head = b"HTTP/1.1 200 OK\r\nServer: blank\r\n"
    if kind == "answer":
        size = int(numbers[0])
        return b"%bContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (head, size, b" " * size)
    count, size = int(numbers[0]), int(numbers[1])
    event = _EVENT_START + b"x" * max(1, size - len(_EVENT_START) - len(_EVENT_END)) + _EVENT_END
    chunk = b"%x\r\n%b\r\n" % (len(event), event)
    return b"%bContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n%b0\r\n\r\n" % (head, chunk * count)


def main() -> None:
    """Listen on a free port of this machine, print it, and serve."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        serve(listener)


if __name__ == "__main__":
    main()
