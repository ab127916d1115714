"""The example modules are the architectures that their names promise, with the weights of the ONNX examples."""

import inspect
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest

from advisor.errors import InputError
from advisor.profiling.engines.factories import find_factory
from advisor.profiling.engines.pytorch import TorchModel, TorchSettings
from advisor.profiling.example_dimensions import GPT2, DecoderDimensions, EncoderDimensions, ResNetDimensions
from advisor.profiling.example_models import build_encoder, build_resnet
from advisor.profiling.inputs import InputOptions

torch = pytest.importorskip("torch")
example_torch = pytest.importorskip("advisor.profiling.example_torch")

TINY_ENCODER = EncoderDimensions(layers=2, hidden=16, heads=2, intermediate=32, vocabulary=40, positions=32)
TINY_RESNET = ResNetDimensions(blocks=(1, 2), width=4, classes=5, image_side=32)
TINY_DECODER = DecoderDimensions(layers=2, hidden=16, heads=2, intermediate=32, vocabulary=50, positions=32)

PAIRS = [
    (lambda: example_torch.Encoder(TINY_ENCODER, sequence_length=9), lambda: build_encoder(TINY_ENCODER)),
    (lambda: example_torch.ResNet(TINY_RESNET), lambda: build_resnet(TINY_RESNET)),
]


def parameters(module):
    """Number of weights."""
    return sum(parameter.numel() for parameter in module.parameters())


def answers(module, path):
    """Answers of a module and of an ONNX file to the same inputs."""
    item = module.prepare(3, np.random.default_rng(0))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    with torch.inference_mode():
        got = module(**item).numpy()
    return got, session.run(None, {name: tensor.numpy() for name, tensor in item.items()})[0]


@pytest.mark.parametrize(("make", "build"), PAIRS)
def test_a_module_has_the_weights_and_answers_of_the_onnx_example(tmp_path, make, build):
    """They are drawn in the same order from the same seed."""
    onnx.save(build(), tmp_path / "model.onnx")
    got, wanted = answers(make().eval(), tmp_path / "model.onnx")
    assert np.abs(got - wanted).max() <= 1e-4 * np.abs(wanted).max()


@pytest.mark.parametrize(("make", "build"), PAIRS)
def test_weights_can_be_read_from_an_onnx_example(tmp_path, make, build):
    """Whatever the module had before."""
    onnx.save(build(), tmp_path / "model.onnx")
    module = make().eval()
    for parameter in module.parameters():
        torch.nn.init.zeros_(parameter)
    example_torch.load_onnx_weights(module, tmp_path / "model.onnx")
    got, wanted = answers(module, tmp_path / "model.onnx")
    assert np.abs(got - wanted).max() <= 1e-4 * np.abs(wanted).max()


def test_weights_of_another_model_are_refused(tmp_path):
    """The sentence names the file."""
    onnx.save(build_resnet(TINY_RESNET), tmp_path / "resnet.onnx")
    with pytest.raises(InputError, match=r"resnet\.onnx with \d+ tensors"):
        example_torch.load_onnx_weights(example_torch.Encoder(TINY_ENCODER), tmp_path / "resnet.onnx")


@pytest.mark.parametrize(
    ("make", "dims"),
    [
        (lambda: example_torch.Encoder(TINY_ENCODER), TINY_ENCODER),
        (lambda: example_torch.ResNet(TINY_RESNET), TINY_RESNET),
        (lambda: example_torch.Decoder(TINY_DECODER), TINY_DECODER),
    ],
)
def test_a_module_has_as_many_weights_as_its_dimensions_count(make, dims):
    """Tables that two layers share count once."""
    assert parameters(make()) == dims.parameters


def test_the_parameters_of_gpt2_are_the_known_ones():
    """124,439,808 with an output layer that is its word table."""
    assert GPT2.parameters == 124_439_808


def test_a_decoder_scores_the_next_token_and_sees_no_later_one():
    """A token changes the vectors from its place on, and the answer is that of the last place."""
    module = example_torch.Decoder(TINY_DECODER, sequence_length=8).eval()
    ids = module.prepare(2, np.random.default_rng(0))["input_ids"]
    with torch.inference_mode():
        scores, shorter = module(ids), module(ids[:, :5])
        assert scores.shape == (2, TINY_DECODER.vocabulary)
        changed = ids.clone()
        changed[:, 5:] = (changed[:, 5:] + 1) % TINY_DECODER.vocabulary
        torch.testing.assert_close(module(changed[:, :5]), shorter)
        assert not torch.equal(module(changed), scores)


def test_activations_of_deep_modules_stay_near_one():
    """Neither overflow nor denormal numbers, so that timing is that of trained models."""
    dims = DecoderDimensions(layers=12, hidden=64, heads=4, intermediate=256, vocabulary=100, positions=32)
    module = example_torch.Decoder(dims, sequence_length=16).eval()
    seen = []
    for layer in module.layers:
        layer.register_forward_hook(lambda layer, args, output: seen.append(float(output.std())))
    with torch.inference_mode():
        module(**module.prepare(4, np.random.default_rng(0)))
    assert 0.01 < min(seen) < max(seen) < 10


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_an_example_is_a_target(monkeypatch, precision):
    """Found by module and name, opened and called."""
    monkeypatch.setattr(
        example_torch, "tiny", lambda: example_torch._cast(example_torch.ResNet(TINY_RESNET), precision), raising=False
    )
    target = find_factory("advisor.profiling.example_torch:tiny")
    model = TorchModel(target, inputs=InputOptions(), settings=TorchSettings())
    assert model.model.precision == precision
    assert [spec.shape for spec in model.model.inputs] == [("batch", 3, 32, 32)]
    engine = model.open(1, concurrency=1)
    assert engine.answer(engine.prepare(2, np.random.default_rng(0))).shape == (2, 5)


def test_the_named_examples_take_a_precision():
    """An unknown one is refused with the known ones; each factory can be called without arguments."""
    for name in ("resnet50", "minilm", "bert_base_128", "bert_base_384", "decoder_128"):
        assert list(inspect.signature(getattr(example_torch, name)).parameters) == ["precision"]
    with pytest.raises(InputError, match="fp32, fp16, bf16"):
        example_torch._cast(example_torch.ResNet(TINY_RESNET), "int8")


def test_examples_and_engine_need_no_onnx():
    """A machine with a GPU may have PyTorch and NumPy only."""
    code = (
        "import sys; sys.modules['onnx'] = sys.modules['onnxruntime'] = None; "
        "import advisor.profiling.example_torch, advisor.profiling.engines.pytorch"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
