"""What people name on the command line, and the engine that runs it.

==========================================  ==============================
target                                      engine
==========================================  ==============================
``http://`` or ``https://``                 a server, by its address
``.pt2``, ``.pt``, ``.pth``, ``.ts``        PyTorch
``module:factory`` of a PyTorch module      PyTorch
``module:factory`` of anything else         any Python callable
everything else                             ONNX Runtime
==========================================  ==============================
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from advisor.errors import InputError
from advisor.profiling.engines import EngineFactory
from advisor.profiling.engines.callables import CallableModel
from advisor.profiling.engines.endpoint import EndpointModel, EndpointOptions
from advisor.profiling.engines.factories import TARGET, Factory, find_factory, in_one_sentence
from advisor.profiling.engines.pytorch import TorchModel, TorchSettings, is_torch_module
from advisor.profiling.inputs import InputOptions

Kind: TypeAlias = Literal["ONNX files", "PyTorch models", "Python callables", "addresses"]

Word = TypeVar("Word", bound=str)

PROVIDERS: tuple[Literal["cpu", "cuda", "tensorrt", "openvino"], ...] = ("cpu", "cuda", "tensorrt", "openvino")
AUTOCASTS: tuple[Literal["fp16", "bf16"], ...] = ("fp16", "bf16")
TORCH_FILES = (".pt2", ".pt", ".pth", ".ts")
DEFAULT_TIMEOUT_S = 30.0

_GOES_WITH: Mapping[str, tuple[Kind, ...]] = {
    "--provider": ("ONNX files",),
    "--inputs": ("ONNX files",),
    "--shape": ("ONNX files", "PyTorch models", "addresses"),
    "--device": ("PyTorch models",),
    "--autocast": ("PyTorch models",),
    "--compile": ("PyTorch models",),
    "--tf32": ("PyTorch models",),
    "--body": ("addresses",),
    "--batch-at": ("addresses",),
    "--header": ("addresses",),
    "--timeout": ("addresses",),
}


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """Choices that go with some engines; None, empty or false where nobody chose."""

    inputs: InputOptions = field(default_factory=InputOptions)
    provider: str | None = None
    """Execution provider of ONNX Runtime."""
    device: str | None = None
    """Device of PyTorch, such as cuda."""
    autocast: str | None = None
    """Precision that PyTorch casts operators to."""
    compile: bool = False
    """Whether PyTorch compiles the model."""
    tf32: bool = False
    """Whether PyTorch may round products of fp32 to TF32."""
    body: Path | None = None
    """Body of a request."""
    batch_at: str | None = None
    """Where the items of a batch are in it."""
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float | None = None
    """Longest wait for an answer [s]."""

    def given(self) -> dict[str, object]:
        """Options that somebody chose, by name."""
        values: dict[str, object] = {
            "--provider": self.provider,
            "--inputs": sorted(self.inputs.samples),
            "--shape": sorted(self.inputs.shapes),
            "--device": self.device,
            "--autocast": self.autocast,
            "--compile": self.compile,
            "--tf32": self.tf32,
            "--body": self.body,
            "--batch-at": self.batch_at,
            "--header": sorted(self.headers),
            "--timeout": self.timeout_s,
        }
        return {name: value for name, value in values.items() if value}


def open_target(target: str, *, name: str | None = None, options: TargetOptions | None = None) -> EngineFactory:
    """Choose the engine for a target and read the model.

    Parameters
    ----------
    target
        A file, ``module:factory``, or an address.
    name
        Name that a scenario asks for; by default that of the file, the factory or the address.
    options
        Choices; one that does not go with the target is refused.

    Raises
    ------
    InputError
        When there is no such thing, or an option does not go with it.
    MeasurementError
        When the model cannot be loaded or fails, or a library is missing.
    """
    chosen = options or TargetOptions()
    if target.startswith(("http://", "https://")):
        _refuse_misplaced(chosen, "addresses")
        return EndpointModel(target, name=name, options=_endpoint_options(chosen))
    if Path(target).suffix.lower() in TORCH_FILES:
        _refuse_misplaced(chosen, "PyTorch models")
        return TorchModel(Path(target), name=name, inputs=chosen.inputs, settings=_torch_settings(chosen))
    if TARGET.fullmatch(target) is not None and not Path(target).exists():
        factory = find_factory(target)
        if _makes_torch_modules(factory):
            _refuse_misplaced(chosen, "PyTorch models")
            return TorchModel(factory, name=name, inputs=chosen.inputs, settings=_torch_settings(chosen))
        _refuse_misplaced(chosen, "Python callables")
        return CallableModel(factory, name=name)
    _refuse_misplaced(chosen, "ONNX files")
    provider = _one_of("--provider", chosen.provider or "cpu", PROVIDERS)
    # Imported here, so that machines with PyTorch or a client alone need no ONNX Runtime.
    from advisor.profiling.engines.onnx import OnnxModel  # noqa: PLC0415

    return OnnxModel(Path(target), name=name, options=chosen.inputs, provider=provider)


def provider_word(title: str) -> str:
    """Value of --provider that makes a session rank this execution provider first.

    Examples
    --------
    >>> provider_word("TensorrtExecutionProvider")
    'tensorrt'
    """
    return title.removesuffix("ExecutionProvider").lower()


def _makes_torch_modules(factory: Factory) -> bool:
    """Make one replica to see what it is."""
    replica = factory.make(1)
    close = getattr(replica, "close", None)
    if callable(close):
        with in_one_sentence(f"{factory.target}: close() fails"):
            close()
    return is_torch_module(replica)


def _refuse_misplaced(options: TargetOptions, kind: Kind) -> None:
    """Refuse an option that would be ignored."""
    for option, value in options.given().items():
        if kind not in _GOES_WITH[option]:
            raise InputError(option, value, f"only with {' and '.join(_GOES_WITH[option])}, not with {kind}")


def _endpoint_options(options: TargetOptions) -> EndpointOptions:
    return EndpointOptions(
        body=options.body,
        batch_at=options.batch_at,
        headers=options.headers,
        timeout_s=options.timeout_s or DEFAULT_TIMEOUT_S,
        inputs=options.inputs,
    )


def _one_of(option: str, value: str, words: tuple[Word, ...]) -> Word:
    """The word that a value is.

    Raises
    ------
    InputError
        When it is none of them.
    """
    for word in words:
        if value == word:
            return word
    raise InputError(option, value, " or ".join(words))


def _torch_settings(options: TargetOptions) -> TorchSettings:
    autocast = None if options.autocast is None else _one_of("--autocast", options.autocast, AUTOCASTS)
    return TorchSettings(device=options.device or "cpu", autocast=autocast, compile=options.compile, tf32=options.tf32)
