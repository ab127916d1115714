"""Batch jobs with a window, one node per job.

A node works through whole jobs one after the other: it finishes ⌊window / τ⌋ of them in a window, so that
J jobs need ⌈J / ⌊window/τ⌋⌉ nodes. A fluid rate J·τ/window would promise fewer.
"""

import math
from dataclasses import dataclass

from advisor.units import HOURS_PER_MONTH, SECONDS_PER_HOUR, gb_to_mb, w_to_kw


@dataclass(frozen=True)
class JobTime:
    """Time of one job on one node.

    Attributes
    ----------
    data_s
        D / network rate [s].
    compute_s
        Items / items per second [s].
    total_s
        τ = fixed + max(data, compute): reading and computing overlap [s].
    """

    data_s: float
    compute_s: float
    total_s: float


def job_time(data_gb: float, item_mb: float, *, items_per_s: float, network_mb_per_s: float, fixed_s: float) -> JobTime:
    """Time of one job, τ = t_fixed + max(D / net, (D / item) / θ).

    Parameters
    ----------
    data_gb, item_mb
        Data of one job [GB] and of one item [MB].
    items_per_s
        θ, speed of the node [1/s].
    network_mb_per_s
        Rate at which the node reads [MB/s].
    fixed_s
        Start-up time [s].

    Examples
    --------
    >>> round(job_time(20, 0.1, items_per_s=1e9, network_mb_per_s=120, fixed_s=60).total_s, 1)
    226.7
    """
    data_mb = gb_to_mb(data_gb)
    data = data_mb / network_mb_per_s
    compute = data_mb / item_mb / items_per_s
    return JobTime(data, compute, fixed_s + max(data, compute))


def jobs_per_node(window_h: float, job_s: float) -> int:
    """Whole jobs that one node ends within the window.

    Examples
    --------
    >>> jobs_per_node(7, 226.7)
    111
    """
    return math.floor(window_h * SECONDS_PER_HOUR / job_s * (1 + 1e-12))


def nodes_needed(jobs_per_day: float, per_node: int) -> int | None:
    """Nodes for all jobs; None when not even one job fits the window.

    Examples
    --------
    >>> nodes_needed(1000, 111)
    10
    """
    return None if per_node == 0 else math.ceil(jobs_per_day / per_node)


def slack_h(jobs_per_day: float, nodes: int, *, job_s: float, window_h: float) -> float:
    """Window left when the last job ends, jobs spread evenly over the nodes; negative when it ends too late [h]."""
    return window_h - math.ceil(jobs_per_day / nodes) * job_s / SECONDS_PER_HOUR


def energy_kwh(power_w: float, busy_h: float, pue: float) -> float:
    """Energy at the meter of the site: power × time × PUE [kWh]."""
    return w_to_kw(power_w) * busy_h * pue


def days_per_month() -> float:
    """Days of the 730-hour month."""
    return HOURS_PER_MONTH / 24
