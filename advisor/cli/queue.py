"""``advisor queue``: the response time of one pool from a queueing model, for checks by hand."""

import math
from functools import partial
from typing import Annotated

import typer

from advisor.errors import InputError
from advisor.queueing.approximations import HIGHEST_TRIED_SCV, P99_ERROR_FRAC, VARIABLE_P99_ERROR_FRAC, gigc
from advisor.queueing.exact import lognormal_points, mdc, mg1, mmc
from advisor.queueing.gaps import HIGHEST_SCV, LOWEST_SCV, renewal_law
from advisor.queueing.qbd import gimc
from advisor.queueing.renewal import gidc, gig1
from advisor.queueing.response import ResponseTime
from advisor.queueing.staffing import servers_for_percentile, servers_for_service_level, square_root_staffing
from advisor.reports.sentences import milliseconds
from advisor.units import ms_to_s

HIGHEST_LOAD = 0.999
LARGEST_SCV = 100.0
MOST_SERVERS = 10_000
"""Servers of one queue: with very regular arrivals the models take a second here, and in proportion to the number."""
MOST_ERLANGS = 2000.0
"""Offered load up to which the number of servers is looked for: beyond, the models take seconds per number."""

Rate = Annotated[float, typer.Option(min=0.0, help="requests per second")]
Service = Annotated[float, typer.Option("--service-ms", min=0.0, help="mean service time in ms")]
Servers = Annotated[int, typer.Option(min=1, help=f"servers that share one queue, at most {MOST_SERVERS:,}")]
Scv = Annotated[
    float,
    typer.Option(
        min=0.0,
        help="squared coefficient of variation of the service time: 0 constant, 1 exponential, else lognormal",
    ),
]
ArrivalScv = Annotated[
    float, typer.Option(help="squared coefficient of variation of the time between arrivals: 1 Poisson, above 1 bursts")
]
Limit = Annotated[float | None, typer.Option("--limit-ms", help="limit of the percentile in ms: how many servers?")]
WaitLimit = Annotated[
    float | None,
    typer.Option("--wait-limit-ms", help="limit of the wait alone in ms, for Poisson arrivals and exponential service"),
]
Percentile = Annotated[float, typer.Option(help="percentile that the limits are for")]


def queue(
    *,
    rate: Rate,
    service_ms: Service,
    servers: Servers = 1,
    scv: Scv = 1.0,
    arrival_scv: ArrivalScv = 1.0,
    limit_ms: Limit = None,
    wait_limit_ms: WaitLimit = None,
    percentile: Percentile = 99.0,
) -> None:
    """Response time without batching: exact for one server and for SCV 0 and 1, else an approximation."""
    service_s = ms_to_s(service_ms)
    _check(rate, service_s, servers, scv=scv, arrival_scv=arrival_scv)
    _check_limits(limit_ms, wait_limit_ms, percentile)
    if HIGHEST_LOAD < rate * service_s / servers < 1:
        raise InputError("--rate", rate, f"a load of at most {HIGHEST_LOAD:.1%}: nearer to 1 no figure is reliable")
    model = partial(_model, rate, service_s, scv=scv, arrival_scv=arrival_scv)
    response = model(servers)
    typer.echo(f"{response.model}, {_accuracy(servers, scv, arrival_scv)}, utilization {response.utilization:.1%}")
    for warning in response.warnings:
        typer.echo(f"warning: {warning}")
    if response.reason:
        typer.echo(response.reason)
    else:
        for label, value in (
            ("mean", response.mean_s),
            *((f"p{q * 100:g}", response.percentile(q)) for q in (0.5, 0.95, 0.99)),
        ):
            typer.echo(f"{label:>5} {milliseconds(value)}")
    load = rate * service_s
    if (limit_ms is not None or wait_limit_ms is not None) and load > MOST_ERLANGS:
        raise InputError("--rate", rate, f"an offered load of at most {MOST_ERLANGS:g} busy servers with a limit")
    if limit_ms is not None:
        fewest = math.ceil(load / HIGHEST_LOAD)
        needed = servers_for_percentile(model, ms_to_s(limit_ms), percentile / 100, fewest=fewest)
        typer.echo(_needed(needed, f"p{percentile:g}", limit_ms))
    if wait_limit_ms is not None:
        typer.echo(_wait_staffing(rate, service_s, wait_limit_ms, percentile, both=(scv, arrival_scv)))
    if response.reason:
        raise typer.Exit(3)


