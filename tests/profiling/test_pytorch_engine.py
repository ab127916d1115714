"""The PyTorch engine describes files and modules, runs them with the threads asked for, and fails in one sentence."""

import concurrent.futures
import hashlib
import importlib
import sys
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from advisor.errors import InputError, MeasurementError
from advisor.profiling import memory
from advisor.profiling.engines import OutOfMemory
from advisor.profiling.engines.factories import Factory
from advisor.profiling.engines.pytorch import TorchModel, TorchSettings, is_torch_module
from advisor.profiling.engines.pytorch_devices import (
    CudaBoundary,
    gpu_number,
    is_out_of_memory,
    library_facts,
    load_torch,
    placement,
)
from advisor.profiling.inputs import InputOptions

torch = pytest.importorskip("torch")

ROWS, WIDTH, CLASSES = 50, 8, 4
TEXT = InputOptions(shapes={"input_ids": ("batch", 16), "attention_mask": (1, 16)})


class Tagger(torch.nn.Module):
    """Scores every token."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(ROWS, WIDTH)
        self.head = torch.nn.Linear(WIDTH, CLASSES)

    def forward(self, input_ids, attention_mask):
        """Look up and score."""
        return self.head(self.table(input_ids)) * attention_mask[..., None].float()


class Filter(torch.nn.Module):
    """Convolves images."""

    def __init__(self):
        super().__init__()
        self.kernels = torch.nn.Conv2d(3, CLASSES, 3)

    def forward(self, image):
        """Convolve."""
        return self.kernels(image).mean((2, 3))


class SelfMade(torch.nn.Module):
    """Makes its inputs: rows to weigh and a table without a batch axis."""

    def __init__(self, make=None):
        super().__init__()
        self.make = make or (lambda size, rng: (rng.standard_normal((size, 3)), np.ones((5, 3))))

    def prepare(self, batch_size, rng):
        """Make them."""
        return self.make(batch_size, rng)

    def forward(self, rows, table):
        """Multiply."""
        return rows @ table.T


class Doing(torch.nn.Module):
    """Does what a test says with its input."""

    def __init__(self, action):
        super().__init__()
        self.action = action

    def forward(self, x):
        """Do it."""
        return self.action(x)


def factory(call):
    """Wrap a function or class of this module as the target that a person names."""
    return Factory(f"my_model:{getattr(call, '__name__', 'make')}", call, Path(__file__))


def doing(action):
    """Make a target that does this with an input x."""
    return factory(lambda: Doing(action))


def opened(target, shapes=None, **settings):
    """Read a model with shapes by name."""
    return TorchModel(target, inputs=InputOptions(shapes=shapes or {}), settings=TorchSettings(**settings))


def is_one_sentence(text):
    """One line that ends in one full stop."""
    return "\n" not in text and text.endswith((".", "...")) and ". " not in text


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Write the tagger as TorchScript, as an exported program and as a pickle of its weights."""
    folder = tmp_path_factory.mktemp("torch")
    module, example = Tagger().eval(), (torch.zeros(2, 7, dtype=torch.long), torch.ones(2, 7, dtype=torch.long))
    free = {0: torch.export.Dim("batch", min=1, max=64), 1: torch.export.Dim("sequence", min=2, max=512)}
    shapes = {"input_ids": free, "attention_mask": free}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(module).save(str(folder / "script.pt"))
        torch.export.save(torch.export.export(module, example, dynamic_shapes=shapes), folder / "free.pt2")
        torch.export.save(torch.export.export(module, example), folder / "fixed.pt2")
    torch.save(module.state_dict(), folder / "weights.pt")
    return folder


def test_an_exported_program_says_its_own_inputs(files):
    """Types, free axes and the rows of the lookup table come from the file; the first axis is the batch."""
    model = opened(files / "free.pt2")
    assert [(spec.name, spec.dtype, spec.shape) for spec in model.model.inputs] == [
        ("input_ids", "int64", ("batch", 128)),
        ("attention_mask", "int64", ("batch", 128)),
    ]
    assert [spec.fill for spec in model.model.inputs] == [f"random integers in [0, {ROWS})", "ones"]
    assert model.model.sha256 == hashlib.sha256((files / "free.pt2").read_bytes()).hexdigest()
    assert model.model.parameters == ROWS * WIDTH + WIDTH * CLASSES + CLASSES
    assert (model.model.precision, model.model.sequence_length) == ("fp32", 128)
    assert (model.fixed_batch_size, model.notes) == (None, ())


