"""Whether a prediction holds under real load: anchor, load, anchor, compare.

The machine is measured again just before each run, and the prediction rescaled by what is found; measured once more
just after, it tells whether it stayed the same. What speaks against a run is said with it, and does not depend on
whether the prediction held.
"""

import datetime
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from time import perf_counter_ns

import numpy as np

from advisor import __version__
from advisor.capacity.curve import UNREPEATED_ERROR_FRAC
from advisor.domain.measurement import Checked, LoadRun, Surroundings
from advisor.errors import InputError, MeasurementError
from advisor.profiling.acceptance import Stalls, find_stalls, reasons_to_reject
from advisor.profiling.cell import ITEMS_PER_CELL
from advisor.profiling.engines import Engine, EngineFactory, Item
from advisor.profiling.forecast import FloatArray, Forecast, SpeedRatio, forecast
from advisor.profiling.host import read_host, surroundings
from advisor.profiling.load import LEAD_S, drive, poisson_arrivals, schedule
from advisor.profiling.serving import Server, prepare_singles, warm_up
from advisor.profiling.statistics import histogram, mean_ci95_frac
from advisor.profiling.verification_plan import ANCHOR_RULES, FEWEST_COUNTED, VerificationPlan, refuse_other_runtime
from advisor.profiling.window import NsArray, run_window
from advisor.units import s_to_ms

LATENESS_LIMIT_FRAC = 0.05
"""Lateness of the generator (99th percentile) over the predicted p99; above it the generator is the bottleneck, says
the protocol."""
DRIFT_LIMIT_FRAC = 0.03
"""Change of the anchor from before to after a run above which the machine was not the same: the protocol's."""
HIGHEST_LOAD = 0.98
"""Load above which the queue grows as long as the run lasts, and nothing is promised."""
_PIECES = 4
"""Stretches of an anchor window that tell how well its mean is known: an assumption."""

_NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class AnchorReading:
    """How fast the machine was at one moment."""

    ratio: SpeedRatio
    """Service times over those of the profile."""
    reasons: tuple[str, ...]
    """Why it may not describe the machine alone."""


@dataclass(frozen=True, slots=True)
class Observed:
    """One run under load."""

    rate_rps: float
    arrivals_s: FloatArray
    counted_from: int
    """First request that counts."""
    response_s: FloatArray
    """Response times of the requests that count, from their scheduled times [s]."""
    lateness_p99_s: float
    batch_sizes: NsArray
    """Size of each batch."""
    service_s: FloatArray
    """Time of each batch [s]."""
    duration_s: float
    around: Surroundings


def verify(
    engine_factory: EngineFactory, plan: VerificationPlan, *, on_step: Callable[[str], None]
) -> Iterator[LoadRun]:
    """Make the runs of a plan, one after the other; stopped between or inside them, those yielded are whole.

    Parameters
    ----------
    engine_factory
        The model of the profile.
    plan
        What to do.
    on_step
        Told what begins.

    Raises
    ------
    InputError
        When the model takes no single requests, or another version of the runtime runs it.
    MeasurementError
        When a replica cannot be opened or fails.
    """
    if engine_factory.fixed_batch_size not in (None, 1):
        raise InputError(
            "batch size of the model", engine_factory.fixed_batch_size, "1 or any, to serve single requests"
        )
    place, largest = plan.setup.configuration, plan.setup.max_batch
    rng = np.random.default_rng(plan.seed)
    with ExitStack() as stack:
        engines = []
        for _ in range(place.concurrency):
            engines.append(engine_factory.open(place.threads, concurrency=place.concurrency))
            stack.callback(engines[-1].close)
        if plan.runtime is not None:
            refuse_other_runtime(plan.runtime, engines[0].describe()[1])
        singles = prepare_singles(engines[0], rng, most=largest)
        anchor_items = {
            size: [engines[0].prepare(size, rng) for _ in range(ITEMS_PER_CELL)] for size in plan.anchor_sizes
        }
        on_step(f"warming up {place.concurrency} × {place.threads} threads at batch sizes 1 to {largest}")
        warm_up(engines, singles, largest)
        on_step("anchor")
        before = read_anchor(engines, anchor_items, plan)
        for number, load in enumerate(plan.loads):
            rate_rps = load * plan.model.saturated_rps / before.ratio.value
            on_step(f"load {load:.2f}: {rate_rps:.4g} requests/s")
            observed = run_load(engines, singles, plan, rate_rps=rate_rps, seed=plan.seed + number)
            on_step("anchor")
            after = read_anchor(engines, anchor_items, plan)
            yield compare(plan, observed, before, after, load=load, seed=plan.seed + number)
            before = after