def _check(rate_rps: float, service_s: float, servers: int, *, scv: float, arrival_scv: float) -> None:
    if not (0 < rate_rps < 1e9 and 0 < service_s < 1e6):
        raise InputError("--rate and --service-ms", f"{rate_rps:g}/s and {service_s:g} s", "finite numbers above 0")
    if not 1 <= servers <= MOST_SERVERS:
        raise InputError("--servers", servers, f"a whole number from 1 to {MOST_SERVERS:,}")
    if not 0 <= scv <= LARGEST_SCV:
        raise InputError("--scv", scv, f"a number from 0 to {LARGEST_SCV:g}")
    if not LOWEST_SCV <= arrival_scv <= HIGHEST_SCV:
        raise InputError("--arrival-scv", arrival_scv, f"a number from {LOWEST_SCV:g} to {HIGHEST_SCV:g}")


def _check_limits(limit_ms: float | None, wait_limit_ms: float | None, percentile: float) -> None:
    if limit_ms is not None and not 0 < limit_ms < math.inf:
        raise InputError("--limit-ms", limit_ms, "a finite number above 0")
    if wait_limit_ms is not None and not 0 <= wait_limit_ms < math.inf:
        raise InputError("--wait-limit-ms", wait_limit_ms, "a finite number of at least 0")
    if not 0 < percentile < 100:
        raise InputError("--percentile", percentile, "a number above 0 and below 100")


def _model(rate_rps: float, service_s: float, servers: int, *, scv: float, arrival_scv: float) -> ResponseTime:
    """Most exact model for the case."""
    law = None if arrival_scv == 1 else renewal_law(arrival_scv)
    if scv == 0:
        return mdc(rate_rps, service_s, servers) if law is None else gidc(rate_rps, law, service_s, servers)
    if scv == 1:
        return mmc(rate_rps, service_s, servers) if law is None else gimc(rate_rps, law, service_s, servers)
    times_s, weights = lognormal_points(service_s, scv)
    if servers > 1:
        return gigc(rate_rps, law, times_s, weights, servers=servers)
    return mg1(rate_rps, times_s, weights) if law is None else gig1(rate_rps, law, times_s, weights)


def _accuracy(servers: int, scv: float, arrival_scv: float) -> str:
    if scv == 1 or (scv == 0 and arrival_scv == 1):
        return "exact"
    if servers == 1 or scv == 0:
        return "exact on a lattice"
    if scv > HIGHEST_TRIED_SCV:
        return "error not known"
    error = P99_ERROR_FRAC if scv < 1 else VARIABLE_P99_ERROR_FRAC
    return f"p99 within {error:.0%} up to 90% load"


def _needed(servers: int | None, percentile: str, limit_ms: float) -> str:
    if servers is None:
        return f"No number of servers keeps {percentile} within {limit_ms:g} ms: the service time alone exceeds it."
    return f"{servers} server{'s' * (servers > 1)} keep{'s' * (servers == 1)} {percentile} within {limit_ms:g} ms."


def _wait_staffing(
    rate_rps: float, service_s: float, limit_ms: float, percentile: float, *, both: tuple[float, float]
) -> str:
    if both != (1.0, 1.0):
        raise InputError("--wait-limit-ms", limit_ms, "Poisson arrivals and exponential service, SCV 1 of both")
    staffing = servers_for_service_level(rate_rps, service_s, ms_to_s(limit_ms), percentile / 100)
    rule = square_root_staffing(rate_rps * service_s, staffing.wait_probability)
    return (
        f"{staffing.servers} servers: {staffing.service_level:.1%} wait at most {limit_ms:g} ms, "
        f"{staffing.wait_probability:.1%} wait at all, {staffing.occupancy:.1%} busy (square-root rule: {rule})."
    )