def test_a_shape_given_for_one_input_holds_for_the_axes_that_share_its_symbol(files):
    """The mask is as long as the text."""
    model = opened(files / "free.pt2", {"input_ids": ("batch", 20)})
    assert [spec.shape for spec in model.model.inputs] == [("batch", 20)] * 2


def test_an_exported_program_without_free_axes_is_measured_at_its_batch(files):
    """Two items were traced, so two are run."""
    model = opened(files / "fixed.pt2")
    assert model.fixed_batch_size == 2
    assert [spec.shape for spec in model.model.inputs] == [(2, 7)] * 2


def test_a_length_outside_the_range_of_the_file_is_one_sentence(files):
    """The guard of the program says the range."""
    with pytest.raises(MeasurementError, match=r"\[2, 600\].*<= 512.*--shape") as caught:
        opened(files / "free.pt2", {"input_ids": ("batch", 600)})
    assert is_one_sentence(str(caught.value))


@pytest.mark.parametrize("target", ["script.pt", "module"])
def test_files_and_modules_take_shapes_by_the_names_of_forward(files, target):
    """A leading 1 is the batch; ids lie in the lookup table, masks are ones."""
    chosen = factory(Tagger) if target == "module" else files / target
    model = TorchModel(chosen, inputs=TEXT, settings=TorchSettings())
    assert [spec.shape for spec in model.model.inputs] == [("batch", 16)] * 2
    assert model.model.inputs[0].fill == f"random integers in [0, {ROWS})"
    engine = model.open(1, concurrency=1)
    item = engine.prepare(3, np.random.default_rng(0))
    both = engine.join([item, engine.prepare(1, np.random.default_rng(1))])
    assert engine.answer(both).shape == (4, 16, CLASSES)
    torch.testing.assert_close(engine.answer(both)[:3], engine.answer(item))
    assert engine.call(item) is None


def test_all_forms_of_a_model_give_the_same_answer(files):
    """The file in both formats holds the same weights."""
    script = TorchModel(files / "script.pt", inputs=TEXT, settings=TorchSettings()).open(1, concurrency=1)
    program = TorchModel(files / "free.pt2", inputs=TEXT, settings=TorchSettings()).open(1, concurrency=1)
    item = script.prepare(2, np.random.default_rng(0))
    torch.testing.assert_close(script.answer(item), program.answer(item))


def test_a_pickle_is_refused_and_not_read(files):
    """The sentence says what to give instead."""
    with pytest.raises(InputError, match=r"weights\.pt.*torch\.jit\.save.*module:factory") as caught:
        opened(files / "weights.pt")
    assert is_one_sentence(str(caught.value))
    other = files / "weights.pt2"
    other.write_bytes((files / "weights.pt").read_bytes())
    with pytest.raises(InputError, match=r"weights\.pt2.*torch\.export\.save"):
        opened(other)


@pytest.mark.parametrize("name", ["gone.pt", "gone.pt2", "text.pt", "text.pt2", "text.bin"])
def test_a_missing_or_invalid_file_is_refused_in_one_sentence(tmp_path, name):
    """The sentence names the file without its folder."""
    if name.startswith("text"):
        (tmp_path / name).write_text("this is not a model")
    with pytest.raises(InputError, match=name) as caught:
        opened(tmp_path / name)
    assert is_one_sentence(str(caught.value))
    assert str(tmp_path) not in str(caught.value)


