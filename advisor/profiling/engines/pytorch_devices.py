"""Where PyTorch computes, and what one call costs there: the boundary between a server's memory and the device."""

import contextlib
import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from advisor.errors import InputError, MeasurementError
from advisor.profiling.engines import IN_PROCESS, OutOfMemory, Placement

Torch: TypeAlias = Any
"""The library, which is not a dependency: it is imported when a model for it is opened."""
Tensor: TypeAlias = Any
Tensors: TypeAlias = dict[str, Tensor]

_MOST_LETTERS = 200
_DEVICES = "cpu, cuda, or cuda:1 for the second GPU"


@dataclass(frozen=True, slots=True)
class TorchSettings:
    """What a person may choose about how PyTorch runs a model; all of it changes speed and is part of the profile."""

    device: str = "cpu"
    """``cpu``, ``cuda``, or ``cuda:1`` for the second GPU."""
    autocast: Literal["fp16", "bf16"] | None = None
    """Precision that operators which bear it run in; weights in fp32 are rounded anew in every call."""
    compile: bool = False
    """Whether `torch.compile` makes code of its own for every batch size."""
    tf32: bool = False
    """Whether matrix products and convolutions of fp32 may round to TF32 on a GPU, which PyTorch by itself does for
    convolutions alone."""

    def options(self) -> dict[str, str | bool | None]:
        """Name the choices for the profile."""
        return {"device": self.device, "autocast": self.autocast, "compile": self.compile, "tf32": self.tf32}


class Boundary(Protocol):
    """Takes the inputs of a call from this process to the device and the outputs back."""

    def hold(self, tensor: Tensor) -> Tensor:
        """Put an input where a call takes it from, as a server does on receiving it."""
        ...

    def run(self, forward: Callable[[Tensors], object], item: Tensors) -> object:
        """Run the model on inputs of this process and return outputs in this process."""
        ...

    def release(self) -> None:
        """Give back memory that nothing uses."""
        ...


def load_torch() -> Torch:
    """Import PyTorch.

    Raises
    ------
    MeasurementError
        When it is not installed.
    """
    try:
        return importlib.import_module("torch")
    except ModuleNotFoundError as error:
        raise MeasurementError("PyTorch is not installed; pip install torch==2.13.0.") from error


def gpu_number(torch: Torch, device: str) -> int | None:
    """Number of the GPU that a device names; None for the CPU.

    Raises
    ------
    InputError
        When the name is none of a device, or there are fewer GPUs.
    MeasurementError
        When PyTorch sees no GPU at all.
    """
    if device == "cpu":
        return None
    kind, _, number = device.partition(":")
    if kind != "cuda" or not (device == "cuda" or number.isdecimal()):
        raise InputError("--device", device, _DEVICES)
    if not torch.cuda.is_available():
        built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
        raise MeasurementError(f"--device {device}: no CUDA device is visible (torch {torch.__version__}, {built}).")
    count = torch.cuda.device_count()
    if int(number or 0) >= count:
        raise InputError("--device", device, "cuda:0" if count == 1 else f"cuda:0 to cuda:{count - 1}")
    return int(number or 0)


def placement(torch: Torch, device: str) -> Placement:
    """Where calls are answered; replicas on a GPU use one thread of the host each.

    Raises
    ------
    AdvisorError
        As `gpu_number`.
    """
    number = gpu_number(torch, device)
    if number is None:
        return IN_PROCESS
    uuid = torch.cuda.get_device_properties(number).uuid
    return Placement(kind="gpu", takes_threads=False, gpu_uuid=f"GPU-{uuid}")


class CpuBoundary:
    """Calls on the CPU, where nothing is copied.

    The pool of threads inside an operator is one per calling thread in builds with OpenMP, and so is its size: measured
    with PyTorch 2.13.0, a thread that sets 2 leaves a thread that set 1 at 1, while a new thread begins with the number
    set last anywhere. The number is therefore compared in the calling thread before every call, which takes less than a
    microsecond, so that replicas with different numbers of threads can take turns.
    """

    def __init__(self, torch: Torch, threads: int) -> None:
        self._torch, self._threads = torch, threads

    def hold(self, tensor: Tensor) -> Tensor:
        """Leave the tensor where it is."""
        return tensor

    def run(self, forward: Callable[[Tensors], object], item: Tensors) -> object:
        """Run the model with the replica's number of threads."""
        use_threads(self._torch, self._threads)
        return forward(item)

    def release(self) -> None:
        """Do nothing: freed memory goes back by itself."""


