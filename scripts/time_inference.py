#!/usr/bin/env python3
"""Time the calls of a model where `advisor profile` does not run, and write one row per call.

One file, Python 3.8 or newer, nothing but the standard library: copy it to the host and run it there ::

    python3 time_inference.py k80_resnet:factory --batches 1,2,4,8 --model resnet50 --on "Tesla K80" -o timings.csv
    python3 time_inference.py http://127.0.0.1:8080/predict --body body.json --batch-at instances --batches 1,8

``module:factory`` is a function without arguments, found from the current folder. It loads one replica and returns an
object with ``prepare(batch_size, rng)``, which makes the input of one call and is not timed, ``__call__(item)``, which
is, and, if it likes, ``close()``. `rng` is a ``numpy.random.Generator`` where NumPy can be imported, as it always is
with `advisor profile`, else a ``random.Random``. ``__call__`` must return when the answer is there: on a GPU it has to
synchronize (``torch.cuda.synchronize()``, or copy the result to the host), or only the launch is timed.

A window has calls of one batch size by one number of callers, each of which calls again once it has its answer. Windows
come in random order and are repeated; all callers warm up before each. No call is left out. The rows of a window are in
the file before the next begins, so that Ctrl-C or a failing call loses one window at most.
`advisor import timings.csv -o profile.json` makes a profile of the file; docs/old-hosts.md of the advisor says how.

Exit codes: 0 done; 1 a call failed; 2 bad input or usage; 130 interrupted.
"""

from __future__ import annotations

import argparse
import csv
import http.client
import importlib
import io
import json
import platform
import random
import re
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Protocol

TOOL = "time_inference.py 1"
COLUMNS = ("batch_size", "concurrency", "repeat", "caller", "call", "start_s", "service_s")
FACTS = (
    *("model", "device", "precision", "runtime", "runtime_version", "sequence_length"),
    *("date", "tool", "python", "os", "target"),
)
"""Columns that stand in the first row only: they hold for the whole file."""

WARMUP_CALLS, WARMUP_S = 3, 0.2
ITEMS = 4
"""Inputs that a caller rotates through, so that no input stays in the cache alone."""
LARGEST_BATCH, MOST_CALLERS = 65536, 1024
NS_PER_S = 1e9


class TimingError(Exception):
    """What ends the program early: one sentence for the user and an exit code."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.code = code


def refused(name: str, value: object, allowed: str) -> TimingError:
    """Make the sentence on an option that does not fit."""
    return TimingError(f"{name} is {value!r}; allowed: {allowed}.", 2)


class Replica(Protocol):
    """What one caller calls."""

    def prepare(self, batch_size: int) -> Any:
        """Make the input of one call; not timed."""

    def call(self, item: Any) -> None:
        """Answer one call; timed."""

    def restore(self) -> None:
        """Do what the next call needs; not timed."""

    def close(self) -> None:
        """Give back what the replica holds."""


@dataclass(frozen=True)
class Rules:
    """How long a window lasts, per caller: at least so long and so many calls, but never more calls than the most."""

    seconds: float
    calls: int
    most_calls: int

    def enough(self, calls: int, elapsed_s: float) -> bool:
        """Whether the window may end."""
        return calls >= self.most_calls or (calls >= self.calls and elapsed_s >= self.seconds)


@dataclass(frozen=True)
class Call:
    """One timed call; times in ns on the clock of `time.perf_counter_ns`."""

    caller: int
    number: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Cell:
    """One batch size with one number of callers."""

    batch_size: int
    concurrency: int


def reason(error: BaseException) -> str:
    """Put an exception into words without line breaks or sentences, at most 200 characters."""
    text = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".: ").replace(". ", "; ")
    return text if len(text) <= 200 else text[:197] + "..."


class CallableReplica:
    """What a factory of the user returned.

    Parameters
    ----------
    target
        ``module:factory``, for sentences.
    replica
        The object.
    rng
        Source of random inputs.
    """

    def __init__(self, target: str, replica: Any, rng: Any) -> None:
        self._target, self._replica, self._rng = target, replica, rng

    def prepare(self, batch_size: int) -> Any:
        """Make the input of one call."""
        try:
            return self._replica.prepare(batch_size, self._rng)
        except Exception as error:
            raise TimingError(f"{self._target}: prepare({batch_size}, rng) failed with {reason(error)}.", 1) from error

    def call(self, item: Any) -> None:
        """Call the object once."""
        try:
            self._replica(item)
        except Exception as error:
            raise TimingError(f"{self._target}: a call failed with {reason(error)}.", 1) from error

    def restore(self) -> None:
        """Do nothing: the object is always ready."""

    def close(self) -> None:
        """Close the object, if it can be closed."""
        close = getattr(self._replica, "close", None)
        if close is not None:
            close()


def callable_opener(target: str, seed: int) -> Callable[[int], Replica]:
    """Find a factory by ``module:name``; the result opens the replica of a caller.

    Raises
    ------
    TimingError
        When there is no such module or function.
    """
    module_name, _, name = target.partition(":")
    # The folder of this file, which Python puts there, need not be the one that the user works in.
    sys.path.insert(0, str(Path.cwd()))
    try:
        factory = importlib.import_module(module_name)
    except Exception as error:
        raise TimingError(f"{target}: importing {module_name} failed with {reason(error)}.", 2) from error
    for part in name.split("."):
        factory = getattr(factory, part, None)  # type: ignore[assignment]  # from a module down to a function
    if not callable(factory):
        raise TimingError(f"{target}: {module_name} has no function {name}.", 2)

    def open_replica(caller: int) -> Replica:
        try:
            replica = factory()
        except Exception as error:
            raise TimingError(f"{target}: the factory failed with {reason(error)}.", 1) from error
        if not callable(replica) or not callable(getattr(replica, "prepare", None)):
            kind = type(replica).__name__
            raise TimingError(f"{target} returns a {kind}; allowed: an object with prepare and __call__.", 2)
        return CallableReplica(target, replica, random_source(seed + caller))

    return open_replica


def random_source(seed: int) -> Any:
    """Take NumPy's generator where there is one, so that one factory serves `advisor profile` as well."""
    try:
        return importlib.import_module("numpy").random.default_rng(seed)
    except (ImportError, AttributeError):  # no NumPy, or one from before 1.17
        return random.Random(seed)


