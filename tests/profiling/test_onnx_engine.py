"""The ONNX engine describes a file and turns every failure into one sentence."""

import hashlib

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from advisor.errors import InputError, MeasurementError
from advisor.profiling.engines import OutOfMemory
from advisor.profiling.engines.onnx import OnnxModel
from advisor.profiling.example_models import MlpDimensions, build_mlp


def save(path, nodes, inputs, outputs, tensors=()):
    """Write a graph of these parts."""
    values = [[onnx.helper.make_tensor_value_info(*value) for value in group] for group in (inputs, outputs)]
    graph = onnx.helper.make_graph(nodes, "g", *values, list(tensors))
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path


def is_one_sentence(text):
    """One line that ends in one full stop."""
    return "\n" not in text and text.endswith(".") and ". " not in text


def test_a_model_is_described_by_hash_size_weights_and_precision(tiny_mlp, tiny_model):
    """What a scenario asks for and what makes two measurements comparable."""
    info, runtime = tiny_model.open(1, concurrency=1).describe()
    assert info.name == "tiny"
    assert info.sha256 == hashlib.sha256(tiny_mlp.read_bytes()).hexdigest()
    assert info.size_bytes == tiny_mlp.stat().st_size
    assert info.parameters == 16 * 8 + 8 + 8 * 4 + 4
    assert info.precision == "fp32"
    assert [spec.shape for spec in info.inputs] == [("batch", 16)]
    assert runtime.options["allow_spinning"] is False
    assert tiny_model.notes == ()


def test_idle_threads_spin_only_where_no_other_replica_wants_the_core(tiny_model):
    """The option is part of the record, because it changes speed and CPU time."""
    alone, shared = (tiny_model.open(2, concurrency=replicas).describe()[1] for replicas in (1, 2))
    assert alone.options["allow_spinning"] is True
    assert shared.options["allow_spinning"] is False


def test_external_weights_are_part_of_hash_and_size(tmp_path):
    """A changed weights file is another model."""
    path = tmp_path / "big.onnx"
    onnx.save(
        build_mlp(MlpDimensions((64, 32, 4))),
        path,
        save_as_external_data=True,
        location="big.data",
        size_threshold=0,
    )
    first = OnnxModel(path).model
    assert first.size_bytes == path.stat().st_size + (tmp_path / "big.data").stat().st_size
    data = bytearray((tmp_path / "big.data").read_bytes())
    data[5] ^= 1
    (tmp_path / "big.data").write_bytes(data)
    assert OnnxModel(path).model.sha256 != first.sha256
    (tmp_path / "big.data").unlink()
    with pytest.raises(InputError, match=r"big\.data"):
        OnnxModel(path)


@pytest.mark.parametrize("content", [None, b"", b"this is not a model"])
def test_a_missing_or_invalid_file_is_refused_in_one_sentence(tmp_path, content):
    """The sentence names the file without its folder."""
    path = tmp_path / "model.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"model\.onnx") as caught:
        OnnxModel(path)
    assert is_one_sentence(str(caught.value))
    assert str(tmp_path) not in str(caught.value)


def test_a_graph_that_the_runtime_refuses_is_one_sentence(tmp_path):
    """An unknown operator is found when the session opens."""
    nodes = [onnx.helper.make_node("NoSuchOperator", ["x"], ["y"])]
    path = save(
        tmp_path / "odd.onnx",
        nodes,
        [("x", TensorProto.FLOAT, ["batch", 2])],
        [("y", TensorProto.FLOAT, ["batch", 2])],
    )
    with pytest.raises(MeasurementError, match="cannot load") as caught:
        OnnxModel(path)
    assert is_one_sentence(str(caught.value))
    assert str(tmp_path) not in str(caught.value)


def test_a_model_that_fails_is_one_sentence_with_its_shapes(tmp_path):
    """A reshape that fits no batch stops the probe, and the sentence says how to change the inputs."""
    nodes = [onnx.helper.make_node("Reshape", ["x", "shape"], ["y"])]
    tensors = [onnx.numpy_helper.from_array(np.array([3, 5]), "shape")]
    path = save(
        tmp_path / "stuck.onnx",
        nodes,
        [("x", TensorProto.FLOAT, ["batch", 4])],
        [("y", TensorProto.FLOAT, [3, 5])],
        tensors,
    )
    with pytest.raises(MeasurementError, match=r"stuck: the model fails on inputs x \[1, 4\].*--shape") as caught:
        OnnxModel(path)
    assert is_one_sentence(str(caught.value))