class CudaBoundary:
    """Calls on a GPU: inputs to the device, the model, outputs back, and a wait for all of it.

    This is what a server pays for an answer. The inputs lie in pinned memory, where a server that cares for speed
    receives them. Every replica has a stream of its own, so that their work can overlap. Outputs that are no tensors in
    dicts, lists or tuples stay on the device.
    """

    def __init__(self, torch: Torch, number: int) -> None:
        self._torch, self._device = torch, f"cuda:{number}"
        torch.cuda.synchronize(self._device)  # weights were copied on another stream
        self._stream = torch.cuda.Stream(self._device)
        self._map = importlib.import_module("torch.utils._pytree").tree_map_only

    def hold(self, tensor: Tensor) -> Tensor:
        """Copy the tensor into pinned memory, from which the device reads by itself."""
        return tensor.pin_memory()

    def run(self, forward: Callable[[Tensors], object], item: Tensors) -> object:
        """Copy, run, copy back, and wait for the stream."""
        use_threads(self._torch, 1)
        with self._torch.cuda.stream(self._stream):
            there = {name: tensor.to(self._device, non_blocking=True) for name, tensor in item.items()}
            outputs = self._map(self._torch.Tensor, _to_host, forward(there))
            self._stream.synchronize()
        return outputs

    def release(self) -> None:
        """Give cached memory back to the device."""
        # After an error that stopped the device for good this fails as well, and the first error says why.
        with contextlib.suppress(RuntimeError):
            self._torch.cuda.empty_cache()


def boundary(torch: Torch, settings: TorchSettings, threads: int) -> Boundary:
    """Make the boundary of one replica, and set what holds for the whole process.

    Raises
    ------
    AdvisorError
        As `gpu_number`.
    """
    if torch.get_num_interop_threads() != 1:
        # Can be set once only, and not after work has begun; what holds is among the facts.
        with contextlib.suppress(RuntimeError):
            torch.set_num_interop_threads(1)
    number = gpu_number(torch, settings.device)
    if number is None:
        return CpuBoundary(torch, threads)
    torch.backends.cuda.matmul.allow_tf32 = settings.tf32
    torch.backends.cudnn.allow_tf32 = settings.tf32
    return CudaBoundary(torch, number)


def use_threads(torch: Torch, threads: int) -> None:
    """Set the threads inside an operator for the calling thread, where they are not so already."""
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


_NO_ROOM = re.compile(r"not enough memory|can't allocate memory|out of memory|alloc_failed", re.IGNORECASE)
"""What PyTorch says on the CPU, and CUDA and its libraries through it."""


def is_out_of_memory(torch: Torch, error: BaseException) -> bool:
    """Whether an error says that memory is full; on the CPU that is in its words only."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and _NO_ROOM.search(str(error)) is not None


def torch_failure(torch: Torch, what: str, error: BaseException) -> MeasurementError:
    """One sentence that begins with `what` and gives PyTorch's reason; `OutOfMemory` where memory is full."""
    full = is_out_of_memory(torch, error)
    return (OutOfMemory if full else MeasurementError)(f"{what}: {reason(error)}.")


def reason(error: BaseException) -> str:
    """What an exception says, without tracebacks, advice for developers and folders, at most 200 characters.

    Examples
    --------
    >>> reason(AssertionError("Guard failed: x.size()[0] <= 64"))
    'Guard failed: x.size()[0] <= 64'
    """
    text = str(error).strip()
    if "Traceback of TorchScript" in text:
        text = re.sub(r"^\w+: ", "", text.splitlines()[-1])
    text = re.split(
        r"\s+(?:Set TORCHDYNAMO_VERBOSE|from user code|C\+\+ CapturedCallStack|Exception raised from)", text
    )[0]
    text = " ".join(re.sub(r"(?<!\S)/(?:[^\s/]+/)+", "", text).split()) or type(error).__name__
    text = text.rstrip(". ").replace(". ", "; ")
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 3].rstrip(".") + "..."


def library_facts(torch: Torch) -> Mapping[str, str | int | None]:
    """Versions and settings of the library; None for what a build without CUDA has not."""
    cuda = torch.version.cuda
    return {
        "torch_version": str(torch.__version__),
        "torch_cuda_version": cuda,
        "torch_cudnn_version": torch.backends.cudnn.version() if cuda else None,
        "torch_interop_threads": torch.get_num_interop_threads(),
        "torch_cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


def _to_host(tensor: Tensor) -> Tensor:
    """Begin to copy an output into memory of the host, which PyTorch pins for such a copy."""
    return tensor.to("cpu", non_blocking=True)