@dataclass(frozen=True)
class Request:
    """One kind of request over HTTP.

    Attributes
    ----------
    address
        Where it goes, as the user gave it.
    body
        Content of the body file.
    batch_at
        Keys that lead to the list of items in the body; None: it holds one item.
    headers
        Header lines.
    timeout_s
        Longest wait for an answer [s].
    """

    address: str
    body: bytes
    batch_at: tuple[str, ...] | None
    headers: dict[str, str]
    timeout_s: float

    @property
    def shown(self) -> str:
        """Address without user, password and query, which may be secrets."""
        parts = urllib.parse.urlsplit(self.address)
        return urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

    def content(self, batch_size: int, rng: random.Random) -> bytes:
        """Make the body of a batch, its items drawn from the list in the body file."""
        if self.batch_at is None:
            return self.body
        document = [json.loads(self.body)]
        holder, key = _find(document, (0, *self.batch_at))
        holder[key] = [rng.choice(holder[key]) for _ in range(batch_size)]
        return json.dumps(document[0]).encode()


def _find(document: Any, path: tuple[Any, ...]) -> tuple[Any, Any]:
    """Find the container of the value at a path, and its key there."""
    for key in path[:-1]:
        document = document[int(key) if isinstance(document, list) else key]
    return document, int(path[-1]) if isinstance(document, list) else path[-1]


class HttpReplica:
    """One connection that stays open; a server that closes it is connected to again between the calls.

    Parameters
    ----------
    request
        What to send.
    rng
        Draws items.
    """

    def __init__(self, request: Request, rng: random.Random) -> None:
        self._request, self._rng = request, rng
        parts = urllib.parse.urlsplit(request.address)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(str(parts.hostname), parts.port, timeout=request.timeout_s)
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    def prepare(self, batch_size: int) -> bytes:
        """Make the body of one call."""
        return self._request.content(batch_size, self._rng)

    def call(self, item: bytes) -> None:
        """Send a body and read the whole answer."""
        try:
            self._connection.request("POST", self._path, body=item, headers=self._request.headers)
            answer = self._connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise TimingError(f"{self._request.shown}: no answer, {reason(error)}.", 1) from error
        if answer.status != 200:
            raise TimingError(f"{self._request.shown} answers {answer.status} {answer.reason}; allowed: 200.", 1)

    def restore(self) -> None:
        """Connect, where the server has closed the connection."""
        if self._connection.sock is None:
            try:
                self._connection.connect()
            except OSError as error:
                raise TimingError(f"{self._request.shown}: no connection, {reason(error)}.", 1) from error

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def http_opener(request: Request, seed: int) -> Callable[[int], Replica]:
    """Open the connection of a caller."""

    def open_replica(caller: int) -> Replica:
        replica = HttpReplica(request, random.Random(seed + caller))
        replica.restore()
        return replica

    return open_replica


