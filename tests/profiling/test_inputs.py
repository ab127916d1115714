"""Inputs are made from the graph alone, or refused with one sentence."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from advisor.errors import InputError
from advisor.profiling.example_models import EncoderDimensions, build_encoder
from advisor.profiling.inputs import InputOptions, parse_shape, plan_inputs

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
    assert rules["ids"].high == 7


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


def test_an_unknown_axis_is_refused_with_the_input_and_the_way_out():
    """Nobody can guess an unnamed axis of a tensor of rank three."""
    graph = graph_of(("features", TensorProto.FLOAT, ["batch", "p", "q"]))
    with pytest.raises(InputError, match=r"features.*--shape features="):
        plan_inputs(graph, InputOptions())


def test_text_tensors_are_refused():
    """Strings cannot be made up."""
    with pytest.raises(InputError, match="input words is 'string'"):
        plan_inputs(graph_of(("words", TensorProto.STRING, ["batch"])), InputOptions())
