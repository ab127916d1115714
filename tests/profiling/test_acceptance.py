"""A window counts when the machine did nothing else; the reasons say what it did."""

import numpy as np
import pytest

from advisor.domain.measurement import Surroundings
from advisor.profiling.acceptance import find_stalls, reasons_to_reject

STEADY = find_stalls(np.full(1000, 0.010))
SILENT = Surroundings()


def codes(stalls=STEADY, around=SILENT):
    """Reasons without what was seen."""
    return [reason.split(":")[0] for reason in reasons_to_reject(stalls, around)]


def calls(median_s, *long_s, count=1000):
    """Calls that all take the median, with some long ones among them."""
    times = np.full(count, median_s)
    times[: len(long_s)] = long_s
    return find_stalls(times)


def test_what_the_system_does_not_tell_rejects_nothing():
    """A machine without counters is measured by its stalls alone."""
    assert codes() == []


@pytest.mark.parametrize(
    ("field", "allowed", "too_much", "code"),
    [
        ("other_cpus", 0.12, 0.13, "OTHER_LOAD"),
        ("run_delay_frac", 0.01, 0.011, "RUN_DELAY"),
        ("steal_frac", 0.01, 0.011, "STEAL"),
        ("throttled_frac", 0.0, 0.001, "CGROUP_THROTTLED"),
        ("clock_change_frac", 0.03, 0.031, "CLOCK"),
    ],
)
def test_each_counter_has_its_limit(field, allowed, too_much, code):
    """At the limit a window counts, above it there is one reason."""
    assert codes(around=Surroundings(**{field: allowed})) == []
    assert codes(around=Surroundings(**{field: too_much})) == [code]


def test_a_throttled_gpu_rejects_with_the_names_of_the_reasons():
    """The reasons are the driver's."""
    (reason,) = reasons_to_reject(STEADY, Surroundings(gpu_throttle=("SwPowerCap",)))
    assert reason == "GPU_THROTTLED: the GPU lowered its clocks (SwPowerCap)."


def test_two_stalls_in_a_thousand_calls_count_three_do_not():
    """The limit is 0.2 %, of calls above 1.5 times the median."""
    assert codes(calls(0.010, 0.016, 0.016)) == []
    assert codes(calls(0.010, 0.016, 0.016, 0.016)) == ["STALLS"]
    assert codes(calls(0.010, *[0.0149] * 100)) == []


def test_one_very_long_call_is_enough():
    """Five times the median is a machine that stood still."""
    assert codes(calls(0.010, 0.049)) == []
    assert codes(calls(0.010, 0.051)) == ["LONGEST"]


def test_an_interrupt_is_no_stall_of_a_call_of_microseconds():
    """Any machine interrupts for some microseconds; what counts must exceed the median by half a millisecond."""
    assert codes(calls(10e-6, *[100e-6] * 50)) == []
    assert codes(calls(10e-6, *[600e-6] * 50)) == ["STALLS"]
    assert codes(calls(10e-6, 4.9e-3)) == []
    assert codes(calls(10e-6, 5.2e-3)) == ["LONGEST"]


def test_every_reason_is_named():
    """Not only the first one."""
    around = Surroundings(other_cpus=1.0, steal_frac=0.2)
    assert codes(calls(0.010, 0.100), around) == ["OTHER_LOAD", "STEAL", "LONGEST"]
