"""The example models are the architectures that their names promise."""

import numpy as np
import onnx
import pytest

from advisor.errors import InputError
from advisor.profiling.engines.onnx import OnnxModel
from advisor.profiling.example_models import (
    BERT_BASE,
    EXAMPLE_MODELS,
    MINILM_L6,
    MLP,
    RESNET50,
    EncoderDimensions,
    ResNetDimensions,
    build_encoder,
    build_example_model,
    build_resnet,
    save_quantized,
)
from advisor.profiling.inputs import InputOptions

TINY_ENCODER = EncoderDimensions(layers=2, hidden=16, heads=2, intermediate=32, vocabulary=40, positions=32)
TINY_RESNET = ResNetDimensions(blocks=(1, 2), width=4, classes=5, image_side=32)


def answer(path, batch_size, **options):
    """Run a saved model on synthetic inputs; give its outputs and its description."""
    model = OnnxModel(path, options=InputOptions(**options))
    engine = model.open(1, concurrency=1)
    item = engine.prepare(batch_size, np.random.default_rng(0))
    assert model.notes == ()
    outputs = engine.answer(item)
    assert all(np.isfinite(output).all() for output in outputs)
    return outputs, model.model


def test_parameter_counts_are_the_known_ones():
    """ResNet-50 has 25,557,032 with batch norm and one number per channel less when it is folded.

    BERT-base has 109,482,240 and MiniLM-L6 22,713,216 with their poolers of hidden² + hidden.
    """
    assert RESNET50.parameters == 25_557_032 - 26_560 == 25_530_472
    assert BERT_BASE.parameters == 109_482_240 - 768 * 769 == 108_891_648
    assert MINILM_L6.parameters == 22_713_216 - 384 * 385 == 22_565_376
    assert MLP.parameters == 109_386


def test_an_encoder_answers_one_vector_per_token(tmp_path):
    """[batch, sequence] in, [batch, sequence, hidden] out, with the weights that the formula counts."""
    path = tmp_path / "encoder.onnx"
    onnx.save(build_encoder(TINY_ENCODER), path)
    (hidden,), info = answer(path, 3, sequence_length=11)
    assert hidden.shape == (3, 11, 16)
    assert info.parameters == TINY_ENCODER.parameters
    assert info.sequence_length == 11


def test_a_masked_token_changes_no_other(tmp_path):
    """Attention ignores what the mask forbids."""
    path = tmp_path / "encoder.onnx"
    onnx.save(build_encoder(TINY_ENCODER), path)
    engine = OnnxModel(path, options=InputOptions(sequence_length=6)).open(1, concurrency=1)
    item = engine.prepare(1, np.random.default_rng(0))
    item["attention_mask"][0, -1] = 0
    (before,) = engine.answer(item)
    item["input_ids"][0, -1] = (item["input_ids"][0, -1] + 1) % 40
    (after,) = engine.answer(item)
    np.testing.assert_array_equal(before[0, :-1], after[0, :-1])
    assert not np.array_equal(before[0, -1], after[0, -1])


def test_a_small_resnet_has_one_score_per_class(tmp_path):
    """[batch, 3, side, side] in, [batch, classes] out, with the weights that the formula counts."""
    path = tmp_path / "resnet.onnx"
    onnx.save(build_resnet(TINY_RESNET), path)
    (logits,), info = answer(path, 2)
    assert logits.shape == (2, 5)
    assert info.parameters == TINY_RESNET.parameters


def test_the_stride_of_a_block_is_in_its_3_by_3_convolution():
    """That is what makes version 1.5."""
    strided = [
        (attributes["kernel_shape"].ints[0], attributes["strides"].ints[0])
        for node in build_resnet(TINY_RESNET).graph.node
        if node.op_type == "Conv"
        for attributes in [{attribute.name: attribute for attribute in node.attribute}]
        if attributes["strides"].ints[0] > 1
    ]
    assert sorted(strided) == [(1, 2), (3, 2), (7, 2)]  # shortcut, block, stem


def test_resnet50_is_resnet50(tmp_path):
    """The real one: 53 convolutions, 25.5 million weights, 1000 finite scores per image."""
    path = tmp_path / "resnet50.onnx"
    build_example_model("resnet50", path)
    (logits,), info = answer(path, 1)
    assert logits.shape == (1, 1000)
    assert info.parameters == RESNET50.parameters
    graph = onnx.load(path).graph
    assert sum(node.op_type == "Conv" for node in graph.node) == 53


