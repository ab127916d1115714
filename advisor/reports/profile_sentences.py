"""Every sentence that the command line and the pages say about one profile."""

from collections.abc import Iterator, Sequence

from advisor.capacity.knee import KNEE_FRAC, Sweep, doubling_gain_frac
from advisor.domain.measurement import Anchor, LoadRun
from advisor.domain.profile import Cell, Profile
from advisor.reports.sentences import milliseconds


def items_per_s(rps: float) -> str:
    """Items per second with three significant digits.

    Examples
    --------
    >>> items_per_s(1234.5), items_per_s(14.46)
    ('1,230 items/s', '14.5 items/s')
    """
    digits = float(f"{rps:.3g}")
    return f"{digits:,.0f} items/s" if digits >= 100 else f"{digits:g} items/s"


def place_words(threads: int | None, concurrency: int | None) -> str:
    """Replicas and threads of a configuration, as far as the source states them.

    Examples
    --------
    >>> place_words(1, 2), place_words(None, 1), place_words(None, None)
    ('2 replicas × 1 thread', '1 replica', '')
    """
    counts = ((concurrency, "replica"), (threads, "thread"))
    return " × ".join(f"{count} {name}{'' if count == 1 else 's'}" for count, name in counts if count is not None)


def sweep_sentence(sweep: Sweep) -> str:
    """Where a sweep levels off, or that it did not and tells a floor only."""
    what, unit = ("batch", "batch size") if sweep.axis == "batch_size" else ("replicas", "replicas")
    fixed = place_words(sweep.threads, sweep.concurrency)
    if sweep.batch_size is not None:
        fixed = f"{fixed}, batch {sweep.batch_size}".removeprefix(", ")
    where = f"Over {unit} ({fixed})" if fixed else f"Over {unit}"
    last, knee = sweep.points[-1], sweep.knee
    if sweep.saturated:
        return (
            f"{where}: at most {items_per_s(sweep.best_rps)}; the knee is {what} {knee.size}, "
            f"the smallest with {KNEE_FRAC:.0%} of it ({items_per_s(knee.throughput_rps)})."
        )
    gain_frac = doubling_gain_frac(sweep.points)
    why = (
        f"no doubling up to {what} {last.size} was measured"
        if gain_frac is None
        else f"the last doubling, to {what} {last.size}, still gained {gain_frac:.0%}"
    )
    return f"{where}: at least {items_per_s(sweep.best_rps)}, a floor and no capacity: {why}."


def streaming_sentence(cell: Cell) -> str | None:
    """When the tokens of streamed answers came; None where answers come whole."""
    streaming = cell.streaming
    if streaming is None:
        return None
    first, inter = streaming.first_token, streaming.inter_token
    callers = f"{cell.concurrency} caller{'' if cell.concurrency == 1 else 's'}"
    between = (
        "" if inter is None else (f", then one every {milliseconds(inter.p50_s)} (p95 {milliseconds(inter.p95_s)})")
    )
    return (
        f"{callers}: first token after {milliseconds(first.p50_s)} (median; p95 {milliseconds(first.p95_s)}){between}; "
        f"{streaming.parts_mean:.4g} parts per answer."
    )


def clean_runs(profile: Profile) -> tuple[LoadRun, ...]:
    """Load runs that count."""
    return tuple(run for run in profile.load_runs if run.clean)


def runs_inside(runs: Sequence[LoadRun]) -> int:
    """How many runs had their observed p99 in the predicted interval."""
    return sum(run.p99.inside for run in runs)


def verification_sentence(runs: Sequence[LoadRun]) -> str:
    """In how many runs under load the prediction held; doubtful runs are counted apart."""
    clean = [run for run in runs if run.clean]
    doubtful = len(runs) - len(clean)
    apart = f" {doubtful} doubtful {'run does' if doubtful == 1 else 'runs do'} not count." if doubtful else ""
    if not clean:
        return f"No clean run under load, so nothing is verified.{apart}"
    low, high = min(run.load for run in clean), max(run.load for run in clean)
    loads = f"at {low:.0%} load" if f"{low:.0%}" == f"{high:.0%}" else f"from {low:.0%} to {high:.0%} load"
    count = f"{len(clean)} clean {'run' if len(clean) == 1 else 'runs'}"
    return f"In {runs_inside(clean)} of {count} {loads} the observed p99 lay in the predicted 95 % interval.{apart}"