def test_a_module_is_described_by_its_target_and_the_hash_of_its_source():
    """A note says what the hash leaves out."""
    model = opened(factory(Filter), {"image": ("batch", 3, 8, 8)})
    assert (model.source, model.model.name, model.model.target) == ("my_model:Filter", "Filter", "my_model:Filter")
    assert model.model.file == Path(__file__).name
    assert model.model.sha256 == hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    assert model.model.size_bytes == 4 * model.model.parameters == 4 * (27 * CLASSES + CLASSES)
    assert [note.partition(":")[0] for note in model.notes] == ["HASH"]
    assert model.placement.takes_threads
    assert model.memory is memory


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({}, "shape of input image is missing"),
        ({"picture": ("batch", 3, 8, 8)}, "--shape is 'picture'; allowed: an input of the model: image"),
        ({"image": ("batch", 5, 8, 8)}, r"fails on inputs image \[2, 5, 8, 8\]: .*--shape"),
    ],
)
def test_missing_unknown_and_wrong_shapes_are_one_sentence(shapes, words):
    """The sentence names the input."""
    with pytest.raises((InputError, MeasurementError), match=words) as caught:
        opened(factory(Filter), shapes)
    assert is_one_sentence(str(caught.value))


@pytest.mark.parametrize("form", [tuple, lambda made: dict(zip(("rows", "table"), made, strict=True))])
def test_a_module_may_make_its_inputs_as_tuple_or_dict(form):
    """The axis that is longer for two items is the batch; an input without one is not joined."""
    model = opened(factory(lambda: SelfMade(lambda size, rng: form((rng.standard_normal((size, 3)), np.ones((5, 3)))))))
    assert [(spec.name, spec.shape) for spec in model.model.inputs] == [("rows", ("batch", 3)), ("table", (5, 3))]
    engine = model.open(1, concurrency=1)
    items = [engine.prepare(size, np.random.default_rng(size)) for size in (1, 2)]
    assert engine.answer(engine.join(items)).shape == (3, 5)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda size, rng: [size], "prepare of my_model:.* allowed: a tuple or dict"),
        (lambda size, rng: 1 / 0, r"prepare\(1\) fails: ZeroDivisionError"),
    ],
)
def test_inputs_that_a_module_cannot_make_are_one_sentence(make, words):
    """Whatever its method does."""
    with pytest.raises((InputError, MeasurementError), match=words) as caught:
        opened(factory(lambda: SelfMade(make)))
    assert is_one_sentence(str(caught.value))


def test_a_factory_of_something_else_is_refused():
    """The sentence says what it made."""
    with pytest.raises(InputError, match=r"my_model:list: model is 'list'; allowed: a torch\.nn\.Module"):
        opened(factory(list))


def test_a_model_that_takes_one_item_is_measured_at_batch_1_and_says_so():
    """A reshape inside fixes the batch."""
    model = opened(doing(lambda x: x.reshape(1, 2, 2)), {"x": ("batch", 4)})
    assert model.fixed_batch_size == 1
    assert model.notes[0].startswith("FIXED_BATCH")


def test_outputs_that_are_not_finite_are_noted():
    """Also in bf16, which NumPy does not know."""
    model = opened(doing(lambda x: {"y": (torch.log(-x.abs()).bfloat16(), "text")}), {"x": ("batch", 4)})
    assert model.notes[0].startswith("NOT_FINITE: 8 of 8")


@pytest.mark.parametrize("action", [lambda x: torch.empty(10**15), lambda x: [0] * 10**15])
def test_a_full_memory_is_told_from_other_failures(action):
    """PyTorch says so in words, Python by the type of its exception."""
    with pytest.raises(OutOfMemory) as caught:
        opened(doing(action), {"x": ("batch", 4)})
    assert is_one_sentence(str(caught.value))
    with pytest.raises(MeasurementError, match="no reason") as other:
        opened(doing(lambda x: exec("raise KeyError('no reason')")), {"x": ("batch", 4)})
    assert not isinstance(other.value, OutOfMemory)


def test_precision_is_that_of_autocast_or_of_most_weights():
    """Float inputs have the type of the weights."""
    shapes = {"image": ("batch", 3, 8, 8)}
    half = opened(factory(lambda: Filter().bfloat16()), shapes).model
    assert (half.precision, half.inputs[0].dtype) == ("bf16", "bfloat16")
    cast = opened(factory(Filter), shapes, autocast="bf16")
    assert (cast.model.precision, cast.model.inputs[0].dtype) == ("bf16", "float32")
    engine = cast.open(1, concurrency=1)
    assert engine.answer(engine.prepare(1, np.random.default_rng(0))).dtype == torch.bfloat16
    assert engine.describe()[1].options == {"device": "cpu", "autocast": "bf16", "compile": False, "tf32": False}