def test_the_mlp_is_smaller_than_a_megabyte_and_the_same_each_time(tmp_path):
    """A fixed seed gives the same bytes."""
    for name in ("a", "b"):
        build_example_model("mlp", tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert (tmp_path / "a").stat().st_size < 1_000_000


def test_an_unknown_example_is_refused_with_the_known_ones(tmp_path):
    """The sentence lists what there is."""
    assert list(EXAMPLE_MODELS) == ["mlp", "resnet50", "minilm", "bert-base"]
    with pytest.raises(InputError, match="mlp, resnet50, minilm, bert-base"):
        build_example_model("vgg", tmp_path / "vgg.onnx")
    with pytest.raises(InputError, match="folder"):
        build_example_model("mlp", tmp_path / "missing" / "mlp.onnx")


SMALL_ENCODER = EncoderDimensions(layers=2, hidden=64, heads=2, intermediate=256, vocabulary=500, positions=128)
SMALL_RESNET = ResNetDimensions(blocks=(1, 2), width=16, classes=50, image_side=32)
PRODUCT_ERROR_FRAC = 0.02
"""Error of one quantized product of normal numbers, as a fraction of its deviation.

Weights of largest size m·σ lie on a grid of step m·σ/64, so rounding errs by m/64/√12: 1.6 % at m = 3.5. Activations
within ±4σ on 255 steps err by 0.9 %. Both together 1.8 %. Independent errors of n products in a row add up to √n times
that; residual branches, which carry the exact value on, make it less.
"""


@pytest.mark.parametrize(
    ("build", "products"),
    [(lambda: build_encoder(SMALL_ENCODER), 2 * 6 + 2), (lambda: build_resnet(SMALL_RESNET), 12 + 1)],
)
def test_an_int8_model_answers_like_its_original_and_is_much_smaller(tmp_path, build, products):
    """The error of the outputs stays below what rounding explains; measured 2.3 % (encoder) and 1.8 % (ResNet)."""
    original, quantized = tmp_path / "fp32.onnx", tmp_path / "int8.onnx"
    onnx.save(build(), original)
    save_quantized(build(), quantized)
    (exact,), _ = answer(original, 4)
    (rounded,), info = answer(quantized, 4)
    error_frac = np.linalg.norm(rounded - exact) / np.linalg.norm(exact)
    assert 0 < error_frac < products**0.5 * PRODUCT_ERROR_FRAC
    assert info.precision == "int8"
    assert quantized.stat().st_size < 0.5 * original.stat().st_size


def test_int8_weights_have_7_bits(tmp_path):
    """Two products of an unsigned 8-bit number and such a weight fit 16 bits, so no CPU saturates."""
    for build in (lambda: build_encoder(SMALL_ENCODER), lambda: build_resnet(SMALL_RESNET)):
        save_quantized(build(), tmp_path / "int8.onnx")
        tensors = [onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(tmp_path / "int8.onnx").graph.initializer]
        weights = [tensor for tensor in tensors if tensor.dtype == np.int8 and tensor.ndim > 1]
        assert len(weights) >= 10
        largest = max(int(np.abs(weight.astype(int)).max()) for weight in weights)
        assert 2 * 255 * largest <= np.iinfo(np.int16).max


def test_int8_models_are_the_same_each_time_and_leave_nothing_else(tmp_path):
    """A fixed seed gives the same bytes, in one file."""
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        save_quantized(build_resnet(SMALL_RESNET), folder / "resnet.onnx")
        build_example_model("mlp", folder / "mlp.onnx", precision="int8")
        assert {file.name for file in folder.iterdir()} == {"resnet.onnx", "mlp.onnx"}
    for name in ("resnet.onnx", "mlp.onnx"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_an_unknown_precision_is_refused_with_the_known_ones(tmp_path):
    """The sentence lists what there is."""
    with pytest.raises(InputError, match=r"--precision is 'int4'.*fp32, int8"):
        build_example_model("mlp", tmp_path / "mlp.onnx", precision="int4")
