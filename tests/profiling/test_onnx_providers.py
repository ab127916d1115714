"""A measurement names the provider that ran it: one that is missing, or leaves the work to another, is refused."""

from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest

from advisor.errors import MeasurementError
from advisor.profiling.engines import Placement
from advisor.profiling.engines.onnx import OnnxModel
from advisor.profiling.engines.onnx_providers import (
    PROVIDERS,
    Started,
    check_session,
    first_failure,
    node_counts,
    provider_facts,
    require,
    speed_options,
)
from advisor.profiling.gpu import GpuMemory

CPU, CUDA, TENSORRT, OPENVINO = (PROVIDERS[name].title for name in ("cpu", "cuda", "tensorrt", "openvino"))
CARD = Placement(kind="gpu", takes_threads=False, gpu_uuid="GPU-1a")


class FakeSession:
    """A session that says which providers it has and how many nodes each of them took."""

    def __init__(self, providers, nodes=None, options=None):
        self.providers, self.nodes, self.options = providers, nodes or {}, options or {}

    def get_providers(self):
        """Name the providers."""
        return self.providers

    def get_provider_options(self):
        """Tell the options."""
        return self.options

    def get_provider_graph_assignment_info(self):
        """List one part of the graph for each provider."""
        return [
            SimpleNamespace(ep_name=name, get_nodes=lambda count=count: [None] * count)
            for name, count in self.nodes.items()
        ]


def check(session, name, trouble=""):
    """Check a session of a.onnx that was opened for this provider."""
    check_session(session, PROVIDERS[name], source="a.onnx", trouble=trouble)


@pytest.mark.parametrize(
    ("name", "package"),
    [("cuda", "onnxruntime-gpu"), ("tensorrt", "onnxruntime-gpu"), ("openvino", "onnxruntime-openvino")],
)
def test_a_provider_that_is_not_installed_is_refused_with_its_package(name, package):
    """The sentence says what there is and what to install in its place."""
    provider = PROVIDERS[name]
    require(provider, [provider.title, CPU])
    with pytest.raises(MeasurementError) as caught:
        require(provider, ["AzureExecutionProvider", CPU])
    text = str(caught.value)
    assert text.startswith(f"{provider.title} is not among the providers of the installed ONNX Runtime ")
    assert text.endswith(f"(AzureExecutionProvider, {CPU}); install {package}, which takes the place of onnxruntime.")


@pytest.mark.skipif(CUDA in onnxruntime.get_available_providers(), reason="the installed package has CUDA")
def test_a_model_asks_for_its_provider_before_anything_runs(tiny_mlp):
    """Where the package lacks the provider nothing is measured."""
    with pytest.raises(MeasurementError, match="install onnxruntime-gpu"):
        OnnxModel(tiny_mlp, provider="cuda")


def test_a_session_on_another_provider_is_refused():
    """ONNX Runtime goes to the CPU without a word when a provider does not start."""
    check(FakeSession([CUDA, CPU]), "cuda")
    with pytest.raises(MeasurementError) as caught:
        check(FakeSession([CPU]), "cuda")
    assert str(caught.value) == f"a.onnx: {CUDA} does not start, and {CPU} would run instead."


def test_a_library_that_was_not_loaded_is_the_reason():
    """What kept the provider from starting is part of the sentence."""
    trouble = first_failure("Failed to load libcurand.so.10: libcurand.so.10: cannot open shared object file\nSee x.\n")
    with pytest.raises(MeasurementError, match=r"instead: libcurand\.so\.10: cannot open shared object file\.$"):
        check(FakeSession([CPU]), "cuda", trouble)
    assert first_failure("") == ""


def test_a_provider_that_takes_no_node_is_refused():
    """It is listed first all the same; where some nodes go elsewhere, the record says how many."""
    titles = [TENSORRT, CUDA, CPU]
    with pytest.raises(MeasurementError) as caught:
        check(FakeSession(titles, {CUDA: 7, CPU: 1}), "tensorrt")
    assert str(caught.value) == f"a.onnx: {TENSORRT} takes no node of the graph, and {CUDA}, {CPU} would run them."
    mixed = FakeSession(titles, {CPU: 1, TENSORRT: 40})
    check(mixed, "tensorrt")
    assert speed_options(mixed, PROVIDERS["tensorrt"])["nodes"] == f"{TENSORRT} 40, {CPU} 1"


def test_where_nodes_are_not_told_none_are_counted():
    """Older versions of ONNX Runtime have no such method."""
    session = SimpleNamespace(get_providers=lambda: [CUDA, CPU], get_provider_options=dict)
    check(session, "cuda")
    assert node_counts(session, PROVIDERS["cuda"]) == {}
    assert "nodes" not in speed_options(session, PROVIDERS["cuda"])


def test_options_that_change_speed_are_recorded_and_others_are_not():
    """TF32 changes speed; the number of the device does not."""
    session = FakeSession([CUDA, CPU], options={CUDA: {"use_tf32": "1", "device_id": "0", "gpu_mem_limit": "9"}})
    assert speed_options(session, PROVIDERS["cuda"]) == {"use_tf32": "1"}
    assert speed_options(FakeSession([OPENVINO, CPU]), PROVIDERS["openvino"]) == {"device_type": "CPU"}


def test_threads_are_those_of_the_provider_that_has_its_own():
    """OpenVINO is told; a GPU and the CPU provider take none as an option."""
    threads = {name: PROVIDERS[name].ranked(3)[0][1].get("num_of_threads") for name in PROVIDERS}
    assert threads == {"cpu": None, "cuda": None, "tensorrt": None, "openvino": "3"}


def test_memory_is_that_of_the_place():
    """Replicas on a card take its memory, the others that of this process."""
    assert Started(PROVIDERS["cuda"], CARD).memory == GpuMemory("GPU-1a")
    assert Started(PROVIDERS["cpu"]).memory.available_gib() > 0


def test_the_cpu_provider_is_placed_in_this_process_and_has_no_options_of_its_own(tiny_model):
    """Its record names the provider, and its facts those that could have been chosen."""
    options = tiny_model.open(1, concurrency=1).describe()[1].options
    assert options["provider"] == CPU
    assert "nodes" not in options
    assert tiny_model.placement == Placement()
    assert tiny_model.facts() == provider_facts(Started(PROVIDERS["cpu"]))
    assert tiny_model.facts()["onnxruntime_providers"].value == ", ".join(onnxruntime.get_available_providers())


@pytest.mark.skipif(OPENVINO not in onnxruntime.get_available_providers(), reason="needs onnxruntime-openvino")
def test_openvino_answers_as_the_cpu_provider_does(tiny_mlp, tiny_model):
    """The same model and inputs give the same answer, and the record says who took the nodes."""
    model = OnnxModel(tiny_mlp, provider="openvino")
    engine, other = (each.open(2, concurrency=1) for each in (model, tiny_model))
    item = engine.prepare(8, np.random.default_rng(0))
    for ours, theirs in zip(engine.answer(item), other.answer(item), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    options = engine.describe()[1].options
    assert options["provider"] == OPENVINO
    assert str(options["nodes"]).startswith(OPENVINO)
    assert options["allow_spinning"] is False
