"""Profile: raw facts of one model measured on one device."""

import datetime
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from advisor.domain.evidence import Evidence
from advisor.domain.measurement import (
    Anchor,
    Energy,
    Histogram,
    IdlePower,
    IdleStart,
    JoinTime,
    LoadRun,
    Outlier,
    PowerMethod,
    Repeat,
    Streaming,
)
from advisor.domain.record import Record

PROFILE_ID = r"^[a-z0-9][a-z0-9._-]*$"
"""Form of a profile's name: it is also a file name."""

FactValue = str | int | float | bool | None


class Cell(Record):
    """What was measured at one batch size, thread count and concurrency. Null: the source does not say."""

    batch_size: PositiveInt | None = Field(description="items per call")
    threads: PositiveInt | None = Field(default=None, description="threads of one replica inside an operator")
    concurrency: PositiveInt | None = Field(default=None, description="replicas that ran at the same time")
    count: PositiveInt | None = Field(
        default=None, description="calls in the sample, all replicas and repeats together"
    )
    service_mean_s: float | None = Field(default=None, gt=0, description="mean wall time of one call [s]")
    service_m2_s2: float | None = Field(default=None, gt=0, description="second moment of the wall time [s²]")
    service_p50_s: float | None = Field(default=None, gt=0, description="median wall time of one call [s]")
    service_p90_s: float | None = Field(default=None, gt=0, description="90th percentile [s]")
    service_p95_s: float | None = Field(default=None, gt=0, description="95th percentile [s]")
    service_p99_s: float | None = Field(default=None, gt=0, description="99th percentile [s]; null below 100 calls")
    service_max_s: float | None = Field(default=None, gt=0, description="longest call [s]")
    mean_ci95_frac: float | None = Field(
        default=None,
        ge=0,
        description="half width of the 95 % interval of the mean, between repeats, as a fraction of it",
    )
    histogram: Histogram | None = Field(default=None, description="service times [s]")
    series_s: tuple[Annotated[float, Field(gt=0)], ...] | None = Field(
        default=None,
        min_length=2,
        description="some calls of one replica in the order measured [s]: shows whether stalls cluster",
    )
    cpu_mean_s: float | None = Field(default=None, ge=0, description="mean CPU time of one call, all its threads [s]")
    throughput_rps: float | None = Field(
        default=None, gt=0, description="items per second of all replicas together [1/s]"
    )
    memory_gib: float | None = Field(default=None, gt=0, description="peak memory of one replica [GiB]")
    power_w: float | None = Field(default=None, gt=0, description="mean power while the cell ran [W]")
    power_method: PowerMethod | None = Field(default=None, description="how the power was obtained")
    energy: Energy | None = Field(default=None, description="energy of one item")
    streaming: Streaming | None = Field(default=None, description="tokens of streamed answers; null: they come whole")
    repeats: tuple[Repeat, ...] = Field(default=(), description="every window, those that do not count included")
    outliers: tuple[Outlier, ...] = Field(default=(), description="calls far longer than the median, with their time")
    warnings: tuple[str, ...] = Field(default=(), description="why to doubt this cell")

    @property
    def contaminated(self) -> bool:
        """Whether fewer than two windows were undisturbed, so that all of them make up the figures."""
        undisturbed = sum(not repeat.rejected for repeat in self.repeats)
        return undisturbed < min(2, len(self.repeats))

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        ordered = [
            value
            for value in (
                self.service_p50_s,
                self.service_p90_s,
                self.service_p95_s,
                self.service_p99_s,
                self.service_max_s,
            )
            if value is not None
        ]
        if ordered != sorted(ordered):
            raise ValueError("percentiles p50 ≤ p90 ≤ p95 ≤ p99 ≤ max")
        if (
            self.service_mean_s is not None
            and self.service_m2_s2 is not None
            and self.service_m2_s2 < self.service_mean_s**2 * (1 - 1e-9)
        ):
            raise ValueError("a second moment of at least the square of the mean")
        if (self.power_w is None) != (self.power_method is None):
            raise ValueError("power_w and power_method together, or neither")
        if self.energy is not None and self.power_w is None:
            raise ValueError("energy only together with power_w")
        if self.service_mean_s is None and self.throughput_rps is None:
            raise ValueError("a service time or a throughput")
        return self


class TensorSpec(Record):
    """One input of the model as it was fed."""

    name: str
    dtype: str
    shape: tuple[int | str, ...] = Field(description="dimensions; the batch dimension is the text 'batch'")
    fill: str = Field(description="how values were made")


class ModelInfo(Record):
    """The model that was measured."""

    name: str = Field(min_length=1, description="name that a scenario asks for, such as resnet50")
    file: str | None = Field(default=None, description="name of the model file, without its folder")
    target: str | None = Field(
        default=None, description="what was profiled where that is no file: module:factory or an address"
    )
    sha256: str | None = Field(default=None, description="hash of the model file and its external data")
    precision: str | None = Field(default=None, description="fp32, tf32, fp16, bf16 or int8")
    sequence_length: PositiveInt | None = Field(default=None, description="tokens per item, for models of text")
    size_bytes: PositiveInt | None = Field(default=None, description="size of the model file and its external data [B]")
    parameters: PositiveInt | None = Field(default=None, description="number of weights")
    inputs: tuple[TensorSpec, ...] = ()

    @property
    def is_address(self) -> bool:
        """Whether a server was asked, so that the cells tell of its callers and not of its replicas."""
        return self.target is not None and "://" in self.target


