"""``advisor schema``: JSON Schemas of the files that users write and read."""

import json
from pathlib import Path
from typing import Annotated

import typer

from advisor.domain.machine import Catalog
from advisor.domain.plan import Infeasible, JobPlan, Plan
from advisor.domain.profile import Profile
from advisor.domain.record import Record
from advisor.domain.workload import JobScenario
from advisor.store.scenarios import ScenarioFile

SCHEMAS: dict[str, type[Record]] = {
    "profile": Profile,
    "scenario": ScenarioFile,
    "job-scenario": JobScenario,
    "catalog": Catalog,
    "plan": Plan,
    "infeasible": Infeasible,
    "job-plan": JobPlan,
}

Folder = Annotated[Path, typer.Argument(help="folder to write to")]


def schema_text(record_type: type[Record]) -> str:
    """JSON Schema of a type, as it stands in docs/schema."""
    return json.dumps(record_type.model_json_schema(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def schema(folder: Folder) -> None:
    """Write the JSON Schemas of all file formats."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, record_type in SCHEMAS.items():
        (folder / f"{name}.schema.json").write_text(schema_text(record_type), encoding="utf-8")
    typer.echo(f"Wrote {len(SCHEMAS)} schemas.")
