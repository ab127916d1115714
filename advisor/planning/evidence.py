"""What a plan rests on: warnings, assumptions, evidence and provenance."""

import datetime
import hashlib

from advisor import __version__
from advisor.domain.evidence import Evidence
from advisor.domain.machine import Catalog
from advisor.domain.plan import EvidenceLine, FleetLine, Provenance
from advisor.domain.profile import Profile
from advisor.domain.trace import Trace
from advisor.domain.workload import CallOrder, Routing, Scenario
from advisor.optimizer.solver import Solved
from advisor.planning.market import Market, Setting
from advisor.units import s_to_ms

ROUTING_WORDS: dict[Routing, str] = {
    "random": "Each request goes to a replica at random",
    "round_robin": "Requests go to the replicas in turn",
    "least_outstanding": "Each request goes to the replica with the fewest requests not yet answered",
    "central_queue": "All replicas of a machine type take their requests from one queue",
}
FEWEST_BEYOND = 30
"""Requests of a trace beyond the percentile, below which the trace is called short."""
CALL_ORDER_WORDS: dict[CallOrder, str] = {
    "independent": "Service times are independent of each other; stalls that come in series make the tail longer.",
    "as_measured": "Service times follow each other as in the profile, in blocks of successive calls.",
}
OLD_PRICE_DAYS = 90
BUSY_FRAC = 0.8
"""Above this load a small error in service times becomes a large one in waiting."""


def warnings_of(
    lines: tuple[FleetLine, ...],
    market: Market,
    setting: Setting,
    *,
    today: datetime.date,
) -> tuple[str, ...]:
    """Sentences that a reader of the plan must not miss."""
    sentences = []
    oldest = min(line.price_date for line in lines)
    age = (today - oldest).days
    if age > OLD_PRICE_DAYS:
        sentences.append(
            f"The oldest price used is of {oldest.isoformat()}, {age} days ago: check it with the provider, "
            "and put the new price into data/cloud_prices.csv."
        )
    by_id = {profile.profile_id: profile for profile in setting.profiles}
    for line in lines:
        sentences += _line_warnings(line, setting.catalog, by_id[line.profile_id])
    sentences += _precision_warning(lines, market)
    if setting.trace is not None:
        sentences += _short_trace_warning(setting.trace, setting.scenario)
        sentences += [f"Trace {setting.trace.name}: {warning}." for warning in setting.trace.warnings]
    return tuple(dict.fromkeys(sentences))


def _line_warnings(line: FleetLine, catalog: Catalog, profile: Profile) -> list[str]:
    sentences = []
    if line.saturation_frac > BUSY_FRAC:
        sentences.append(
            f"{line.label} runs at {line.saturation_frac:.0%} of its saturated throughput: above {BUSY_FRAC:.0%} "
            "a small error in service times becomes a large one in response time."
        )
    if line.extrapolated:
        sentences.append(
            f"{line.label} hosts {line.replicas} replicas; the profile measured fewer than half as many together, "
            "so memory bandwidth on the full host is extrapolated."
        )
    machine = catalog.by_key[line.machine_key]
    if machine.legacy:
        sentences.append(f"{line.label} is hardware that current frameworks no longer support.")
    if profile.evidence.date is None:
        sentences.append(f"The source of profile {profile.profile_id} states no date: the software may be old.")
    if profile.status == "partial":
        sentences.append(f"Profile {profile.profile_id} is partial: its measurement was stopped before the end.")
    doubtful = [
        cell
        for cell in profile.cells
        if cell.warnings and cell.batch_size is not None and cell.batch_size <= line.max_batch
    ]
    if doubtful:
        sentences.append(
            f"Profile {profile.profile_id} carries warnings in {len(doubtful)} of the cells used: see the Profiles page."
        )
    return sentences


def _precision_warning(lines: tuple[FleetLine, ...], market: Market) -> list[str]:
    """Comparing precisions is allowed and always flagged."""
    used = {line.precision or "an unstated precision" for line in lines}
    compared = {candidate.precision or "an unstated precision" for candidate in market.candidates} - used
    if not compared:
        return []
    return [
        f"The fleet runs {' and '.join(sorted(used))}; machines with {', '.join(sorted(compared))} were compared with it: "
        "check your accuracy, or set the precisions allowed."
    ]


