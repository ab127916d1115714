"""Any Python callable as an engine: what it is asked for, what it may say, and one sentence for whatever fails."""

import datetime
import sys
import textwrap
import threading
import types

import numpy as np
import pytest

from advisor.errors import InputError, MeasurementError
from advisor.profiling import memory
from advisor.profiling.bench import measure
from advisor.profiling.cell import Configuration
from advisor.profiling.engines import OutOfMemory, Placement
from advisor.profiling.engines.callables import CallableModel
from advisor.profiling.engines.factories import TARGET, find_factory
from advisor.profiling.engines.items import concatenate, specs
from advisor.profiling.engines.outputs import answer_note, not_finite_note
from advisor.profiling.grid import plan_grid
from advisor.profiling.window import WindowRules

MODULE = """
    import sys
    import numpy as np

    class Doubler:
        closed = []

        def __init__(self, threads):
            self.threads = threads
            self.about = {
                "precision": "fp32",
                "parameters": 3,
                "runtime": "numpy",
                "version": "2",
                "options": {"threads": threads},
            }

        def prepare(self, batch_size, rng):
            return {"x": rng.standard_normal((batch_size, 3), dtype=np.float32)}

        def __call__(self, item):
            return item["x"] * 2

        def close(self):
            self.closed.append(self.threads)

    def plain():
        return Plain()

    class Plain:
        def prepare(self, batch_size, rng):
            return ["text"] * batch_size

        def __call__(self, item):
            if len(item) > 4:
                raise MemoryError("no room for 5.")
            return [len(word) for word in item]

    class OwnJoin(Plain):
        def join(self, items):
            return ["joined"]

    class NotANumber(Plain):
        def __call__(self, item):
            return {"scores": [np.array([1.0, np.nan])] * len(item)}

    class FirstOnly(Plain):
        def __call__(self, item):
            return np.zeros((1, 10))

    class One(Plain):
        about = {"fixed_batch_size": 1}

        def __call__(self, item):
            (word,) = item
            return [word]

    class OneInSecret(One):
        about = {}

    def predict():
        return lambda item: item

    def nothing():
        return None

    class Broken:
        def __init__(self):
            raise FileNotFoundError(2, "No such file. Is it there", "/home/someone/my models/weights.bin")

    class FullError(RuntimeError):
        pass

    class DeviceOutOfMemoryError(FullError):
        pass

    class Full:
        def __init__(self):
            raise DeviceOutOfMemoryError("tried to allocate 20 GiB")

    class Talkative(Plain):
        about = {"color": "blue"}

    class Boastful(Plain):
        about = {"parameters": -1}

    class Mute(Plain):
        about = "fast"

    class Later(Plain):
        async def answer(self, item):
            return item

        def __call__(self, item):
            answer = self.answer(item)
            answer.close()
            return answer

    class Piecewise(Plain):
        def __call__(self, item):
            yield item

    class Odd(Plain):
        def prepare(self, batch_size, rng):
            return object()

        def __call__(self, item):
            if item is None:
                sys.exit(3)

    class BadEnd(Plain):
        def close(self):
            raise OSError("still busy")

    NUMBER = 7
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A current folder of the user's, whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def opened(folder):
    """The function that reads a model out of the user's module."""
    (folder / "user_module.py").write_text(textwrap.dedent(MODULE), encoding="utf-8")
    return lambda factory, **options: CallableModel(find_factory(f"user_module:{factory}"), **options)


def is_one_sentence(text):
    """One line that ends in one full stop."""
    return "\n" not in text and text.endswith(".") and ". " not in text


def test_a_replica_says_what_it_is_and_its_inputs_are_described(opened):
    """Precision and runtime come from `about`, the batch axis from two inputs, the threads from the factory."""
    model = opened("Doubler")
    assert (model.model.name, model.model.file) == ("Doubler", "user_module.py")
    assert model.source == model.model.target == "user_module:Doubler"
    assert (model.model.precision, model.model.parameters) == ("fp32", 3)
    assert [(spec.name, spec.dtype, spec.shape) for spec in model.model.inputs] == [("x", "float32", ("batch", 3))]
    assert model.placement == Placement(kind="cpu", takes_threads=True)
    assert model.memory is memory
    assert model.facts() == {}
    assert model.fixed_batch_size is None
    assert opened("Doubler", name="twice").model.name == "twice"


