"""Execution providers of ONNX Runtime: what each one needs, where it computes, and whether it does."""

import contextlib
import io
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import onnxruntime

from advisor.domain.profile import Fact, FactValue
from advisor.errors import MeasurementError
from advisor.profiling import memory as host_memory
from advisor.profiling.engines import IN_PROCESS, Memory, Placement
from advisor.profiling.gpu import GpuMemory, first_visible_card

ProviderName: TypeAlias = Literal["cpu", "cuda", "tensorrt", "openvino"]

RECORD_NODES = "session.record_ep_graph_assignment_info"
"""Entry of a session's configuration that makes it tell which provider took which nodes (ONNX Runtime 1.24)."""
_LOG_NOTHING = 4
_CPU, _CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
_GPU_SPEED = {
    "cuda": ("use_tf32", "cudnn_conv_algo_search", "cudnn_conv_use_max_workspace", "enable_cuda_graph", "prefer_nhwc"),
    "tensorrt": (
        "trt_fp16_enable",
        "trt_bf16_enable",
        "trt_int8_enable",
        "trt_builder_optimization_level",
        "trt_max_workspace_size",
        "trt_cuda_graph_enable",
    ),
}
"""Options that change speed and that a session tells with their defaults."""


class Session(Protocol):
    """What is asked of a session of ONNX Runtime about its providers."""

    def get_providers(self) -> Sequence[str]:
        """Names of the providers, the first in rank first."""
        ...

    def get_provider_options(self) -> Mapping[str, Mapping[str, str]]:
        """Options of each provider; OpenVINO's tells none."""
        ...


@dataclass(frozen=True, slots=True)
class Provider:
    """One execution provider."""

    title: str
    """Its name in ONNX Runtime."""
    package: str
    """The package on PyPI that has it."""
    helpers: tuple[str, ...] = ()
    """Providers that take the nodes that it cannot run, in order."""
    options: tuple[tuple[str, str], ...] = ()
    """Options that it is given; a GPU is the first one that CUDA sees."""
    speed: tuple[str, ...] = ()
    """Options that change speed."""
    on_gpu: bool = False

    def ranked(self, threads: int) -> list[tuple[str, dict[str, str]]]:
        """Providers of a session with their options, as `onnxruntime.InferenceSession` takes them.

        Examples
        --------
        >>> PROVIDERS["openvino"].ranked(2)[0]
        ('OpenVINOExecutionProvider', {'device_type': 'CPU', 'num_of_threads': '2'})
        >>> [name for name, _ in PROVIDERS["tensorrt"].ranked(1)]
        ['TensorrtExecutionProvider', 'CUDAExecutionProvider', 'CPUExecutionProvider']
        """
        options = dict(self.options)
        if not self.on_gpu and self.title != _CPU:
            # OpenVINO has a thread pool of its own.
            options["num_of_threads"] = str(threads)
        helpers = [(helper, dict(self.options) if helper == _CUDA else {}) for helper in self.helpers]
        return [(self.title, options), *helpers]


PROVIDERS: Mapping[ProviderName, Provider] = {
    "cpu": Provider(_CPU, "onnxruntime"),
    "cuda": Provider(_CUDA, "onnxruntime-gpu", (_CPU,), (("device_id", "0"),), speed=_GPU_SPEED["cuda"], on_gpu=True),
    "tensorrt": Provider(
        "TensorrtExecutionProvider",
        "onnxruntime-gpu",
        (_CUDA, _CPU),
        (("device_id", "0"),),
        speed=_GPU_SPEED["tensorrt"],
        on_gpu=True,
    ),
    "openvino": Provider(
        "OpenVINOExecutionProvider",
        "onnxruntime-openvino",
        (_CPU,),
        (("device_type", "CPU"),),
        speed=("device_type",),
    ),
}


@dataclass(frozen=True, slots=True)
class Started:
    """A provider that this process can use."""

    provider: Provider
    placement: Placement = IN_PROCESS
    trouble: str = ""
    """First library that was not loaded, and why; empty when all were, or none was needed."""

    @property
    def memory(self) -> Memory:
        """Memory that its replicas live in."""
        uuid = self.placement.gpu_uuid
        return host_memory if uuid is None else GpuMemory(uuid)