def test_modules_run_without_gradients_and_dropout():
    """As a server runs them."""
    seen = []

    class Watched(torch.nn.Module):
        def forward(self, x):
            seen.append((self.training, torch.is_inference_mode_enabled()))
            return x

    opened(factory(Watched), {"x": ("batch", 4)})
    assert seen == [(False, True)]


def test_every_replica_has_its_own_weights():
    """The factory is called again."""
    model = opened(factory(Filter), {"image": ("batch", 3, 8, 8)})
    first, second = (model.open(1, concurrency=2) for _ in range(2))
    item = first.prepare(1, np.random.default_rng(0))
    assert not torch.equal(first.answer(item), second.answer(item))


def test_replicas_with_other_numbers_of_threads_can_take_turns_and_run_together():
    """The number holds in the calling thread, so that no replica changes that of another."""
    meet = threading.Barrier(2, timeout=60)
    together = []

    def threads(x):
        if together:
            meet.wait()
        return torch.full((len(x), 1), torch.get_num_threads())

    model = opened(doing(threads), {"x": ("batch", 4)})
    one, two = (model.open(count, concurrency=2) for count in (1, 2))
    item = one.prepare(1, np.random.default_rng(0))
    assert [int(engine.answer(item)) for engine in (one, two, one, two)] == [1, 2, 1, 2]
    together.append(True)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(lambda e=engine: [int(e.answer(item)) for _ in range(20)]) for engine in (one, two)]
    assert [run.result() for run in runs] == [[1] * 20, [2] * 20]


def test_a_closed_replica_says_so():
    """Instead of running on."""
    engine = opened(factory(Filter), {"image": ("batch", 3, 8, 8)}).open(1, concurrency=1)
    item = engine.prepare(1, np.random.default_rng(0))
    engine.close()
    for use in (lambda: engine.call(item), lambda: engine.prepare(1, np.random.default_rng(0))):
        with pytest.raises(MeasurementError, match="Filter: the replica is closed"):
            use()


def test_torchscript_is_not_compiled_again(files):
    """The option would be ignored, so it is refused."""
    with pytest.raises(InputError, match="--compile"):
        TorchModel(files / "script.pt", inputs=TEXT, settings=TorchSettings(compile=True))


def test_facts_are_values_or_say_why_not():
    """A build for the CPU has no CUDA."""
    facts = opened(factory(Filter), {"image": ("batch", 3, 8, 8)}).facts()
    assert facts["torch_version"].value == str(torch.__version__)
    assert facts["torch_interop_threads"].value == torch.get_num_interop_threads()
    assert {"torch_cuda_version", "torch_cudnn_version", "torch_cpu_capability"} < set(facts)
    assert all((fact.value is None) == (fact.why is not None) for fact in facts.values())
    built = SimpleNamespace(
        __version__="2.13.0+cu130",
        version=SimpleNamespace(cuda="13.0"),
        backends=SimpleNamespace(
            cudnn=SimpleNamespace(version=lambda: 91900), cpu=SimpleNamespace(get_cpu_capability=lambda: "AVX512")
        ),
        get_num_interop_threads=lambda: 1,
    )
    assert library_facts(built)["torch_cudnn_version"] == 91900


def test_a_module_is_known_without_importing_pytorch(monkeypatch):
    """Where PyTorch was not imported, nothing is a module of it."""
    assert is_torch_module(Filter())
    assert not is_torch_module(Filter)
    monkeypatch.delitem(sys.modules, "torch")
    assert not is_torch_module(Filter())


def test_a_missing_pytorch_is_one_sentence(monkeypatch):
    """It says what to install."""
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MeasurementError, match=r"^PyTorch is not installed; pip install torch==2\.13\.0\.$"):
        load_torch()


class FakeTensor:
    """A tensor that notes where it goes."""

    def __init__(self, events, place="cpu"):
        self.events, self.place = events, place

    def to(self, place, *, non_blocking):
        """Note the copy."""
        self.events.append((self.place, place, non_blocking))
        return FakeTensor(self.events, place)

    def pin_memory(self):
        """Note the pinned copy."""
        return self.to("pinned", non_blocking=False)


