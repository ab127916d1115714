"""Scenario files: short YAML for people, in milliseconds and percent, expanded to the SI types of the domain."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, PositiveInt, ValidationError, model_validator

from advisor.domain.record import Record, first_problem, parse_record
from advisor.domain.workload import JobScenario, Routing, Scenario, Sla, Workload
from advisor.errors import InputError
from advisor.units import ms_to_s

PERCENTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p95_ms": 0.95, "p99_ms": 0.99, "p999_ms": 0.999}
Milliseconds = Annotated[float | None, Field(default=None, gt=0, le=3_600_000)]


class Demand(Record):
    """Traffic."""

    rate_rps: float = Field(gt=0, le=1e7, description="requests per second at the peak [1/s]")


class SlaLimits(Record):
    """One percentile limit of the response time [ms]."""

    p50_ms: Milliseconds
    p90_ms: Milliseconds
    p95_ms: Milliseconds
    p99_ms: Milliseconds
    p999_ms: Milliseconds

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if sum(getattr(self, name) is not None for name in PERCENTILES) != 1:
            raise ValueError(f"exactly one of {', '.join(PERCENTILES)}")
        return self

    def to_sla(self) -> Sla:
        """Limit in SI units."""
        name, value = next((name, getattr(self, name)) for name in PERCENTILES if getattr(self, name) is not None)
        return Sla(percentile=PERCENTILES[name], response_time_s=ms_to_s(value))


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
    routing: Routing = "random"
    seed: int = Field(default=0, ge=0, description="seed of the simulation")

    def to_scenario(self) -> Scenario:
        """Scenario in SI units."""
        return Scenario(
            schema_version=1,
            name=self.name,
            workload=Workload(
                name=self.name,
                model=self.model,
                arrival_rate_rps=self.demand.rate_rps,
                sla=self.sla.to_sla(),
                sequence_length=self.sequence_length,
                precisions=self.precisions,
            ),
            headroom_frac=self.headroom_pct / 100,
            routing=self.routing,
            budget_usd_per_month=self.budget_usd_per_month,
            regions=self.regions,
            seed=self.seed,
        )


def read_scenario(path: Path, overrides: tuple[str, ...] = ()) -> Scenario | JobScenario:
    """Scenario of a YAML file, with fields replaced by ``path.to.field=value``.

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
    return parse_scenario(text, overrides, file=path.name)


def parse_scenario(text: str, overrides: tuple[str, ...] = (), *, file: str) -> Scenario | JobScenario:
    """Scenario from YAML text.

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
    if not isinstance(document, dict):
        raise InputError("content", type(document).__name__, "a YAML mapping of fields", file=file)
    for override in overrides:
        _override(document, override)
    try:
        content = json.dumps(document, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError("content", str(error), "fields with texts, numbers and lists", file=file) from error
    if "jobs" in document:
        return parse_record(JobScenario, content, file=file)
    return parse_record(ScenarioFile, content, file=file).to_scenario()


def online_scenario(**fields: Any) -> Scenario:
    """Scenario from the values of a form, checked like a file.

    Raises
    ------
    InputError
        When a value does not fit.
    """
    try:
        return ScenarioFile.model_validate_json(json.dumps({"schema_version": 1, **fields})).to_scenario()
    except ValidationError as error:
        raise first_problem(error, file="form") from error


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
    except yaml.YAMLError as error:
        raise InputError("--set", override, "a value in YAML, such as 500 or [fp32, fp16]") from error
