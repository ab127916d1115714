"""Scenario files: short YAML for people, in milliseconds and percent, expanded to the SI types of the domain."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, PositiveInt, ValidationError, model_validator

from advisor.domain.record import Record, first_problem, parse_record
from advisor.domain.trace import Trace
from advisor.domain.workload import (
    Arrivals,
    CallOrder,
    JobScenario,
    PoissonArrivals,
    Routing,
    Scenario,
    Sla,
    TraceArrivals,
    Workload,
)
from advisor.errors import InputError
from advisor.store.traces import read_trace
from advisor.units import ms_to_s

PERCENTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p95_ms": 0.95, "p99_ms": 0.99, "p999_ms": 0.999}
SCALAR = "values that can be read; a text that looks like a date or a number goes in quotes"
HIGHEST_RATE_RPS = 1e7
Milliseconds = Annotated[float | None, Field(default=None, gt=0, le=3_600_000)]


class Demand(Record):
    """Traffic."""

    rate_rps: float | None = Field(
        default=None,
        gt=0,
        le=HIGHEST_RATE_RPS,
        description="requests per second in the busiest hour [1/s]; null: as in the trace",
    )
    arrivals: Arrivals = Field(default=PoissonArrivals(), description="how requests come")

    @model_validator(mode="after")
    def _rate_or_trace(self) -> Self:
        if self.rate_rps is None and not isinstance(self.arrivals, TraceArrivals):
            raise ValueError("rate_rps, unless arrivals is a trace")
        return self


class SlaLimits(Record):
    """Percentile limits of the response time, at least one [ms]."""

    p50_ms: Milliseconds
    p90_ms: Milliseconds
    p95_ms: Milliseconds
    p99_ms: Milliseconds
    p999_ms: Milliseconds

    @model_validator(mode="after")
    def _at_least_one(self) -> Self:
        if all(getattr(self, name) is None for name in PERCENTILES):
            raise ValueError(f"at least one of {', '.join(PERCENTILES)}")
        return self

    def to_limits(self) -> tuple[Sla, ...]:
        """Limits in SI units, the highest percentile first."""
        given = [(q, getattr(self, name)) for name, q in PERCENTILES.items()]
        return tuple(
            Sla(percentile=q, response_time_s=ms_to_s(value)) for q, value in reversed(given) if value is not None
        )


class ScenarioFile(Record):
    """Online traffic of one workload, as people write it."""

    schema_version: Literal[1]
    name: str = Field(min_length=1)
    model: str = Field(min_length=1, description="model name in the profiles")
    demand: Demand
    sla: SlaLimits
    budget_usd_per_month: float | None = Field(default=None, gt=0, description="hard limit [USD/month]")
    regions: tuple[str, ...] = Field(default=(), description="provider/region or a bare region; empty: all")
    headroom_pct: float = Field(
        default=0.0, ge=0, le=1000, description="demand planned for is demand × (1 + headroom/100) [%]"
    )
    sequence_length: PositiveInt | None = Field(default=None, description="tokens per item, for models of text")
    precisions: tuple[str, ...] = Field(default=(), description="precisions allowed, such as [fp32, fp16]; empty: all")
    routing: Routing = Field(default="random", description="how requests reach replicas")
    batch_delay_ms: float = Field(
        default=0.0, ge=0, le=60_000, description="longest time that a free replica waits for its batch to fill [ms]"
    )
    call_order: CallOrder = Field(
        default="independent",
        description="as_measured: service times follow each other as in the profile, so that stalls come in series",
    )
    seed: int = Field(default=0, ge=0, description="seed of the simulation")

    def to_scenario(self, trace_rate_rps: float | None) -> Scenario:
        """Scenario in SI units; without a rate of its own it takes that of its trace."""
        return Scenario(
            schema_version=1,
            name=self.name,
            workload=Workload(
                name=self.name,
                model=self.model,
                arrival_rate_rps=self.demand.rate_rps or trace_rate_rps or 0.0,
                arrivals=self.demand.arrivals,
                limits=self.sla.to_limits(),
                sequence_length=self.sequence_length,
                precisions=self.precisions,
            ),
            headroom_frac=self.headroom_pct / 100,
            routing=self.routing,
            batch_delay_s=ms_to_s(self.batch_delay_ms),
            call_order=self.call_order,
            budget_usd_per_month=self.budget_usd_per_month,
            regions=self.regions,
            seed=self.seed,
        )


@dataclass(frozen=True)
class Question:
    """A scenario with the traces that it names.

    Attributes
    ----------
    scenario
        What is asked.
    traces
        Recorded arrivals by the name that the scenario uses.
    """

    scenario: Scenario | JobScenario
    traces: dict[str, Trace]


def read_scenario(path: Path, overrides: tuple[str, ...] = ()) -> Question:
    """Scenario of a YAML file, with fields replaced by ``path.to.field=value``; traces are looked for beside the file.

    Raises
    ------
    InputError
        When the file is missing, is no YAML mapping, or does not fit.
    """
    if not path.is_file():
        raise InputError("scenario", path.name, "a scenario file that exists")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError("content", "bytes that are no text", "UTF-8 text", file=path.name) from error
    return parse_scenario(text, overrides, file=path.name, folder=path.parent)


def parse_scenario(text: str, overrides: tuple[str, ...] = (), *, file: str, folder: Path) -> Question:
    """Scenario from YAML text; traces are read from the folder.

    Raises
    ------
    InputError
        When the text does not fit: file, field, value and what is allowed.
    """
    try:
        document = yaml.safe_load(text)
    except RecursionError as error:
        raise InputError("content", "nested too deeply", "a YAML document", file=file) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}" if mark is not None else "content"
        raise InputError(place, getattr(error, "problem", "unreadable"), "a YAML document", file=file) from error
    except (ValueError, AttributeError) as error:
        # YAML lets through what Python says of a date that is none, such as 2020-13-45, or of too many digits.
        raise InputError("content", str(error), SCALAR, file=file) from error
    if not isinstance(document, dict):
        raise InputError("content", type(document).__name__, "a YAML mapping of fields", file=file)
    for override in overrides:
        _override(document, override)
    try:
        content = json.dumps(document, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError("content", str(error), "fields with texts, numbers and lists", file=file) from error
    if "jobs" in document:
        return Question(parse_record(JobScenario, content, file=file), {})
    found = parse_record(ScenarioFile, content, file=file)
    if not isinstance(found.demand.arrivals, TraceArrivals):
        return Question(found.to_scenario(None), {})
    name = found.demand.arrivals.file
    trace = read_trace(folder / name)
    return Question(_with_trace(found, trace), {name: trace})


def online_scenario(trace: Trace | None = None, **fields: Any) -> Scenario:
    """Scenario from the values of a form, checked like a file.

    Raises
    ------
    InputError
        When a value does not fit.
    """
    try:
        found = ScenarioFile.model_validate_json(json.dumps({"schema_version": 1, **fields}))
    except ValidationError as error:
        raise first_problem(error, file="form") from error
    return found.to_scenario(None) if trace is None else _with_trace(found, trace)


def _with_trace(found: ScenarioFile, trace: Trace) -> Scenario:
    """Scenario with a trace, which is held to the same bound as a rate where it gives the rate."""
    if found.demand.rate_rps is None and trace.rate_rps > HIGHEST_RATE_RPS:
        allowed = f"at most {HIGHEST_RATE_RPS:g}/s, unless demand.rate_rps says at which rate the trace is replayed"
        raise InputError("mean rate", f"{trace.rate_rps:.3g}/s", allowed, file=trace.name)
    return found.to_scenario(trace.rate_rps)


def _override(document: dict[str, Any], override: str) -> None:
    """Replace one field of the document."""
    path, found, value = override.partition("=")
    if not found or not path:
        raise InputError("--set", override, "field=value, such as demand.rate_rps=500")
    *parents, last = path.split(".")
    place = document
    for parent in parents:
        place = place.setdefault(parent, {})
        if not isinstance(place, dict):
            raise InputError("--set", override, "a path of fields; one on the way is a value")
    try:
        place[last] = yaml.safe_load(value)
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError("--set", override, "a value in YAML, such as 500 or [fp32, fp16]") from error
    except (ValueError, AttributeError) as error:
        raise InputError("--set", override, SCALAR) from error
