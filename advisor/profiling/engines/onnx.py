"""ONNX Runtime, on the CPU or through another of its execution providers."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf ships no types
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from advisor.domain.profile import Fact, ModelInfo, RuntimeInfo
from advisor.errors import InputError, MeasurementError
from advisor.profiling.engines import Memory, OutOfMemory, Placement
from advisor.profiling.engines.onnx_providers import (
    PROVIDERS,
    RECORD_NODES,
    Provider,
    ProviderName,
    check_session,
    provider_facts,
    speed_options,
    start,
)
from advisor.profiling.inputs import Feeds, InputOptions, InputPlan
from advisor.profiling.shape_search import find_inputs
from advisor.profiling.shapes import draft_inputs

# ONNX Runtime's exceptions share no parent of their own; a plain RuntimeError comes from its binding.
_ORT_ERRORS: tuple[type[Exception], ...] = (
    RuntimeError,
    ValueError,
    *(error for error in vars(ort_errors).values() if isinstance(error, type) and issubclass(error, Exception)),
)
_LOG_NOTHING = 4
_NO_ROOM = re.compile(r"failed to allocate memory|out of memory|alloc_failed|bad_?alloc", re.IGNORECASE)
"""How ONNX Runtime's allocator, CUDA, its libraries and C++ say that memory does not suffice."""
_HASH_CHUNK_BYTES = 1 << 20
_INT8_NODES = ("QLinear", "MatMulInteger", "ConvInteger", "DynamicQuantizeLinear", "DynamicQuantizeMatMul")
_FLOAT_PRECISIONS: dict[int, str] = {
    onnx.TensorProto.FLOAT: "fp32",
    onnx.TensorProto.FLOAT16: "fp16",
    onnx.TensorProto.BFLOAT16: "bf16",
}
_INT8_TYPES = {onnx.TensorProto.INT8, onnx.TensorProto.UINT8}


