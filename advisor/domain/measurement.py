"""What a measurement keeps beside its service times: repeats, surroundings, stalls, energy, idle starts, load runs."""

import datetime
from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from advisor.domain.record import Record

BINS_PER_OCTAVE = 32
"""Resolution of the histogram grid: neighbouring edges differ by 2^(1/32), 2.2 %."""

PowerMethod = Literal["nvml_counter", "nvml_poll", "rapl", "perf", "user_watts", "tdp_estimate"]


class Histogram(Record):
    """Counts of service times on one fixed logarithmic grid, so that any two merge by adding counts.

    Bin k holds times in [2^(k/32), 2^((k+1)/32)) seconds.
    """

    first_bin: int = Field(description="index k of the first count; negative below one second")
    counts: tuple[int, ...] = Field(min_length=1, description="calls per bin")

    def merged(self, other: Self) -> Self:
        """Histogram of both samples together.

        Examples
        --------
        >>> Histogram(first_bin=-3, counts=(1, 2)).merged(Histogram(first_bin=-2, counts=(5, 1)))
        Histogram(first_bin=-3, counts=(1, 7, 1))
        """
        first = min(self.first_bin, other.first_bin)
        last = max(self.first_bin + len(self.counts), other.first_bin + len(other.counts))
        total = [0] * (last - first)
        for histogram in (self, other):
            for index, count in enumerate(histogram.counts):
                total[histogram.first_bin - first + index] += count
        return type(self)(first_bin=first, counts=tuple(total))


class Surroundings(Record):
    """What the host did to a window. Null: the system does not tell."""

    run_delay_frac: float | None = Field(
        default=None,
        ge=0,
        description="time of own threads ready but kept off the CPUs, over their time on them",
    )
    other_cpus: float | None = Field(default=None, ge=0, description="CPUs that other processes kept busy")
    steal_frac: float | None = Field(
        default=None, ge=0, description="share of CPU time that the hypervisor gave to others"
    )
    throttled_frac: float | None = Field(
        default=None, ge=0, description="share of the time that the control group's CPU quota was used up"
    )
    clock_change_frac: float | None = Field(
        default=None, ge=0, description="change of the CPU or GPU clock from start to end, as a fraction"
    )
    gpu_throttle: tuple[str, ...] = Field(default=(), description="reasons for which the GPU lowered its clocks")


class Repeat(Record):
    """One window of a cell, whether it counts or not."""

    started_s: float = Field(ge=0, description="time since the start of the measurement [s]")
    duration_s: float = Field(gt=0, description="length of the window [s]")
    count: PositiveInt = Field(description="calls that began inside, all replicas together")
    service_mean_s: float = Field(gt=0, description="mean wall time of one call [s]")
    service_m2_s2: float = Field(gt=0, description="second moment of the wall time [s²]")
    service_p50_s: float = Field(gt=0, description="median wall time [s]")
    service_p99_s: float | None = Field(default=None, gt=0, description="99th percentile [s]; null below 100 calls")
    service_min_s: float = Field(gt=0, description="shortest call [s]")
    service_max_s: float = Field(gt=0, description="longest call [s]")
    cpu_mean_s: float = Field(ge=0, description="mean CPU time of one call, all its threads [s]")
    throughput_rps: float = Field(gt=0, description="items per second of all replicas together [1/s]")
    stall_frac: float = Field(ge=0, le=1, description="share of calls that took far longer than the median")
    warmup_calls: NonNegativeInt = Field(description="calls of the first replica until its times had settled")
    warmup_settled: bool | None = Field(
        description="whether the times of all replicas had settled when the window began; null: too few calls to tell"
    )
    first_call_s: float = Field(gt=0, description="first call at this shape [s]")
    energy_j: float | None = Field(default=None, ge=0, description="energy that the meter counted in the window [J]")
    surroundings: Surroundings = Surroundings()
    rejected: tuple[str, ...] = Field(default=(), description="why it does not count; none: it counts")


class Outlier(Record):
    """A call that took far longer than its median; it stays in all statistics."""

    at_s: float = Field(ge=0, description="time since the start of the measurement [s]")
    service_s: float = Field(gt=0, description="wall time [s]")


class Energy(Record):
    """Energy of one item, with the half width of its 95 % interval or, for an estimate, of its band."""

    scope: str = Field(description="what the meter covers, such as one card or all CPU packages")
    is_estimate: bool = Field(description="computed from watts that nobody measured here")
    gross_j: float = Field(ge=0, description="all energy while the cell ran, per item [J]")
    gross_half_j: float = Field(ge=0, description="half width of its interval [J]")
    net_j: float | None = Field(default=None, description="the same above idle power, per item [J]")
    net_half_j: float | None = Field(default=None, ge=0, description="half width of its interval [J]")
    window_s: float = Field(gt=0, description="time measured [s]")


