"""A model behind an address is asked as its clients would ask it, and every failure is one sentence."""

import json
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import closing

import numpy as np
import pytest

from advisor.errors import InputError, MeasurementError
from advisor.profiling.engines import OutOfMemory, blank_server
from advisor.profiling.engines.client_limits import measure_client, measure_events
from advisor.profiling.engines.connection import Connection, parse_address, request_head, secrets_of
from advisor.profiling.engines.endpoint import EndpointModel, EndpointOptions
from advisor.profiling.inputs import InputOptions
from tests.server import running_endpoint

KEY = {"Authorization": "Bearer s3cret-key"}
CHAT = {"model": "chat-7b", "messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture(scope="module")
def server():
    """Start the server and give its address."""
    with running_endpoint() as address:
        yield address


def seen(server, what="seen"):
    """What the server has seen or sent."""
    with urllib.request.urlopen(f"{server}/{what}") as answer:
        return json.load(answer)


def save(folder, document, name="body.json"):
    """Write a request."""
    path = folder / name
    path.write_text(json.dumps(document))
    return path


def rng():
    """Random numbers that are the same each time."""
    return np.random.default_rng(3)


def is_one_sentence(text):
    """One line that ends in one full stop."""
    return "\n" not in text and text.endswith(".") and ". " not in text


def connect(server, path, *, timeout_s=20.0, headers=KEY):
    """Open a connection and make the head of requests to a path."""
    address = parse_address(server + path)
    connection = Connection(address, timeout_s=timeout_s, secrets=secrets_of(address, headers))
    return closing(connection), request_head(address, headers)


def test_a_json_endpoint_is_described_by_its_address_and_its_requests(server, tmp_path):
    """Neither key nor query is part of it, and another request is another model."""
    body = save(tmp_path, {"rows": [1, 2, 3]})
    url = f"{server.replace('//', '//me:pass@')}/echo/20?token=abcdef"
    model = EndpointModel(url, options=EndpointOptions(body=body, batch_at="rows", headers={"X-Key": "s3cret"}))
    assert model.source == model.model.target == f"{server}/echo/20"
    assert (model.model.name, model.model.file) == ("20", None)
    assert model.placement.kind == "endpoint"
    assert model.placement.local
    assert not model.placement.takes_threads
    assert model.memory is None
    assert model.fixed_batch_size is None
    assert [(spec.name, spec.shape) for spec in model.model.inputs] == [("rows", ("batch",))]
    assert model.notes == ()
    with closing(model.open(1, concurrency=1)) as engine:
        text = repr((model.model, model.facts(), engine.describe()))
    assert not [word for word in ("s3cret", "abcdef", "pass@", str(tmp_path)) if word in text]
    whole = EndpointModel(url, name="mine", options=EndpointOptions(body=body))
    assert whole.model.name == "mine"
    assert whole.fixed_batch_size == 1
    assert whole.model.sha256 != model.model.sha256
    same = EndpointModel(f"{server}/echo/20", options=EndpointOptions(body=body))
    assert same.model.sha256 == whole.model.sha256


def test_facts_tell_what_the_client_alone_can_do(server, tmp_path):
    """They stand beside what the server calls itself."""
    model = EndpointModel(f"{server}/echo/1", options=EndpointOptions(body=save(tmp_path, {"a": 1})))
    facts = {name: fact.value for name, fact in model.facts().items()}
    assert 0 < facts["client_round_trip_p50_s"] <= facts["client_round_trip_p99_s"]
    assert facts["client_calls_per_s"] > 0
    assert facts["endpoint_server"].startswith("BaseHTTP")
    assert "client_events_per_s" not in facts


def test_calls_that_are_little_more_than_the_client_are_noted(tmp_path):
    """A server that does nothing is the clearest case."""
    with subprocess.Popen([sys.executable, blank_server.__file__], stdout=subprocess.PIPE, text=True) as process:
        url = f"http://127.0.0.1:{process.stdout.readline().strip()}/answer/10"
        notes = EndpointModel(url, options=EndpointOptions(body=save(tmp_path, {"a": 1}))).notes
    assert [note.split(":")[0] for note in notes] == ["CLIENT_BOUND"]
    assert is_one_sentence(notes[0])


def test_calls_of_a_batch_send_so_many_items_on_one_connection(server, tmp_path):
    """What is sent was prepared before, also where requests were joined."""
    options = EndpointOptions(body=save(tmp_path, {"rows": [1, 2, 3]}), batch_at="rows", headers=KEY)
    model = EndpointModel(f"{server}/echo/1?one=two", options=options)
    before = len(seen(server))
    with closing(model.open(4, concurrency=1)) as engine:
        items = [engine.prepare(size, rng()) for size in (1, 5)]
        for item in (*items, engine.join(items)):
            assert engine.call(item) is None
    calls = seen(server)[before:]
    assert [len(body["rows"]) for _, _, _, body, _ in calls] == [1, 5, 6]
    assert len({connection for *_, connection in calls}) == 1
    assert {path for _, path, *_ in calls} == {"/echo/1?one=two"}
    assert {headers["Authorization"] for _, _, headers, *_ in calls} == {KEY["Authorization"]}


def test_a_kserve_model_gets_the_tensors_that_its_metadata_names(server):
    """The name comes from the path and the batch from the free first axis."""
    model = EndpointModel(f"{server}/v2/models/tokens/infer", options=EndpointOptions(headers=KEY))
    assert model.model.name == "tokens"
    assert model.model.sequence_length == 128
    assert [spec.name for spec in model.model.inputs] == ["input_ids", "attention_mask"]
    metadata = next(call for call in seen(server) if call[:2] == ["GET", "/v2/models/tokens"])
    assert metadata[2]["Authorization"] == KEY["Authorization"]
    with closing(model.open(1, concurrency=1)) as engine:
        engine.call(engine.join([engine.prepare(1, rng()), engine.prepare(2, rng())]))
    assert [tensor["shape"] for tensor in seen(server)[-1][3]["inputs"]] == [[3, 128], [3, 128]]
    shorter = EndpointOptions(inputs=InputOptions(sequence_length=8))
    assert EndpointModel(f"{server}/v2/models/tokens/infer", options=shorter).model.sha256 != model.model.sha256


def test_a_kserve_model_without_a_free_first_axis_says_so(server):
    """Nothing tells whether its first axis is a batch."""
    model = EndpointModel(f"{server}/v2/models/whole/infer")
    assert model.fixed_batch_size == 1
    assert any(note.startswith("FIXED_BATCH") for note in model.notes)


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("signal", InputError, "--shape wave"),
        ("text", InputError, "--body"),
        ("untyped", MeasurementError, "metadata"),
        ("absent", MeasurementError, "metadata.*no model here"),
    ],
)
def test_a_kserve_model_that_cannot_be_fed_is_one_sentence(server, name, error, words):
    """It says what to give or what the server said."""
    with pytest.raises(error, match=words) as caught:
        EndpointModel(f"{server}/v2/models/{name}/infer")
    assert is_one_sentence(str(caught.value))