class OnnxModel:
    """One ONNX file, read once and probed once, that opens as many replicas as asked.

    Parameters
    ----------
    path
        The model file; external data lies beside it, as ONNX demands.
    name
        Name that a scenario asks for; the file name without its ending by default.
    options
        Choices about synthetic inputs.
    provider
        Execution provider that runs the model; a GPU is the first one that CUDA sees.

    Raises
    ------
    InputError
        When the file is missing, is no ONNX model, or an input cannot be synthesized.
    MeasurementError
        When the provider cannot be used, or the model does not run on the synthetic inputs.
    """

    def __init__(
        self,
        path: Path,
        *,
        name: str | None = None,
        options: InputOptions | None = None,
        provider: ProviderName = "cpu",
    ) -> None:
        self._path = path
        model = _read(path)
        files = [path, *_external_files(model, path)]
        self._name = name or path.stem
        drafts = draft_inputs(model.graph, options or InputOptions())
        self._started = start(provider)
        # TensorRT builds an engine for each shape tried, which takes up to minutes; CUDA answers at once.
        prober = PROVIDERS["cuda"] if provider == "tensorrt" else self._started.provider
        session = self._session(1, spinning=False, provider=prober)
        found = find_inputs(drafts, lambda item: _answer(session, self._name, item))
        self._inputs, self._notes = found.plan, found.notes
        self._model = ModelInfo(
            name=self._name,
            file=path.name,
            sha256=_sha256(files),
            precision=_precision(model.graph),
            sequence_length=self._inputs.sequence_length,
            size_bytes=sum(file.stat().st_size for file in files),
            parameters=_parameters(model.graph) or None,
            inputs=tuple(rule.spec() for rule in self._inputs.rules),
        )

    @property
    def source(self) -> str:
        """File name without its folder."""
        return self._path.name

    @property
    def fixed_batch_size(self) -> int | None:
        """The only batch size that the graph takes; None when its batch axis is free."""
        return self._inputs.fixed_batch_size

    @property
    def notes(self) -> tuple[str, ...]:
        """What the probe run found, as sentences."""
        return self._notes

    @property
    def model(self) -> ModelInfo:
        """The model, with the shapes chosen for its inputs."""
        return self._model

    @property
    def placement(self) -> Placement:
        """Where the execution provider computes."""
        return self._started.placement

    @property
    def memory(self) -> Memory:
        """Memory of the card, or of this process."""
        return self._started.memory

    def facts(self) -> Mapping[str, Fact]:
        """Say which execution providers the installed package has."""
        return provider_facts(self._started)

    def open(self, threads: int, *, concurrency: int) -> "OnnxEngine":
        """Open one session with `threads` threads; see `EngineFactory.open`."""
        provider = self._started.provider
        # The threads of other providers are their own; those of the session would spin beside them.
        spinning = provider == PROVIDERS["cpu"] and may_spin(threads, concurrency)
        session = self._session(threads, spinning=spinning, provider=provider)
        runtime = RuntimeInfo(
            name="onnxruntime",
            version=str(onnxruntime.__version__),
            options={
                "provider": provider.title,
                "execution_mode": "sequential",
                "inter_op_threads": 1,
                "graph_optimization": "all",
                "allow_spinning": spinning,
                **speed_options(session, provider),
            },
        )
        return OnnxEngine(session, self._model, runtime, self._inputs)

    def _session(self, threads: int, *, spinning: bool, provider: Provider) -> onnxruntime.InferenceSession:
        """Load the model into a session of its own, which runs on the provider or is refused."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = _LOG_NOTHING
        options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spinning)))
        if provider.helpers:
            options.add_session_config_entry(RECORD_NODES, "1")
        try:
            # The fallback would print what went wrong and run on another provider.
            session = onnxruntime.InferenceSession(
                self._path, options, providers=provider.ranked(threads), enable_fallback=False
            )
        except _ORT_ERRORS as error:
            raise MeasurementError(f"{self.source}: ONNX Runtime cannot load it: {_reason(error)}.") from error
        check_session(session, provider, source=self.source, trouble=self._started.trouble)
        return session


class OnnxEngine:
    """One session of ONNX Runtime."""

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        model: ModelInfo,
        runtime: RuntimeInfo,
        inputs: InputPlan,
    ) -> None:
        self._session: onnxruntime.InferenceSession | None = session
        self._model, self._runtime, self._inputs = model, runtime, inputs

    def describe(self) -> tuple[ModelInfo, RuntimeInfo]:
        """Return the model and the options of this session."""
        return self._model, self._runtime

    def prepare(self, batch_size: int, rng: np.random.Generator) -> Feeds:
        """Make the inputs of one call."""
        return self._inputs.feeds(batch_size, rng)

    def call(self, item: Feeds) -> None:
        """Run the model once, on a GPU with the copies to and from it; see `Engine.call`."""
        self.answer(item)

    def join(self, items: Sequence[Feeds]) -> Feeds:
        """Concatenate inputs along their batch axes; an input without one is taken from the first item."""
        return self._inputs.join(items)

    def close(self) -> None:
        """Let the session go."""
        self._session = None

    def answer(self, item: Feeds) -> list[object]:
        """Run the model once and return its outputs; an exception becomes one sentence."""
        if self._session is None:
            raise MeasurementError(f"{self._model.name}: the session is closed.")
        return _answer(self._session, self._model.name, item)


def _answer(session: onnxruntime.InferenceSession, name: str, item: Feeds) -> list[object]:
    """Run a session once; an exception becomes one sentence."""
    try:
        outputs: list[object] = session.run(None, item)
    except _ORT_ERRORS as error:
        shapes = ", ".join(f"{name} {list(value.shape)}" for name, value in item.items())
        kind = OutOfMemory if _NO_ROOM.search(str(error)) else MeasurementError
        raise kind(f"{name}: the model fails on inputs {shapes}: {_reason(error)}.") from error
    return outputs


def may_spin(threads: int, concurrency: int) -> bool:
    """Whether idle threads of a replica may wait in a busy loop: only where no other replica wants the core.

    Examples
    --------
    >>> may_spin(8, 1), may_spin(2, 4), may_spin(1, 8)
    (True, False, False)
    """
    return threads > 1 and concurrency == 1


def _read(path: Path) -> onnx.ModelProto:
    """Read the graph without its external data."""
    if not path.is_file():
        raise InputError("model", path.name, "the name of an ONNX file that exists")
    try:
        model = onnx.load(path, load_external_data=False)
    except DecodeError as error:
        raise InputError("model", path.name, "a file in ONNX format") from error
    if not model.graph.node:
        raise InputError("model", path.name, "a file in ONNX format with at least one node")
    return model


def _external_files(model: onnx.ModelProto, path: Path) -> list[Path]:
    """Files that hold weights outside the model file, in the order of their names."""
    locations = {
        entry.value for tensor in model.graph.initializer for entry in tensor.external_data if entry.key == "location"
    }
    files = [path.parent / location for location in sorted(locations)]
    for file in files:
        if not file.is_file():
            raise InputError("external data", file.name, "a file beside the model", file=path.name)
    return files


def _sha256(files: list[Path]) -> str:
    """Hash the files one after the other."""
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            while chunk := stream.read(_HASH_CHUNK_BYTES):
                digest.update(chunk)
    return digest.hexdigest()


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """All constants of a graph: those listed, those of Constant nodes, and those of its branches and loops."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.HasField("t"):
                yield attribute.t
            if attribute.HasField("g"):
                yield from _tensors(attribute.g)


