"""Inputs are made from the graph alone, or refused with one sentence."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from advisor.errors import InputError
from advisor.profiling.example_models import EncoderDimensions, build_encoder
from advisor.profiling.inputs import InputOptions, parse_shape, read_samples
from advisor.profiling.shapes import plan_inputs

TINY_ENCODER = EncoderDimensions(layers=1, hidden=8, heads=2, intermediate=16, vocabulary=50, positions=64)


def graph_of(*inputs, nodes=(), tensors=()):
    """Make a graph with the given inputs; planning looks at no output."""
    declared = [onnx.helper.make_tensor_value_info(*value) for value in inputs]
    return onnx.helper.make_graph(list(nodes), "g", declared, [], list(tensors))


def rules_of(graph, **options):
    """Rules by input name."""
    return {rule.name: rule for rule in plan_inputs(graph, InputOptions(**options)).rules}


def test_an_image_keeps_its_channels_and_gets_batch_and_side():
    """[N, 3, H, W]: the leading free axis is the batch, the free sides are 224."""
    graph = graph_of(("image", TensorProto.FLOAT, ["N", 3, "height", "width"]))
    plan = plan_inputs(graph, InputOptions())
    assert plan.rules[0].spec().shape == ("batch", 3, 224, 224)
    assert plan.fixed_batch_size is None
    feeds = plan.feeds(2, np.random.default_rng(0))
    assert feeds["image"].shape == (2, 3, 224, 224)
    assert feeds["image"].dtype == np.float32


def test_channels_last_images_are_recognised():
    """[-1, H, W, 3] has its sides on axes 1 and 2."""
    rules = rules_of(graph_of(("image", TensorProto.FLOAT, [-1, None, None, 3])), image_side=96)
    assert rules["image"].dims == ("batch", 96, 96, 3)


def test_text_inputs_get_ids_ones_and_zeros():
    """Ids stay below the table of words, masks are ones, segments are zeros."""
    plan = plan_inputs(build_encoder(TINY_ENCODER).graph, InputOptions(sequence_length=24))
    assert plan.sequence_length == 24
    feeds = plan.feeds(3, np.random.default_rng(0))
    assert feeds["input_ids"].shape == (3, 24)
    assert feeds["input_ids"].max() < 50
    assert np.unique(feeds["input_ids"]).size > 10
    assert (feeds["attention_mask"] == 1).all()
    assert (feeds["token_type_ids"] == 0).all()
    assert plan.rules[0].spec().fill == "random integers in [0, 50)"


def test_a_table_is_found_behind_casts_and_reshapes():
    """Ids stay below the smallest table that they reach through nodes that only pass them on."""
    nodes = [
        onnx.helper.make_node("Cast", ["ids"], ["a"], to=TensorProto.INT64),
        onnx.helper.make_node("Reshape", ["a", "shape"], ["b"]),
        onnx.helper.make_node("Gather", ["table", "b"], ["c"], axis=1),
        onnx.helper.make_node("Gather", ["larger", "ids"], ["d"]),
    ]
    tensors = [
        onnx.numpy_helper.from_array(np.zeros((2, 7), np.float32), "table"),
        onnx.numpy_helper.from_array(np.zeros((9, 2), np.float32), "larger"),
        onnx.numpy_helper.from_array(np.array([-1]), "shape"),
    ]
    rules = rules_of(graph_of(("ids", TensorProto.INT32, ["batch", 5]), nodes=nodes, tensors=tensors))
    assert rules["ids"].number == 7


def test_a_graph_without_a_free_axis_has_a_fixed_batch():
    """[1, 3, 8, 8] can be fed one item only."""
    plan = plan_inputs(graph_of(("x", TensorProto.FLOAT, [1, 3, 8, 8])), InputOptions())
    assert plan.fixed_batch_size == 1


def test_weights_listed_as_inputs_are_not_fed():
    """Old graphs list their weights among the inputs."""
    tensors = [onnx.numpy_helper.from_array(np.zeros((4, 4), np.float32), "w")]
    graph = graph_of(("x", TensorProto.FLOAT, ["batch", 4]), ("w", TensorProto.FLOAT, [4, 4]), tensors=tensors)
    assert list(rules_of(graph)) == ["x"]


def test_a_given_shape_replaces_the_free_axes():
    """A leading 1 on a free axis is the batch, the other numbers are taken as given."""
    graph = graph_of(("x", TensorProto.FLOAT, ["n", 3, "h", "w"]))
    name, dims = parse_shape("x=1,3,48,320")
    assert rules_of(graph, shapes={name: dims})["x"].dims == ("batch", 3, 48, 320)


def test_the_word_batch_marks_the_batch_axis():
    """A state of [layers, batch, width] has its batch in the middle."""
    graph = graph_of(("state", TensorProto.FLOAT, ["p", "q", 128]))
    name, dims = parse_shape("state=2,batch,128")
    assert rules_of(graph, shapes={name: dims})["state"].dims == (2, "batch", 128)


@pytest.mark.parametrize("text", ["x", "x=", "=1,2", "x=1,a", "x=0,3"])
def test_a_shape_that_is_none_is_refused(text):
    """The sentence says what a shape looks like."""
    with pytest.raises(InputError, match="--shape"):
        parse_shape(text)


def test_a_given_shape_must_fit_the_graph():
    """Names, rank and fixed axes are checked."""
    graph = graph_of(("x", TensorProto.FLOAT, ["n", 3, "h", "w"]))
    for shapes in ({"y": (1,)}, {"x": (1, 3)}, {"x": (1, 4, 8, 8)}):
        with pytest.raises(InputError, match="--shape"):
            plan_inputs(graph, InputOptions(shapes=shapes))


def test_an_input_of_unknown_rank_is_refused_with_the_way_out():
    """Without a rank there is nothing to try."""
    graph = graph_of(("features", TensorProto.FLOAT, None))
    with pytest.raises(InputError, match=r"features.*--shape features=batch"):
        plan_inputs(graph, InputOptions())


def test_text_tensors_are_refused():
    """Strings cannot be made up."""
    with pytest.raises(InputError, match="input words is 'string'"):
        plan_inputs(graph_of(("words", TensorProto.STRING, ["batch"])), InputOptions())


def test_a_one_hot_written_as_a_comparison_bounds_the_integers():
    """Some exporters compare with 0, 1, 2, ... instead of OneHot; other numbers bound nothing."""
    for numbers, high in ((np.arange(9), 9), (np.array([3, 5]), 2)):
        nodes = [
            onnx.helper.make_node("Expand", ["ids", "shape"], ["wide"]),
            onnx.helper.make_node("Equal", ["wide", "numbers"], ["hot"]),
        ]
        tensors = [onnx.numpy_helper.from_array(numbers, "numbers")]
        graph = graph_of(("ids", TensorProto.INT64, ["batch", 5, 1]), nodes=nodes, tensors=tensors)
        assert rules_of(graph)["ids"].number == high


def test_joined_items_lie_along_the_batch_axis_in_their_order():
    """Whatever the axis is; an input without one is that of the first item."""
    graph = graph_of(
        ("x", TensorProto.FLOAT, ["batch", 2]),
        ("state", TensorProto.FLOAT, [3, "batch", 2]),
        ("sr", TensorProto.INT64, []),
    )
    plan, rng = plan_inputs(graph, InputOptions()), np.random.default_rng(0)
    items = [plan.feeds(size, rng) for size in (1, 2)]
    joined = plan.join(items)
    assert joined["x"].shape == (3, 2)
    assert joined["state"].shape == (3, 3, 2)
    np.testing.assert_array_equal(joined["x"][1:], items[1]["x"])
    np.testing.assert_array_equal(joined["state"][:, :1], items[0]["state"])
    assert joined["sr"] is items[0]["sr"]
    np.testing.assert_array_equal(plan.last_item(joined)["state"], joined["state"][:, 2:])


def test_samples_of_the_user_are_drawn_together_in_all_inputs(tmp_path):
    """The ids and the mask of one item belong together, also where the batch is not the first axis."""
    file = tmp_path / "samples.npz"
    np.savez(file, ids=np.arange(10).reshape(5, 2), state=np.arange(5.0, dtype=np.float32).reshape(1, 5, 1))
    graph = graph_of(("ids", TensorProto.INT64, ["batch", "length"]), ("state", TensorProto.FLOAT, [1, "batch", 1]))
    plan = plan_inputs(graph, InputOptions(samples=read_samples(file)))
    feeds = plan.feeds(40, np.random.default_rng(0))
    assert feeds["ids"].shape == (40, 2)
    np.testing.assert_array_equal(feeds["ids"][:, 0], 2 * feeds["state"][0, :, 0])
    assert np.unique(feeds["ids"][:, 0]).size == 5
    assert [spec.fill for spec in (rule.spec() for rule in plan.rules)] == ["samples given by the user"] * 2
    assert plan.sequence_length == 2
    assert plan.rules[0].dims == ("batch", 2)


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ({"y": np.zeros((2, 4), np.float32)}, "an input of the model"),
        ({"x": np.zeros((2, 4))}, "float32"),
        ({"x": np.zeros((2, 5), np.float32)}, "4 on axis 1"),
        ({"x": np.zeros(4, np.float32)}, "2 dimensions"),
        ({"x": np.zeros((0, 4), np.float32)}, "the shape batch,4"),
        ({"x": np.zeros((2, 4), np.float32), "z": np.zeros((3, 1), np.float32)}, "as many items"),
    ],
)
def test_samples_must_fit_the_graph(samples, words):
    """Name, type, lengths and number of items are checked."""
    graph = graph_of(("x", TensorProto.FLOAT, ["batch", 4]), ("z", TensorProto.FLOAT, ["batch", 1]))
    with pytest.raises(InputError, match=f"--inputs.*{words}"):
        plan_inputs(graph, InputOptions(samples=samples))


@pytest.mark.parametrize("content", [None, b"", b"no arrays", "npy"])
def test_a_file_without_named_arrays_is_refused(tmp_path, content):
    """The sentence names the file and what it must be."""
    path = tmp_path / "samples.npz"
    if content == "npy":
        with path.open("wb") as stream:
            np.save(stream, np.zeros(3))
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"samples\.npz.*one array per input"):
        read_samples(path)
