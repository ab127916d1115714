"""PyTorch models from files and factories: one copy for each replica, on its device, what it says of its inputs."""

import contextlib
import importlib
import inspect
import logging
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.errors import InputError
from advisor.profiling.engines.factories import Factory
from advisor.profiling.engines.pytorch_devices import Tensor, Tensors, Torch, torch_failure
from advisor.profiling.engines.pytorch_inputs import Declared, Inputs, is_whole_number

EXPORTED = ".pt2"
SCRIPTS = (".pt", ".pth", ".ts")

_EXPORTED_PARTS = ("archive_format", "serialized_exported_program.json")
"""Parts that tell exported programs: of PyTorch 2.7 and newer, and of older versions."""
_EMBEDDING = "aten.embedding.default"
_PRECISIONS = {
    "torch.float64": "fp64",
    "torch.float32": "fp32",
    "torch.float16": "fp16",
    "torch.bfloat16": "bf16",
    "torch.int8": "int8",
    "torch.uint8": "int8",
}


@dataclass(frozen=True, slots=True)
class ModuleCopy:
    """One copy of a model."""

    module: Any
    """What is called: a `torch.nn.Module`."""
    declared: tuple[Declared, ...]
    """Its inputs, as far as it tells."""
    spread: Callable[[Tensors], tuple[tuple[Any, ...], dict[str, Any]]] | None = None
    """How inputs by name become the arguments of an exported program; None where they can be passed by name."""

    def call(self, module: Any, inputs: Inputs, tensors: Tensors) -> object:
        """Call the module, or the compiled form of it."""
        if self.spread is not None:
            args, kwargs = self.spread(tensors)
            return module(*args, **kwargs)
        return module(*tensors.values()) if inputs.positional else module(**tensors)


def read_copy(torch: Torch, target: Path | Factory, device: str, threads: int) -> ModuleCopy:
    """Load a file or call a factory, and move what comes of it to the device.

    Parameters
    ----------
    torch
        The library.
    target
        A file of `torch.export.save` or `torch.jit.save`, or a factory of modules.
    device
        Where the weights go.
    threads
        Threads of the replica, for a factory that wants to know.

    Raises
    ------
    InputError
        When the target is something else.
    OutOfMemory
        When there is no room for one more copy.
    MeasurementError
        When the factory fails or the model cannot be loaded.
    """
    if isinstance(target, Factory):
        return _from_factory(torch, target, device, threads)
    if not target.is_file():
        raise InputError("model", target.name, "the name of a file that exists")
    if target.suffix.lower() == EXPORTED:
        return _from_exported(torch, target, device)
    if target.suffix.lower() in SCRIPTS:
        return _from_script(torch, target, device)
    raise InputError("model", target.name, f"a file that ends in {', '.join((EXPORTED, *SCRIPTS))}")


def precision(module: Any) -> str | None:
    """Precision of most parameters, by their number of elements; None without parameters."""
    counts: Counter[str] = Counter()
    for parameter in module.parameters():
        counts[str(parameter.dtype)] += parameter.numel()
    return _PRECISIONS.get(counts.most_common(1)[0][0]) if counts else None


def parameter_count(module: Any) -> int:
    """Number of parameters, which share no element with each other."""
    return sum(int(parameter.numel()) for parameter in module.parameters())


def weight_bytes(module: Any) -> int:
    """Size of parameters and buffers in memory [B]."""
    return sum(int(tensor.numel()) * int(tensor.element_size()) for tensor in _weights(module))


def _weights(module: Any) -> Iterator[Tensor]:
    """Parameters and buffers of a module."""
    yield from module.parameters()
    yield from module.buffers()


def _from_factory(torch: Torch, factory: Factory, device: str, threads: int) -> ModuleCopy:
    """Call a factory; the pool of threads is PyTorch's, so that a factory need not know their number."""
    module = factory.make(threads if factory.takes_threads else 1)
    if not isinstance(module, torch.nn.Module):
        raise InputError("model", type(module).__name__, "a torch.nn.Module", file=factory.target)
    with contextlib.suppress(NotImplementedError):  # the module of an exported program has the mode it was traced in
        module.eval()
    _move(torch, factory.target, module, device)
    return ModuleCopy(module, tuple(_parameters_of_forward(torch, module)))


