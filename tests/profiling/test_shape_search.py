"""The search runs likely shapes in a fixed order, believes names, and checks a batch axis that it had to guess."""

import itertools

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from advisor.errors import InputError, MeasurementError
from advisor.profiling.inputs import InputOptions
from advisor.profiling.shape_search import MOST_RUNS, MOST_TRIES, Verdict, find_inputs, judge
from advisor.profiling.shapes import draft_inputs, input_plans, plan_inputs, unusual_plans


def drafts_of(*inputs, **options):
    """Choices for float inputs of these dimensions."""
    declared = [onnx.helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs]
    return draft_inputs(onnx.helper.make_graph([], "g", declared, []), InputOptions(**options))


class Model:
    """A model that is a function of its first input and remembers the shapes it was given."""

    def __init__(self, function):
        self.function, self.shapes = function, []

    def __call__(self, feeds):
        """Answer, or fail as an engine does."""
        value = next(iter(feeds.values()))
        self.shapes.append(value.shape)
        return [self.function(value)]


def needs(axis, length):
    """Give a function that fails unless an axis has a length."""

    def function(value):
        if value.shape[axis] != length:
            raise MeasurementError(f"m: axis {axis} is {value.shape[axis]}.")
        return value

    return function


def test_plans_come_in_the_order_of_their_distance_from_the_likeliest():
    """First the likeliest, then one axis one step away; none comes twice."""
    plans = [plan.rules[0].dims for plan in input_plans(drafts_of(("x", ["n", 3, "h", "w"])))]
    assert plans[:4] == [
        ("batch", 3, 224, 224),
        ("batch", 3, 224, 48),
        ("batch", 3, 48, 224),
        ("batch", 3, 224, 32),
    ]
    assert len(set(plans)) == len(plans)


def test_axes_of_one_symbol_have_one_length():
    """In all inputs and all plans."""
    for plan in itertools.islice(input_plans(drafts_of(("x", ["batch", "p", "q"]), ("y", ["batch", "p"]))), 50):
        assert plan.rules[0].dims[1] == plan.rules[1].dims[1]


def test_an_input_has_at_most_one_batch_axis_and_a_plan_at_least_one():
    """Wherever the graph leaves the batch open."""
    for plan in itertools.islice(input_plans(drafts_of(("x", ["", "", "", ""]), ("h", ["", "", 8]))), 200):
        assert max(rule.dims.count("batch") for rule in plan.rules) == 1


def test_the_search_is_the_same_each_time_and_stops_at_the_first_that_runs():
    """The same shapes in the same order."""
    drafts = drafts_of(("x", ["batch", 3, "h", "w"]))
    models = [Model(needs(2, 32)), Model(needs(2, 32))]
    found = [find_inputs(drafts, model).plan for model in models]
    assert found[0].rules[0].dims == found[1].rules[0].dims == ("batch", 3, 32, 224)
    assert models[0].shapes == models[1].shapes
    assert len(models[0].shapes) < MOST_TRIES


def test_a_guessed_batch_axis_must_make_an_output_longer():
    """A mean over the guessed axis shows that the other one is the batch."""
    drafts = drafts_of(("x", ["p", "q", 4]))
    found = find_inputs(drafts, Model(lambda value: value.mean(axis=0)))
    assert found.plan.rules[0].dims == (128, "batch", 4)
    assert found.notes == ()


def test_items_of_a_batch_must_not_depend_on_each_other():
    """A running sum along the guessed axis shows that it is one of a sequence."""
    drafts = drafts_of(("x", ["p", "q", 4]))
    found = find_inputs(drafts, Model(lambda value: value.cumsum(axis=0)))
    assert found.plan.rules[0].dims == (128, "batch", 4)
    assert found.notes == ()


def test_a_batch_axis_of_that_name_is_believed():
    """The same function, but the graph says so."""
    drafts = drafts_of(("x", ["batch", "q", 4]))
    assert find_inputs(drafts, Model(lambda value: value.cumsum(axis=0))).plan.rules[0].dims == ("batch", 128, 4)