def test_a_kserve_answer_without_outputs_is_refused(server, tmp_path):
    """So is one that is no JSON."""
    body = save(tmp_path, {"inputs": []})
    for mode, words in (("plain/none", "no outputs"), ("plain/words", "no JSON|no outputs")):
        with pytest.raises(MeasurementError, match=words) as caught:
            EndpointModel(f"{server}/{mode}/v2/models/m/infer", options=EndpointOptions(body=body))
        assert is_one_sentence(str(caught.value))


def test_a_request_of_the_user_serves_where_tensors_cannot_be_made(server, tmp_path):
    """Texts are no numbers."""
    body = save(tmp_path, {"inputs": [{"name": "prompt", "datatype": "BYTES", "shape": [1], "data": ["Hi"]}]})
    model = EndpointModel(f"{server}/v2/models/text/infer", options=EndpointOptions(body=body))
    assert model.fixed_batch_size == 1
    assert not any(note.startswith("FIXED_BATCH") for note in model.notes)
    assert seen(server)[-1][3]["inputs"][0]["data"] == ["Hi"]


def test_a_stream_gives_the_times_of_its_tokens(server, tmp_path):
    """They lie as far apart as those at which the server sent them; a busy machine only delays."""
    options = EndpointOptions(body=save(tmp_path, CHAT), headers=KEY)
    model = EndpointModel(f"{server}/stream/100/20/12/v1/chat/completions", options=options)
    assert model.model.name == "chat-7b"
    assert model.fixed_batch_size == 1
    assert model.facts()["tokens_per_event"].value == 2
    assert model.facts()["client_events_per_s"].value > 50
    assert model.notes == ()
    first_s, gaps_s = [], []
    before = len(seen(server, "sent"))
    with closing(model.open(1, concurrency=1)) as engine:
        item = engine.prepare(1, rng())
        for _ in range(5):
            started_ns = time.perf_counter_ns()
            times_ns = engine.call(item)
            assert len(times_ns) == 12
            assert list(times_ns) == sorted(times_ns)
            first_s.append((times_ns[0] - started_ns) / 1e9)
            gaps_s += list(np.diff(times_ns) / 1e9)
    sent_s = np.array(seen(server, "sent")[before:]) / 1e9
    delays_s = first_s - (sent_s[:, 1] - sent_s[:, 0])
    assert 0 < min(delays_s) < 0.005
    assert np.median(gaps_s) == pytest.approx(np.median(np.diff(sent_s[:, 1:])), rel=0.05)
    assert np.median(gaps_s) == pytest.approx(0.020, rel=0.05)
    calls = seen(server)[-5:]
    assert {call[3]["stream"] for call in calls} == {True}
    assert len({call[4] for call in calls}) == 1


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("empty", "no token"),
        ("error", "the stream holds an error: it broke"),
        ("garbage", "no JSON"),
        ("cut", "closed the connection"),
        ("unfinished", "ended before"),
    ],
)
def test_a_stream_that_fails_is_one_sentence(server, tmp_path, mode, words):
    """Though its status is that of success; what the server repeats of a key is cut out."""
    options = EndpointOptions(body=save(tmp_path, CHAT), headers=KEY)
    with pytest.raises(MeasurementError, match=words) as caught:
        EndpointModel(f"{server}/badstream/{mode}/v1/chat/completions", options=options)
    assert is_one_sentence(str(caught.value))
    assert "s3cret" not in str(caught.value)


