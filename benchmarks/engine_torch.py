"""The models of `benchmarks.engines` as PyTorch modules with the weights of the ONNX file."""

from advisor.profiling import example_torch
from benchmarks.engine_subjects import subject


def resnet50() -> example_torch.ResNet:
    """ResNet-50."""
    module = example_torch.resnet50()
    example_torch.load_onnx_weights(module, subject())
    return module


def minilm() -> example_torch.Encoder:
    """MiniLM."""
    module = example_torch.minilm()
    example_torch.load_onnx_weights(module, subject())
    return module
