"""Figures by their values, not by their pixels."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.domain.plan import BreakEven, DistributionPoint, Method, Step, Winner, WorkloadAnswer
from advisor.store.paths import PROFILES
from advisor.store.profiles import read_profile
from advisor.ui.charts import (
    MOST_TICKS,
    break_even_figure,
    crossings,
    log_ticks,
    response_figure,
    service_figure,
    staircase_points,
)
from advisor.ui.frames import number_format

CPU = tuple(Step(rate_rps=10 * count, cost_usd_per_month=50.0 * count) for count in range(1, 11))
GPU = (Step(rate_rps=60, cost_usd_per_month=225), Step(rate_rps=120, cost_usd_per_month=450))


def break_even(*winners: Winner) -> BreakEven:
    """Ten small CPUs against two GPUs."""
    return BreakEven(cpu=CPU, gpu=GPU, mixed=GPU, winners=winners, up_to_rps=100, resolution_usd=0.01)


CPU_FIRST = break_even(Winner(from_rps=0, to_rps=40, winner="cpu"), Winner(from_rps=40, to_rps=100, winner="gpu"))


@given(rate_rps=st.floats(1.001, 99.9))
def test_the_line_drawn_is_the_cost_of_the_rate(rate_rps: float) -> None:
    """Vertical first, then horizontal: at each rate the line shows the step that covers it."""
    rates, costs = staircase_points(CPU, 1, 100)
    drawn = next(cost for rate, cost in zip(rates, costs, strict=True) if rate >= rate_rps)
    assert drawn == next(step.cost_usd_per_month for step in CPU if step.rate_rps >= rate_rps)


def test_a_staircase_ends_where_the_range_ends() -> None:
    """Steps outside the two rates are not drawn."""
    rates, costs = staircase_points(CPU, 15, 35)
    assert rates == [15, 20, 30, 35]
    assert costs == [100, 100, 150, 200]


def test_a_staircase_that_ends_early_keeps_its_last_cost() -> None:
    """A range beyond the last step starts at its cost."""
    assert staircase_points(GPU, 200, 300) == ([200], [450])


def test_the_figure_holds_both_staircases_the_budget_and_the_plan() -> None:
    """Names in the legend, exact values, both axes logarithmic, the plan's point where it stands."""
    figure = break_even_figure(CPU_FIRST, 25.0, 150.0, 2000.0)
    traces = {trace.name: trace for trace in figure.data}
    assert list(traces) == [
        "Cheapest of any kind",
        "CPU only",
        "GPU only",
        "GPU pays from 40 req/s",
        "Budget",
        "This plan",
    ]
    assert list(traces["GPU only"].x) == [1.0, 60, 100]
    assert list(traces["GPU only"].y) == [225, 225, 450]
    assert traces["CPU only"].line.shape == "vh"
    assert (traces["This plan"].x, traces["This plan"].y) == ((25.0,), (150.0,))
    assert (figure.layout.xaxis.type, figure.layout.yaxis.type) == ("log", "log")


def test_every_value_lies_inside_the_axes() -> None:
    """Nothing is drawn outside, the budget included."""
    figure = break_even_figure(CPU_FIRST, 25.0, 150.0, 2000.0)
    for axis, values in (
        (figure.layout.xaxis, [x for trace in figure.data for x in trace.x]),
        (figure.layout.yaxis, [y for trace in figure.data for y in trace.y]),
    ):
        low, high = (10**end for end in axis.range)
        assert low <= min(values) * (1 + 1e-9)
        assert max(values) <= high * (1 + 1e-9)


def test_kinds_differ_by_more_than_colour() -> None:
    """Dash tells CPU from GPU where colour does not."""
    traces = {trace.name: trace for trace in break_even_figure(CPU_FIRST, 25.0, 150.0, None).data}
    assert traces["CPU only"].line.dash != traces["GPU only"].line.dash
    assert "Budget" not in traces


def test_one_kind_alone_has_no_crossing() -> None:
    """Without CPUs only the GPU's staircase and the plan are drawn."""
    alone = BreakEven(cpu=(), gpu=GPU, mixed=GPU, winners=(), up_to_rps=100, resolution_usd=0.01)
    figure = break_even_figure(alone, 25.0, 225.0, None)
    assert [trace.name for trace in figure.data] == ["Cheapest of any kind", "GPU only", "This plan"]


