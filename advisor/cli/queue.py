"""``advisor queue``: the response time of one pool from a textbook model, for checks by hand."""

from typing import Annotated

import numpy as np
import typer

from advisor.errors import InputError
from advisor.queueing.batch import lognormal_noise
from advisor.queueing.exact import mdc, mg1, mmc
from advisor.queueing.response import ResponseTime
from advisor.reports.sentences import milliseconds
from advisor.units import ms_to_s

HIGHEST_LOAD = 0.999
LARGEST_SCV = 100.0

Rate = Annotated[float, typer.Option(min=0.0, help="requests per second")]
Service = Annotated[float, typer.Option("--service-ms", min=0.0, help="mean service time [ms]")]
Servers = Annotated[int, typer.Option(min=1, help="servers that share one queue")]
Scv = Annotated[
    float,
    typer.Option(min=0.0, help="squared coefficient of variation of the service time: 0 constant, 1 exponential"),
]


def queue(*, rate: Rate, service_ms: Service, servers: Servers = 1, scv: Scv = 1.0) -> None:
    """Exact response time without batching: M/M/c (SCV 1), M/D/c (SCV 0), M/G/1 (one server, lognormal)."""
    response = _model(rate, ms_to_s(service_ms), servers, scv)
    typer.echo(f"{response.model}, utilization {response.utilization:.1%}")
    if response.reason:
        typer.echo(response.reason)
        raise typer.Exit(3)
    for label, value in (
        ("mean", response.mean_s),
        *((f"p{q * 100:g}", response.percentile(q)) for q in (0.5, 0.95, 0.99)),
    ):
        typer.echo(f"{label:>5} {milliseconds(value)}")


def _model(rate_rps: float, service_s: float, servers: int, scv: float) -> ResponseTime:
    if not (0 < rate_rps < 1e9 and 0 < service_s < 1e6):
        raise InputError("--rate and --service-ms", f"{rate_rps:g}/s and {service_s:g} s", "finite numbers above 0")
    if not 0 <= scv <= LARGEST_SCV:
        raise InputError("--scv", scv, f"a number from 0 to {LARGEST_SCV:g}")
    if HIGHEST_LOAD < rate_rps * service_s / servers < 1:
        raise InputError("--rate", rate_rps, f"a load of at most {HIGHEST_LOAD:.1%}: nearer to 1 no figure is reliable")
    if scv == 0:
        return mdc(rate_rps, service_s, servers)
    if scv == 1:
        return mmc(rate_rps, service_s, servers)
    if servers > 1:
        raise InputError("--scv", scv, "0 or 1 with several servers; any value with one server")
    law = lognormal_noise(scv)
    return mg1(rate_rps, np.asarray(law.points) * service_s, law.weights)
