"""``advisor plan``: a scenario file in, a fleet out."""

import datetime
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from advisor.catalog import load_catalog
from advisor.cli.files import check_targets, write_bytes
from advisor.cli.printing import print_table, stdout_console
from advisor.domain.plan import Infeasible, JobPlan, Plan
from advisor.planning import plan as plan_scenario
from advisor.reports.excel import result_xlsx
from advisor.reports.sentences import budget_sentence, headline, overload_sentence, simulation_sentence, why
from advisor.reports.tables import (
    alternatives_table,
    evidence_table,
    fleet_table,
    jobs_table,
    rejection_summary,
    result_csv,
    result_json,
)
from advisor.store.capacities import CapacityStore, default_cache_path
from advisor.store.paths import DATA, PROFILES
from advisor.store.profiles import read_profile_file, read_profiles
from advisor.store.scenarios import read_scenario

FLEET_COLUMNS = [
    "Machine",
    "Region",
    "Count",
    "Price (USD/h each)",
    "Cost (USD/month)",
    "Capacity under the limit (req/s)",
    "Precision",
]

ScenarioPath = Annotated[Path, typer.Argument(help="scenario file (YAML)", metavar="SCENARIO.yaml")]
Overrides = Annotated[list[str] | None, typer.Option("--set", help="replace a field: demand.rate_rps=500")]
Extra = Annotated[list[Path] | None, typer.Option("--profile", help="profile file to use beside the shipped ones")]
Json = Annotated[Path | None, typer.Option(help="write the result as JSON; - for standard output")]
Csv = Annotated[Path | None, typer.Option(help="write the fleet as CSV; - for standard output")]
Xlsx = Annotated[Path | None, typer.Option(help="write an Excel workbook; - for standard output")]


def plan(
    scenario: ScenarioPath,
    *,
    overrides: Overrides = None,
    profile: Extra = None,
    json: Json = None,
    csv: Csv = None,
    xlsx: Xlsx = None,
) -> None:
    """Recommend the cheapest fleet that answers in time, and say why."""
    check_targets(json, csv, xlsx)
    question = read_scenario(scenario, tuple(overrides or ()))
    cache = CapacityStore(default_cache_path())
    known = {found.profile_id: found for found in read_profiles(PROFILES)}
    own = {found.profile_id: found for found in map(read_profile_file, profile or [])}
    known |= own
    with Console(stderr=True).status("planning") as status, ThreadPoolExecutor(os.cpu_count()) as executor:
        result = plan_scenario(
            question.scenario,
            known.values(),
            load_catalog(DATA),
            today=datetime.datetime.now(datetime.UTC).date(),
            preferred=frozenset(own),
            traces=question.traces,
            cache=cache,
            executor=executor,
            progress=lambda line: status.update(f"planning: {line}"),
        )
    if json is not None:
        write_bytes(json, result_json(result).encode())
    if csv is not None:
        write_bytes(csv, result_csv(result))
    if xlsx is not None:
        write_bytes(xlsx, result_xlsx(result))
    if "-" not in (str(json), str(csv), str(xlsx)):
        _print(result)
    if result.status == "infeasible":
        raise typer.Exit(3)


def _print(result: Plan | Infeasible | JobPlan) -> None:
    console = stdout_console()
    console.print(headline(result), style="bold")
    match result:
        case Plan():
            _print_plan(result, console)
        case Infeasible():
            for relaxation in result.relaxations:
                console.print(relaxation.sentence)
            console.print(result.traffic_reason)
            _print_list("Warnings", result.warnings, console)
            if result.cheapest:
                console.print("The cheapest fleet that meets the other limits:")
                print_table(fleet_table(result.cheapest)[FLEET_COLUMNS])
            if result.best_effort:
                console.print(f"Within the limit {result.served_frac:.0%} of the demand can be served:")
                print_table(fleet_table(result.best_effort)[FLEET_COLUMNS])
                console.print(overload_sentence(result) or "")
            _print_rejections(result, console)
        case JobPlan():
            print_table(
                jobs_table(result).drop(
                    columns=["Cost holds", "Profile", "Jobs per node and window", "Speed (items/s per node)"]
                )
            )
            for answer in result.answers:
                console.print(f"{answer.name}, cost: {answer.cost_basis}.")
                for sentence in answer.assumptions:
                    console.print(f"{answer.name}: {sentence}.")
            _print_list("Warnings", result.warnings, console)
    print_table(evidence_table(result))


def _print_plan(result: Plan, console: Console) -> None:
    budget = budget_sentence(result)
    if budget:
        console.print(budget)
    print_table(fleet_table(result.fleet)[FLEET_COLUMNS])
    _print_list("Why", why(result), console)
    console.print(simulation_sentence(result))
    _print_list("Warnings", result.warnings, console)
    _print_list("Assumptions", result.assumptions, console)
    console.print("Alternatives", style="bold")
    print_table(alternatives_table(result).drop(columns=["Profile"]))
    _print_rejections(result, console)


def _print_rejections(result: Plan | Infeasible, console: Console) -> None:
    console.print(f"{len(result.rejections)} machine types are not in the running", style="bold")
    print_table(rejection_summary(result.rejections).head(12))


def _print_list(title: str, sentences: tuple[str, ...], console: Console) -> None:
    if sentences:
        console.print(title, style="bold")
        for sentence in sentences:
            console.print(f"  • {sentence}")
