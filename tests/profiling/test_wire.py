"""Requests say what the user and the server ask for, and answers are read as they come."""

import json
import math

import numpy as np
import pytest

from advisor.errors import InputError, MeasurementError
from advisor.profiling.engines.connection import one_line, parse_address, request_head, secrets_of
from advisor.profiling.engines.tensors import tensor_bodies
from advisor.profiling.engines.token_stream import StreamError, read_stream
from advisor.profiling.engines.wire import json_bodies, kserve_bodies, openai_bodies, wire_format
from advisor.profiling.inputs import InputOptions


def rng():
    """Random numbers that are the same each time."""
    return np.random.default_rng(3)


def save(path, *documents):
    """Write a file of requests."""
    path.write_text("\n".join(json.dumps(document) for document in documents))
    return path


def sent(bodies, batch_size):
    """One request as the server gets it."""
    return json.loads(bodies.write(bodies.draw(batch_size, rng())))


def is_one_sentence(text):
    """One line that ends in one full stop."""
    return "\n" not in text and text.endswith(".") and ". " not in text


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v2/models/resnet/infer", "kserve-v2"),
        ("/triton/v2/models/resnet/versions/2/infer", "kserve-v2"),
        ("/v2/models/resnet", "json"),
        ("/infer", "json"),
        ("/v1/chat/completions", "openai"),
        ("/v1/completions", "openai"),
        ("/", "json"),
    ],
)
def test_the_path_tells_the_wire_format(path, expected):
    """There is no option for it."""
    assert wire_format(path) == expected


def test_a_batch_holds_so_many_items_of_the_list_and_keeps_the_other_fields(tmp_path):
    """Items are drawn with replacement, so a batch may be larger than the list."""
    path = save(tmp_path / "body.json", {"data": {"rows": [[1], [2], [3]], "unit": "é"}, "top": 5})
    bodies = json_bodies(path, "data.rows")
    assert bodies.fixed_batch_size is None
    batch = sent(bodies, 64)
    assert batch["top"] == 5
    assert batch["data"]["unit"] == "é"
    assert len(batch["data"]["rows"]) == 64
    assert {row[0] for row in batch["data"]["rows"]} == {1, 2, 3}


def test_the_path_to_the_items_may_go_through_lists(tmp_path):
    """A number is a place in a list."""
    bodies = json_bodies(save(tmp_path / "body.json", {"inputs": [{"data": [7]}, {"data": [8]}]}), "inputs.1.data")
    assert sent(bodies, 2) == {"inputs": [{"data": [7]}, {"data": [8, 8]}]}


def test_joined_requests_hold_all_items_in_their_order(tmp_path):
    """As a server that batches would put them together."""
    bodies = json_bodies(save(tmp_path / "body.json", {"rows": list(range(100))}), "rows")
    random = rng()
    parts = [bodies.draw(size, random) for size in (1, 3, 2)]
    rows = [json.loads(bodies.write(part))["rows"] for part in parts]
    assert json.loads(bodies.write(bodies.join(parts))) == {"rows": [row for part in rows for row in part]}


def test_without_a_list_the_request_is_sent_as_it_is(tmp_path):
    """It counts as one item, and two cannot be joined."""
    bodies = json_bodies(save(tmp_path / "body.json", {"question": "Größe?"}), None)
    assert bodies.fixed_batch_size == 1
    assert sent(bodies, 1) == {"question": "Größe?"}
    content = bodies.draw(1, rng())
    assert bodies.join([content]) == content
    with pytest.raises(MeasurementError, match="--batch-at") as caught:
        bodies.join([content, content])
    assert is_one_sentence(str(caught.value))


def test_each_line_of_a_file_is_a_request(tmp_path):
    """They are drawn at random, and empty lines are none."""
    path = tmp_path / "body.jsonl"
    path.write_text('{"q": 1}\n\n{"q": 2}\n')
    bodies, random = json_bodies(path, None), rng()
    assert {bodies.draw(1, random) for _ in range(50)} == {b'{"q": 1}', b'{"q": 2}'}


@pytest.mark.parametrize(
    ("content", "batch_at", "words"),
    [
        (None, None, "body.json"),
        ("{", None, "JSON"),
        ('{"rows": []}', "rows", "one item"),
        ('{"rows": 3}', "rows", "a list"),
        ('{"rows": [1]}', "lines", "rows"),
        ('{"rows": [1]}', "rows.5", "no fields"),
    ],
)
def test_a_request_that_does_not_fit_is_one_sentence(tmp_path, content, batch_at, words):
    """It names the file without its folder."""
    path = tmp_path / "body.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=words) as caught:
        json_bodies(path, batch_at)
    assert is_one_sentence(str(caught.value))
    assert str(tmp_path) not in str(caught.value)


