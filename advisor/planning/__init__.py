"""The use case: a scenario, profiles and a catalog in, a plan or the reason against one out.

`plan` is the one function that the command line and the pages call.
"""

import datetime
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor

from threadpoolctl import threadpool_limits

from advisor.capacity.pool import Cache
from advisor.domain.machine import Catalog
from advisor.domain.plan import Infeasible, JobPlan, Plan
from advisor.domain.profile import Profile
from advisor.domain.trace import Trace
from advisor.domain.workload import JobScenario, Scenario, TraceArrivals
from advisor.planning.jobs import plan_jobs
from advisor.planning.market import Progress, Setting, allowed_regions, prefer
from advisor.planning.online import plan_online

__all__ = ["Progress", "plan"]


def plan(
    scenario: Scenario | JobScenario,
    profiles: Iterable[Profile],
    catalog: Catalog,
    *,
    today: datetime.date,
    preferred: frozenset[str] = frozenset(),
    traces: Mapping[str, Trace] | None = None,
    cache: Cache | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Plan | Infeasible | JobPlan:
    """Answer a scenario.

    Parameters
    ----------
    scenario
        Traffic and limits, or batch jobs.
    profiles
        All profiles at hand; those of the scenario's model are used.
    catalog
        Machine types and offers.
    today
        Date against which prices age.
    preferred
        Names of the user's own profiles: where one speaks for a device, other profiles of that model on that device
        are set aside.
    traces
        Recorded arrivals by the name that the scenario gives.
    cache
        Capacities found earlier, and room for new ones; they are the same for equal questions.
    executor
        Runs simulations side by side: threads, since the compiled loops release Python's lock.
    progress
        Called with a line whenever a step begins.

    Raises
    ------
    InputError
        When the scenario names a region, model or profile that does not exist.
    SolverError
        When the optimizer stops without an answer.
    """
    known = tuple(sorted(profiles, key=lambda profile: profile.profile_id))
    if isinstance(scenario, JobScenario):
        return plan_jobs(scenario, known, today=today)
    # The matrices of the queueing models are small: with a thread per core the linear algebra library spends its time
    # waiting for its own threads (measured: fourteen times slower on a busy machine with two cores).
    with threadpool_limits(limits=1, user_api="blas"):
        chosen = prefer(known, preferred, scenario.workload.model, catalog)
        regions, notes = allowed_regions(scenario.regions, catalog)
        arrivals = scenario.workload.arrivals
        setting = Setting(
            scenario=scenario,
            profiles=chosen,
            catalog=catalog,
            regions=regions,
            trace=(traces or {}).get(arrivals.file) if isinstance(arrivals, TraceArrivals) else None,
            cache={} if cache is None else cache,
            executor=executor,
            progress=progress or _silent,
        )
        return plan_online(setting, notes, today=today)


def _silent(_line: str) -> None:
    """Report no progress."""
