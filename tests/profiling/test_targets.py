"""What people name and the engine that runs it; an option that would be ignored is refused."""

from pathlib import Path

import pytest

from advisor.errors import InputError
from advisor.profiling.engines.callables import CallableModel
from advisor.profiling.engines.endpoint import EndpointModel
from advisor.profiling.engines.onnx import OnnxModel
from advisor.profiling.engines.targets import TargetOptions, open_target, provider_word
from advisor.profiling.inputs import InputOptions
from tests.server import running_endpoint

CALLABLE = """
closed = []
class Echo:
    def prepare(self, batch_size, rng):
        return [1] * batch_size
    def __call__(self, item):
        return item
    def close(self):
        closed.append(self)
"""


@pytest.fixture
def callables(tmp_path, monkeypatch):
    """A folder with a module that holds a callable."""
    (tmp_path / "echo_target.py").write_text(CALLABLE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_file_is_onnx_and_a_module_with_a_name_is_a_callable(tiny_mlp, callables):
    """The replica that was made to see what it is has been closed again, as has the one that was called once."""
    assert isinstance(open_target(str(tiny_mlp)), OnnxModel)
    model = open_target("echo_target:Echo", name="echo")
    assert isinstance(model, CallableModel)
    assert (model.model.name, model.model.target) == ("echo", "echo_target:Echo")
    import echo_target  # noqa: PLC0415 - it is there now only

    assert len(echo_target.closed) == 2


def test_a_torch_file_that_is_none_says_so(tmp_path):
    """By its ending it goes to PyTorch, and never through pickle."""
    pytest.importorskip("torch")
    path = tmp_path / "weights.pt"
    path.write_bytes(b"no archive")
    with pytest.raises(Exception, match=r"weights\.pt") as caught:
        open_target(str(path))
    assert "\n" not in str(caught.value)


def test_an_address_is_an_endpoint(tmp_path):
    """By its scheme."""
    body = tmp_path / "body.json"
    body.write_text('{"x": [1]}', encoding="utf-8")
    with running_endpoint() as address:
        model = open_target(f"{address}/echo/1", options=TargetOptions(body=body, batch_at="x"))
    assert isinstance(model, EndpointModel)
    assert model.placement.kind == "endpoint"
    assert model.placement.local
    assert model.model.is_address


@pytest.mark.parametrize(
    ("target", "options", "sentence"),
    [
        ("net.onnx", TargetOptions(device="cuda"), "--device is 'cuda'; allowed: only with PyTorch models"),
        ("net.onnx", TargetOptions(headers={"A": "secret"}), r"--header is \['A'\]; allowed: only with addresses"),
        ("net.onnx", TargetOptions(provider="rocm"), "--provider is 'rocm'; allowed: cpu or cuda or"),
        ("net.pt2", TargetOptions(provider="cuda"), "--provider is 'cuda'; allowed: only with ONNX files"),
        ("net.pt2", TargetOptions(autocast="fp8"), "--autocast is 'fp8'; allowed: fp16 or bf16"),
        ("http://host/x", TargetOptions(compile=True), "--compile is True; allowed: only with PyTorch models"),
        ("echo_target:Echo", TargetOptions(InputOptions(shapes={"x": (1,)})), "--shape .* not with Python callables"),
        ("echo_target:Echo", TargetOptions(body=Path("b.json")), "--body .* only with addresses"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(callables, target, options, sentence):
    """One sentence with the option, and never the value of a header."""
    with pytest.raises(InputError, match=sentence) as caught:
        open_target(target, options=options)
    assert "secret" not in str(caught.value)


def test_a_provider_has_one_word_in_profiles_and_on_the_command_line():
    """What a profile keeps leads back to the option that it was taken with."""
    names = ["CPUExecutionProvider", "CUDAExecutionProvider", "OpenVINOExecutionProvider"]
    assert [provider_word(name) for name in names] == ["cpu", "cuda", "openvino"]
