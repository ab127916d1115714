"""What must be served and under which limits."""

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from advisor.domain.record import Record

CallOrder = Literal["independent", "as_measured"]
Routing = Literal["random", "round_robin", "least_outstanding", "central_queue"]

HOURS_PER_WEEK = 168


class PoissonArrivals(Record):
    """Requests come independently of each other."""

    kind: Literal["poisson"] = "poisson"


class RenewalArrivals(Record):
    """Independent gaps between requests, more or less variable than those of independent requests."""

    kind: Literal["renewal"]
    scv: float = Field(
        ge=0.05,
        le=100,
        description="squared coefficient of variation of the gaps, variance over squared mean; 1: Poisson",
    )


class BurstArrivals(Record):
    """Bursts: at random times the rate is a multiple of what it is otherwise."""

    kind: Literal["bursts"]
    ratio: float = Field(gt=1, le=1000, description="rate in a burst over the rate between bursts")
    burst_frac: float = Field(ge=1e-6, lt=1, description="share of time in bursts, as a fraction")
    burst_s: float = Field(ge=1e-4, le=1e6, description="mean length of a burst [s]")


class SinusoidArrivals(Record):
    """A rate that swings around its middle; the rate given is the highest."""

    kind: Literal["sinusoid"]
    amplitude_frac: float = Field(gt=0, le=1, description="swing over the middle, as a fraction")
    period_s: float = Field(gt=0, le=1e8, description="time from peak to peak [s]; a day has 86400")


class HourlyWeekArrivals(Record):
    """A week of hours that repeats; the rate given is that of the busiest hour."""

    kind: Literal["hourly_week"]
    weights: tuple[Annotated[float, Field(ge=0)], ...] = Field(
        min_length=HOURS_PER_WEEK,
        max_length=HOURS_PER_WEEK,
        description="traffic of each hour of the week, in any unit",
    )

    @model_validator(mode="after")
    def _some_traffic(self) -> Self:
        if max(self.weights) <= 0:
            raise ValueError("traffic in at least one hour")
        return self


class TraceArrivals(Record):
    """A recorded sequence of time stamps, sped up or slowed down to the rate given."""

    kind: Literal["trace"]
    file: str = Field(min_length=1, description="CSV with a column of time stamps, beside the scenario file")


Arrivals = Annotated[
    PoissonArrivals | RenewalArrivals | BurstArrivals | SinusoidArrivals | HourlyWeekArrivals | TraceArrivals,
    Field(discriminator="kind"),
]


def percentile_label(percentile: float) -> str:
    """Short name of a percentile, such as p99 or p99.9.

    Examples
    --------
    >>> percentile_label(0.999)
    'p99.9'
    """
    return f"p{percentile * 100:g}"


class Sla(Record):
    """The p-th percentile of the response time (wait plus service) stays within a limit."""

    percentile: float = Field(gt=0, lt=1, description="as a fraction: 0.99")
    response_time_s: float = Field(gt=0, description="limit [s]")

    @property
    def label(self) -> str:
        """Short name, such as p99 or p99.9."""
        return percentile_label(self.percentile)

    @property
    def field(self) -> str:
        """Name of the limit in a scenario file, such as sla.p99_ms or sla.p999_ms."""
        return f"sla.{self.label.replace('.', '')}_ms"


class Workload(Record):
    """One model and the traffic it must answer."""

    name: str = Field(min_length=1)
    model: str = Field(min_length=1, description="model name in the profiles")
    arrival_rate_rps: float = Field(
        gt=0,
        description="requests per second in the busiest hour, or mean rate of the trace; one request is one item [1/s]",
    )
    arrivals: Arrivals = Field(default=PoissonArrivals(), description="how requests come")
    limits: tuple[Sla, ...] = Field(min_length=1, description="all of them hold; the highest percentile first")
    sequence_length: PositiveInt | None = Field(
        default=None, description="tokens per item; null: that of the measured profiles"
    )
    precisions: tuple[str, ...] = Field(default=(), description="precisions allowed; empty: all")

    @model_validator(mode="after")
    def _limits_in_order(self) -> Self:
        percentiles = [limit.percentile for limit in self.limits]
        if percentiles != sorted(set(percentiles), reverse=True):
            raise ValueError("one limit per percentile, the highest percentile first")
        return self

    @property
    def sla(self) -> Sla:
        """Limit of the highest percentile: the one that headlines speak of."""
        return self.limits[0]


class Scenario(Record):
    """Traffic, limits and choices of one planning question, in SI units."""

    schema_version: Literal[1]
    name: str = Field(min_length=1)
    workload: Workload
    headroom_frac: float = Field(default=0.0, ge=0, le=10, description="demand planned for is demand × (1 + headroom)")
    routing: Routing = Field(default="random", description="how requests reach replicas")
    batch_delay_s: float = Field(
        default=0.0, ge=0, le=60, description="longest time that a free replica waits for its batch to fill [s]"
    )
    call_order: CallOrder = Field(
        default="independent",
        description="as_measured: service times follow each other as in the profile, so that stalls come in series",
    )
    budget_usd_per_month: float | None = Field(
        default=None, gt=0, description="hard limit on the monthly cost [USD/month]"
    )
    regions: tuple[str, ...] = Field(default=(), description="provider/region or a bare region; empty: all")
    seed: int = Field(default=0, ge=0, description="seed of the simulation")


class NodeOption(Record):
    """One kind of node for batch jobs: what it is, how fast, and what the user says it costs."""

    name: str = Field(min_length=1)
    profile: str = Field(min_length=1, description="profile_id that tells the speed")
    owned_count: int = Field(ge=0, description="nodes that already stand there")
    replicas: PositiveInt = Field(
        description="replicas per node: whole GPUs, or groups of CPU threads; 1 for a throughput of a whole host"
    )
    power_w: float | None = Field(default=None, gt=0, description="mean power of one busy node at the wall [W]")
    price_usd_per_h: float | None = Field(default=None, gt=0, description="rent of one node [USD/h]")


class BatchJobs(Record):
    """Jobs of one kind, the window in which they must end, and the nodes to choose from."""

    jobs_per_day: float = Field(gt=0)
    data_gb_per_job: float = Field(gt=0, description="data read per job [GB]")
    data_mb_per_item: float = Field(gt=0, description="data of one item [MB]")
    window_h: float = Field(gt=0, le=24, description="hours per day in which all jobs must finish [h]")
    fixed_s: float = Field(ge=0, description="start-up time of each job [s]")
    network_mb_per_s: float = Field(gt=0, description="rate at which one node reads the data [MB/s]")
    tariff_usd_per_kwh: float | None = Field(default=None, gt=0, description="electricity price [USD/kWh]")
    pue: float | None = Field(default=None, ge=1, description="power usage effectiveness of the site")
    options: tuple[NodeOption, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [option.name for option in self.options]
        if len(set(names)) != len(names):
            raise ValueError("a different name for each option")
        return self


class JobScenario(Record):
    """Batch jobs with a window, one node per job."""

    schema_version: Literal[1]
    name: str = Field(min_length=1)
    model: str = Field(min_length=1)
    jobs: BatchJobs
