"""Frames to figures: pure functions, colours, dashes and markers fixed per kind of machine."""

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from advisor.domain.plan import BreakEven, DistributionPoint, Step, WorkloadAnswer
from advisor.domain.profile import Profile
from advisor.domain.workload import percentile_label
from advisor.reports.profile_sentences import place_words
from advisor.reports.sentences import milliseconds, rate
from advisor.units import s_to_ms

BLUE, VERMILION, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#767676"
LINES = ((BLUE, "solid"), (VERMILION, "dash"), (GREEN, "dot"), (GREY, "dashdot"))
LIMIT_MARKS = (("dot", "diamond"), ("dashdot", "square"), ("longdash", "circle"), ("longdashdot", "x"))
HEIGHT_PX = 400
LEAST_SLOWER_FRAC = 1e-3
"""The chart of response times ends at one request in a thousand, or below the strictest percentile."""
MOST_TICKS = 9
NO_TOOLBAR = {"displayModeBar": False}


def break_even_figure(steps: BreakEven, demand_rps: float, cost_usd: float, budget_usd: float | None) -> go.Figure:
    """Cost of the cheapest all-CPU, all-GPU and mixed fleets against traffic, and where the plan stands."""
    figure = go.Figure()
    start, end = max(1e-3, min(1.0, demand_rps / 10)), max(steps.up_to_rps, demand_rps)
    # The mix lies under the others as a broad band: where it follows one of them, both are seen.
    for name, stairs, line in (
        ("Cheapest of any kind", steps.mixed, {"color": GREEN, "width": 8}),
        ("CPU only", steps.cpu, {"color": BLUE, "dash": "solid", "width": 2.5}),
        ("GPU only", steps.gpu, {"color": VERMILION, "dash": "dash", "width": 2.5}),
    ):
        if stairs:
            rates, costs = staircase_points(stairs, start, steps.up_to_rps)
            figure.add_trace(
                go.Scatter(
                    x=rates,
                    y=costs,
                    name=name,
                    mode="lines",
                    opacity=0.4 if name.startswith("Cheapest") else 1.0,
                    line={"shape": "vh", **line},
                    hovertemplate=f"up to %{{x:,.4g}} req/s: $%{{y:,.2f}} a month<extra>{name}</extra>",
                )
            )
    known = [cost for trace in figure.data for cost in trace.y] + [
        cost_usd,
        *([budget_usd] if budget_usd else []),
    ]
    low, high = 0.8 * min(known), 1.25 * max(known)
    for crossing, name in crossings(steps, start):
        figure.add_trace(_rule([crossing] * 2, [low, high], name, dash="dot"))
    if budget_usd is not None:
        figure.add_trace(_rule([start, end], [budget_usd] * 2, "Budget", dash="dashdot"))
    figure.add_trace(
        go.Scatter(
            x=[demand_rps],
            y=[cost_usd],
            name="This plan",
            mode="markers",
            marker={
                "symbol": "diamond",
                "size": 14,
                "color": "#222222",
                "line": {"color": "white", "width": 2},
            },
            hovertemplate="%{x:,.4g} req/s: $%{y:,.2f} a month<extra>This plan</extra>",
        )
    )
    dress(figure, "Traffic (requests/s, log scale)", "Cost (USD/month, log scale)")
    figure.update_xaxes(**log_axis(start, end))
    figure.update_yaxes(**log_axis(low, high, prefix="$"))
    return figure


def staircase_points(stairs: Sequence[Step], start_rps: float, end_rps: float) -> tuple[list[float], list[float]]:
    """Points whose vertical-then-horizontal line is the staircase between two rates.

    Examples
    --------
    >>> steps = (Step(rate_rps=10, cost_usd_per_month=1), Step(rate_rps=20, cost_usd_per_month=2))
    >>> staircase_points(steps, 1, 15)
    ([1, 10.0, 15], [1.0, 1.0, 2.0])
    """
    inside = [step for step in stairs if step.rate_rps > start_rps]
    rates, costs = [start_rps], [inside[0].cost_usd_per_month if inside else stairs[-1].cost_usd_per_month]
    for step in inside:
        rates.append(min(step.rate_rps, end_rps))
        costs.append(step.cost_usd_per_month)
        if step.rate_rps >= end_rps:
            break
    return rates, costs


