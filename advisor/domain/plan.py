"""What planning says: candidates and rejections on the way, a plan or the reason why there is none."""

import datetime
from typing import Literal

from pydantic import Field

from advisor.domain.evidence import Evidence
from advisor.domain.record import Record
from advisor.domain.workload import JobScenario, Routing, Scenario

MachineKind = Literal["cpu", "gpu"]


class Candidate(Record):
    """A machine type that can serve the workload, with its best configuration."""

    machine_type: str = Field(description="key of the machine type")
    label: str = Field(description="name for people")
    kind: MachineKind
    profile_id: str
    precision: str | None
    replicas: int = Field(ge=1, description="copies of the model on one machine")
    threads: int = Field(ge=0, description="CPU threads of one replica; 0 on a GPU")
    max_batch: int = Field(ge=1, description="largest batch")
    capacity_rps: float = Field(ge=0, description="rate of one machine under the SLA, lower end of its interval [1/s]")
    pool_rps: tuple[tuple[int, float], ...] = Field(
        default=(), description="rates of so many machines together [1/s]; empty: in proportion to their number"
    )
    error_frac: float = Field(ge=0, description="half width of the interval of the service times, as a fraction")
    stability_limited: bool = Field(description="saturation binds before the SLA does")
    extrapolated: bool = Field(description="more than twice the replicas that were measured together")
    assumptions: tuple[str, ...] = ()


class Rejection(Record):
    """A machine type that is not in the running, and why."""

    machine_type: str = Field(description="key of the machine type")
    reason: str
    percentile: float | None = Field(default=None, description="of the limit missed by most when idle, as a fraction")
    idle_response_s: float | None = Field(
        default=None,
        description="that percentile of the response time with no other request [s], where the SLA was missed",
    )
    profile_id: str | None = Field(default=None, description="profile that tells so")


class FleetLine(Record):
    """A number of equal machines under one offer."""

    workload: str
    machine_type: str
    label: str
    kind: MachineKind
    offer: str = Field(description="how it is paid for")
    region: str = Field(description="provider/region")
    count: int = Field(ge=1)
    price_usd_per_h: float = Field(gt=0, description="list price of one machine [USD/h]")
    cost_usd_per_month: float = Field(gt=0, description="730 h of all machines of the line [USD/month]")
    price_date: datetime.date
    price_source: str
    capacity_rps: float = Field(gt=0, description="rate of the line under the SLA, lower end of its interval [1/s]")
    capacity_likely_rps: float = Field(description="the same with service times as profiled [1/s]")
    capacity_high_rps: float = Field(description="the same at the fast end of the interval of the service times [1/s]")
    rate_rps: float = Field(gt=0, description="traffic routed to the line [1/s]")
    utilization: float = Field(ge=0, le=1, description="share of time that a replica is busy")
    saturation_frac: float = Field(ge=0, description="traffic over saturated throughput")
    replicas: int = Field(ge=1, description="copies of the model on one machine")
    threads: int = Field(ge=0)
    max_batch: int = Field(ge=1)
    profile_id: str
    precision: str | None
    extrapolated: bool

    @property
    def machine_key(self) -> str:
        """Key of the machine type: provider/name."""
        return f"{self.region.split('/', 1)[0]}/{self.machine_type}"


class Method(Record):
    """How the response time of a pool is found, and how far to trust it."""

    model: str
    exactness: Literal["exact", "approximation", "simulated"]
    error_frac: float = Field(ge=0, description="stated error of the percentile, as a fraction; 0: exact")
    reason: str = Field(description="why this model")

    @property
    def label(self) -> str:
        """Short form, such as “approximation, p99 within 5 %”."""
        match self.exactness:
            case "exact":
                return "exact"
            case "approximation":
                return f"approximation, p99 within {self.error_frac:.0%}"
            case "simulated":
                return f"simulated, 95 % CI ±{self.error_frac:.1%}"


class WorkloadAnswer(Record):
    """Predicted percentile of one workload under one of its limits."""

    workload: str
    percentile: float = Field(description="as a fraction")
    limit_s: float = Field(description="limit of the SLA [s]")
    value_s: float = Field(description="percentile with service times at the slow end of their interval [s]")
    likely_s: float = Field(description="percentile with service times as measured or published [s]")
    method: Method


