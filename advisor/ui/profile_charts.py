"""Figures of one profile: response times under load, observed and predicted."""

from collections.abc import Callable, Sequence

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


def load_figure(runs: Sequence[LoadRun]) -> go.Figure:
    """Predicted intervals as bars and observed response times as symbols, against the load.

    A doubtful run is a thin cross whatever its figure, so that it is told apart without color.
    """
    figure = go.Figure()
    clean = [run for run in runs if run.clean]
    doubtful = [run for run in runs if not run.clean]
    for name, color, symbol, checked in FIGURES:
        figure.add_trace(_predicted(name, color, [(run, checked(run)) for run in runs]))
        if clean:
            figure.add_trace(_observed(f"{name} observed", color, symbol, [(run, checked(run), name) for run in clean]))
    if doubtful:
        seen = [(run, checked(run), name) for name, _, _, checked in FIGURES for run in doubtful]
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
    loads_pct = [100 * run.load for run in runs]
    figure.update_xaxes(range=[min(loads_pct) - 5, max(loads_pct) + 5], ticksuffix=" %")
    return figure


def _predicted(name: str, color: str, points: Sequence[tuple[LoadRun, Checked]]) -> go.Scatter:
    values = [s_to_ms(checked.predicted.value_s) for _, checked in points]
    return go.Scatter(
        x=[100 * run.load for run, _ in points],
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
            "width": 8,
        },
        name=f"{name} predicted",
        showlegend=False,
        mode="markers",
        marker={"color": color, "symbol": INTERVAL, "size": 16, "line": {"width": 2}},
        hovertemplate=f"{name} predicted %{{y:,.4g}} ms at %{{x:.0f}} % load<extra></extra>",
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


def _observed(name: str, color: str, symbol: str, points: Sequence[tuple[LoadRun, Checked, str]]) -> go.Scatter:
    return go.Scatter(
        x=[100 * run.load for run, _, _ in points],
        y=[s_to_ms(checked.observed_s) for _, checked, _ in points],
        customdata=[
            (figure, f"{place_words(run.threads, run.concurrency)}, batch cap {run.max_batch_size}")
            for run, _, figure in points
        ],
        name=name,
        mode="markers",
        marker={"color": color, "symbol": symbol, "size": 11, "line": {"width": 2, "color": color}},
        hovertemplate="%{customdata[0]} observed %{y:,.4g} ms at %{x:.0f} % load<br>%{customdata[1]}<extra></extra>",
    )