class RuntimeInfo(Record):
    """The software that ran the model."""

    name: str = Field(min_length=1, description="framework or engine, such as onnxruntime")
    version: str | None = None
    options: dict[str, FactValue] = Field(default_factory=dict, description="options that change speed")


class CpuIdentity(Record):
    """What CPUID tells: enough to know the microarchitecture."""

    vendor: str = Field(description="GenuineIntel, AuthenticAMD, or the implementer code on Arm")
    family: int | str = Field(description="CPUID family, or the implementer on Arm")
    model: int = Field(description="CPUID model, or the part number on Arm")
    stepping: int | None = None
    flags: tuple[str, ...] = Field(default=(), description="instruction set extensions that change inference speed")
    logical_cpus: PositiveInt = Field(description="logical CPUs that the process may use")
    threads_per_core: PositiveInt | None = Field(default=None, description="as the operating system sees it")


class Device(Record):
    """The hardware that was measured."""

    kind: Literal["cpu", "gpu"]
    name: str = Field(min_length=1, description="name given by the device or the source; may be a hypervisor's")
    gpu_id: str | None = Field(default=None, description="identifier in data/gpu_specs.csv")
    gpus: PositiveInt | None = Field(default=None, description="GPUs behind the throughput figures")
    cpu: CpuIdentity | None = None
    machine_type: str | None = Field(default=None, description="cloud machine type, when the user named it")

    @model_validator(mode="after")
    def _gpu_has_an_id(self) -> Self:
        if (self.kind == "gpu") != (self.gpu_id is not None):
            raise ValueError("gpu_id for a GPU, and only for a GPU")
        return self


class Fact(Record):
    """One fact of the environment, or why it is not known."""

    value: FactValue
    why: str | None = Field(default=None, description="why the value is null")

    @model_validator(mode="after")
    def _value_or_reason(self) -> Self:
        if (self.value is None) == (self.why is None):
            raise ValueError("a value, or null with the reason in why")
        return self


class Protocol(Record):
    """How the numbers were taken."""

    warmup_calls: int = Field(ge=0, description="least calls before each cell")
    warmup_s: float = Field(ge=0, description="least time of warm-up before each cell [s]")
    repeats: PositiveInt = Field(description="interleaved repeats of the whole grid that were planned")
    most_repeats: PositiveInt | None = Field(default=None, description="most repeats of a cell that does not settle")
    mean_ci95_target_frac: float | None = Field(
        default=None, gt=0, description="half width of the interval of the mean at which a cell is settled"
    )
    sittings: PositiveInt = Field(default=1, description="times that it was begun or gone on with")
    forced: bool = Field(default=False, description="measured although the machine was not fit for it")
    min_calls: PositiveInt = Field(description="least calls per cell and repeat")
    min_s: float = Field(gt=0, description="least time per cell and repeat [s]")
    percentile_method: str = Field(description="definition of the percentiles")
    order_seed: int = Field(description="seed of the random order of cells")


class Profile(Record):
    """Raw facts of one model on one device, cell by cell, with their evidence."""

    schema_version: Literal[1]
    profile_id: str = Field(pattern=PROFILE_ID, description="unique name in a plan")
    status: Literal["complete", "partial"] = Field(description="partial: the measurement was stopped before its end")
    evidence: Evidence
    created: datetime.datetime | None = Field(default=None, description="end of the measurement, UTC")
    tool_version: str | None = Field(default=None, description="version of the advisor that wrote the file")
    command: str | None = Field(default=None, description="command line that made it, without the folders of files")
    model: ModelInfo
    runtime: RuntimeInfo
    device: Device
    environment: dict[str, Fact] = Field(default_factory=dict)
    protocol: Protocol | None = None
    duration_s: float | None = Field(default=None, ge=0, description="wall time of the whole measurement [s]")
    idle_power: IdlePower | None = Field(default=None, description="power with nothing to do")
    anchors: tuple[Anchor, ...] = Field(default=(), description="the same cell at the start and at the end")
    idle_starts: tuple[IdleStart, ...] = Field(default=(), description="calls of an idle replica")
    join_times: tuple[JoinTime, ...] = Field(default=(), description="time to make one batch of single requests")
    load_runs: tuple[LoadRun, ...] = Field(default=(), description="predictions checked under real load")
    warnings: tuple[str, ...] = ()
    cells: tuple[Cell, ...] = Field(min_length=1)

    def quietest_cell(self, batch_size: int, threads: int) -> Cell | None:
        """Cell of a batch size and thread count with the fewest replicas at work; None where none was measured."""
        cells = [
            cell
            for cell in self.cells
            if (cell.batch_size, cell.threads) == (batch_size, threads)
            and cell.concurrency is not None
            and cell.service_mean_s is not None
        ]
        return min(cells, key=lambda cell: cell.concurrency or 0, default=None)

    @model_validator(mode="after")
    def _cells_are_distinct(self) -> Self:
        keys = [(cell.batch_size, cell.threads, cell.concurrency) for cell in self.cells if cell.batch_size is not None]
        if len(keys) != len(set(keys)):
            raise ValueError("one cell per batch size, threads and concurrency")
        return self