def served_sentence(profile: Profile) -> str:
    """Which replicas served the runs, and whether plans use others."""
    servers = dict.fromkeys((run.threads, run.concurrency, run.max_batch_size) for run in profile.load_runs)
    words = [f"{place_words(threads, replicas)} in batches of at most {most}" for threads, replicas, most in servers]
    text = f"Served by {' and by '.join(words)}"
    cpus = None if profile.device.cpu is None else profile.device.cpu.logical_cpus
    if cpus is None or all(threads * replicas >= cpus for threads, replicas, _ in servers):
        return f"{text}."
    return f"{text}; plans use replicas that keep all {cpus} CPUs busy, of which runs with fewer say nothing."


def errors_sentence(runs: Sequence[LoadRun]) -> str | None:
    """How far predictions were off in clean runs; None without one."""
    clean = [run for run in runs if run.clean]
    if not clean:
        return None
    parts = [
        f"{name} {_span([checked.error_frac for checked in figures])}"
        for name, figures in (
            ("mean", [run.mean for run in clean]),
            ("p95", [run.p95 for run in clean]),
            ("p99", [run.p99 for run in clean]),
        )
    ]
    return f"Predicted against observed in clean runs: {', '.join(parts)}."


def drift_sentences(profile: Profile) -> Iterator[str]:
    """How much slower each anchor cell was at the end than at the start."""
    groups: dict[tuple[int, int, int], list[Anchor]] = {}
    for anchor in profile.anchors:
        groups.setdefault((anchor.batch_size, anchor.threads, anchor.concurrency), []).append(anchor)
    for (batch_size, threads, concurrency), found in groups.items():
        first, last = min(found, key=lambda anchor: anchor.at_s), max(found, key=lambda anchor: anchor.at_s)
        if first is not last:
            drift_frac = last.service_mean_s / first.service_mean_s - 1
            yield (
                f"Drift: batch {batch_size} on {place_words(threads, concurrency)} took "
                f"{milliseconds(first.service_mean_s)} at the start and {milliseconds(last.service_mean_s)} "
                f"{last.at_s - first.at_s:.0f} s later ({drift_frac:+.1%})."
            )


def repeats_sentence(profile: Profile) -> str | None:
    """How many windows counted; None when the file does not keep them."""
    repeats = [repeat for cell in profile.cells for repeat in cell.repeats]
    if not repeats:
        return None
    disturbed = sum(bool(repeat.rejected) for repeat in repeats)
    if not disturbed:
        return f"All {len(repeats)} windows count."
    text = f"{len(repeats) - disturbed} of {len(repeats)} windows were undisturbed"
    contaminated = [cell for cell in profile.cells if cell.repeats and cell.contaminated]
    if not contaminated:
        return f"{text}; the others do not count, but are kept in the file."
    return f"{text}. In {len(contaminated)} of {len(profile.cells)} cells fewer than two were; there all count."


def idle_power_sentence(profile: Profile) -> str | None:
    """Power with nothing to do, before and after; None when it is not known."""
    idle = profile.idle_power
    if idle is None:
        return None
    after = "" if idle.after_w is None else f" before and {idle.after_w:.3g} W after the measurement"
    return f"With the model loaded and nothing to do: {idle.before_w:.3g} W{after} ({method_words(idle.method)})."


def method_words(method: str) -> str:
    """How power was obtained, in words."""
    return {
        "nvml_counter": "energy counter of the GPU",
        "nvml_poll": "power readings of the GPU",
        "rapl": "energy counter of the CPU (RAPL)",
        "perf": "energy counter of the CPU (perf)",
        "user_watts": "watts that the user stated",
        "tdp_estimate": "estimate by a published table",
    }[method]


def _span(errors_frac: Sequence[float]) -> str:
    low, high = f"{min(errors_frac):+z.0%}", f"{max(errors_frac):+z.0%}"
    return low if low == high else f"{low} to {high}"