def start(name: ProviderName) -> Started:
    """Find the provider and, for a GPU, its card and libraries.

    Raises
    ------
    MeasurementError
        When the installed package lacks the provider, or there is no card.
    """
    provider = PROVIDERS[name]
    require(provider, onnxruntime.get_available_providers())
    if provider.title != _CPU:
        # Without this what keeps a provider from starting goes to the terminal as lines of a log.
        onnxruntime.set_default_logger_severity(_LOG_NOTHING)
    if not provider.on_gpu:
        return Started(provider)
    # The driver numbers cards in this order; CUDA reads the variable when it starts.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    placement = Placement(kind="gpu", takes_threads=False, gpu_uuid=first_visible_card(os.environ))
    return Started(provider, placement, _load_cuda())


def require(provider: Provider, available: Sequence[str]) -> None:
    """Refuse a provider that the installed package lacks.

    Raises
    ------
    MeasurementError
        With the package to install.
    """
    if provider.title not in available:
        raise MeasurementError(
            f"{provider.title} is not among the providers of the installed ONNX Runtime {onnxruntime.__version__} "
            f"({', '.join(available)}); install {provider.package}, which takes the place of onnxruntime."
        )


def check_session(session: Session, provider: Provider, *, source: str, trouble: str) -> None:
    """Refuse a session that runs on another provider than the one that was asked for.

    Parameters
    ----------
    session
        A session that was opened for the provider.
    provider
        The provider that was asked for.
    source
        Name of the model file.
    trouble
        What is known of the cause; empty where nothing is.

    Raises
    ------
    MeasurementError
        When the provider did not start, or took no node of the graph.
    """
    title, used = provider.title, session.get_providers()
    if used[0] != title:
        why = f": {trouble}" if trouble else ""
        raise MeasurementError(f"{source}: {title} does not start, and {used[0]} would run instead{why}.")
    counts = node_counts(session, provider)
    if counts and title not in counts:
        raise MeasurementError(f"{source}: {title} takes no node of the graph, and {', '.join(counts)} would run them.")


def node_counts(session: Session, provider: Provider) -> Mapping[str, int]:
    """Nodes that each provider took; empty where nothing else could, or where ONNX Runtime does not tell."""
    if not provider.helpers:
        return {}
    # Older versions have no such method; the entry in the session's configuration does nothing there.
    ask: Any = getattr(session, "get_provider_graph_assignment_info", tuple)
    counts: Counter[str] = Counter()
    for subgraph in ask():
        counts[subgraph.ep_name] += len(subgraph.get_nodes())
    return counts


def speed_options(session: Session, provider: Provider) -> dict[str, FactValue]:
    """Options of the provider that change speed, and how many nodes each provider took."""
    told = dict(provider.options) | dict(session.get_provider_options().get(provider.title, {}))
    options: dict[str, FactValue] = {name: told[name] for name in provider.speed if name in told}
    counts = node_counts(session, provider)
    if counts:
        order = [title for title in (provider.title, *provider.helpers) if title in counts]
        options["nodes"] = ", ".join(f"{title} {counts[title]}" for title in order)
    return options


def provider_facts(started: Started) -> dict[str, Fact]:
    """Providers of the installed package and, for a GPU, the CUDA version that it was built with."""
    facts = {"onnxruntime_providers": Fact(value=", ".join(onnxruntime.get_available_providers()))}
    built_with = getattr(onnxruntime, "cuda_version", None)
    if started.provider.on_gpu and built_with:
        facts["onnxruntime_cuda"] = Fact(value=str(built_with))
    return facts


def _load_cuda() -> str:
    """Load CUDA's libraries from the packages that hold them; return what was not found."""
    # Versions before 1.21 leave that to the system's own search.
    preload = getattr(onnxruntime, "preload_dlls", None)
    if preload is None:
        return ""
    # It prints its failures; the session then fails to start and says why.
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        preload()
    return first_failure(printed.getvalue())


def first_failure(printed: str) -> str:
    r"""First library that was not loaded, without its folder; empty where all were.

    Examples
    --------
    >>> first_failure("Failed to load /opt/lib/libcurand.so.10: /opt/lib/libcurand.so.10: invalid ELF header\nSee x.")
    'libcurand.so.10: invalid ELF header'
    """
    beginning = "Failed to load "
    failures = [line.removeprefix(beginning) for line in printed.splitlines() if line.startswith(beginning)]
    if not failures:
        return ""
    library, _, why = re.sub(r"\S*[/\\]", "", failures[0]).partition(": ")
    return f"{library}: {why.removeprefix(f'{library}: ').rstrip('.')}"