def _operators(graph: onnx.GraphProto) -> Iterator[str]:
    """Operators of a graph, its branches and loops included."""
    for node in graph.node:
        yield node.op_type
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _operators(attribute.g)


def _weights(graph: onnx.GraphProto) -> Iterator[tuple[int, int]]:
    """Element type and number of elements of each weight; scalars and integer constants are no weights."""
    for tensor in _tensors(graph):
        if tensor.dims and (tensor.data_type in _FLOAT_PRECISIONS or tensor.data_type in _INT8_TYPES):
            yield tensor.data_type, int(np.prod(tensor.dims))


def _parameters(graph: onnx.GraphProto) -> int:
    """Count the weights of a graph."""
    return sum(count for _, count in _weights(graph))


def _precision(graph: onnx.GraphProto) -> str | None:
    """Precision of the arithmetic: int8 for quantized operators or weights, else the commonest float."""
    if any(operator.startswith(_INT8_NODES) for operator in _operators(graph)):
        return "int8"
    counts: Counter[int] = Counter()
    for element, count in _weights(graph):
        counts[element] += count
    if not counts:
        return None
    element = counts.most_common(1)[0][0]
    return _FLOAT_PRECISIONS.get(element, "int8")


def _reason(error: Exception) -> str:
    """ONNX Runtime's message without its code, source places, paths and host name, at most 200 characters.

    Examples
    --------
    >>> _reason(RuntimeError("[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Invalid rank for input: x."))
    'Invalid rank for input: x'
    >>> place = "/src/cuda_call.cc:129 std::conditional_t<THRW> onnxruntime::CudaCall(ERRTYPE, const char*) "
    >>> _reason(RuntimeError(f"{place}CUDA failure 2: out of memory ; GPU=0 ; hostname=a ; file=b ; line=1 ; expr=c"))
    'CUDA failure 2: out of memory'
    """
    text = " ".join(str(error).split()) or type(error).__name__
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text)
    text = re.sub(r"^Load model from .+? failed:\s*", "", text)
    node = re.search(r"running (\w+) node", text)
    if node and "Status Message: " in text:
        text = f"node {node.group(1)}: {_without_places(text.split('Status Message: ', 1)[1])}"
    else:
        text = _without_places(text)
    text = re.sub(r" ?; GPU=\d+ ; hostname=.*$", "", text)
    text = text.rstrip(". ").replace(". ", "; ")
    return text if len(text) <= 200 else text[:197] + "..."


def _without_places(message: str) -> str:
    """A message without the source files, functions and conditions that it begins with."""
    message = re.sub(r"^(\S+\.(cc|cpp|cu|cuh|h):\d+ .*?(\) |was false\. ))+", "", message)
    return message.rsplit("was false. ", 1)[-1]