def test_winners_that_alternate_have_a_first_and_a_last_crossing() -> None:
    """Whole machines can make the cheaper kind change back."""
    steps = break_even(
        Winner(from_rps=0, to_rps=40, winner="cpu"),
        Winner(from_rps=40, to_rps=60, winner="gpu"),
        Winner(from_rps=60, to_rps=80, winner="cpu"),
        Winner(from_rps=80, to_rps=100, winner="gpu"),
    )
    assert [rate for rate, _ in crossings(steps, 1)] == [40, 80]
    assert crossings(steps, 50) == [(80, "and for good from 80 req/s")]


@given(low=st.floats(1e-3, 1e5), factor=st.floats(10, 1e6))
def test_ticks_are_round_and_few(low: float, factor: float) -> None:
    """At least one and at most nine labels, each inside the axis, with one significant digit."""
    ticks = log_ticks(low, low * factor)
    assert 1 <= len(ticks) <= MOST_TICKS
    assert all(low <= tick <= low * factor for tick in ticks)
    assert all(math.isclose(tick, float(f"{tick:.0e}")) for tick in ticks)


def test_service_times_are_drawn_in_milliseconds_per_configuration() -> None:
    """One line per threads and replicas, at the batches measured."""
    profile = read_profile((PROFILES / "resnet50-fp32-zen3-onnxruntime.json").read_bytes(), file="shipped")
    figure = service_figure(profile)
    lines = [trace for trace in figure.data if trace.name.startswith("mean")]
    assert len(lines) == len({(cell.threads, cell.concurrency) for cell in profile.cells})
    drawn_ms = sorted(y for line in lines for y in line.y)
    assert drawn_ms == pytest.approx(sorted(1000 * (cell.service_mean_s or 0) for cell in profile.cells))
    assert list(figure.layout.xaxis.tickvals) == sorted({cell.batch_size or 0 for cell in profile.cells})


EXACT = Method(model="batch queue", exactness="exact", error_frac=0.0, reason="")
POINTS = tuple(
    DistributionPoint(response_time_s=0.01 * step, predicted_frac=10.0 ** (1 - step), simulated_frac=frac)
    for step, frac in ((1, 1.0), (2, 0.09), (3, 0.011), (4, 0.0))
)


def limit(percentile: float, limit_s: float) -> WorkloadAnswer:
    """Make an answer under a limit."""
    return WorkloadAnswer(
        workload="w", percentile=percentile, limit_s=limit_s, value_s=0.03, likely_s=0.02, method=EXACT
    )


def test_response_times_are_drawn_in_milliseconds_and_percent() -> None:
    """Both lines have their own colour and dash; a share of 0 has no place on a logarithmic axis."""
    figure = response_figure(POINTS, (limit(0.99, 0.05),))
    predicted, simulated, mark = figure.data
    assert [trace.name for trace in figure.data] == ["Predicted", "Simulated", "p99 limit 50 ms"]
    assert list(predicted.x) == pytest.approx([10, 20, 30, 40])
    assert list(predicted.y) == pytest.approx([100, 10, 1, 0.1])
    assert list(simulated.y) == pytest.approx([100, 9, 1.1])
    assert (predicted.line.color, predicted.line.dash) != (simulated.line.color, simulated.line.dash)
    assert predicted.line.dash == "solid"
    assert list(mark.x) == [50] * 3
    assert mark.y[1] == pytest.approx(1)
    assert list(mark.marker.size) == [0, 12, 0]


def test_each_limit_has_its_own_mark_inside_the_axes() -> None:
    """A stricter percentile than the lines reach is still on the chart."""
    answers = (limit(0.999, 0.08), limit(0.99, 0.05), limit(0.5, 0.004))
    figure = response_figure(POINTS, answers)
    marks = figure.data[2:]
    assert len({mark.marker.symbol for mark in marks}) == len(answers)
    low, high = (10**end for end in figure.layout.yaxis.range)
    left, right = (10**end for end in figure.layout.xaxis.range)
    for mark, answer in zip(marks, answers, strict=True):
        assert mark.y[1] == pytest.approx(100 * (1 - answer.percentile))
        assert low < mark.y[1] < high
        assert left < mark.x[1] < right
    assert figure.layout.xaxis.title.text == "Response time (ms, log scale)"
    assert figure.layout.yaxis.title.text == "Slower requests (%, log scale)"


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("Cost (USD/month)", "1,234.50"),
        ("Price (USD/h each)", "1,234.5000"),
        ("Count", "1,234"),
        ("Peak to mean", "1,234.50"),
        ("Saturation (%)", "1,234.5"),
    ],
)
def test_the_unit_of_a_column_decides_how_its_numbers_are_written(column: str, text: str) -> None:
    """Money in whole cents, thousands with a comma, whatever the language of the browser."""
    assert number_format(column).format(1234.5) == text