class IdlePower(Record):
    """Power of the machine with the model loaded and nothing to do."""

    method: PowerMethod
    before_w: float = Field(ge=0, description="before the measurement [W]")
    after_w: float | None = Field(default=None, ge=0, description="after it [W]; null: it was stopped")


class IdleStart(Record):
    """Calls that found their replica idle, as most do at low load; one replica was called, the others slept."""

    threads: PositiveInt
    batch_size: PositiveInt
    count: PositiveInt = Field(description="calls")
    gap: Histogram = Field(description="from the request to the start of the call, the waking of a thread [s]")
    gap_mean_s: float = Field(ge=0, description="its mean [s]")
    service: Histogram = Field(description="wall time of these calls [s]")
    service_mean_s: float = Field(gt=0, description="its mean [s]")
    rejected: tuple[str, ...] = Field(default=(), description="what disturbed them, also when tried again; none: quiet")


class Spread(Record):
    """Distribution of one kind of time."""

    count: PositiveInt = Field(description="times in the sample")
    mean_s: float = Field(ge=0, description="mean [s]")
    p50_s: float = Field(ge=0, description="median [s]")
    p95_s: float = Field(ge=0, description="95th percentile [s]")
    p99_s: float | None = Field(default=None, ge=0, description="99th percentile [s]; null below 100 times")


class Streaming(Record):
    """How the parts of streamed answers came, those of a language model token by token."""

    first_token: Spread = Field(description="from the request to the first token")
    inter_token: Spread | None = Field(default=None, description="from one token to the next; null: single tokens")
    parts_mean: float = Field(gt=0, description="parts with text in one answer, mean; usually one token in each")


class JoinTime(Record):
    """Time to put single requests together into one batch, which a server does before each call."""

    batch_size: PositiveInt
    median_s: float = Field(ge=0, description="median [s], which a pause of the thread does not move")


class Anchor(Record):
    """The same cell again at another time: whether the machine still ran as fast."""

    at_s: float = Field(ge=0, description="time since the start of the measurement [s]")
    batch_size: PositiveInt
    threads: PositiveInt
    concurrency: PositiveInt
    count: PositiveInt = Field(description="calls")
    service_mean_s: float = Field(gt=0, description="mean wall time of one call [s]")


class Predicted(Record):
    """A predicted figure with the ends of its 95 % interval [s]."""

    value_s: float = Field(gt=0)
    low_s: float = Field(gt=0)
    high_s: float = Field(gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low_s <= self.value_s <= self.high_s:
            raise ValueError("low_s ≤ value_s ≤ high_s")
        return self


class Checked(Record):
    """One figure of the response time: as it was observed under load, and as it was predicted."""

    observed_s: float = Field(gt=0, description="observed [s], counted from the scheduled time of each request")
    predicted: Predicted

    @property
    def inside(self) -> bool:
        """Whether the observed figure lies in the predicted interval."""
        return self.predicted.low_s <= self.observed_s <= self.predicted.high_s

    @property
    def error_frac(self) -> float:
        """Predicted over observed, minus one."""
        return self.predicted.value_s / self.observed_s - 1


class LoadRun(Record):
    """A real server under an open-loop load, and what the profile predicted for the very same arrivals."""

    created: datetime.datetime = Field(description="end of the run, UTC")
    tool_version: str
    threads: PositiveInt = Field(description="threads of one replica")
    concurrency: PositiveInt = Field(description="replicas that served")
    max_batch_size: PositiveInt = Field(description="largest batch that the server made")
    batch_delay_s: float = Field(ge=0, description="longest wait of a free replica for its batch to fill [s]")
    rate_rps: float = Field(gt=0, description="requests per second [1/s]")
    load: float = Field(
        gt=0, description="rate over the saturated throughput that the profile, rescaled by the anchor, states"
    )
    seed: int = Field(description="seed of the arrivals")
    count: PositiveInt = Field(description="requests counted, those of the start left out")
    duration_s: float = Field(gt=0, description="time of the run [s]")
    mean_batch: float = Field(ge=1, description="requests per batch")
    service_frac: float | None = Field(
        default=None, description="time of all batches over what profile and anchor say, minus one"
    )
    mean: Checked
    p95: Checked
    p99: Checked
    planned_p99_s: float = Field(
        gt=0, description="p99 for these arrivals by the service times alone, as plans use them [s]"
    )
    drift_frac: float = Field(description="anchor just before over that of the profile, minus one; predictions use it")
    drift_after_frac: float = Field(description="the same just after the run")
    lateness_p99_s: float = Field(ge=0, description="how late the load generator was, 99th percentile [s]")
    surroundings: Surroundings = Surroundings()
    doubts: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(), description="why the run does not count as clean; none: it is clean"
    )
    response: Histogram = Field(description="response times [s]")

    @property
    def clean(self) -> bool:
        """Whether nothing speaks against the run."""
        return not self.doubts