def test_each_replica_names_its_own_options_and_is_closed_once(opened):
    """The replica that was tried is closed before another one is opened, so that its memory counts for nothing."""
    model = opened("Doubler")
    engine = model.open(4, concurrency=1)
    described, runtime = engine.describe()
    assert described == model.model
    assert (runtime.name, runtime.version, runtime.options) == ("numpy", "2", {"threads": 4})
    engine.call(engine.prepare(2, np.random.default_rng(0)))
    engine.close()
    engine.close()
    assert sys.modules["user_module"].Doubler.closed == [1, 4]
    with pytest.raises(MeasurementError, match="user_module:Doubler: the replica is closed"):
        engine.call({})


def test_a_runtime_without_a_name_is_python(opened):
    """And one with a name does not get Python's version."""
    _, runtime = opened("plain").open(1, concurrency=1).describe()
    assert (runtime.name, runtime.version) == ("python", ".".join(map(str, sys.version_info[:3])))


def test_the_hash_is_that_of_the_source(opened, folder):
    """Another line in the module is another model; and the profile says what the hash leaves out."""
    first = opened("Doubler")
    assert any(note.startswith("HASH: ") for note in first.notes)
    with (folder / "user_module.py").open("a", encoding="utf-8") as stream:
        stream.write("# changed\n")
    assert CallableModel(find_factory("user_module:Doubler")).model.sha256 != first.model.sha256


def test_the_current_folder_comes_first_and_what_was_imported_stays(folder, monkeypatch):
    """As with `python -m`; a module in use is not replaced by one of the same name."""
    for name in ("colorsys", "our_own"):
        (folder / f"{name}.py").write_text("def make():\n    return 1\n", encoding="utf-8")
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    mine = find_factory("colorsys:make")
    assert mine.source == folder / "colorsys.py"
    other = types.ModuleType("our_own")
    other.__file__, other.make = "elsewhere.py", int
    monkeypatch.setitem(sys.modules, "our_own", other)
    assert find_factory("our_own:make").source.name == "elsewhere.py"
    find_factory("colorsys:make")
    assert sys.path.count(str(folder)) == 1
    monkeypatch.delitem(sys.modules, "colorsys")


@pytest.mark.parametrize(
    "text", ["resnet.onnx", "http://host:8000/v1", "C:\\models\\a.onnx", "a:b:c", ":f", "m:", "m:1"]
)
def test_a_target_is_a_module_and_a_name(folder, text):
    """Files and addresses have another form, and are refused here."""
    assert TARGET.fullmatch("package.module:Name")
    assert TARGET.fullmatch(text) is None
    with pytest.raises(InputError, match="allowed: a module and a name in it"):
        find_factory(text)


def test_items_are_joined_in_order(opened):
    """By default arrays go together along their first axis, and lists one after the other."""
    engine = opened("Doubler").open(1, concurrency=1)
    rng = np.random.default_rng(1)
    items = [engine.prepare(size, rng) for size in (1, 2, 1)]
    assert engine.join(items)["x"].tolist() == [row for item in items for row in item["x"].tolist()]
    assert concatenate([(["a"], ["x"]), (["b"], ["y"])]) == (["a", "b"], ["x", "y"])
    assert opened("OwnJoin").open(1, concurrency=1).join([["a"], ["b"]]) == ["joined"]


def test_only_arrays_of_an_input_are_described():
    """Under their names in a dict and their numbers in a tuple; what changes its rank with the batch is left out."""
    ones, twos = np.ones((1, 2, 2)), np.ones((2, 2, 2))
    assert [(spec.name, spec.shape) for spec in specs((ones, 3), (twos, 3))] == [("input 0", ("batch", 2, 2))]
    assert [(spec.name, spec.shape) for spec in specs(ones, ones)] == [("input", (1, 2, 2))]
    assert specs(["text"], ["text", "text"]) == specs({"x": ones[0]}, {"x": twos}) == ()


def test_without_a_parameter_for_threads_only_one_thread_is_claimed(opened):
    """And the profile says that it is a claim."""
    model = opened("plain")
    assert not model.placement.takes_threads
    assert any(note.startswith("THREADS: ") for note in model.notes)
    assert not any(note.startswith("THREADS: ") for note in opened("Doubler").notes)
    with pytest.raises(InputError, match="threads is 2; allowed: 1, since"):
        model.open(2, concurrency=1)


