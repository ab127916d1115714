"""The server answers every request once, in order, in batches no larger than allowed."""

import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest

from advisor.domain.profile import ModelInfo, RuntimeInfo
from advisor.errors import MeasurementError
from advisor.profiling.cell import Configuration
from advisor.profiling.serving import Served, Server, ServerSetup, prepare_singles, warm_up

Batch = tuple[int, ...]


class RecordingEngine:
    """A replica that keeps the items of every call; an item is a tuple of request numbers."""

    def __init__(self, *, call_s: float = 0.0, gate: threading.Event | None = None, fail_at: int | None = None) -> None:
        self.call_s, self.gate, self.fail_at = call_s, gate, fail_at
        self.calls: list[Batch] = []
        self.at_call = threading.Event()

    def describe(self) -> tuple[ModelInfo, RuntimeInfo]:
        """Name the model."""
        return ModelInfo(name="recorder"), RuntimeInfo(name="test")

    def prepare(self, batch_size: int, rng: np.random.Generator) -> Batch:
        """Take a number nobody else has for each item."""
        return tuple(int(number) for number in rng.integers(0, 2**40, batch_size))

    def join(self, items: Sequence[Batch]) -> Batch:
        """Put the numbers together."""
        return tuple(number for item in items for number in item)

    def call(self, item: Batch) -> None:
        """Keep the items, then wait for the gate or a while, or fail."""
        self.calls.append(item)
        self.at_call.set()
        if self.fail_at is not None and len(self.calls) >= self.fail_at:
            raise MeasurementError("recorder: it broke.")
        if self.gate is not None:
            self.gate.wait()
        time.sleep(self.call_s)

    def close(self) -> None:
        """Hold nothing."""


def numbered(count: int) -> list[Batch]:
    """Single items, one per request: its number."""
    return [(number,) for number in range(count)]


def serve(engines: Sequence[RecordingEngine], count: int, max_batch: int, *, pause_s: float = 0.0) -> Served:
    """Send so many requests and wait for their answers."""
    setup = ServerSetup(Configuration(1, len(engines)), max_batch)
    with Server(engines, numbered(count), setup, requests=count) as server:
        for request in range(count):
            server.put(request)
            time.sleep(pause_s)
        return server.finish()


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("max_batch", [1, 4])
def test_every_request_is_answered_once(replicas: int, max_batch: int) -> None:
    """Calls of all replicas together hold each request exactly once, and each has a time."""
    engines = [RecordingEngine(call_s=0.0005) for _ in range(replicas)]
    served = serve(engines, 200, max_batch, pause_s=0.0001)
    answered = sorted(number for engine in engines for call in engine.calls for number in call)
    assert answered == list(range(200))
    assert np.all(served.done_ns > 0)
    assert sorted(served.batch_sizes) == sorted(len(call) for engine in engines for call in engine.calls)
    assert served.service_ns.size == served.batch_sizes.size
    assert served.service_ns.min() >= 0.0005 * 1e9


@pytest.mark.parametrize("max_batch", [1, 5])
def test_one_worker_serves_in_order_and_never_more_than_the_largest_batch(max_batch: int) -> None:
    """First come, first served; and full batches where many wait."""
    gate = threading.Event()
    engine = RecordingEngine(gate=gate)
    setup = ServerSetup(Configuration(1, 1), max_batch)
    with Server([engine], numbered(13), setup, requests=13) as server:
        server.put(0)
        engine.at_call.wait()
        for request in range(1, 13):
            server.put(request)
        gate.set()
        served = server.finish()
    assert [number for call in engine.calls for number in call] == list(range(13))
    expected = [1] * 13 if max_batch == 1 else [1, 5, 5, 2]
    assert list(served.batch_sizes) == expected
    assert np.all(np.diff(served.done_ns) >= 0)


def test_a_free_worker_waits_for_its_batch_to_fill_but_not_longer_than_the_delay() -> None:
    """A full batch leaves at once, a lone request after the delay and not before it."""
    delay_s = 0.05
    engine = RecordingEngine()
    setup = ServerSetup(Configuration(1, 1), 3, batch_delay_s=delay_s)
    with Server([engine], numbered(4), setup, requests=4) as server:
        for request in range(3):
            server.put(request)
        put_ns = time.perf_counter_ns()
        server.put(3)
        served = server.finish()
    assert engine.calls == [(0, 1, 2), (3,)]
    assert served.done_ns[3] - put_ns >= delay_s * 1e9


def test_the_delay_leaves_no_request_behind_with_several_workers() -> None:
    """Wake-ups that a waiting worker takes do not lose requests for the others."""
    engines = [RecordingEngine(call_s=0.001) for _ in range(3)]
    setup = ServerSetup(Configuration(1, 3), 4, batch_delay_s=0.002)
    with Server(engines, numbered(300), setup, requests=300) as server:
        for request in range(300):
            server.put(request)
            time.sleep(0.0002)
        server.finish()
    assert sorted(number for engine in engines for call in engine.calls for number in call) == list(range(300))


def test_requests_share_the_prepared_items_in_turn() -> None:
    """Fewer items than requests: request k gets item k modulo their number."""
    engine = RecordingEngine()
    with Server([engine], numbered(3), ServerSetup(Configuration(1, 1), 1), requests=7) as server:
        for request in range(7):
            server.put(request)
        server.finish()
    assert [call[0] for call in engine.calls] == [0, 1, 2, 0, 1, 2, 0]


def test_the_failure_of_a_replica_is_raised_at_the_end() -> None:
    """The load stops, nobody waits for ever, and the sentence of the replica is the error."""
    engine = RecordingEngine(fail_at=3)
    with pytest.raises(MeasurementError, match="it broke"):
        serve([engine], 10, 1)
    assert len(engine.calls) == 3


def test_an_interrupt_drops_what_waits() -> None:
    """Leaving the server on an exception does not answer the whole queue first."""
    gate = threading.Event()
    engine = RecordingEngine(gate=gate)

    def interrupted() -> None:
        with Server([engine], numbered(50), ServerSetup(Configuration(1, 1), 1), requests=50) as server:
            for request in range(50):
                server.put(request)
            engine.at_call.wait()
            threading.Timer(0.05, gate.set).start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(engine.calls) < 50


def test_warm_up_calls_every_batch_size_of_every_replica() -> None:
    """No shape is new to a replica when the load starts."""
    engines = [RecordingEngine() for _ in range(2)]
    items = prepare_singles(engines[0], np.random.default_rng(1), most=6)
    warm_up(engines, items, 6)
    for engine in engines:
        assert {len(call) for call in engine.calls} == {1, 2, 3, 4, 5, 6}
        assert engine.calls[-1] == items[0]


def test_there_are_as_many_different_items_as_the_largest_batch() -> None:
    """A batch never holds the same item twice."""
    items = prepare_singles(RecordingEngine(), np.random.default_rng(1), most=9)
    assert len(set(items)) == 9
