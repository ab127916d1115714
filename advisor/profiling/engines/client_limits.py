"""What the client itself costs: round trips and streams of a server that has nothing to do."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import numpy as np

from advisor.errors import MeasurementError
from advisor.profiling.engines import blank_server
from advisor.profiling.engines.connection import Connection, RequestHead, parse_address, request_head
from advisor.profiling.engines.token_stream import read_stream

_WARM_CALLS = 20
"""Calls before those that count: the first ones fill caches and buffers."""
_LEAST_CALLS = 10
_EVENTS = 1_000
"""Events of one stream: as many as a long answer has tokens."""
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """What calls cost the client, Python and the loopback network, on one connection without a pause."""

    round_trip_p50_s: float
    """Median time from sending a request to having its answer [s]."""
    round_trip_p99_s: float
    """99th percentile of it [s]."""
    calls_per_s: float
    """Calls one after the other [1/s]; threads of one process share about as many, since Python runs one at a time."""


def measure_client(body_bytes: int, answer_bytes: int, seconds: float = 1.0) -> ClientLimits:
    """Measure round trips to a blank server in a process of its own; encryption is not part of them.

    Parameters
    ----------
    body_bytes, answer_bytes
        Size of the body of each request and of each answer [B].
    seconds
        How long to measure [s].

    Raises
    ------
    MeasurementError
        When this machine cannot start the server or reach it.
    """
    with _blank_server(f"/answer/{answer_bytes}") as (connection, head):
        request = head.request(b" " * body_bytes)
        for _ in range(_WARM_CALLS):
            connection.ask(request)
        times_ns = [time.perf_counter_ns()]
        end_ns = times_ns[0] + round(seconds * 1e9)
        while times_ns[-1] < end_ns or len(times_ns) <= _LEAST_CALLS:
            connection.ask(request)
            times_ns.append(time.perf_counter_ns())
    trips_s = np.diff(times_ns) / 1e9
    p50_s, p99_s = np.percentile(trips_s, [50, 99], method="linear")
    return ClientLimits(float(p50_s), float(p99_s), float(trips_s.size / trips_s.sum()))


def measure_events(event_bytes: int, seconds: float = 1.0) -> float:
    """Count the events of a stream that the client reads per second [1/s], where the server sends them at once.

    Parameters
    ----------
    event_bytes
        Size of each event [B].
    seconds
        How long to measure [s].

    Raises
    ------
    MeasurementError
        When this machine cannot start the server or reach it.
    """
    with _blank_server(f"/events/{_EVENTS}/{event_bytes}") as (connection, head):
        request, events = head.request(b"{}"), 0
        started_s = time.perf_counter()
        while (passed_s := time.perf_counter() - started_s) < seconds or not events:
            with closing(connection.lines(request)) as lines:
                events += len(read_stream(lines).times_ns)
    return events / passed_s


@contextmanager
def _blank_server(path: str) -> Iterator[tuple[Connection, RequestHead]]:
    """Start a server and connect to it; it ends when the connection does."""
    # Run as a file, without the packages above it, it starts in a hundredth of a second.
    command = [sys.executable, "-I", "-S", blank_server.__file__]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            if not port:
                raise MeasurementError(
                    "The server that measures the client does not start; is the loopback network up?"
                )
            address = parse_address(f"http://127.0.0.1:{port}{path}")
            connection = Connection(address, timeout_s=_TIMEOUT_S)
            with closing(connection):
                connection.open()
                yield connection, request_head(address, {})
        finally:
            process.kill()