def test_a_missing_body_is_asked_for_with_an_example():
    """The smallest request for a chat differs from that for a completion."""
    for bodies, words in (
        (lambda: json_bodies(None, None), "jsonl"),
        (lambda: openai_bodies(None, chat=True), "messages"),
        (lambda: openai_bodies(None, chat=False), '"prompt"'),
    ):
        with pytest.raises(InputError, match=words) as caught:
            bodies()
        assert is_one_sentence(str(caught.value))


def test_a_list_of_items_needs_one_request(tmp_path):
    """Lines of requests and a list of items exclude each other."""
    with pytest.raises(InputError, match="--batch-at"):
        json_bodies(save(tmp_path / "body.jsonl", {"rows": [1]}), "rows")


def test_a_request_for_tokens_asks_for_a_stream_with_a_count(tmp_path):
    """The fields of the user stay."""
    document = {"model": "m", "messages": [{}], "max_tokens": 9, "stream": False, "stream_options": {"other": 1}}
    body = sent(openai_bodies(save(tmp_path / "body.json", document), chat=True), 1)
    assert body["stream"] is True
    assert body["stream_options"] == {"other": 1, "include_usage": True}
    assert (body["model"], body["max_tokens"]) == ("m", 9)
    with pytest.raises(InputError, match="prompt"):
        openai_bodies(save(tmp_path / "body.json", document), chat=False)


def test_a_request_of_the_user_for_kserve_needs_inputs(tmp_path):
    """Anything else would be refused by the server after the fact."""
    assert kserve_bodies(save(tmp_path / "a.json", {"inputs": []})).fixed_batch_size == 1
    with pytest.raises(InputError, match="inputs"):
        kserve_bodies(save(tmp_path / "a.json", {"rows": []}))


def test_tensors_are_flat_with_the_shape_of_the_batch():
    """A free first axis is the batch, a free axis of integers behind it the sequence."""
    bodies = tensor_bodies(
        {"input_ids": ("INT64", (-1, -1)), "attention_mask": ("INT64", (-1, -1))}, InputOptions(sequence_length=5)
    )
    ids, mask = sent(bodies, 3)["inputs"]
    assert (ids["name"], ids["datatype"], ids["shape"], len(ids["data"])) == ("input_ids", "INT64", [3, 5], 15)
    assert mask["data"] == [1] * 15
    assert bodies.sequence_length == 5
    assert [spec.shape for spec in bodies.inputs] == [("batch", 5), ("batch", 5)]


def test_joined_tensors_grow_along_the_batch():
    """Their data follow each other, since the order is row-major."""
    bodies = tensor_bodies({"x": ("FP32", (-1, 2))}, InputOptions())
    random = rng()
    parts = [bodies.draw(size, random) for size in (1, 2)]
    single = [json.loads(bodies.write(part))["inputs"][0]["data"] for part in parts]
    joined = json.loads(bodies.write(bodies.join(parts)))["inputs"][0]
    assert joined["shape"] == [3, 2]
    assert joined["data"] == single[0] + single[1]


def test_a_shape_of_the_user_fills_free_axes():
    """A leading 1 on a free axis is the batch."""
    options = InputOptions(shapes={"image": (1, 3, 8, 4)})
    bodies = tensor_bodies({"image": ("FP16", (-1, 3, -1, -1))}, options)
    assert bodies.fixed_batch_size is None
    assert sent(bodies, 2)["inputs"][0]["shape"] == [2, 3, 8, 4]


def test_samples_of_the_user_are_drawn_by_item():
    """All values come from the samples."""
    samples = {"x": np.array([[1.5, 2.5], [3.5, 4.5]], np.float32)}
    rows = sent(tensor_bodies({"x": ("FP32", (-1, 2))}, InputOptions(samples=samples)), 20)["inputs"][0]["data"]
    assert set(zip(rows[::2], rows[1::2], strict=True)) == {(1.5, 2.5), (3.5, 4.5)}


def test_a_model_without_a_free_first_axis_takes_one_item():
    """A request counts as one."""
    bodies = tensor_bodies({"x": ("FP64", (4,)), "flag": ("BOOL", (1,))}, InputOptions())
    assert bodies.fixed_batch_size == 1
    x, flag = sent(bodies, 1)["inputs"]
    assert len(x["data"]) == 4
    assert flag["data"] == [True]


