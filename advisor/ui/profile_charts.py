"""Figures of one profile: response times under load, observed and predicted."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeAlias

import plotly.graph_objects as go

from advisor.domain.measurement import Checked, LoadRun
from advisor.reports.profile_sentences import place_words
from advisor.ui.charts import BLUE, GREEN, GREY, VERMILION, dress, log_axis
from advisor.units import s_to_ms

FIGURES: tuple[tuple[str, str, str, Callable[[LoadRun], Checked]], ...] = (
    ("p99", VERMILION, "triangle-up", lambda run: run.p99),
    ("p95", GREEN, "square", lambda run: run.p95),
    ("mean", BLUE, "circle", lambda run: run.mean),
)
"""Name, color, symbol and place of each figure that is checked, the slowest first as in the drawing."""
DOUBTFUL, INTERVAL = "x-thin-open", "line-ew-open"
WIDEST_STEP_PCT, LONE_LOAD_GAP_PCT = 1.5, 10.0
"""Runs of one load lie so far apart at most, and fill at most three quarters of the gap to the next load."""

_Placed: TypeAlias = tuple[float, LoadRun]
"""Where a run is drawn on the axis of loads [%], and the run."""


def load_figure(runs: Sequence[LoadRun]) -> go.Figure:
    """Predicted intervals as bars and observed response times as symbols, against the load.

    A doubtful run is a thin cross whatever its figure, so that it is told apart without color. Runs of one load stand
    side by side.
    """
    figure = go.Figure()
    loads_pct = [100 * run.load for run in runs]
    placed = list(zip(side_by_side(loads_pct), runs, strict=True))
    clean = [(x, run) for x, run in placed if run.clean]
    doubtful = [(x, run) for x, run in placed if not run.clean]
    for name, color, symbol, checked in FIGURES:
        figure.add_trace(_predicted(name, color, [(at, checked(at[1])) for at in placed]))
        if clean:
            figure.add_trace(_observed(f"{name} observed", color, symbol, [(at, checked(at[1]), name) for at in clean]))
    if doubtful:
        seen = [(at, checked(at[1]), name) for name, _, _, checked in FIGURES for at in doubtful]
        figure.add_trace(_observed("observed in a doubtful run", "#222222", DOUBTFUL, seen))
    figure.add_trace(_legend_entry())
    dress(figure, "Load (% of the saturated throughput)", "Response time (ms, log scale)")
    times_ms = [
        s_to_ms(time_s)
        for run in runs
        for _, _, _, checked in FIGURES
        for time_s in (checked(run).observed_s, checked(run).predicted.low_s, checked(run).predicted.high_s)
    ]
    figure.update_yaxes(**log_axis(min(times_ms) / 1.3, max(times_ms) * 1.3))
    ends = [min(loads_pct) - 8, max(loads_pct) + 8]
    figure.update_xaxes(range=ends, tickvals=sorted(set(loads_pct)), tickformat=".3~g")
    return figure


def side_by_side(loads_pct: Sequence[float]) -> list[float]:
    """Places of runs on the axis of loads: those of one load spread about it, in their order [%].

    Examples
    --------
    >>> side_by_side([30.0, 50.0, 50.0])
    [30.0, 49.25, 50.75]
    """
    counts = Counter(loads_pct)
    gap = min((high - low for low, high in pairwise(sorted(counts))), default=LONE_LOAD_GAP_PCT)
    step = min(WIDEST_STEP_PCT, 0.75 * gap / max(counts.values()))
    seen: Counter[float] = Counter()
    places = []
    for load in loads_pct:
        places.append(load + step * (seen[load] - (counts[load] - 1) / 2))
        seen[load] += 1
    return places


def _predicted(name: str, color: str, points: Sequence[tuple[_Placed, Checked]]) -> go.Scatter:
    values = [s_to_ms(checked.predicted.value_s) for _, checked in points]
    return go.Scatter(
        x=[x for (x, _), _ in points],
        customdata=[100 * run.load for (_, run), _ in points],
        y=values,
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [
                s_to_ms(checked.predicted.high_s) - value for (_, checked), value in zip(points, values, strict=True)
            ],
            "arrayminus": [
                value - s_to_ms(checked.predicted.low_s) for (_, checked), value in zip(points, values, strict=True)
            ],
            "color": color,
            "thickness": 1.5,
            "width": 4,
        },
        name=f"{name} predicted",
        showlegend=False,
        mode="markers",
        marker={"color": color, "symbol": INTERVAL, "size": 10, "line": {"width": 2}},
        hovertemplate=f"{name} predicted %{{y:,.4g}} ms at %{{customdata:.0f}} % load<extra></extra>",
    )


def _legend_entry() -> go.Scatter:
    """One entry for all predictions, whose color is that of their figure."""
    return go.Scatter(
        x=[None],
        y=[None],
        name="predicted, bar: 95 % interval",
        mode="markers",
        marker={"color": GREY, "symbol": INTERVAL, "size": 16, "line": {"width": 2}},
    )


def _observed(name: str, color: str, symbol: str, points: Sequence[tuple[_Placed, Checked, str]]) -> go.Scatter:
    return go.Scatter(
        x=[x for (x, _), _, _ in points],
        y=[s_to_ms(checked.observed_s) for _, checked, _ in points],
        customdata=[
            (figure, f"{place_words(run.threads, run.concurrency)}, batch cap {run.max_batch_size}", 100 * run.load)
            for (_, run), _, figure in points
        ],
        name=name,
        mode="markers",
        marker={"color": color, "symbol": symbol, "size": 9, "line": {"width": 2, "color": color}},
        hovertemplate=(
            "%{customdata[0]} observed %{y:,.4g} ms at %{customdata[2]:.0f} % load<br>%{customdata[1]}<extra></extra>"
        ),
    )
