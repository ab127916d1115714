"""The same queues in two well-known simulators, and in plain Python, to time the compiled one against.

All serve the same number of requests of the same model. Ours also finds percentiles with their intervals, the others
only collect response times.
"""

from collections.abc import Generator
from typing import Any

import ciw
import numpy as np
import simpy

from advisor.simulation.arrivals import PoissonProcess
from advisor.simulation.engine import Pool
from advisor.simulation.metrics import Stream, simulate
from advisor.simulation.service import ServiceLaw


def ours(rate_rps: float, service: ServiceLaw, servers: int, requests: int) -> float:
    """p99 [s] and its interval, from the compiled simulator."""
    pool = Pool(servers, service)
    system = (Stream(PoissonProcess(rate_rps), (pool,)),)
    found = simulate(system, seed=1, requests=requests, most_requests=requests, enough=lambda _result: True)
    return found.percentile(0.99).value_s


def simpy_exponential(rate_rps: float, service_s: float, servers: int, requests: int) -> float:
    """M/M/c as a resource that one process per request asks for: p99 [s]."""
    env, rng = simpy.Environment(), np.random.default_rng(1)
    desk = simpy.Resource(env, capacity=servers)
    gaps = rng.exponential(1 / rate_rps, requests).tolist()
    services = rng.exponential(service_s, requests).tolist()
    response = []

    def request(took_s: float) -> Generator[Any, Any, None]:
        arrived = env.now
        with desk.request() as turn:
            yield turn
            yield env.timeout(took_s)
        response.append(env.now - arrived)

    def source() -> Generator[Any, Any, None]:
        for gap, took_s in zip(gaps, services, strict=True):
            yield env.timeout(gap)
            env.process(request(took_s))

    env.process(source())
    env.run()
    return float(np.quantile(response, 0.99))


def simpy_batches(rate_rps: float, batch_time_s: np.ndarray, servers: int, requests: int) -> float:
    """Batch servers behind one queue, with one event for each arrival and each batch: p99 [s]."""
    env = simpy.Environment()
    gaps = np.random.default_rng(1).exponential(1 / rate_rps, requests).tolist()
    times = batch_time_s.tolist()
    waiting: list[float] = []
    response: list[float] = []
    free = servers

    def start() -> None:
        nonlocal free
        free -= 1
        batch = waiting[: len(times)]
        del waiting[: len(times)]
        done = env.timeout(times[len(batch) - 1], batch)
        done.callbacks.append(finish)

    def finish(event: simpy.Event) -> None:
        nonlocal free
        free += 1
        now = env.now
        response.extend(now - arrived for arrived in event.value)
        if waiting:
            start()

    def source() -> Generator[Any, Any, None]:
        for gap in gaps:
            yield env.timeout(gap)
            waiting.append(env.now)
            if free:
                start()

    env.process(source())
    env.run()
    return float(np.quantile(response, 0.99))


def ciw_exponential(rate_rps: float, service_s: float, servers: int, requests: int) -> float:
    """M/M/c as a network of one node: p99 [s]."""
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(rate=rate_rps)],
        service_distributions=[ciw.dists.Exponential(rate=1 / service_s)],
        number_of_servers=[servers],
    )
    ciw.seed(1)
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_customers(requests, method="Finish")
    return float(np.quantile([record.exit_date - record.arrival_date for record in simulation.get_all_records()], 0.99))


def plain_batches(rate_rps: float, batch_time_s: np.ndarray, requests: int) -> float:
    """One batch server as a loop in plain Python: p99 [s]."""
    times = batch_time_s.tolist()
    arrivals = np.cumsum(np.random.default_rng(1).exponential(1 / rate_rps, requests)).tolist()
    free, head, response = 0.0, 0, []
    while head < requests:
        start = max(free, arrivals[head])
        size = 1
        while size < len(times) and head + size < requests and arrivals[head + size] <= start:
            size += 1
        free = start + times[size - 1]
        response.extend(free - arrived for arrived in arrivals[head : head + size])
        head += size
    return float(np.quantile(response, 0.99))
