"""The network in PyTorch on the CPU, eager, without gradients."""

import numpy as np
import torch

from examples.platforms.weights import ABOUT, FloatArray, layers, make_inputs


class TorchMlp:
    """A replica; tensors share the memory of the arrays that go in and come out."""

    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)  # of the whole process, as in numpy_mlp
        parts: list[torch.nn.Module] = []
        for layer in layers():
            inputs, neurons = layer.weights.shape
            linear = torch.nn.Linear(inputs, neurons)
            with torch.no_grad():
                linear.weight.copy_(torch.tensor(layer.weights.T))
                linear.bias.copy_(torch.tensor(layer.biases))
            parts += [linear, torch.nn.ReLU()]
        self._network = torch.nn.Sequential(*parts[:-1]).eval()
        self.about = {**ABOUT, "runtime": "torch", "version": torch.__version__, "options": {"mode": "eager"}}

    def prepare(self, batch_size: int, rng: np.random.Generator) -> FloatArray:
        """Make the inputs of one call."""
        return make_inputs(batch_size, rng)

    def __call__(self, item: FloatArray) -> FloatArray:
        """Compute the scores."""
        with torch.inference_mode():
            scores: FloatArray = self._network(torch.from_numpy(item)).numpy()
        return scores


def replica(threads: int = 1) -> TorchMlp:
    """Make a replica that computes with so many threads."""
    return TorchMlp(threads)