def test_a_callable_that_takes_one_item_says_so_and_is_tried_on_one(opened):
    """The sentence for one that does not say so names the field that is missing."""
    assert opened("One").fixed_batch_size == 1
    with pytest.raises(MeasurementError, match="fails on a batch of 2, where about names no fixed_batch_size"):
        opened("OneInSecret")


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("Missing", InputError, "a function or class Missing in user_module"),
        ("NUMBER", InputError, "a function or class NUMBER in user_module"),
        (
            "predict",
            InputError,
            "methods prepare(batch_size, rng) and __call__(item); it made a function without prepare",
        ),
        ("nothing", InputError, "made a NoneType without prepare(batch_size, rng) and __call__(item)"),
        (
            "Broken",
            MeasurementError,
            "the factory fails: FileNotFoundError, [Errno 2] No such file; Is it there: 'weights",
        ),
        ("Full", OutOfMemory, "the factory fails: DeviceOutOfMemoryError, tried to allocate 20 GiB"),
        ("Talkative", InputError, "a field of about is 'color'; allowed: one of precision, sequence_length"),
        ("Boastful", InputError, "about.parameters is -1; allowed: greater than 0"),
        ("Mute", InputError, "about is 'fast'; allowed: "),
        ("Later", InputError, "answer is 'coroutine'; allowed: the whole answer, there when the call returns"),
        ("Piecewise", InputError, "answer is 'generator'; allowed: the whole answer, there when the call returns"),
        ("BadEnd", MeasurementError, "close() fails: OSError, still busy"),
    ],
)
def test_what_is_wrong_with_a_factory_is_one_sentence(opened, name, error, words):
    """Missing, no factory, no methods, failing, full, with unknown facts, and back before the answer is there."""
    with pytest.raises(error) as caught:
        opened(name)
    assert words in str(caught.value)
    assert is_one_sentence(str(caught.value))
    assert "someone" not in str(caught.value)


def test_a_module_that_is_not_there_is_told_from_one_that_lacks_something(folder):
    """The user mends the first by another name and the second by an installation."""
    (folder / "needs_more.py").write_text("import no_such_library\n", encoding="utf-8")
    (folder / "script.py").write_text("import sys\nsys.exit('usage: script FILE')\n", encoding="utf-8")
    with pytest.raises(InputError, match="a module no_such_module in this folder or installed"):
        find_factory("no_such_module:f")
    with pytest.raises(InputError, match="without its ending: json:f"):
        find_factory("json.py:f")
    with pytest.raises(InputError, match="a module with a file, which sys has not"):
        find_factory("sys:intern")
    with pytest.raises(MeasurementError, match="needs_more needs no_such_library, which is not installed"):
        find_factory("needs_more:f")
    with pytest.raises(MeasurementError, match="script cannot be imported: SystemExit, usage: script FILE"):
        find_factory("script:f")


def test_a_failing_call_is_one_sentence_and_a_full_memory_is_told_apart(opened):
    """The type of the exception and its first words; a smaller batch may do where there was no room."""
    engine = opened("Plain").open(1, concurrency=1)
    assert engine.call(["x"] * 4) is None
    with pytest.raises(OutOfMemory, match=r"the call fails: MemoryError, no room for 5\.$"):
        engine.call(["x"] * 5)
    with pytest.raises(MeasurementError, match=r"^user_module:Plain: the call fails: TypeError, ") as caught:
        engine.call(7)
    assert not isinstance(caught.value, OutOfMemory)
    odd = opened("Odd").open(1, concurrency=1)
    with pytest.raises(MeasurementError, match="the call fails: SystemExit, 3"):
        odd.call(None)
    with pytest.raises(MeasurementError, match="Items of type object cannot be joined; give the replica"):
        odd.join([odd.prepare(1, np.random.default_rng(0)), object()])


def test_a_call_may_come_from_another_thread_than_the_one_that_opened(opened):
    """Replicas are opened one after the other and called at the same time."""
    engine = opened("Doubler").open(1, concurrency=2)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(engine.call(engine.prepare(1, np.random.default_rng(0)))))
    thread.start()
    thread.join(60)
    assert answers == [None]


