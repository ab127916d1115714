"""A window turned into a sample: its statistics, its surroundings, and whether it counts."""

from collections.abc import Sequence

import numpy as np

from advisor.domain.measurement import Outlier, Repeat, Surroundings
from advisor.profiling.acceptance import Stalls, find_stalls, reasons_to_reject
from advisor.profiling.cell import Configuration
from advisor.profiling.engines import Placement
from advisor.profiling.environment import usable_cpus
from advisor.profiling.instruments import Observation, around, energy_between
from advisor.profiling.journal import Sample, pack
from advisor.profiling.schedule import Key
from advisor.profiling.statistics import FloatArray, summarize
from advisor.profiling.window import NsArray, Window

MOST_OUTLIERS = 200
"""Outliers kept of one window, the longest: a file that people can open."""

_NS_PER_S = 1e9


def of_others(seen: Surroundings, place: Configuration, placement: Placement) -> Surroundings:
    """Surroundings without what those who answer do to each other and, as a server on this machine, to their client."""
    server_here = placement.kind == "endpoint" and placement.local
    crowded = placement.kind == "cpu" and place.threads * place.concurrency > usable_cpus()
    innocent = {"run_delay_frac": None} if server_here or crowded else {}
    return seen.model_copy(update=innocent | ({"other_cpus": None} if server_here else {}))


def make_sample(
    window: Window[Observation], key: Key, *, placement: Placement, turn: int, anchor: bool, origin_ns: int
) -> Sample:
    """Sample of a window.

    Parameters
    ----------
    window
        What was seen.
    key
        The cell.
    placement
        Where the calls were answered.
    turn
        Turn of the grid.
    anchor
        Whether it is one of the long windows at the start and at the end.
    origin_ns
        Start of the measurement on the clock of the window [ns].
    """
    batch_size, place = key
    service_s = window.service_s
    stalls = find_stalls(service_s)
    return Sample(
        batch_size=batch_size,
        threads=place.threads,
        concurrency=place.concurrency,
        round=turn,
        anchor=anchor,
        repeat=_repeat(window, stalls, key, placement, origin_ns=origin_ns),
        calls=window.calls,
        first_caller_calls=window.first_caller_calls,
        outliers=_longest(service_s, stalls, window.starts_ns - origin_ns),
        service=pack(window.service_ns),
        **_pack_tokens(window.tokens_ns),
    )


def _pack_tokens(tokens_ns: Sequence[NsArray]) -> dict[str, bytes]:
    """Times to the first token and between tokens, as a sample keeps them; nothing where answers came whole."""
    if not tokens_ns:
        return {}
    first_ns = np.array([tokens[0] for tokens in tokens_ns], np.int64)
    return {"first_token": pack(first_ns), "inter_token": pack(np.concatenate([np.diff(t) for t in tokens_ns]))}


def _repeat(window: Window[Observation], stalls: Stalls, key: Key, placement: Placement, *, origin_ns: int) -> Repeat:
    """Statistics of a window, and the reasons for which it does not count."""
    batch_size, place = key
    service_s = window.service_s
    summary = summarize(service_s)
    seen = around(window.before, window.after)
    return Repeat(
        started_s=float(window.starts_ns.min() - origin_ns) / _NS_PER_S,
        duration_s=window.duration_s,
        count=summary.count,
        service_mean_s=summary.mean_s,
        service_m2_s2=summary.m2_s2,
        service_p50_s=summary.p50_s,
        service_p99_s=summary.p99_s,
        service_min_s=float(service_s.min()),
        service_max_s=summary.max_s,
        cpu_mean_s=window.cpu_mean_s,
        throughput_rps=window.calls * batch_size / window.duration_s,
        stall_frac=stalls.frac,
        warmup_calls=window.warm_up.calls,
        warmup_settled=window.warm_up.settled,
        first_call_s=window.warm_up.first_call_s,
        energy_j=energy_between(window.before, window.after, window.duration_s),
        surroundings=seen,
        rejected=reasons_to_reject(stalls, of_others(seen, place, placement)),
    )


def _longest(service_s: FloatArray, stalls: Stalls, starts_ns: NsArray) -> tuple[Outlier, ...]:
    """Outliers in the order of the calls, the longest where there are too many; starts count from the measurement's."""
    longest = sorted(stalls.calls, key=lambda call: -service_s[call])[:MOST_OUTLIERS]
    return tuple(
        Outlier(at_s=max(0.0, float(starts_ns[call]) / _NS_PER_S), service_s=float(service_s[call]))
        for call in sorted(longest)
    )