def _short_trace_warning(trace: Trace, scenario: Scenario) -> list[str]:
    """A percentile that rests on a handful of requests."""
    sla = scenario.workload.sla
    beyond = trace.requests * (1 - sla.percentile)
    if beyond >= FEWEST_BEYOND:
        return []
    return [
        f"Trace {trace.name} has {trace.requests:,} requests: {sla.label} rests on the {max(1, round(beyond))} slowest of them, "
        "and another recording may say something else."
    ]


def assumptions_of(lines: tuple[FleetLine, ...], market: Market, scenario: Scenario) -> tuple[str, ...]:
    """Everything taken for granted, in sentences."""
    sentences = [
        market.traffic.reason,
        f"{ROUTING_WORDS[scenario.routing]}; {_batching(scenario, lines)}.",
        CALL_ORDER_WORDS[scenario.call_order],
        "The response time is wait plus inference; network, pre- and post-processing are not in it unless the profile has them.",
        f"Demand is the traffic given plus {scenario.headroom_frac:.0%} headroom; no spare machine is planned for failures.",
        "List prices of on-demand machines for 730 h a month; storage, traffic out and taxes are not in them.",
    ]
    for line in lines:
        candidate = next(
            candidate
            for offer, candidate in zip(market.offers, market.candidates, strict=True)
            if (offer.machine_type, offer.region) == (line.machine_key, line.region)
        )
        sentences += [f"{line.label}: {sentence}." for sentence in candidate.assumptions]
    return tuple(dict.fromkeys(sentences))


def _batching(scenario: Scenario, lines: tuple[FleetLine, ...]) -> str:
    if all(line.max_batch == 1 for line in lines):
        return "a replica answers one request at a time"
    if scenario.batch_delay_s > 0:
        return (
            f"a replica that falls free waits up to {s_to_ms(scenario.batch_delay_s):g} ms for a full batch, "
            "then takes the waiting requests up to its batch cap"
        )
    return "a replica that falls free takes all waiting requests up to its batch cap"


def evidence_of(
    lines: tuple[FleetLine, ...], profiles: tuple[Profile, ...], trace: Trace | None
) -> tuple[EvidenceLine, ...]:
    """Source and date of the speed and the price of each line."""
    by_id = {profile.profile_id: profile for profile in profiles}
    found = []
    if trace is not None:
        recorded = Evidence(kind="imported", source=f"{trace.name}, sha256 {trace.sha256[:12]}", date=None)
        found.append(EvidenceLine(what=f"arrivals: {trace.requests:,} time stamps", evidence=recorded))
    for line in lines:
        profile = by_id[line.profile_id]
        found.append(
            EvidenceLine(what=f"speed of {line.label}: profile {profile.profile_id}", evidence=profile.evidence)
        )
        price = Evidence(kind="published", source=line.price_source, date=line.price_date, note="list price")
        found.append(EvidenceLine(what=f"price of {line.label} in {line.region}", evidence=price))
    return tuple(found)


def profile_hash(profile: Profile) -> str:
    """SHA-256 of the profile as the tool writes it."""
    return hashlib.sha256(profile.model_dump_json().encode()).hexdigest()


def provenance_of(
    lines: tuple[FleetLine, ...],
    market: Market,
    setting: Setting,
    *,
    today: datetime.date,
    solved: Solved | None,
) -> Provenance:
    """Versions, hashes and dates that make the plan reproducible."""
    used = {candidate.profile_id for candidate in market.candidates} | {line.profile_id for line in lines}
    hashes = {profile.profile_id: profile_hash(profile) for profile in setting.profiles if profile.profile_id in used}
    dates = [line.price_date for line in lines]
    return Provenance(
        version=__version__,
        today=today,
        seed=setting.scenario.seed,
        trace_hash=None if setting.trace is None else setting.trace.sha256,
        profile_hashes=hashes,
        oldest_price=min(dates, default=None),
        solver="scipy.optimize.milp (HiGHS)",
        solver_status="not run" if solved is None else solved.status,
        mip_gap_frac=None if solved is None else round(solved.gap_frac, 12),
    )
