"""Percentiles of a simulated fleet with confidence intervals from independent replications."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from advisor.simulation.engine import ServiceLaw, simulate_pool

REPLICATIONS = 20
"""Independent runs: enough for a Student interval, few enough for each to be long."""


@dataclass(frozen=True)
class PoolInput:
    """Independent equal replicas that share a part of the traffic.

    Attributes
    ----------
    rate_per_replica_rps
        Poisson rate at each replica [1/s].
    traffic_share
        Part of all requests that this pool answers.
    service
        Service times per batch size.
    """

    rate_per_replica_rps: float
    traffic_share: float
    service: ServiceLaw


@dataclass(frozen=True)
class Estimate:
    """A simulated percentile [s] and the half width of its 95 % interval [s]."""

    value_s: float
    ci95_s: float


def simulate_fleet(
    pools: tuple[PoolInput, ...], percentiles: tuple[float, ...], *, requests: int, seed: int
) -> tuple[Estimate, ...]:
    """Percentiles of the response time over all requests of a fleet of independent replicas.

    Each replication runs one replica of every pool, with requests in proportion to the pool's traffic, from its own
    random stream. The interval is Student's over the replications.

    Parameters
    ----------
    pools
        The fleet.
    percentiles
        As fractions.
    requests
        Requests in all, at least.
    seed
        Seed of all streams.
    """
    streams = np.random.SeedSequence(seed).spawn(REPLICATIONS * len(pools))
    values = np.empty((REPLICATIONS, len(percentiles)))
    for replication in range(REPLICATIONS):
        responses = [
            simulate_pool(
                pool.rate_per_replica_rps,
                pool.service,
                servers=1,
                requests=math.ceil(requests / REPLICATIONS * pool.traffic_share),
                rng=np.random.Generator(np.random.PCG64(streams[replication * len(pools) + index])),
            )
            for index, pool in enumerate(pools)
        ]
        values[replication] = np.quantile(np.concatenate(responses), percentiles)
    half = stdtrit(REPLICATIONS - 1, 0.975) * values.std(axis=0, ddof=1) / math.sqrt(REPLICATIONS)
    return tuple(Estimate(float(mean), float(width)) for mean, width in zip(values.mean(axis=0), half, strict=True))