@dataclass
class Gate:
    """Common start and end of the callers of one window, with what they found."""

    barrier: threading.Barrier
    stop: threading.Event = field(default_factory=threading.Event)
    calls: list[Call] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)


def run_window(replicas: list[Replica], batch_size: int, rules: Rules) -> list[Call]:
    """Let all callers call in a closed loop until the first has enough; the others end the call that they are in.

    Raises
    ------
    TimingError
        When a call fails.
    KeyboardInterrupt
        When the user stops it; callers in threads of their own stop after their call.
    """
    gate = Gate(threading.Barrier(len(replicas)))
    if len(replicas) == 1:
        # In the main thread: some runtimes bind a device to the thread that loaded the model.
        _call_in_a_loop(replicas[0], 1, batch_size, rules=rules, gate=gate)
    else:
        _run_threads(replicas, batch_size, rules, gate)
    for failure in gate.failures:
        if not isinstance(failure, threading.BrokenBarrierError):
            raise failure
    return gate.calls


def _run_threads(replicas: list[Replica], batch_size: int, rules: Rules, gate: Gate) -> None:
    """Give each caller a thread; a hanging call does not keep the program from its end."""
    threads = [
        threading.Thread(
            target=_call_in_a_loop,
            args=(replica, number, batch_size),
            kwargs={"rules": rules, "gate": gate},
            daemon=True,
        )
        for number, replica in enumerate(replicas, start=1)
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.1)  # a wait without end cannot be interrupted on Windows
    except BaseException:
        gate.stop.set()
        gate.barrier.abort()
        raise


def _call_in_a_loop(replica: Replica, number: int, batch_size: int, *, rules: Rules, gate: Gate) -> None:
    """Warm up, wait for the other callers, call until one of them has enough; failures go to the gate."""
    try:
        replica.restore()
        items = [replica.prepare(batch_size) for _ in range(ITEMS)]
        _warm_up(replica, items, gate)
        gate.barrier.wait()
        calls: list[Call] = []
        began_ns = time.perf_counter_ns()
        while not gate.stop.is_set():
            item = items[(number + len(calls)) % ITEMS]
            start_ns = time.perf_counter_ns()
            replica.call(item)
            end_ns = time.perf_counter_ns()
            calls.append(Call(number, len(calls) + 1, start_ns, end_ns))
            if rules.enough(len(calls), (end_ns - began_ns) / NS_PER_S):
                gate.stop.set()
            replica.restore()
        gate.calls.extend(calls)
    except Exception as error:
        gate.failures.append(error)
        gate.stop.set()
        gate.barrier.abort()


def _warm_up(replica: Replica, items: list[Any], gate: Gate) -> None:
    """Call until the batch size is warm: each new one pays for memory and plans."""
    began_ns, calls = time.perf_counter_ns(), 0
    while calls < WARMUP_CALLS or time.perf_counter_ns() - began_ns < WARMUP_S * NS_PER_S:
        if gate.stop.is_set():
            return
        replica.call(items[calls % ITEMS])
        replica.restore()
        calls += 1


def measure(
    cells: list[Cell], replicas: list[Replica], rules: Rules, *, options: argparse.Namespace, facts: dict[str, str]
) -> int:
    """Run all windows and write the rows of each as soon as it is over; return the number of calls."""
    for batch_size in sorted({cell.batch_size for cell in cells}):
        # One call each before any window: a batch that does not fit into memory is found now and not in an hour.
        replicas[0].call(replicas[0].prepare(batch_size))
        replicas[0].restore()
    order, origin_ns = random.Random(options.seed), time.perf_counter_ns()
    count, done = 0, 0
    for repeat in range(1, options.repeats + 1):
        for cell in order.sample(cells, len(cells)):
            calls = run_window(replicas[: cell.concurrency], cell.batch_size, rules)
            rows = [
                [
                    *(cell.batch_size, cell.concurrency, repeat, call.caller, call.number),
                    f"{(call.start_ns - origin_ns) / NS_PER_S:.9f}",
                    f"{max(1, call.end_ns - call.start_ns) / NS_PER_S:.9f}",
                ]
                for call in sorted(calls, key=lambda call: (call.caller, call.number))
            ]
            write_rows(Path(options.output), rows, facts if done == 0 else None)
            done, count = done + 1, count + len(calls)
            mean_s = sum(call.end_ns - call.start_ns for call in calls) / NS_PER_S / len(calls)
            say(
                f"window {done} of {options.repeats * len(cells)}: batch {cell.batch_size}, "
                f"callers {cell.concurrency}, repeat {repeat}: {len(calls)} calls, {mean_s * 1000:.4g} ms on average"
            )
    return count


