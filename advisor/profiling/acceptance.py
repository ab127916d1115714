"""Whether a window describes the model and the machine, or what else happened on the machine.

A window that does not count is measured again later and stays in the file with its reasons. Nothing is trimmed: a call
that took long stays in the statistics of its window.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.domain.measurement import Surroundings
from advisor.profiling.statistics import FloatArray
from advisor.units import s_to_ms

OTHER_CPUS_LIMIT = 0.12
"""CPUs kept busy by others, beyond what the counters leave open: the limit of the trials behind the protocol."""
RUN_DELAY_LIMIT_FRAC = 0.01
"""Time off the CPUs over time on them. In trials 5 to 6 % proved too lax: the 99th percentile was off by a quarter."""
STEAL_LIMIT_FRAC = 0.01
"""Above this share of the CPU time that was wanted, stolen time makes the numbers describe the neighbours as well."""
CLOCK_CHANGE_LIMIT_FRAC = 0.03
STALL_RATIO, STALL_LIMIT_FRAC = 1.5, 0.002
"""A call is stalled when it takes this many times the median. A neighbor on the host stalled 0.8 to 1.8 % of calls in
trials, and total run-queue delay did not show it."""
LONGEST_RATIO = 5.0
LEAST_STALL_S, LEAST_LONGEST_S = 0.5e-3, 5e-3
"""A call of some microseconds is doubled by any interrupt, on an idle machine as well: only what exceeds the median by
more than this counts. Assumptions: an interrupt takes some 10 µs, a time slice of another process a few ms."""


@dataclass(frozen=True, slots=True)
class Stalls:
    """Calls that took far longer than the median."""

    calls: npt.NDArray[np.intp]
    """Their places in the window."""
    frac: float
    """Their share of all calls."""
    median_s: float
    longest_s: float


def find_stalls(service_s: FloatArray) -> Stalls:
    """Calls above 1.5 times the median and at least 0.5 ms above it.

    Examples
    --------
    >>> stalls = find_stalls(np.array([0.010] * 9 + [0.020]))
    >>> stalls.calls.tolist(), stalls.frac
    ([9], 0.1)
    """
    median_s = float(np.median(service_s))
    calls = np.flatnonzero(service_s > max(STALL_RATIO * median_s, median_s + LEAST_STALL_S))
    return Stalls(calls, calls.size / service_s.size, median_s, float(service_s.max()))


def reasons_to_reject(stalls: Stalls, around: Surroundings) -> tuple[str, ...]:
    """Why a window does not count, each a code and what was seen; none when it counts.

    Examples
    --------
    >>> quiet = find_stalls(np.array([0.010, 0.011]))
    >>> reasons_to_reject(quiet, Surroundings(other_cpus=0.01))
    ()
    >>> reasons_to_reject(quiet, Surroundings(other_cpus=0.5))
    ('OTHER_LOAD: other processes kept 0.50 CPUs busy.',)
    """
    reasons = list(disturbances(around))
    if stalls.frac > STALL_LIMIT_FRAC:
        reasons.append(f"STALLS: {stalls.frac:.1%} of the calls took over {STALL_RATIO} times the median.")
    if stalls.longest_s > max(LONGEST_RATIO * stalls.median_s, stalls.median_s + LEAST_LONGEST_S):
        reasons.append(
            f"LONGEST: one call took {s_to_ms(stalls.longest_s):.3g} ms, the median is "
            f"{s_to_ms(stalls.median_s):.3g} ms."
        )
    return tuple(reasons)


def disturbances(around: Surroundings) -> tuple[str, ...]:
    """What else happened on the machine, each a code and what was seen."""
    reasons = []
    if _above(around.other_cpus, OTHER_CPUS_LIMIT):
        reasons.append(f"OTHER_LOAD: other processes kept {around.other_cpus:.2f} CPUs busy.")
    if _above(around.run_delay_frac, RUN_DELAY_LIMIT_FRAC):
        reasons.append(f"RUN_DELAY: threads waited {around.run_delay_frac:.1%} of their CPU time for a CPU.")
    if _above(around.steal_frac, STEAL_LIMIT_FRAC):
        reasons.append(f"STEAL: the hypervisor gave {around.steal_frac:.1%} of the CPU time to others.")
    if _above(around.throttled_frac, 0.0):
        reasons.append(f"CGROUP_THROTTLED: the CPU quota withheld {around.throttled_frac:.1%} of the CPU time wanted.")
    if _above(around.clock_change_frac, CLOCK_CHANGE_LIMIT_FRAC):
        reasons.append(f"CLOCK: the clock changed by {around.clock_change_frac:.1%}.")
    if around.gpu_throttle:
        reasons.append(f"GPU_THROTTLED: the GPU lowered its clocks ({', '.join(around.gpu_throttle)}).")
    return tuple(reasons)


def _above(value: float | None, limit: float) -> bool:
    """Whether a known value is above its limit; what the system does not tell rejects nothing."""
    return value is not None and value > limit