@pytest.mark.parametrize("first_dim", [1, "batch"])
def test_a_graph_that_takes_one_item_is_measured_at_batch_1_and_says_so(tmp_path, first_dim):
    """Whether the axis is declared fixed, or a reshape inside fixes it."""
    nodes = [onnx.helper.make_node("Reshape", ["x", "shape"], ["y"])]
    tensors = [onnx.numpy_helper.from_array(np.array([1, 2, 2]), "shape")]
    path = save(
        tmp_path / "one.onnx",
        nodes,
        [("x", TensorProto.FLOAT, [first_dim, 4])],
        [("y", TensorProto.FLOAT, [1, 2, 2])],
        tensors,
    )
    model = OnnxModel(path)
    assert model.fixed_batch_size == 1
    assert model.notes[0].startswith("FIXED_BATCH")


def test_outputs_that_are_not_finite_are_noted(tmp_path):
    """The logarithm of negative numbers runs, but its speed may not be that of real inputs."""
    path = save(
        tmp_path / "log.onnx",
        [onnx.helper.make_node("Log", ["x"], ["y"])],
        [("x", TensorProto.FLOAT, ["batch", 64])],
        [("y", TensorProto.FLOAT, ["batch", 64])],
    )
    assert OnnxModel(path).notes[0].startswith("NOT_FINITE")


def test_half_precision_and_quantized_graphs_are_recognised(tmp_path):
    """Weights in half precision make fp16, quantizing operators make int8."""
    half = save(
        tmp_path / "half.onnx",
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        [("x", TensorProto.FLOAT16, ["batch", 4])],
        [("y", TensorProto.FLOAT16, ["batch", 2])],
        [onnx.numpy_helper.from_array(np.ones((4, 2), np.float16), "w")],
    )
    assert OnnxModel(half).model.precision == "fp16"
    quantized = save(
        tmp_path / "quantized.onnx",
        [
            onnx.helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
            onnx.helper.make_node("MatMulInteger", ["q", "w", "z"], ["y"]),
        ],
        [("x", TensorProto.FLOAT, ["batch", 4])],
        [("y", TensorProto.INT32, ["batch", 2])],
        [onnx.numpy_helper.from_array(np.ones((4, 2), np.int8), "w")],
    )
    assert OnnxModel(quantized).model.precision == "int8"
    assert OnnxModel(quantized).model.parameters == 8


def test_a_closed_replica_answers_no_call(tiny_model):
    """Calls after the end are a mistake, not a crash."""
    engine = tiny_model.open(1, concurrency=1)
    item = engine.prepare(1, np.random.default_rng(0))
    engine.close()
    with pytest.raises(MeasurementError, match="closed"):
        engine.call(item)


def test_a_batch_without_room_is_told_from_other_failures(tmp_path):
    """The output has as many numbers as the sixth power of the batch size: at 256 there is no room for it anywhere."""
    nodes = [
        onnx.helper.make_node("Size", ["x"], ["size"]),
        onnx.helper.make_node("Reshape", ["size", "one"], ["sizes"]),
        onnx.helper.make_node("Pow", ["sizes", "six"], ["shape"]),
        onnx.helper.make_node("ConstantOfShape", ["shape"], ["y"]),
    ]
    path = save(
        tmp_path / "steep.onnx",
        nodes,
        [("x", TensorProto.FLOAT, ["batch", 1])],
        [("y", TensorProto.FLOAT, ["numbers"])],
        [onnx.numpy_helper.from_array(np.array([number]), name) for name, number in (("one", 1), ("six", 6))],
    )
    engine = OnnxModel(path).open(1, concurrency=1)
    rng = np.random.default_rng(0)
    assert engine.call(engine.prepare(4, rng)) is None
    with pytest.raises(OutOfMemory, match=r"node ConstantOfShape: Failed to allocate memory") as caught:
        engine.call(engine.prepare(256, rng))
    assert is_one_sentence(str(caught.value))
    with pytest.raises(MeasurementError, match="fails on inputs") as caught:
        engine.call({"x": np.ones((1, 2, 3), np.float32)})
    assert not isinstance(caught.value, OutOfMemory)