def write_rows(path: Path, rows: list[list[Any]], facts: dict[str, str] | None) -> None:
    """Append the rows of one window; the first window brings the header, and the facts in its first row.

    Raises
    ------
    TimingError
        When the file cannot be written.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if facts is not None:
        writer.writerow([*COLUMNS, *FACTS])
        rows[0] += [facts[name] for name in FACTS]
    for row in rows:
        writer.writerow(row + [""] * (len(COLUMNS) + len(FACTS) - len(row)))
    try:
        # "x" does not open what appeared since the start.
        with path.open("x" if facts is not None else "a", encoding="utf-8", newline="") as stream:
            stream.write(text.getvalue())
    except OSError as error:
        raise TimingError(f"{path.name} cannot be written: {error.strerror}.", 1) from error


def say(line: str) -> None:
    """Print a line of progress on standard error."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


class Parser(argparse.ArgumentParser):
    """Parser whose errors are one sentence."""

    def error(self, message: str) -> NoReturn:
        """Refuse the command line."""
        raise TimingError(f"{message[0].upper()}{message[1:].rstrip('.')}; --help lists the options.", 2)


def parser() -> Parser:
    """Make the parser of the command line."""
    made = Parser(description="Time the calls of a model and write one row per call, for `advisor import`.")
    made.add_argument("target", metavar="TARGET", help="module:factory, or the address of a server (http://...)")
    made.add_argument("-o", "--output", default="timings.csv", help="file to write; it must not exist yet")
    made.add_argument("--batches", default="1", help="batch sizes, separated by commas (default: 1)")
    made.add_argument("--concurrency", default="1", help="callers at the same time, separated by commas (default: 1)")
    made.add_argument("--repeats", type=int, default=5, help="windows of each batch size and number of callers")
    made.add_argument("--seconds", type=float, default=1.0, help="least time of a window (default: 1)")
    made.add_argument("--calls", type=int, default=30, help="least calls of a caller in a window (default: 30)")
    made.add_argument("--most-calls", type=int, default=2000, help="calls of a caller that end a window in any case")
    made.add_argument("--seed", type=int, default=0, help="seed of the inputs and of the order of windows")
    facts = made.add_argument_group("facts for the file; `advisor import` takes the most important ones, too")
    facts.add_argument("--model", default="", help="name that scenarios ask for, such as resnet50")
    facts.add_argument("--on", default="", help='hardware that answers, such as "Tesla K80"')
    facts.add_argument("--precision", default="", help="fp32, tf32, fp16, bf16 or int8")
    facts.add_argument("--sequence-length", default="", help="tokens per item, for models of text")
    facts.add_argument("--runtime", default="", help="software that runs the model, such as pytorch")
    facts.add_argument("--runtime-version", default="", help="its version")
    server = made.add_argument_group("servers")
    server.add_argument("--body", help="file with the body of a request")
    server.add_argument(
        "--batch-at", help="keys, joined by dots, of the list in the body that holds the items; . itself"
    )
    server.add_argument("--header", action="append", default=[], help='a header line: "Name: value"')
    server.add_argument("--timeout", type=float, default=60.0, help="longest wait for an answer in seconds")
    return made


def whole_numbers(option: str, text: str, largest: int) -> list[int]:
    """Read different whole numbers from a list.

    Raises
    ------
    TimingError
        When the text is something else.
    """
    if not re.fullmatch(r"[0-9]{1,9}(,[0-9]{1,9})*", text):
        raise refused(option, text, f"whole numbers from 1 to {largest}, separated by commas")
    numbers = sorted({int(part) for part in text.split(",")})
    if numbers[0] < 1 or numbers[-1] > largest:
        raise refused(option, text, f"whole numbers from 1 to {largest}, separated by commas")
    return numbers