def crossings(steps: BreakEven, start_rps: float) -> list[tuple[float, str]]:
    """Rates where the cheaper kind changes for the first and for the last time, with their names."""
    first_gpu, last_cpu = steps.first_gpu_win_rps, steps.last_cpu_win_rps
    if first_gpu is None or last_cpu is None:
        return []
    if last_cpu <= first_gpu:
        found = [(first_gpu, f"GPU pays from {rate(first_gpu)}")]
    else:
        found = [
            (first_gpu, f"GPU pays for the first time at {rate(first_gpu)}"),
            (last_cpu, f"and for good from {rate(last_cpu)}"),
        ]
    return [crossing for crossing in found if crossing[0] > start_rps]


def log_ticks(low: float, high: float) -> list[float]:
    """Round values between two ends of a logarithmic axis, as many as can be read.

    Examples
    --------
    >>> log_ticks(40, 1200)
    [50.0, 100.0, 200.0, 500.0, 1000.0]
    >>> log_ticks(1, 3000)
    [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0]
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for mantissas in ((1, 2, 5), (1, 3), (1,)):
        ticks = [float(f"{mantissa}e{decade}") for decade in decades for mantissa in mantissas]
        inside = [tick for tick in ticks if low <= tick <= high]
        if len(inside) <= MOST_TICKS:
            break
    return inside


def service_figure(profile: Profile) -> go.Figure:
    """Mean service time against batch size, one line per configuration, with p99 where it is known."""
    figure = go.Figure()
    groups: dict[tuple[int | None, int | None], list[tuple[int, float, float | None]]] = {}
    for cell in profile.cells:
        if cell.batch_size is not None and cell.service_mean_s is not None:
            groups.setdefault((cell.threads, cell.concurrency), []).append(
                (cell.batch_size, cell.service_mean_s, cell.service_p99_s)
            )
    for index, ((threads, concurrency), points) in enumerate(groups.items()):
        color, dash = LINES[index % len(LINES)]
        points.sort()
        words = place_words(threads, concurrency)
        where = f", {words}" if words else ""
        figure.add_trace(
            go.Scatter(
                x=[batch for batch, _, _ in points],
                y=[s_to_ms(mean) for _, mean, _ in points],
                name=f"mean{where}",
                mode="lines+markers",
                line={"color": color, "dash": dash},
                hovertemplate="batch %{x}: %{y:,.4g} ms<extra></extra>",
            )
        )
        tails = [(batch, s_to_ms(p99)) for batch, _, p99 in points if p99 is not None]
        if tails:
            figure.add_trace(
                go.Scatter(
                    x=[batch for batch, _ in tails],
                    y=[p99 for _, p99 in tails],
                    name=f"p99{where}",
                    mode="markers",
                    marker={"color": color, "symbol": "triangle-up", "size": 10},
                    hovertemplate="batch %{x}: p99 %{y:,.4g} ms<extra></extra>",
                )
            )
    dress(figure, "Batch size (items per call, log scale)", "Time per call (ms, log scale)")
    batches = sorted({batch for points in groups.values() for batch, _, _ in points})
    times = [time for trace in figure.data for time in trace.y]
    if times:
        figure.update_xaxes(**log_axis(batches[0] / 1.15, batches[-1] * 1.15))
        if len(batches) <= MOST_TICKS:
            figure.update_xaxes(tickvals=batches, ticktext=[str(batch) for batch in batches])
        figure.update_yaxes(**log_axis(min(times) / 1.3, max(times) * 1.3))
    return figure


def response_figure(points: Sequence[DistributionPoint], answers: Sequence[WorkloadAnswer]) -> go.Figure:
    """Share of requests slower than a time, predicted and simulated, and where each limit stands.

    A limit holds where the lines pass below its mark, at the share that the percentile leaves.
    """
    low_pct = 100 * min([LEAST_SLOWER_FRAC, *(0.5 * (1 - answer.percentile) for answer in answers)])
    figure = go.Figure()
    for name, color, dash, fracs in (
        ("Predicted", BLUE, "solid", [point.predicted_frac for point in points]),
        ("Simulated", VERMILION, "dash", [point.simulated_frac for point in points]),
    ):
        drawn = [(point.response_time_s, frac) for point, frac in zip(points, fracs, strict=True) if frac > 0]
        figure.add_trace(
            go.Scatter(
                x=[s_to_ms(time_s) for time_s, _ in drawn],
                y=[100 * frac for _, frac in drawn],
                name=name,
                mode="lines",
                line={"color": color, "dash": dash, "width": 2.5},
                hovertemplate=f"%{{y:.3g}} % slower than %{{x:,.4g}} ms<extra>{name}</extra>",
            )
        )
    for index, answer in enumerate(answers):
        dash, symbol = LIMIT_MARKS[index % len(LIMIT_MARKS)]
        figure.add_trace(_limit_mark(answer, low_pct, dash=dash, symbol=symbol))
    dress(figure, "Response time (ms, log scale)", "Slower requests (%, log scale)")
    times_s = [point.response_time_s for point in points] + [answer.limit_s for answer in answers]
    figure.update_xaxes(**log_axis(s_to_ms(min(times_s)) / 1.05, s_to_ms(max(times_s)) * 1.05))
    figure.update_yaxes(**log_axis(low_pct, 130.0, suffix=" %"))
    return figure


def _limit_mark(answer: WorkloadAnswer, low_pct: float, *, dash: str, symbol: str) -> go.Scatter:
    """Upright line at a limit, marked at the share of requests that may be slower."""
    limit_ms, label = s_to_ms(answer.limit_s), percentile_label(answer.percentile)
    return go.Scatter(
        x=[limit_ms] * 3,
        y=[low_pct, 100 * (1 - answer.percentile), 100.0],
        name=f"{label} limit {milliseconds(answer.limit_s)}",
        mode="lines+markers",
        line={"color": GREY, "dash": dash, "width": 2},
        marker={"color": "#222222", "symbol": symbol, "size": [0, 12, 0], "opacity": 1},
        hovertemplate=f"at most %{{y:.3g}} % slower than %{{x:,.4g}} ms<extra>{label} limit</extra>",
    )


def _rule(rates: list[float], costs: list[float], name: str, *, dash: str) -> go.Scatter:
    """Straight line with an entry of its own in the legend."""
    return go.Scatter(
        x=rates,
        y=costs,
        name=name,
        mode="lines",
        line={"color": GREY, "dash": dash, "width": 2},
        hoverinfo="name",
    )


def log_axis(low: float, high: float, *, prefix: str = "", suffix: str = "") -> dict[str, object]:
    """Settings of a logarithmic axis between two values, with round ticks."""
    ticks = log_ticks(low, high)
    return {
        "type": "log",
        "range": [math.log10(low), math.log10(high)],
        "tickvals": ticks,
        "ticktext": [f"{prefix}{tick:,.0f}{suffix}" if tick >= 1 else f"{prefix}{tick:g}{suffix}" for tick in ticks],
        "tickangle": 0,
        "showgrid": True,
        "minor": {"ticks": "", "showgrid": False},
    }


def dress(figure: go.Figure, x_title: str, y_title: str) -> None:
    """Give a figure the height, titles and legend that all have."""
    figure.update_layout(
        height=HEIGHT_PX,
        margin={"l": 10, "r": 20, "t": 10, "b": 10},
        xaxis_title=x_title,
        yaxis_title=y_title,
        legend={"orientation": "h", "yanchor": "top", "y": -0.2, "x": 0},
        showlegend=True,
        hovermode="closest",
    )
