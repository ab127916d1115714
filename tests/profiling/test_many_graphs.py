"""Small graphs with the traits of those in the wild run with no option, or with the one that the error names."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from advisor.errors import InputError, MeasurementError
from advisor.profiling.engines.onnx import OnnxModel
from advisor.profiling.example_models import (
    EncoderDimensions,
    GraphBuilder,
    ResNetDimensions,
    build_encoder,
    build_resnet,
    save_quantized,
)
from advisor.profiling.inputs import InputOptions, parse_shape

SMALL_ENCODER = EncoderDimensions(layers=1, hidden=16, heads=2, intermediate=32, vocabulary=50, positions=128)
SMALL_RESNET = ResNetDimensions(blocks=(1, 1), width=8, classes=5, image_side=32)


def _image(dims: list[int | str], element: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """Mean of a convolution; channels last where the last length is 3."""
    graph = GraphBuilder("image")
    value = graph.input("image", element, dims)
    if element != TensorProto.FLOAT:
        value = graph.add("Cast", value, to=TensorProto.FLOAT)
    if dims[-1] == 3:
        value = graph.add("Transpose", value, perm=[0, 3, 1, 2])
    value = graph.convolution(value, 3, 4, side=3, stride=2)
    return graph.finish(graph.add("GlobalAveragePool", value), "scores", [dims[0], 4, 1, 1])


def _text_line(height: int) -> onnx.ModelProto:
    """Read a line of text of one height and any width."""
    graph = GraphBuilder("line")
    value = graph.input("x", TensorProto.FLOAT, ["d.0", 3, "d.1", "d.2"])
    value = graph.dense(graph.add("Transpose", value, perm=[0, 3, 1, 2]), height, 7)
    return graph.finish(value, "letters", ["d.0", "d.2", 3, 7])


def _speech() -> onnx.ModelProto:
    """512 samples and a recurrent state in, the new state out; the scale depends on the sample rate."""
    graph = GraphBuilder("speech")
    sound = graph.dense(graph.input("input", TensorProto.FLOAT, ["", ""]), 512, 8)
    state = graph.input("state", TensorProto.FLOAT, [2, "", 8])
    rate = graph.input("sr", TensorProto.INT64, [])
    known = graph.add("Equal", rate, graph.constant(16_000))
    scale = graph.add("Where", known, graph.constant(1.0, np.float32), graph.constant(2.0, np.float32))
    value = graph.add("Add", state, graph.add("Mul", sound, scale))
    return graph.finish(value, "new_state", [2, "", 8])


def _waveforms() -> onnx.ModelProto:
    """Sounds of different lengths, with the lengths beside them."""
    graph = GraphBuilder("waveforms")
    sound = graph.input("waveforms", TensorProto.FLOAT, ["batch_size", "N"])
    lengths = graph.add("Cast", graph.input("waveforms_lens", TensorProto.INT64, ["batch_size"]), to=TensorProto.FLOAT)
    total = graph.add("ReduceSum", sound, graph.constant([1]), keepdims=0)
    return graph.finish(graph.add("Div", total, lengths), "mean", ["batch_size"])


def _steps(first: str, second: str) -> onnx.ModelProto:
    """A recurrent network over the first axis."""
    graph = GraphBuilder("steps")
    value = graph.input("steps", TensorProto.FLOAT, [first, second, 6])
    weights = graph.weight((1, 32, 6), 0.6), graph.weight((1, 32, 8), 0.6)
    value = graph.add("LSTM", value, *weights, hidden_size=8)
    return graph.finish(value, "hidden", [first, 1, second, 8])


def _half() -> onnx.ModelProto:
    """Half precision in and out."""
    weight = onnx.numpy_helper.from_array(np.ones((4, 2), np.float16), "w")
    values = [
        onnx.helper.make_tensor_value_info(name, TensorProto.FLOAT16, ["batch", width])
        for name, width in (("x", 4), ("y", 2))
    ]
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = onnx.helper.make_graph([node], "half", values[:1], values[1:], [weight])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


@dataclass(frozen=True)
class Case:
    """A graph and what must be found."""

    build: Callable[[], onnx.ModelProto]
    shapes: dict[str, tuple[int | str, ...]]
    precision: str | None = "fp32"
    fixed_batch_size: int | None = None
    quantize: bool = False
    found: frozenset[str] = frozenset()


TEXT = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), ("batch", 128))
CASES = {
    "image, channels last": Case(lambda: _image(["batch", "", "", 3]), {"image": ("batch", 224, 224, 3)}),
    "image, channels first": Case(lambda: _image(["N", 3, "h", "w"]), {"image": ("batch", 3, 224, 224)}),
    "image, all axes free": Case(
        lambda: _image(["", "", "", ""]), {"image": ("batch", 3, 224, 224)}, found=frozenset({"image"})
    ),
    "image of bytes": Case(lambda: _image(["n", "", "", 3], TensorProto.UINT8), {"image": ("batch", 224, 224, 3)}),
    "fixed batch": Case(lambda: _image([1, 3, 8, 8]), {"image": (1, 3, 8, 8)}, fixed_batch_size=1),
    "text": Case(lambda: build_encoder(SMALL_ENCODER), TEXT),
    "line of text, height 48": Case(lambda: _text_line(48), {"x": ("batch", 3, 48, 224)}, found=frozenset({"x"})),
    "sound with state and rate": Case(
        _speech, {"input": ("batch", 512), "state": (2, "batch", 8), "sr": ()}, found=frozenset({"input"})
    ),
    "sounds with lengths": Case(
        _waveforms,
        {"waveforms": ("batch", 16_000), "waveforms_lens": ("batch",)},
        precision=None,
        found=frozenset({"waveforms"}),
    ),
    "steps first, named": Case(lambda: _steps("seq", "n"), {"steps": (128, "batch", 6)}),
    "steps first, no names": Case(lambda: _steps("p", "q"), {"steps": (128, "batch", 6)}, found=frozenset({"steps"})),
    "int8, fixed scales": Case(
        lambda: build_resnet(SMALL_RESNET), {"image": ("batch", 3, 32, 32)}, precision="int8", quantize=True
    ),
    "int8, scales at run time": Case(lambda: build_encoder(SMALL_ENCODER), TEXT, precision="int8", quantize=True),
    "half precision": Case(_half, {"x": ("batch", 4)}, precision="fp16"),
}


def save(case: Case, path: Path) -> Path:
    """Write the graph of a case."""
    if case.quantize:
        save_quantized(case.build(), path)
    else:
        onnx.save(case.build(), path)
    return path


@pytest.mark.parametrize("name", CASES)
def test_a_graph_runs_with_no_option(tmp_path, name):
    """Shapes, batch axis, precision and what was found by trying are right, and batches of any size run."""
    case = CASES[name]
    model = OnnxModel(save(case, tmp_path / "graph.onnx"))
    assert {spec.name: spec.shape for spec in model.model.inputs} == case.shapes
    assert {spec.name for spec in model.model.inputs if "found by trying" in spec.fill} == case.found
    assert model.model.precision == case.precision
    assert model.fixed_batch_size == case.fixed_batch_size
    assert [note.split(":")[0] for note in model.notes] == (["FIXED_BATCH"] if case.fixed_batch_size else [])
    engine = model.open(1, concurrency=1)
    for batch_size in (case.fixed_batch_size or 1, case.fixed_batch_size or 5):
        engine.call(engine.prepare(batch_size, np.random.default_rng(0)))


def test_numbers_that_steer_a_graph_are_the_usual_ones(tmp_path):
    """A sample rate is 16 kHz, and lengths are those of the sounds."""
    speech = OnnxModel(save(CASES["sound with state and rate"], tmp_path / "a.onnx")).model.inputs
    sounds = OnnxModel(save(CASES["sounds with lengths"], tmp_path / "b.onnx")).model.inputs
    assert [spec.fill for spec in speech if spec.name == "sr"] == ["the number 16000"]
    assert [spec.fill for spec in sounds if spec.name == "waveforms_lens"] == ["the number 16000"]


def test_an_unusual_length_is_suggested_as_the_option_that_works(tmp_path):
    """No line of text is 56 high by default; the sentence names the option, and with it the model runs."""
    path = save(Case(lambda: _text_line(56), {}), tmp_path / "line.onnx")
    with pytest.raises(MeasurementError, match=r"it runs with --shape x=batch,3,56,224\.$") as caught:
        OnnxModel(path)
    option = re.search(r"--shape (\S+)\.$", str(caught.value))
    model = OnnxModel(path, options=InputOptions(shapes=dict([parse_shape(option[1])])))
    assert [spec.shape for spec in model.model.inputs] == [("batch", 3, 56, 224)]
    assert "found by trying" not in model.model.inputs[0].fill


def test_a_length_that_nobody_guesses_is_asked_for_in_the_right_form(tmp_path):
    """Lines 1,001 high run on nothing that is tried."""
    path = save(Case(lambda: _text_line(1001), {}), tmp_path / "line.onnx")
    with pytest.raises(MeasurementError, match=r"in the form --shape x=batch,3,224,224, or samples with --inputs"):
        OnnxModel(path)


def test_text_is_refused_before_anything_runs(tmp_path):
    """Words cannot be made up."""
    graph = GraphBuilder("words")
    words = graph.input("words", TensorProto.STRING, ["batch"])
    path = save(Case(lambda: graph.finish(words, "same", ["batch"]), {}), tmp_path / "words.onnx")
    with pytest.raises((InputError, MeasurementError), match=r"words"):
        OnnxModel(path)