def check(options: argparse.Namespace) -> None:
    """Refuse options that do not fit, before anything is loaded."""
    for option, value in (("--repeats", options.repeats), ("--calls", options.calls)):
        if value < 1:
            raise refused(option, value, "a whole number of at least 1")
    if options.most_calls < options.calls:
        raise refused("--most-calls", options.most_calls, f"a whole number of at least {options.calls}, the --calls")
    for option, value in (("--seconds", options.seconds), ("--timeout", options.timeout)):
        if not 0 < value <= 86400:
            raise refused(option, value, "a number above 0, at most 86400")
    length = options.sequence_length
    if length and not re.fullmatch(r"[1-9][0-9]{0,8}", length):
        raise refused("--sequence-length", length, "a whole number of at least 1")
    output = Path(options.output)
    if output.exists() or not output.parent.is_dir():
        raise refused("--output", options.output, "a file that does not exist yet, in a folder that does")


def read_request(options: argparse.Namespace) -> Request:
    """Make the request that the options describe.

    Raises
    ------
    TimingError
        When the address, the body or a header does not fit.
    """
    try:
        parts = urllib.parse.urlsplit(options.target)
        usable = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        raise refused("TARGET", options.target, "an address such as http://127.0.0.1:8080/predict")
    if options.body is None:
        raise TimingError("--body is missing; allowed: a file with the body of a request.", 2)
    try:
        body = Path(options.body).read_bytes()
    except OSError as error:
        raise refused("--body", Path(options.body).name, f"a file that can be read ({error.strerror})") from error
    headers = {"Content-Type": "application/json"}
    for line in options.header:
        name, colon, value = line.partition(":")
        if not colon or not name.strip() or "\n" in line:
            raise TimingError("A --header is no header line; allowed: Name: value.", 2)  # not shown: it may be a secret
        headers = {key: kept for key, kept in headers.items() if key.lower() != name.strip().lower()}
        headers[name.strip()] = value.strip()
    batch_at = None
    if options.batch_at is not None:
        batch_at = tuple(key for key in options.batch_at.split(".") if key)
        _check_items(body, batch_at, options)
    return Request(options.target, body, batch_at, headers, options.timeout)


def _check_items(body: bytes, batch_at: tuple[str, ...], options: argparse.Namespace) -> None:
    """Refuse a body without a list of items at the place that was named."""
    try:
        holder, key = _find([json.loads(body)], (0, *batch_at))
        items = holder[key]
    except (ValueError, KeyError, IndexError, TypeError):
        items = None
    if not isinstance(items, list) or not items:
        name = Path(options.body).name
        raise refused(
            "--batch-at", options.batch_at, f"the place of a list with at least one item in the JSON of {name}"
        )


def opener(options: argparse.Namespace, batches: list[int]) -> tuple[Callable[[int], Replica], str]:
    """Find what is to be timed: how to open a replica, and the name of the target."""
    target = options.target
    if re.match(r"https?://", target):
        request = read_request(options)
        if request.batch_at is None and batches != [1]:
            raise refused("--batches", options.batches, "1, or --batch-at with the place of the items in the body")
        return http_opener(request, options.seed), request.shown
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*", target):
        raise refused("TARGET", target, "module:factory, or an address that starts with http:// or https://")
    return callable_opener(target, options.seed), target


def run(arguments: list[str] | None) -> None:
    """Do what a command line asks for.

    Raises
    ------
    TimingError
        When it does not fit or a call fails.
    """
    options = parser().parse_args(arguments)
    check(options)
    batches = whole_numbers("--batches", options.batches, LARGEST_BATCH)
    callers = whole_numbers("--concurrency", options.concurrency, MOST_CALLERS)
    open_replica, target = opener(options, batches)
    facts = {
        "model": options.model,
        "device": options.on,
        "precision": options.precision,
        "runtime": options.runtime,
        "runtime_version": options.runtime_version,
        "sequence_length": options.sequence_length,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "tool": TOOL,
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.machine()}",
        "target": target,
    }
    replicas: list[Replica] = []
    try:
        for caller in range(callers[-1]):
            replicas.append(open_replica(caller))
        cells = [Cell(batch_size, concurrency) for batch_size in batches for concurrency in callers]
        rules = Rules(options.seconds, options.calls, options.most_calls)
        say(f"{options.repeats * len(cells)} windows of at least {options.seconds:g} s and {options.calls} calls")
        count = measure(cells, replicas, rules, options=options, facts=facts)
    finally:
        for replica in replicas:
            replica.close()
    name = Path(options.output).name
    say(f"Wrote {count} calls to {name}. Where the advisor runs: advisor import {name} -o profile.json")


def main(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    try:
        run(arguments)
    except TimingError as error:
        say(str(error))
        return error.code
    except KeyboardInterrupt:
        say("Interrupted; what was written stays: a file has only whole windows.")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