def test_an_answer_that_is_no_stream_has_no_tokens(server, tmp_path):
    """A server that ignores the wish for a stream cannot be timed by token."""
    options = EndpointOptions(body=save(tmp_path, CHAT))
    with pytest.raises(MeasurementError, match="stream of events"):
        EndpointModel(f"{server}/echo/0/v1/chat/completions", options=options)


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        ("/status/500/broken", MeasurementError, "status 500: broken; "),
        ("/status/307/moved", MeasurementError, "status 307: it redirects to /other; give that address"),
        ("/status/413/large", OutOfMemory, "413"),
        ("/status/507/full", OutOfMemory, "507"),
        ("/status/500/oom", OutOfMemory, "out of memory"),
        ("/status/400/batch", OutOfMemory, "batch-size"),
        ("/cut", MeasurementError, "closed the connection"),
        ("/gone", MeasurementError, "closed the connection"),
        ("/junk", MeasurementError, "no HTTP"),
    ],
)
def test_an_answer_that_fails_is_one_sentence_without_secrets(server, path, error, words):
    """Also where the server repeats key and query."""
    opened, head = connect(server, f"{path}?token=abcdef")
    with opened as connection, pytest.raises(MeasurementError, match=words) as caught:
        connection.ask(head.request(b"{}"))
    assert type(caught.value) is error
    assert is_one_sentence(str(caught.value))
    assert str(caught.value).startswith(f"{server}{path}: ")
    assert "s3cret" not in str(caught.value)
    assert "abcdef" not in str(caught.value)


def test_a_stream_is_refused_by_its_status(server):
    """Before any token is looked for."""
    opened, head = connect(server, "/status/500/broken")
    with opened as connection, pytest.raises(MeasurementError, match="status 500: broken"):
        list(connection.lines(head.request(b"{}")))


def test_a_server_that_takes_too_long_is_one_sentence(server):
    """It names the option that allows more; the answer that comes later is not taken for the next one."""
    opened, head = connect(server, "/echo/800", timeout_s=0.2)
    with opened as connection:
        for body in (b'"first"', b'"second"'):
            with pytest.raises(MeasurementError, match=r"nothing came for 0\.2 s.*--timeout") as caught:
                connection.ask(head.request(body))
            assert is_one_sentence(str(caught.value))