def fake_cuda(events=(), gpus=2):
    """A library that sees so many GPUs."""
    events = list(events) if isinstance(events, tuple) else events
    stream = SimpleNamespace(synchronize=lambda: events.append("synchronized"))
    return SimpleNamespace(
        __version__="2.13.0+cu130",
        version=SimpleNamespace(cuda="13.0"),
        Tensor=FakeTensor,
        OutOfMemoryError=type("OutOfMemoryError", (RuntimeError,), {}),
        get_num_threads=lambda: 1,
        cuda=SimpleNamespace(
            is_available=lambda: gpus > 0,
            device_count=lambda: gpus,
            get_device_properties=lambda number: SimpleNamespace(uuid=f"0000000{number}-1111"),
            synchronize=lambda device: events.append(f"weights on {device}"),
            Stream=lambda device: stream,
            stream=lambda chosen: warnings.catch_warnings(),
        ),
    )


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:1"])
def test_a_gpu_is_found_by_its_number_and_named_by_its_uuid(device):
    """The first one where there is no number."""
    library = fake_cuda()
    number = int(device[-1]) if ":" in device else 0
    assert gpu_number(library, device) == number
    found = placement(library, device)
    assert (found.kind, found.gpu_uuid, found.takes_threads) == ("gpu", f"GPU-0000000{number}-1111", False)
    assert gpu_number(library, "cpu") is None


@pytest.mark.parametrize("device", ["tpu", "cuda:", "cuda:x", "cuda:2", "GPU-0000"])
def test_an_unknown_device_is_refused(device):
    """The sentence says which there are."""
    with pytest.raises(InputError, match="--device") as caught:
        gpu_number(fake_cuda(), device)
    assert is_one_sentence(str(caught.value))


def test_a_missing_gpu_is_one_sentence():
    """It tells a build without CUDA from a machine without a GPU."""
    with pytest.raises(MeasurementError, match=r"no CUDA device is visible \(torch 2.13.0\+cu130, built for CUDA 13.0"):
        gpu_number(fake_cuda(gpus=0), "cuda")
    if not torch.cuda.is_available():
        with pytest.raises(MeasurementError, match="no CUDA device is visible"):
            opened(factory(Filter), {"image": ("batch", 3, 8, 8)}, device="cuda")


def test_a_call_on_a_gpu_covers_both_copies_and_waits_for_them():
    """Pinned memory to the device, the model, the outputs back, then the stream is waited for."""
    events = []
    at = CudaBoundary(fake_cuda(events), 1)
    item = {"x": at.hold(FakeTensor(events))}

    def forward(tensors):
        events.append(f"model on {tensors['x'].place}")
        return {"y": [tensors["x"], 7]}

    outputs = at.run(forward, item)
    assert events == [
        "weights on cuda:1",
        ("cpu", "pinned", False),
        ("pinned", "cuda:1", True),
        "model on cuda:1",
        ("cuda:1", "cpu", True),
        "synchronized",
    ]
    assert outputs["y"][0].place == "cpu"
    assert outputs["y"][1] == 7


def test_a_full_gpu_is_known_by_the_type_of_its_error():
    """Its words are many and change."""
    library = fake_cuda()
    assert is_out_of_memory(library, library.OutOfMemoryError("CUDA out of memory"))
    assert not is_out_of_memory(library, RuntimeError("CUDA error: device-side assert triggered"))


def test_a_compiled_module_is_compiled_for_every_batch_size():
    """PyTorch itself gives up after 8 shapes and then runs uncompiled code."""
    asked = {}
    library = SimpleNamespace(
        compile=lambda module, **options: asked.update(options) or module,
        float16=torch.float16,
        bfloat16=torch.bfloat16,
        inference_mode=torch.inference_mode,
    )
    engine_module = importlib.import_module("advisor.profiling.engines.pytorch")
    copy = engine_module.ModuleCopy(Filter().eval(), ())
    inputs = SimpleNamespace(positional=False)
    run = engine_module._forward(library, copy, inputs, TorchSettings(compile=True))
    assert run({"image": torch.zeros(2, 3, 8, 8)}).shape == (2, CLASSES)
    assert asked["dynamic"] is False
    assert asked["recompile_limit"] > 100