def test_a_callable_is_measured_as_any_other_model(opened, quiet, begin):
    """Two replicas that run together make a complete profile, which carries the notes and names the target."""
    model = opened("Doubler")
    plan = plan_grid(
        model,
        batch_sizes=(1, 2),
        configurations=(Configuration(1, 2),),
        repeats=1,
        rules=WindowRules(warmup_calls=3, warmup_s=0.0, min_calls=5, min_s=0.02),
        budget_s=4.0,
    )
    profile = measure(model, begin(plan), quiet, today=datetime.date(2026, 1, 2))
    assert profile.status == "complete"
    assert [cell.batch_size for cell in profile.cells] == [1, 2]
    assert profile.evidence.source == "advisor profile user_module:Doubler"
    assert profile.model.target == "user_module:Doubler"
    assert profile.runtime.name == "numpy"
    assert set(model.notes) <= set(profile.warnings)


def test_doubts_about_an_answer_are_notes(opened):
    """The call is measured all the same: only the user knows what its answer means."""
    assert "1 of 2" not in opened("NotANumber").notes[0]
    assert opened("NotANumber").notes[0].startswith("NOT_FINITE: 2 of 4 numbers")
    assert opened("FirstOnly").notes[0].startswith("ANSWER: the answer to a batch of 2 has length 1,")
    assert [note.split(":")[0] for note in opened("Doubler").notes] == ["HASH"]


class _Tensor:
    """What other libraries call an array; one that lies on a device cannot be looked at."""

    def __init__(self, values, *, here=True):
        self.values, self.here, self.shape = np.asarray(values), here, np.shape(values)

    def __array__(self, dtype=None, copy=None):
        """Give the values, or refuse as a GPU's tensor does."""
        if not self.here:
            raise TypeError("copy it to the host first")
        return self.values


@pytest.mark.parametrize(
    ("output", "count", "place"),
    [
        (np.array([[1.0, np.inf], [np.nan, 0.0]], np.float16), "2 of 4", "output"),
        ({"a": 1.0, "b": [0.0, float("nan")]}, "1 of 3", "output['b'][1]"),
        ((1.0, complex(0, float("inf"))), "1 of 2", "output[1]"),
        ([np.float32("nan"), "text", None], "1 of 1", "output[0]"),
        (_Tensor([0.0, -np.inf, 1.0]), "1 of 3", "output"),
    ],
)
def test_numbers_that_are_not_finite_are_counted_and_found(output, count, place):
    """In arrays of any precision, and in whatever holds them."""
    (note,) = not_finite_note(output)
    assert note == (
        f"NOT_FINITE: {count} numbers of the answer are NaN or infinite, first in {place}, which can change speed."
    )


@pytest.mark.parametrize(
    "output",
    [None, "nan", b"", [], {}, np.array(["nan"]), np.array([None]), np.arange(3), [1, True], object(),
     np.zeros(0), np.array([(1.0,)], [("x", "f4")]), _Tensor([np.nan], here=False)],
)  # fmt: skip
def test_nothing_is_noted_of_what_holds_no_floats(output):
    """Texts, whole numbers, nothing at all, and what cannot be looked into."""
    assert not_finite_note(output) == ()


@pytest.mark.parametrize(
    ("output", "doubtful"),
    [
        (np.zeros((2, 3)), False),
        (np.zeros((3, 2)), True),
        (np.float32(1), False),
        (_Tensor(np.zeros((1, 2)), here=False), True),
        (["a", "b"], False),
        (["a"], True),
        ([], True),
        ({"scores": np.zeros((2, 3)), "anchors": np.zeros((9, 4))}, False),
        ({"scores": np.zeros((1, 3)), "anchors": np.zeros((9, 4)), "loss": 0.1}, True),
        ((np.zeros(2), 0.5), False),
        (("a", "b", "c"), False),
        ({"rows": 3}, False),
        (None, False),
        ("text", False),
    ],
)
def test_an_answer_of_another_length_than_the_batch_is_doubtful(output, doubtful):
    """Only arrays and lists have a length that must be that of the batch, and one of several parts will do."""
    notes = answer_note(output, 2)
    assert [note.split(":")[0] for note in notes] == ["ANSWER"] * doubtful
    assert all(is_one_sentence(note) for note in notes)