def test_a_server_that_is_not_there_is_one_sentence(tmp_path):
    """Refused, unknown, or without TLS."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = EndpointOptions(body=save(tmp_path, {}))
    for url, words in (
        (f"http://127.0.0.1:{port}/a", "refused"),
        ("http://no-such-name.invalid/a", "no machine of this name"),
    ):
        with pytest.raises(MeasurementError, match=words) as caught:
            EndpointModel(url, options=options)
        assert is_one_sentence(str(caught.value))


def test_a_server_without_tls_is_one_sentence(server):
    """It does not answer https."""
    opened, head = connect(server.replace("http:", "https:"), "/echo/0")
    with opened as connection, pytest.raises(MeasurementError, match=r"no secure connection|closed") as caught:
        connection.ask(head.request(b"{}"))
    assert is_one_sentence(str(caught.value))


@pytest.mark.parametrize("closes_after_ms", [0, 30])
def test_a_connection_that_the_server_closes_between_calls_is_opened_again(server, closes_after_ms):
    """Whether the end of it comes before or after the next request is sent."""
    opened, head = connect(server, f"/fickle/{closes_after_ms}")
    with opened as connection:
        assert [connection.ask(head.request(b"%d" % call)) for call in range(20)] == [
            b"%d" % call for call in range(20)
        ]


def test_a_server_that_ends_in_mid_call_is_one_sentence(tmp_path):
    """A request that was at work is not sent again."""
    took = []

    def serve(listener):
        connection, _ = listener.accept()
        with connection:
            for answer in (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", b""):
                took.append(connection.recv(4096))
                if answer:
                    connection.sendall(answer)
                else:
                    ended.wait(0.3)

    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        opened, head = connect(f"http://127.0.0.1:{listener.getsockname()[1]}", "/a")
        with opened as connection:
            assert connection.ask(head.request(b"{}")) == b"{}"
            with pytest.raises(MeasurementError, match="closed the connection"):
                connection.ask(head.request(b"{}"))
        thread.join()
    assert len(took) == 2


def test_numbers_that_are_not_finite_are_noted_and_words_are_not_read(server, tmp_path):
    """The first answer is read where it is JSON."""
    options = EndpointOptions(body=save(tmp_path, {}))
    notes = [EndpointModel(f"{server}/plain/{mode}", options=options).notes for mode in ("nan", "words")]
    assert [any(note.startswith("NOT_FINITE") for note in group) for group in notes] == [True, False]


def test_choices_that_do_not_fit_are_refused_before_anything_is_sent(tmp_path):
    """The server need not be there."""
    url, body = "http://127.0.0.1:9/a", save(tmp_path, CHAT)
    for address, options, words in (
        (url, EndpointOptions(), "--body"),
        (url, EndpointOptions(body=body, timeout_s=0), "--timeout"),
        (url, EndpointOptions(body=body, headers={"a b": ""}), "--header"),
        ("http://127.0.0.1:9/v1/chat/completions", EndpointOptions(body=body, batch_at="messages"), "--batch-at"),
        ("127.0.0.1:9/a", EndpointOptions(body=body), "address"),
    ):
        with pytest.raises(InputError, match=words) as caught:
            EndpointModel(address, options=options)
        assert is_one_sentence(str(caught.value))


def test_a_server_that_closes_after_each_answer_is_noted(server, tmp_path):
    """Every call then holds the time to connect."""
    options = EndpointOptions(body=save(tmp_path, {}), headers={"Connection": "close"})
    notes = EndpointModel(f"{server}/echo/5", options=options).notes
    assert [note.split(":")[0] for note in notes if "KEEP" in note] == ["NO_KEEP_ALIVE"]
    assert all(is_one_sentence(note) for note in notes)


def test_a_closed_replica_answers_no_call(server, tmp_path):
    """Calls after the end are a mistake, not a new connection."""
    model = EndpointModel(f"{server}/echo/0", options=EndpointOptions(body=save(tmp_path, {})))
    engine = model.open(1, concurrency=1)
    item = engine.prepare(1, rng())
    engine.close()
    engine.close()
    with pytest.raises(MeasurementError, match="closed") as caught:
        engine.call(item)
    assert is_one_sentence(str(caught.value))


def test_the_client_alone_is_slower_with_larger_requests():
    """Sizes are those asked for, so that the limits are those of the calls in question."""
    small, large = (measure_client(size, 10, seconds=0.2) for size in (10, 8_000_000))
    assert small.round_trip_p50_s < large.round_trip_p50_s
    assert small.calls_per_s > large.calls_per_s
    assert measure_events(200, seconds=0.1) > 100