def read_anchor(
    engines: Sequence[Engine], items: Mapping[int, Sequence[Item]], plan: VerificationPlan
) -> AnchorReading:
    """Measure some batch sizes again, all replicas at work as in the profile, and compare with it."""
    ratios: list[float] = []
    reasons: list[str] = []
    for size in plan.anchor_sizes:
        threads = plan.setup.configuration.threads
        window = run_window(engines, items[size], ANCHOR_RULES, threads=threads, observe=read_host)
        in_order_s = window.service_s[np.argsort(window.starts_ns)]
        pieces = np.array_split(in_order_s, min(_PIECES, in_order_s.size))
        ratios += [float(piece.mean() / plan.model.curve.batch_time_s[size - 1]) for piece in pieces]
        seen = _of_others(surroundings(window.before, window.after), plan)
        reasons += reasons_to_reject(find_stalls(in_order_s), seen)
    known_frac = mean_ci95_frac(ratios)
    ratio = SpeedRatio(float(np.mean(ratios)), UNREPEATED_ERROR_FRAC if known_frac is None else known_frac)
    return AnchorReading(ratio, tuple(dict.fromkeys(reasons)))


def run_load(
    engines: Sequence[Engine], singles: Sequence[Item], plan: VerificationPlan, *, rate_rps: float, seed: int
) -> Observed:
    """Start the server, send it Poisson arrivals on an absolute schedule, and wait for all answers."""
    counted_from = plan.warm_up_requests(rate_rps)
    count = counted_from + plan.counted_requests(rate_rps)
    arrivals_s = poisson_arrivals(rate_rps, count, np.random.default_rng(seed))
    # A collection of garbage would stop generator and workers alike; nothing here makes any.
    gc.collect()
    gc.disable()
    try:
        with Server(engines, singles, plan.setup, requests=count) as server:
            before = read_host()
            due_ns = schedule(arrivals_s, perf_counter_ns() + round(LEAD_S * _NS_PER_S))
            sent_ns = drive(server.put, due_ns, failed=lambda: server.failed)
            served = server.finish()
            after = read_host()
    finally:
        gc.enable()
    return Observed(
        rate_rps=rate_rps,
        arrivals_s=arrivals_s,
        counted_from=counted_from,
        response_s=(served.done_ns - due_ns)[counted_from:] / _NS_PER_S,
        lateness_p99_s=float(np.percentile((sent_ns - due_ns)[counted_from:], 99)) / _NS_PER_S,
        batch_sizes=served.batch_sizes,
        service_s=served.service_ns / _NS_PER_S,
        duration_s=float(served.done_ns.max() - due_ns[0]) / _NS_PER_S,
        around=_of_others(surroundings(before, after), plan),
    )


def _of_others(seen: Surroundings, plan: VerificationPlan) -> Surroundings:
    """Surroundings without what a server on this machine does to its CPUs."""
    return seen.model_copy(update={"other_cpus": None, "run_delay_frac": None}) if plan.asks_address else seen