class TrafficAnswer(Record):
    """Which arrival process the plan rests on, and what a simpler one would have said."""

    shape: Literal["poisson", "renewal", "bursts", "periodic", "replay"]
    reason: str = Field(description="why this process")
    poisson_machines: int | None = Field(
        default=None, description="machines that Poisson arrivals at the same mean rate would seem to need"
    )
    poisson_usd_per_month: float | None = Field(default=None, description="what those cost [USD/month]")
    period_s: float | None = Field(
        default=None, description="percentile of the SLA over the whole day or week, not only its peak [s]"
    )


class DistributionPoint(Record):
    """Share of requests that are answered later than a time."""

    response_time_s: float
    predicted_frac: float = Field(description="by the model or simulation that the plan rests on")
    simulated_frac: float = Field(description="by the simulation that judges the fleet")


class SimulatedLimit(Record):
    """Verdict of the simulator on one limit."""

    percentile: float = Field(description="as a fraction")
    limit_s: float
    value_s: float = Field(description="percentile simulated [s]")
    ci95_s: float = Field(description="half width of its 95 % interval [s]")


class Simulation(Record):
    """Verdict of the simulator on the fleet."""

    p99_response_s: float = Field(description="99th percentile of the response time [s]")
    ci95_s: float = Field(description="half width of its 95 % interval [s]")
    limits: tuple[SimulatedLimit, ...] = Field(description="all limits, the highest percentile first")
    requests: int = Field(description="requests simulated; more when the first run could not decide")
    replications: int
    mean_batch: float = Field(description="requests per batch")
    stopped: Literal["target", "cap"] = Field(
        description="target: the interval was narrow enough to decide; cap: the most requests allowed"
    )
    seed: int
    passed: bool = Field(description="all percentiles within their limits")
    enlarged: int = Field(ge=0, description="times the fleet was enlarged because the simulator objected")


class Alternative(Record):
    """Cheapest fleet of one other machine type."""

    machine_type: str
    label: str
    kind: MachineKind
    offer: str
    region: str
    count: int
    cost_usd_per_month: float
    extra_frac: float = Field(description="cost over that of the plan, as a fraction; negative: cheaper but not taken")
    utilization_frac: float = Field(description="demand over capacity under the SLA")
    profile_id: str
    precision: str | None
    extrapolated: bool


class Step(Record):
    """From this rate on the cheapest fleet costs this much."""

    rate_rps: float = Field(description="largest rate of the step [1/s]")
    cost_usd_per_month: float


class Winner(Record):
    """Range of rates in which one kind of machine is cheaper."""

    from_rps: float
    to_rps: float
    winner: Literal["cpu", "gpu", "tie"]


class BreakEven(Record):
    """Cost against rate for all-CPU, all-GPU and any fleets, with exact steps."""

    cpu: tuple[Step, ...]
    gpu: tuple[Step, ...]
    mixed: tuple[Step, ...] = Field(description="any combination of machines")
    winners: tuple[Winner, ...]
    up_to_rps: float = Field(description="end of the range looked at [1/s]")
    resolution_usd: float = Field(
        description="largest rounding up of the price of one machine in the steps [USD/month]"
    )

    @property
    def first_gpu_win_rps(self) -> float | None:
        """Lowest rate at which GPUs are strictly cheaper [1/s]."""
        return next((span.from_rps for span in self.winners if span.winner == "gpu"), None)

    @property
    def last_cpu_win_rps(self) -> float | None:
        """Highest rate at which CPUs are strictly cheaper [1/s]."""
        return next((span.to_rps for span in reversed(self.winners) if span.winner == "cpu"), None)


class RoutingGain(Record):
    """What a better router would save, by simulation."""

    routing: Routing = Field(description="routing of the best of the others looked at")
    count: int = Field(description="machines that it would need")
    value_s: float = Field(description="percentile of the SLA with them [s]")
    ci95_s: float
    saves_usd_per_month: float


class EvidenceLine(Record):
    """Where one number of the plan comes from."""

    what: str
    evidence: Evidence


class Provenance(Record):
    """What makes a plan reproducible."""

    version: str = Field(description="program version")
    today: datetime.date
    seed: int
    profile_hashes: dict[str, str] = Field(description="sha256 of each profile used, by profile_id")
    trace_hash: str | None = Field(default=None, description="sha256 of the trace replayed")
    oldest_price: datetime.date | None
    solver: str
    solver_status: str
    mip_gap_frac: float | None = Field(description="proven relative gap of the fleet's cost")