@pytest.mark.parametrize(
    ("declared", "options", "words"),
    [
        ({"x": ("BYTES", (-1,))}, InputOptions(), "--body"),
        ({"x": ("FP32", (-1, 3, -1))}, InputOptions(), "--shape x=batch,3,1"),
        ({"x": ("FP32", (-1, 3))}, InputOptions(shapes={"x": (1, 4)}), "--shape x"),
        ({"x": ("FP32", (-1, 3))}, InputOptions(shapes={"x": ("batch",)}), "--shape x"),
        ({"x": ("FP32", (-1, 3))}, InputOptions(shapes={"y": (1, 4)}), "an input of the model"),
        ({"x": ("FP32", (-1, 3))}, InputOptions(samples={"x": np.zeros((2, 4), np.float32)}), "--inputs x"),
        ({"x": ("FP32", (-1, 3))}, InputOptions(samples={"x": np.zeros((2, 3), np.int64)}), "--inputs x"),
        (
            {"x": ("FP32", (-1,)), "y": ("FP32", (-1,))},
            InputOptions(samples={"x": np.zeros(2, np.float32), "y": np.zeros(3, np.float32)}),
            "as many items",
        ),
    ],
)
def test_tensors_that_cannot_be_made_are_one_sentence(declared, options, words):
    """It says what to give."""
    with pytest.raises(InputError, match=words) as caught:
        tensor_bodies(declared, options)
    assert is_one_sentence(str(caught.value))


def event(**delta):
    """One line of a stream of chat."""
    return f"data: {json.dumps({'choices': [{'delta': delta}]})}\r".encode()


def test_only_events_with_text_are_tokens():
    """Roles, comments, ends and counts are none; thoughts and plain completions are."""
    lines = [
        event(role="assistant", content=""),
        b": ping",
        event(content="a"),
        event(reasoning_content="b"),
        event(reasoning="c"),
        b'data:{"choices":[{"text":"d"}]}',
        b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}',
        b'data: {"choices": [], "usage": {"completion_tokens": 8}}',
        b"",
        b"data: [DONE]",
    ]
    stream = read_stream(enumerate(lines))
    assert stream.times_ns == (2, 3, 4, 5)
    assert stream.tokens == 8
    assert stream.finished


@pytest.mark.parametrize("data", [b"{", b"[1]", b'{"choices": 3}', b'{"choices": [3]}', b'{"error": "full"}', b"\xff"])
def test_an_event_of_another_form_ends_the_reading(data):
    """What the server said is part of the failure."""
    with pytest.raises(StreamError) as caught:
        read_stream([(1, b"data: " + data)])
    assert caught.value.said


@pytest.mark.parametrize(
    "url", ["host/path", "ftp://host/", "http://", "http://host:99999/", "http://ho st/", "http:///x"]
)
def test_an_address_that_is_none_is_one_sentence(url):
    """It says what an address looks like."""
    with pytest.raises(InputError, match="http://host:port/path") as caught:
        parse_address(url)
    assert is_one_sentence(str(caught.value))


def test_no_sentence_and_no_text_of_an_address_holds_its_secrets():
    """Neither where the address is used nor where it is refused."""
    address = parse_address("https://me:s3cret@host:8443/path?key=abcdef")
    assert address.shown == "https://host:8443/path"
    for text in (repr(address), str(address), repr(request_head(address, {"X-Key": "s3cret"}))):
        assert not [word for word in ("s3cret", "abcdef", "me:") if word in text]
    with pytest.raises(InputError) as caught:
        parse_address("ftp://me:s3cret@host/?key=abcdef")
    assert "s3cret" not in str(caught.value)
    assert "abcdef" not in str(caught.value)


def test_user_and_password_become_a_header_unless_the_user_gives_one():
    """As other clients do."""
    address = parse_address("http://me:p%40ss@host/")
    assert b"Authorization: Basic bWU6cEBzcw==" in request_head(address, {}).start
    given = request_head(address, {"authorization": "Bearer x", "Host": "other"}).start
    assert given.lower().count(b"authorization") == 1
    assert given.count(b"ost: ") == 1
    assert "p@ss" in secrets_of(address, {})


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Key": "s3cret\r\nEvil: 1"},
        {"X Key": "s3cret"},
        {"": "s3cret"},
        {"Content-Length": "s3cret"},
        {"X": "→s3cret"},
    ],
)
def test_a_header_that_cannot_be_sent_is_refused_without_its_value(headers):
    """It could hold a key."""
    with pytest.raises(InputError, match="--header") as caught:
        request_head(parse_address("http://host/"), headers)
    assert "s3cret" not in str(caught.value)
    assert is_one_sentence(str(caught.value))


@pytest.mark.parametrize("text", ["", "a. b.\nc", "x" * 500, "\x1b[31mred\x00", "one . two...", "a.  b"])
def test_what_a_server_says_stays_one_short_line(text):
    """It is a part of a sentence."""
    line = one_line(text)
    assert len(line) <= 200
    assert line.isprintable()
    assert ". " not in line


def test_no_number_is_longer_than_it_must_be():
    """Synthetic numbers have few digits, and none is NaN."""
    data = sent(tensor_bodies({"x": ("FP32", (-1, 500))}, InputOptions()), 1)["inputs"][0]["data"]
    assert all(math.isfinite(number) and len(str(abs(number))) <= 6 for number in data)