@pytest.mark.parametrize(
    ("function", "verdict", "words"),
    [
        (lambda value: value.sum(), Verdict.NO_GROWTH, "no output grows"),
        (lambda value: value.cumsum(axis=0), Verdict.DEPENDENT, "depends on its neighbor"),
    ],
)
def test_a_batch_axis_that_stays_doubtful_is_noted_with_the_option(function, verdict, words):
    """The plan is used all the same, and the note shows how to name the axis."""
    drafts = drafts_of(("x", ["", 4]))
    assert judge(next(input_plans(drafts)), Model(function)).verdict is verdict
    (note,) = find_inputs(drafts, Model(function)).notes
    assert note.startswith("BATCH_AXIS")
    assert words in note
    assert "--shape x=batch,4" in note


def test_noise_of_one_scale_for_a_batch_is_no_dependence():
    """Quantizing to 8 bits with the scale of the whole batch changes an answer by about 1 %."""

    def quantized(value):
        scale = np.abs(value).max() / 127
        return np.rint(value / scale) * scale

    assert judge(next(input_plans(drafts_of(("x", ["", 64])))), Model(quantized)).verdict is Verdict.GOOD


def test_a_length_given_for_one_input_holds_for_its_symbol():
    """The other inputs of the same symbol follow, and nothing was found by trying."""
    drafts = drafts_of(("x", ["batch", "p"]), ("y", ["batch", "p", 4]), shapes={"x": ("batch", 7)})
    (plan,) = input_plans(drafts)
    assert [rule.dims for rule in plan.rules] == [("batch", 7), ("batch", 7, 4)]


def test_a_leading_length_given_by_the_user_is_the_batch_size_unless_it_is_a_sequence():
    """Four images in every call, but one item of four steps."""
    for symbol, fixed in (("n", 4), ("sequence", 1)):
        (plan,) = input_plans(drafts_of(("x", [symbol, 3]), shapes={"x": (4, 3)}))
        assert plan.fixed_batch_size == fixed


def test_where_only_one_item_runs_the_batch_is_fixed_at_one():
    """Batch 2 fails whatever the shape, and the note says so."""
    found = find_inputs(drafts_of(("x", ["batch", 3, "h", "w"])), Model(needs(0, 1)))
    assert found.plan.fixed_batch_size == 1
    assert found.notes[0].startswith("FIXED_BATCH")


def test_answers_that_are_not_finite_are_noted():
    """They can change speed."""
    found = find_inputs(drafts_of(("x", ["batch", 3])), Model(lambda value: np.full_like(value, np.inf)))
    assert [note.split(":")[0] for note in found.notes] == ["NOT_FINITE"]


def test_a_search_without_success_is_bounded_and_names_the_option():
    """The sentence ends with what to do, and the count of runs has a limit."""
    model = Model(needs(1, 100_003))
    with pytest.raises(MeasurementError, match=r"--shape x=batch,128,4, or samples with --inputs FILE\.npz\.$"):
        find_inputs(drafts_of(("x", ["batch", "p", 4])), model)
    assert len(model.shapes) <= 2 * (MOST_TRIES + len(list(unusual_plans(drafts_of(("x", ["batch", "p", 4]))))))


def test_a_doubtful_batch_axis_costs_few_runs():
    """A mean over everything runs on each shape and never grows; two runs judge one plan."""
    model = Model(lambda value: value.mean())
    find_inputs(drafts_of(("x", ["p", "q", 4])), model)
    assert len(model.shapes) == 2 * MOST_RUNS


def test_the_length_of_a_step_does_not_stand_for_the_batch():
    """A graph with a free sequence and no batch axis takes one item."""
    plan = plan_inputs(
        onnx.helper.make_graph(
            [], "g", [onnx.helper.make_tensor_value_info("x", TensorProto.FLOAT, ["sequence_length", 576])], []
        ),
        InputOptions(),
    )
    assert plan.rules[0].dims == (128, 576)
    assert plan.fixed_batch_size == 1


def test_one_symbol_on_two_axes_of_an_input_is_a_sentence_and_not_the_batch():
    """A square matrix over the nodes of a graph has no batch axis that could be guessed."""
    square = drafts_of(("adjacency", ["N", "N"]), ("features", ["N", 16]))
    with pytest.raises(InputError, match="batch axis of the inputs is 'adjacency, features'"):
        find_inputs(square, lambda feeds: [np.zeros(1)])