class Plan(Record):
    """The cheapest fleet that meets every limit."""

    schema_version: Literal[1]
    status: Literal["plan"]
    scenario: Scenario
    demand_rps: float = Field(description="traffic planned for, with headroom [1/s]")
    asked_rps: float = Field(
        description="capacity asked of the fleet: the demand, or more after the simulator objected [1/s]"
    )
    fleet: tuple[FleetLine, ...]
    cost_usd_per_month: float
    p99_response_s: float = Field(description="worst workload's predicted p99 [s]")
    workloads: tuple[WorkloadAnswer, ...] = Field(description="one per limit, the highest percentile first")
    traffic: TrafficAnswer
    distribution: tuple[DistributionPoint, ...]
    simulation: Simulation
    alternatives: tuple[Alternative, ...]
    break_even: BreakEven
    routing_gain: RoutingGain | None
    best_cpu_usd_per_month: float | None = Field(description="cheapest all-CPU fleet; null when none meets the SLA")
    best_gpu_usd_per_month: float | None
    fastest_idle_cpu_s: float | None = Field(description="SLA percentile of the fastest measured CPU when idle [s]")
    warnings: tuple[str, ...]
    assumptions: tuple[str, ...]
    rejections: tuple[Rejection, ...]
    evidence: tuple[EvidenceLine, ...]
    provenance: Provenance


class Relaxation(Record):
    """The smallest change of one limit that makes the scenario feasible."""

    limit: str = Field(description="field of the scenario")
    value_now: float
    value_needed: float
    sentence: str


class Infeasible(Record):
    """No fleet meets all limits: which one binds, what would lift it, and what is possible within it."""

    schema_version: Literal[1]
    status: Literal["infeasible"]
    scenario: Scenario
    demand_rps: float
    binding: Literal["profiles", "regions", "response_time", "budget"]
    reason: str
    relaxations: tuple[Relaxation, ...]
    cheapest: tuple[FleetLine, ...] = Field(description="cheapest fleet that meets the other limits; empty: none")
    cheapest_usd_per_month: float | None
    best_effort: tuple[FleetLine, ...] = Field(description="fleet within the limit that serves the most")
    served_frac: float = Field(ge=0, le=1, description="share of the demand that the best effort serves under the SLA")
    traffic_reason: str = Field(description="arrival process that capacities hold for, and why")
    overload_delay_s: float | None = Field(
        default=None,
        description="longest delay on the best effort if all traffic of a day or week reached it, as a fluid [s]",
    )
    never_catches_up: bool = Field(
        default=False, description="all traffic would exceed the saturated throughput of the best effort on average"
    )
    fastest_idle_cpu_s: float | None
    warnings: tuple[str, ...]
    rejections: tuple[Rejection, ...]
    evidence: tuple[EvidenceLine, ...]
    provenance: Provenance


class JobAnswer(Record):
    """One kind of node for a batch-job scenario."""

    name: str
    kind: MachineKind
    profile_id: str
    items_per_s: float = Field(description="items per second of one node [1/s]")
    data_s: float = Field(description="time to read one job's data [s]")
    compute_s: float = Field(description="time to compute one job [s]")
    job_s: float = Field(
        description="time of one job on one node: fixed part plus the longer of reading and computing [s]"
    )
    bottleneck: Literal["network", "compute"]
    jobs_per_node: int = Field(description="whole jobs of one node in the window")
    nodes_needed: int | None = Field(description="null: not even one job fits the window")
    owned_count: int
    slack_h: float | None = Field(
        description="window left when the last job ends on the nodes owned, else on those needed; negative: late [h]"
    )
    most_jobs_per_day: int = Field(description="jobs that the nodes owned, or those needed, can end in the window")
    busy_node_h_per_day: float = Field(description="node hours of work per day [h]")
    energy_kwh_per_day: float | None
    cost_usd_per_month: float | None = Field(description="rent and energy, as far as the scenario states prices")
    cost_basis: str
    extrapolated: bool
    assumptions: tuple[str, ...]


class JobPlan(Record):
    """Nodes and slack per option for batch jobs, one node per job."""

    schema_version: Literal[1]
    status: Literal["plan", "infeasible"]
    scenario: JobScenario
    answers: tuple[JobAnswer, ...]
    warnings: tuple[str, ...]
    evidence: tuple[EvidenceLine, ...]
    provenance: Provenance
