"""Which model answers for a pool, decided in one place.

Exact where theory allows, an approximation with a stated error where it does not, simulation where neither is safe.
"""

from advisor.capacity.curve import SERIES_BLOCK, ServiceCurve
from advisor.capacity.traffic import Traffic
from advisor.domain.plan import Method
from advisor.queueing.approximations import gigc
from advisor.queueing.batch import batch_queue
from advisor.queueing.exact import mdc
from advisor.queueing.gaps import renewal_law
from advisor.queueing.renewal import gidc, gig1
from advisor.queueing.response import ResponseTime
from advisor.simulation.arrivals import Arrivals
from advisor.simulation.engine import Pool
from advisor.simulation.metrics import Stream

HIGHEST_HYBRID_SCV = 1.0
"""Above this SCV of the service time the approximation of p99 errs by up to 13 %, more than a simulation."""
HYBRID_ERROR_FRAC = 0.05
"""Largest error of its p99 up to that SCV and 90 % load, against simulation (docs/queueing.md)."""
CHECK_CELLS = 400
"""Lattice cells of the batch queue where a promise is made."""
RELAXATIONS = 20
"""Length of a replication in relaxations; its first tenth is dropped."""
HIGHEST_LOAD = 0.98
"""Loads above this are looked at as if they were this high: nothing is promised there."""
SIMULATED_TARGET = 0.02
"""Half width of the 95 % interval that simulated answers aim at, relative to the percentile."""


def choose(curve: ServiceCurve, max_batch: int, servers: int, traffic: Traffic) -> Method:
    """Model for a pool of replicas: the only place where this is decided."""
    if traffic.call_order == "as_measured":
        return _simulated("service times follow each other as measured, and models take them as independent")
    if traffic.delay_s > 0 and max_batch > 1:
        return _simulated("a replica waits for its batch to fill, which no exact model covers")
    if traffic.shape in ("bursts", "periodic", "replay"):
        return _simulated("requests do not come at a constant rate and independently of each other")
    alone = servers == 1 or traffic.routing == "random"
    if alone and traffic.shape == "poisson":
        return _exact("batch queue", "replicas are independent queues with Poisson arrivals")
    if max_batch > 1:
        what = "gaps between requests are not Poisson" if alone else "replicas share their requests"
        return _simulated(f"{what}, and requests are served in batches: no analytic model tested is safe")
    if alone:
        return _exact("GI/G/1", "one request at a time, and a random split of renewal arrivals is renewal")
    if traffic.routing != "central_queue":
        return _simulated("the router looks at the queues or goes in turn, which no exact model covers")
    return _shared_queue(curve.noise[0].scv, traffic)


def _shared_queue(scv: float, traffic: Traffic) -> Method:
    """One queue before several replicas, one request at a time."""
    if scv == 0:
        name = "M/D/c" if traffic.shape == "poisson" else "GI/D/c"
        return _exact(name, "one queue, one request at a time, constant service time")
    if scv > HIGHEST_HYBRID_SCV:
        return _simulated(f"the service time is too variable (SCV {scv:.2g}) for the approximation")
    reason = f"one queue, one request at a time, service time with an SCV of {scv:.2g}: no exact model"
    name = "M/G/c" if traffic.shape == "poisson" else "GI/G/c"
    return Method(model=f"{name} hybrid", exactness="approximation", error_frac=HYBRID_ERROR_FRAC, reason=reason)


def _exact(model: str, reason: str) -> Method:
    return Method(model=model, exactness="exact", error_frac=0.0, reason=reason)


def _simulated(reason: str) -> Method:
    return Method(model="simulation", exactness="simulated", error_frac=SIMULATED_TARGET, reason=reason)


def response_time(
    curve: ServiceCurve,
    max_batch: int,
    rate_rps: float,
    *,
    servers: int = 1,
    traffic: Traffic | None = None,
    cells: int = CHECK_CELLS,
) -> ResponseTime:
    """Response time of a pool by its analytic model.

    Parameters
    ----------
    curve, max_batch
        Service times and batch cap of a replica.
    rate_rps
        Mean rate at the whole pool [1/s].
    servers
        Replicas.
    traffic
        Arrivals and routing; Poisson and random when not given.
    cells
        Lattice cells of the batch queue.

    Raises
    ------
    ValueError
        When the pool has to be simulated.
    """
    traffic = traffic or Traffic()
    times, weights = curve.noise[0].points * float(curve.batch_time_s[0]), curve.noise[0].weights
    law = traffic.law or renewal_law(1.0)
    match choose(curve, max_batch, servers, traffic).model:
        case "batch queue":
            return batch_queue(rate_rps / servers, curve.batch_time_s[:max_batch], curve.noise[:max_batch], cells=cells)
        case "GI/G/1":
            return gig1(rate_rps / servers, law, times, weights, keep_frac=1 / servers)
        case "M/D/c":
            return mdc(rate_rps, float(curve.batch_time_s[0]), servers)
        case "GI/D/c":
            return gidc(rate_rps, law, float(curve.batch_time_s[0]), servers)
        case "M/G/c hybrid":
            return gigc(rate_rps, None, times, weights, servers=servers)
        case "GI/G/c hybrid":
            return gigc(rate_rps, law, times, weights, servers=servers)
    raise ValueError("this pool has no analytic model")


def steady_requests(curve: ServiceCurve, max_batch: int, rate_rps: float, *, servers: int, traffic: Traffic) -> float:
    """Requests that one replication of a pool needs, so that its empty start does not show.

    Twenty times the relaxation: the requests that fill all servers once, cB, and those in which a queue near saturation
    forgets its past, (c_a² + c_s²)B/(1-ρ)²; or twenty bursts. A recording has its own length, whatever this says.
    """
    if traffic.separable:
        rate_rps, servers = rate_rps / servers, 1
    full_s = float(curve.batch_time_s[max_batch - 1])
    load = min(HIGHEST_LOAD, rate_rps * traffic.mean_frac * full_s / max_batch / servers)
    series = SERIES_BLOCK if traffic.call_order == "as_measured" else 1
    variability = max(1.0, traffic.law.scv if traffic.law else 1.0) + series * curve.noise[max_batch - 1].scv
    relaxation = servers * max_batch + variability * max_batch / (1 - load) ** 2
    return RELAXATIONS * max(relaxation, traffic.cycle_requests(rate_rps))


def replica_arrivals(traffic: Traffic, rate_rps: float, share: float, servers: int) -> Arrivals:
    """Arrivals at one of several replicas that get a share of all requests, at random or in turn."""
    if traffic.routing == "round_robin":
        return traffic.at_replica(rate_rps, keep_frac=share, every=servers)
    return traffic.at_replica(rate_rps, keep_frac=share / servers, every=1)


def streams_of(
    curve: ServiceCurve, max_batch: int, rate_rps: float, *, servers: int, traffic: Traffic
) -> tuple[Stream, ...]:
    """A pool as the simulator takes it; of replicas with equal shares of the requests one stands for all."""
    law = curve.service_law(max_batch, traffic.call_order)
    if traffic.separable:
        return (Stream(replica_arrivals(traffic, rate_rps, 1.0, servers), (Pool(1, law, delay_s=traffic.delay_s),)),)
    return (Stream(traffic.process(rate_rps), (Pool(servers, law, traffic.routing, traffic.delay_s),)),)