def _from_script(torch: Torch, path: Path, device: str) -> ModuleCopy:
    """Load TorchScript; a pickle is refused and never read, since reading one runs what it says."""
    allowed = (
        "a file written by torch.jit.save, or by torch.export.save with the ending .pt2, "
        "or module:factory for a module that code makes and fills with weights"
    )
    if not _holds(path, "constants.pkl"):
        raise InputError("model", path.name, allowed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # that TorchScript itself is deprecated
            module = torch.jit.load(path, map_location="cpu")
    except (RuntimeError, ValueError) as error:
        raise torch_failure(torch, f"{path.name}: PyTorch cannot load it", error) from error
    module.eval()
    _move(torch, path.name, module, device)
    return ModuleCopy(module, tuple(_parameters_of_forward(torch, module)))


def _from_exported(torch: Torch, path: Path, device: str) -> ModuleCopy:
    """Load an exported program, whose graph is fixed and says which axes are free."""
    if not _holds(path, *_EXPORTED_PARTS):
        raise InputError("model", path.name, "a file written by torch.export.save")
    try:
        with _no_log("torch.export"):
            program = torch.export.load(path)
            if device != "cpu":
                program = importlib.import_module("torch.export.passes").move_to_device_pass(program, device)
            module = program.module()
    except Exception as error:  # the reader has errors of many kinds for an archive of another content
        raise torch_failure(torch, f"{path.name}: PyTorch cannot load it", error) from error
    declared, spread = _signature(program, path.name)
    return ModuleCopy(module, declared, spread)


def _holds(path: Path, *names: str) -> bool:
    """Whether a file is an archive with a part of one of these names, in whatever folder of it."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(part.rpartition("/")[2] in names for part in archive.namelist())


@contextlib.contextmanager
def _no_log(name: str) -> Iterator[None]:
    """Keep a logger of PyTorch silent: what it says comes again in the exception."""
    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _move(torch: Torch, name: str, module: Any, device: str) -> None:
    """Move weights to the device."""
    try:
        module.to(device)
    except RuntimeError as error:
        raise torch_failure(torch, f"{name}: the weights cannot be moved to {device}", error) from error


def _parameters_of_forward(torch: Torch, module: Any) -> Iterator[Declared]:
    """Inputs of a module by the parameters of its forward method: whole numbers by name, else the type of weights."""
    floating = [parameter.dtype for parameter in module.parameters() if parameter.is_floating_point()]
    usual = Counter(floating).most_common(1)[0][0] if floating else torch.float32
    rows = next((int(part.weight.shape[0]) for part in module.modules() if _is_embedding(part)), None)
    for name, optional in _names(torch, module):
        whole = is_whole_number(name)
        yield Declared(name, torch.int64 if whole else usual, high=rows if whole else None, optional=optional)


def _names(torch: Torch, module: Any) -> Iterator[tuple[str, bool]]:
    """Names of the inputs, and whether a call may leave them out."""
    if isinstance(module, torch.jit.ScriptModule):
        for argument in module.forward.schema.arguments[1:]:
            yield argument.name, bool(argument.has_default_value())
        return
    for parameter in inspect.signature(module.forward).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            yield parameter.name, parameter.default is not parameter.empty


def _is_embedding(module: Any) -> bool:
    """Whether a part of a model is a lookup table; those of TorchScript have a class of their own."""
    return "Embedding" in (type(module).__name__, getattr(module, "original_name", None))


def _signature(
    program: Any, name: str
) -> tuple[tuple[Declared, ...], Callable[[Tensors], tuple[tuple[Any, ...], dict[str, Any]]]]:
    """Tensors that an exported program takes, and how they and its constants make its arguments."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    tables = _lookup_tables(program)
    declared: list[Declared] = []
    leaves: list[tuple[str | None, Any]] = []  # the name of a tensor, or none and the constant
    for spec in program.graph_signature.input_specs:
        if spec.kind.name != "USER_INPUT":
            continue
        argument = spec.arg
        if hasattr(argument, "value"):
            leaves.append((None, argument.value))
            continue
        value = nodes[argument.name].meta["val"]
        if not hasattr(value, "dtype"):
            raise InputError(f"input {argument.name}", type(value).__name__, "a tensor or a constant", file=name)
        whole = not value.dtype.is_floating_point
        high = tables.get(argument.name, next(iter(tables.values()), None) if is_whole_number(argument.name) else None)
        axes = tuple(dim if isinstance(dim, int) else str(dim) for dim in value.shape)
        declared.append(Declared(argument.name, value.dtype, axes, high if whole else None))
        leaves.append((argument.name, None))
    unflatten = importlib.import_module("torch.utils._pytree").tree_unflatten
    shape = program.call_spec.in_spec

    def spread(tensors: Tensors) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = unflatten([constant if leaf is None else tensors[leaf] for leaf, constant in leaves], shape)
        return args, kwargs

    return tuple(declared), spread


def _lookup_tables(program: Any) -> dict[str, int]:
    """Rows of the table that each input indexes, by the input's name."""
    return {
        node.args[1].name: int(node.args[0].meta["val"].shape[0])
        for node in program.graph.nodes
        if node.op == "call_function" and str(node.target) == _EMBEDDING
    }