def compare(
    plan: VerificationPlan, observed: Observed, before: AnchorReading, after: AnchorReading, *, load: float, seed: int
) -> LoadRun:
    """Predict for the very same arrivals, compare, and say what speaks against the run.

    Raises
    ------
    MeasurementError
        When a request seems to be answered before it was due: the clock is wrong.
    """
    if float(observed.response_s.min()) <= 0:
        raise MeasurementError("A request was answered before it was due; the clock of this machine cannot be trusted.")
    predicted = forecast(
        plan.model, observed.arrivals_s, counted_from=observed.counted_from, ratio=before.ratio, seed=seed
    )
    as_planned = forecast(
        plan.model.as_planned(), observed.arrivals_s, counted_from=observed.counted_from, ratio=SpeedRatio(), seed=seed
    )
    p95_s, p99_s = (float(value) for value in np.percentile(observed.response_s, [95, 99]))
    setup = plan.setup
    return LoadRun(
        created=datetime.datetime.now(datetime.UTC),
        tool_version=__version__,
        threads=setup.configuration.threads,
        concurrency=setup.configuration.concurrency,
        max_batch_size=setup.max_batch,
        batch_delay_s=setup.batch_delay_s,
        rate_rps=observed.rate_rps,
        load=load,
        seed=seed,
        count=observed.response_s.size,
        duration_s=observed.duration_s,
        mean_batch=float(observed.batch_sizes.mean()),
        service_frac=float(observed.service_s.sum() / expected_s(plan, observed, before).sum()) - 1,
        mean=Checked(observed_s=float(observed.response_s.mean()), predicted=predicted.mean),
        p95=Checked(observed_s=p95_s, predicted=predicted.p95),
        p99=Checked(observed_s=p99_s, predicted=predicted.p99),
        planned_p99_s=as_planned.p99.value_s,
        drift_frac=before.ratio.value - 1,
        drift_after_frac=after.ratio.value - 1,
        lateness_p99_s=max(observed.lateness_p99_s, 0.0),
        surroundings=observed.around,
        doubts=doubts(plan, observed, predicted, load=load, anchors=(before, after)),
        response=histogram(observed.response_s),
    )


def doubts(
    plan: VerificationPlan,
    observed: Observed,
    predicted: Forecast,
    *,
    load: float,
    anchors: tuple[AnchorReading, AnchorReading],
) -> tuple[str, ...]:
    """Why a run does not count as clean, each a code and what was seen; none of it looks at whether it agreed."""
    found = []
    late_s, limit_s = observed.lateness_p99_s, LATENESS_LIMIT_FRAC * predicted.p99.value_s
    if late_s > limit_s:
        found.append(
            f"CLIENT_BOUND: the load generator was late by {s_to_ms(late_s):.3g} ms (99th percentile), more than "
            f"{LATENESS_LIMIT_FRAC:.0%} of the predicted p99."
        )
    before, after = anchors
    alike = find_stalls(observed.service_s / expected_s(plan, observed, before) * float(observed.service_s.mean()))
    found += _noise(observed.around, alike, anchors, own_threads_wait=not plan.leaves_a_cpu_free)
    drift_frac = after.ratio.value / before.ratio.value - 1
    if abs(drift_frac) > DRIFT_LIMIT_FRAC:
        change = "longer" if drift_frac > 0 else "shorter"
        found.append(f"DRIFT: calls took {abs(drift_frac):.1%} {change} after the run than before it.")
    if load > HIGHEST_LOAD:
        found.append(f"OVERLOADED: at a load of {load:.2f} the queue grows as long as the run lasts.")
    if observed.response_s.size < FEWEST_COUNTED:
        found.append(f"FEW_SAMPLES: {observed.response_s.size} requests, fewer than {FEWEST_COUNTED}.")
    return tuple(found)


def expected_s(plan: VerificationPlan, observed: Observed, before: AnchorReading) -> FloatArray:
    """Time that each batch of a run should take by profile and anchor [s]."""
    found: FloatArray = plan.model.law(before.ratio.value).mean_s[observed.batch_sizes - 1]
    return found


def _noise(
    around: Surroundings, stalls: Stalls, anchors: tuple[AnchorReading, AnchorReading], *, own_threads_wait: bool
) -> Iterator[str]:
    """What else happened on the host, during the run and during the anchors beside it.

    Where the replicas use all CPUs, threads of this process wait for each other as well, and waiting for a CPU says
    nothing about the host. Stalls of the run are told from the times of its batches, each against what one of its size
    should take. Each kind of reason is given once, that of the run first.
    """
    seen = around.model_copy(update={"run_delay_frac": None}) if own_threads_wait else around
    found = [(reason, "in the run") for reason in reasons_to_reject(stalls, seen)]
    found += [(reason, "beside it") for anchor in anchors for reason in anchor.reasons]
    codes = set()
    for reason, place in found:
        code, _, detail = reason.partition(": ")
        if code not in codes:
            yield f"NOISY_HOST: {detail} ({code}, {place})"
        codes.add(code)
