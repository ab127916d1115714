"""Meters and the energy of an item: what a meter counts is what was used, and every interval holds its doubts."""

import math
import os
import sys
import time
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from advisor.domain.measurement import IdlePower
from advisor.domain.profile import Fact
from advisor.errors import MeasurementError
from advisor.profiling.cpu_meters import Package, Perf, Rapl, find_packages, wrapped_difference_j
from advisor.profiling.gpu import GpuReading
from advisor.profiling.meters import AssumedMeter, NvmlCounter, NvmlPolled, busy_cpu_s
from advisor.profiling.power import (
    AssumedPower,
    EnergyWindow,
    NoMeter,
    choose_meter,
    idle_power,
    item_energy,
)
from advisor.profiling.replay import ReplayGpu, read_recording

RECORDING = Path(__file__).parents[1] / "data" / "gpu_recording.jsonl"
USER = AssumedPower("user_watts", idle_w=20.0, busy_w=60.0, scope="the whole machine", error_frac=0.2)
TABLE = AssumedPower("tdp_estimate", idle_w=5.0, busy_w=25.0, scope="2 vCPUs, by a table", error_frac=0.5)
NEVER_S = 3600.0


class Card:
    """A card of our own: tests set its time, counter and power."""

    def __init__(self, *, energy_j=100.0, power_w=50.0, mig="disabled"):
        self.at_s, self.energy_j, self.power_w, self.mig = 0.0, energy_j, power_w, mig

    def facts(self):
        """Tell what a meter asks for."""
        return {"gpu_name": Fact(value="Card"), "gpu_mig_mode": Fact(value=self.mig)}

    def read(self):
        """Tell what was set; None is lost."""
        lost = Fact(value=None, why="it is lost")
        energy, power = (lost if value is None else Fact(value=value) for value in (self.energy_j, self.power_w))
        return GpuReading(self.at_s, energy, power, lost, lost, lost, lost, lost, lost, lost)

    def close(self):
        """Nothing is held."""


class DrainingCard(Card):
    """A card whose time and counter go on with each look, by 10 s and 80 J."""

    def read(self):
        """Go on, and tell."""
        self.at_s, self.energy_j = self.at_s + 10.0, self.energy_j + 80.0
        return super().read()


class SteppingCard(Card):
    """A card whose time and power change together, since a meter may look from a thread of its own meanwhile."""

    shown = (0.0, 0.0)

    def read(self):
        """Take both at once, and tell."""
        self.at_s, self.power_w = self.shown
        return super().read()


class Steps:
    """A source that gives its numbers one after another."""

    def __init__(self, *numbers):
        self._numbers = iter(numbers)

    def __call__(self):
        """Give the next."""
        return next(self._numbers)


def packages(folder, *, energy_uj=(5_000_000,), range_uj=1_000_000_000):
    """Lay out a powercap folder with packages, their zones, and the platform."""
    for index, counter in enumerate(energy_uj):
        for name, zone in (
            (f"intel-rapl:{index}", f"package-{index}"),
            (f"intel-rapl:{index}:0", "dram"),
            (f"intel-rapl-mmio:{index}", f"package-{index}"),
            (f"intel-rapl:{index + 10}", "psys"),
        ):
            (folder / name).mkdir(parents=True)
            (folder / name / "name").write_text(zone + "\n")
            (folder / name / "energy_uj").write_text(f"{counter}\n")
            (folder / name / "max_energy_range_uj").write_text(f"{range_uj}\n")
    return folder


def perf_script(folder, body):
    """Write a program that speaks like perf."""
    path = folder / "perf"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_the_counter_of_a_replayed_card_gives_its_power():
    """A recording of 200 W gives 200 W over any stretch of it, to the step of its counter."""
    now = [0.0]
    meter = NvmlCounter([ReplayGpu(read_recording(RECORDING), clock=lambda: now[0])])
    for now_s in (2.05, 5.05, 9.05):
        now[0] = now_s
        assert meter.read().energy_j == pytest.approx(200.0 * now_s, abs=200.0 * 0.1)


def test_cards_add_up():
    """Two cards use the sum of both counters, and the scope counts them."""
    cards = [Card(), Card(energy_j=7.0)]
    meter = NvmlCounter(cards)
    cards[0].energy_j += 3.0
    cards[1].energy_j += 4.0
    assert meter.read().energy_j == 7.0
    assert meter.scope == "2 cards"


def test_a_divided_card_is_charged_whole_and_says_so():
    """The counter of a card with MIG holds all slices."""
    assert NvmlCounter([Card(mig="enabled")]).scope == "one card with all MIG slices, not only the one that ran"
    assert NvmlCounter([Card()]).scope == "one card"


@pytest.mark.parametrize(("counter_j", "words"), [(99.0, "fell from 100.0 J to 99.0 J"), (None, "it is lost")])
def test_a_counter_that_fell_or_is_lost_is_refused(counter_j, words):
    """No difference is told that means nothing."""
    card = Card()
    meter = NvmlCounter([card])
    card.energy_j = counter_j
    with pytest.raises(MeasurementError, match=words):
        meter.read()


@given(st.lists(st.tuples(st.floats(0.01, 5.0), st.floats(0.0, 700.0)), min_size=1, max_size=20))
def test_polled_energy_is_the_area_under_the_power(steps):
    """The meter gives the sum of the trapezoids between readings, and it never falls."""
    card = Card(power_w=50.0)
    meter = NvmlPolled([card], period_s=NEVER_S)
    area_j = 0.0
    for step_s, power_w in steps:
        area_j += (card.power_w + power_w) / 2 * step_s
        card.at_s, card.power_w = card.at_s + step_s, power_w
        assert meter.read().energy_j == pytest.approx(area_j)
    meter.close()


def test_polling_goes_on_between_the_readings_of_the_meter():
    """A peak between two readings of the meter is counted: the background thread saw it."""
    card = SteppingCard()
    meter = NvmlPolled([card], period_s=0.001)
    card.shown = (1.0, 1000.0)
    deadline = time.monotonic() + 60.0
    while meter._energy_j == 0.0 and time.monotonic() < deadline:  # white box: to read the meter would itself sample
        time.sleep(0.001)
    card.shown = (2.0, 0.0)
    assert meter.read().energy_j == pytest.approx(1000.0)
    meter.close()


@pytest.mark.parametrize(("gap_s", "bridged"), [(0.5, True), (5.0, False)])
def test_a_short_failure_of_polling_is_bridged_and_a_long_one_is_told(gap_s, bridged):
    """Power between two readings is a straight line only while they are close."""
    card = Card(power_w=50.0)
    meter = NvmlPolled([card], period_s=NEVER_S)
    card.power_w = None
    meter._sample()  # white box: the background thread's own step, without waiting for it
    card.at_s, card.power_w = gap_s, 50.0
    if bridged:
        assert meter.read().energy_j == pytest.approx(50.0 * gap_s)
    else:
        with pytest.raises(MeasurementError, match="the power of Card failed: it is lost"):
            meter.read()
    meter.close()


def test_packages_add_up_without_memory_cores_or_platform(tmp_path):
    """Only packages count: their zones and the platform hold the same energy again."""
    folder = packages(tmp_path, energy_uj=(5_000_000, 8_000_000))
    found = find_packages(folder)
    assert [package.name for package in found] == ["package-0", "package-1"]
    meter = Rapl(found)
    (folder / "intel-rapl:0" / "energy_uj").write_text("6500000\n")
    (folder / "intel-rapl:1" / "energy_uj").write_text("8250000\n")
    (folder / "intel-rapl:0:0" / "energy_uj").write_text("99000000\n")
    assert meter.read().energy_j == pytest.approx(1.75)
    assert meter.scope.endswith("without memory")
    meter.close()


@given(st.floats(0.0, 1e5), st.floats(0.0, 1e5), st.floats(1.0, 1e5))
def test_a_wrap_of_the_counter_loses_nothing(before_j, used_j, range_j):
    """What was used is told, as long as it is less than one range."""
    assume(used_j < range_j)
    before_j %= range_j
    after_j = (before_j + used_j) % range_j
    found_j = wrapped_difference_j(before_j, after_j, range_j=range_j)
    # A difference that rounds to the range itself is the same state of the counter as none.
    assert math.remainder(found_j - used_j, range_j) == pytest.approx(0.0, abs=1e-6)


def test_a_wrap_between_two_readings_of_the_meter_is_seen_in_the_background(tmp_path):
    """The background reads twice per wrap at the largest power, so that the meter's own readings may be rare."""
    folder = packages(tmp_path, energy_uj=(9_000_000,), range_uj=10_000_000)
    meter = Rapl(find_packages(folder))
    counter = folder / "intel-rapl:0" / "energy_uj"
    total_j = 0.0
    for now_uj, used_j in ((2_000_000, 3.0), (9_000_000, 7.0), (1_000_000, 2.0)):
        renamed = tmp_path / "next"
        renamed.write_text(f"{now_uj}\n")
        renamed.replace(counter)
        meter._sample()  # white box: the background thread's own step, without waiting for it
        total_j += used_j
    assert meter.read().energy_j == pytest.approx(total_j)
    meter.close()


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root reads every file")
def test_a_counter_for_root_only_says_so(tmp_path):
    """The usual obstacle is named, and which file it concerns."""
    folder = packages(tmp_path)
    (folder / "intel-rapl:0" / "energy_uj").chmod(0)
    with pytest.raises(MeasurementError, match="energy_uj is readable by root only"):
        Rapl(find_packages(folder))


def test_a_broken_counter_is_told(tmp_path):
    """A counter that is not a number, or is gone, is named with its file; so is a package without a range."""
    counter = tmp_path / "energy_uj"
    with pytest.raises(MeasurementError, match="cannot be read"):
        Package("package-0", counter, 1.0).read_j()
    counter.write_text("soon")
    with pytest.raises(MeasurementError, match="cannot be read"):
        Package("package-0", counter, 1.0).read_j()
    folder = packages(tmp_path / "powercap")
    (folder / "intel-rapl:0" / "max_energy_range_uj").unlink()
    with pytest.raises(MeasurementError, match="intel-rapl:0 cannot be read"):
        find_packages(folder)


def test_a_failure_in_the_background_is_told_at_the_next_reading(tmp_path):
    """A wrap may have been missed while the counter could not be read."""
    folder = packages(tmp_path)
    meter = Rapl(find_packages(folder))
    counter = folder / "intel-rapl:0" / "energy_uj"
    counter.rename(folder / "hidden")
    meter._sample()  # white box: the background thread's own step, without waiting for it
    (folder / "hidden").rename(counter)
    with pytest.raises(MeasurementError, match="cannot be read"):
        meter.read()
    meter.close()


POSIX = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for perf is a shell script")


@POSIX
def test_perf_adds_the_intervals_that_it_prints(tmp_path):
    """The energy is the sum of the intervals; a line without one adds nothing."""
    lines = ["0.1,2.50,Joules,power/energy-pkg/,1,100.00,,", "0.2,<not counted>,Joules,power/energy-pkg/,0,0,,"]
    lines += ["0.3,1.25,Joules,power/energy-pkg/,1,100.00,,"]
    script = "\n".join(f"echo '{line}'" for line in lines)
    meter = Perf(perf_script(tmp_path, f"{script}\nexec sleep 60"))
    deadline = time.monotonic() + 60.0
    while meter.read().energy_j < 3.75 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert meter.read().energy_j == 3.75
    meter.close()
    with pytest.raises(MeasurementError, match="perf ended"):
        meter.read()


@POSIX
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "echo 'Access is limited.' >&2; echo >&2; echo 'Ask the administrator.' >&2; exit 1",
            "Access is limited. Ask",
        ),
        ("echo '0.1,<not supported>,Joules,power/energy-pkg/,0,100.00,,'; exec sleep 60", "it says nothing"),
    ],
)
def test_perf_that_refuses_is_passed_over_in_its_own_words(tmp_path, body, words):
    """What perf says is the reason."""
    with pytest.raises(MeasurementError, match=words):
        Perf(perf_script(tmp_path, body))


@given(
    st.lists(st.tuples(st.floats(0.01, 10.0), st.floats(-0.02, 30.0)), min_size=1, max_size=10),
    st.integers(1, 8),
)
def test_assumed_energy_lies_between_idle_and_busy(steps, cpus):
    """Whatever the counters of the kernel say, power is at least idle and at most busy."""
    times, busy = [0.0], [0.0]
    for step_s, used_s in steps:
        times.append(times[-1] + step_s)
        busy.append(busy[-1] + used_s)
    meter = AssumedMeter(USER, busy_cpu_s=Steps(*busy), cpus=cpus, clock=Steps(*times))
    last_j = 0.0
    for step_s, _ in steps:
        now_j = meter.read().energy_j
        assert USER.idle_w * step_s * (1 - 1e-9) - 1e-9 <= now_j - last_j <= USER.busy_w * step_s * (1 + 1e-9) + 1e-9
        last_j = now_j


def test_cpu_time_of_the_machine_grows_with_work():
    """Work of this process shows in the busy time that assumed watts follow."""
    before_s = busy_cpu_s()
    deadline = time.thread_time() + 0.2
    while time.thread_time() < deadline:
        pass
    assert busy_cpu_s() - before_s >= 0.1


@pytest.mark.parametrize("watts", [(-1.0, 5.0), (6.0, 5.0), (0.0, 0.0)])
def test_watts_that_cannot_be_are_refused(watts):
    """Busy is above zero and at least idle."""
    with pytest.raises(ValueError, match="idle_w"):
        AssumedPower("user_watts", idle_w=watts[0], busy_w=watts[1], scope="x", error_frac=0.2)


def test_idle_power_of_a_meter_is_energy_over_time():
    """Over a pause the meter's difference is divided by the time between its own readings; an estimate is given."""
    assert idle_power(NvmlCounter([DrainingCard()]), 0.0) == pytest.approx(8.0)
    assert idle_power(AssumedMeter(TABLE, busy_cpu_s=None, cpus=1), NEVER_S) == TABLE.idle_w


def test_the_first_rung_that_works_is_taken(tmp_path):
    """A card with a counter, a card with power only, packages, perf, the user's watts, a table: in this order."""
    replay = ReplayGpu(read_recording(RECORDING))
    here, empty = packages(tmp_path / "here"), tmp_path / "empty"
    no_perf = str(tmp_path / "no-such-perf")
    perf = perf_script(tmp_path, "echo '0.1,2.50,Joules,power/energy-pkg/,1,100.00,,'\nexec sleep 60")
    both = [TABLE, USER]
    chosen = [
        choose_meter([replay], kind="gpu", assumed=both, cpus=2),
        choose_meter([Card(energy_j=None)], kind="gpu", assumed=both, cpus=2),
        choose_meter([], kind="gpu", assumed=both, cpus=2),
        choose_meter([replay], kind="cpu", assumed=both, cpus=2, powercap=here, perf=no_perf),
        choose_meter([], kind="cpu", assumed=both, cpus=2, powercap=empty, perf=perf),
        choose_meter([], kind="cpu", assumed=both, cpus=2, powercap=empty, perf=no_perf),
        choose_meter([], kind="cpu", assumed=[TABLE], cpus=2, powercap=empty, perf=no_perf),
    ]
    for meter in chosen:
        meter.close()
    assert [meter.method for meter in chosen] == [
        "nvml_counter",
        "nvml_poll",
        "user_watts",
        "rapl",
        "perf",
        "user_watts",
        "tdp_estimate",
    ]
    assert [meter.is_estimate for meter in chosen] == [False, False, True, False, False, True, True]
    assert [meter.error_frac for meter in chosen] == [0, 0, 0.2, 0, 0, 0.2, 0.5]


def test_without_any_meter_each_rung_says_why(tmp_path):
    """The answer names every rung with its own reason."""
    none = choose_meter([], kind="cpu", assumed=[], cpus=2, powercap=tmp_path, perf=str(tmp_path / "no-such-perf"))
    assert isinstance(none, NoMeter)
    for words in ("rapl: ", "shows no CPU package", "perf: perf cannot be started", "user_watts: ", "tdp_estimate: "):
        assert words in none.why
    lost = choose_meter([Card(energy_j=None, power_w=None)], kind="gpu", assumed=[], cpus=2)
    assert isinstance(lost, NoMeter)
    assert lost.why.startswith(
        "nvml_counter: Reading the energy counter of Card failed: it is lost; nvml_poll: Reading"
    )


METER = NvmlCounter([Card()])
WINDOWS = st.lists(
    st.builds(
        EnergyWindow,
        energy_j=st.floats(1.0, 1e4),
        duration_s=st.floats(0.5, 20.0),
        items=st.floats(1.0, 1e4),
    ),
    min_size=1,
    max_size=8,
)


@given(WINDOWS, st.floats(0.0, 200.0), st.floats(0.0, 200.0))
def test_net_is_gross_less_idle_and_never_surer(windows, before_w, after_w):
    """What is taken off is idle power over the time, and the doubt about idle power is added to that of gross."""
    idle = IdlePower(method="nvml_counter", before_w=before_w, after_w=after_w)
    energy = item_energy(windows, METER, idle)
    seconds_per_item = sum(w.duration_s for w in windows) / sum(w.items for w in windows)
    assert energy.gross_j == pytest.approx(sum(w.energy_j for w in windows) / sum(w.items for w in windows))
    assert energy.gross_j - energy.net_j == pytest.approx((before_w + after_w) / 2 * seconds_per_item, abs=1e-6)
    assert energy.net_half_j == pytest.approx(energy.gross_half_j + abs(before_w - after_w) / 2 * seconds_per_item)
    assert energy.window_s == pytest.approx(sum(w.duration_s for w in windows))


@given(WINDOWS)
def test_the_interval_is_at_least_each_of_its_doubts(windows):
    """A coarse counter widens the interval of short windows, and an estimate never has less than its band."""
    energy = item_energy(windows, METER, None)
    edges_frac = 2 * METER.update_s * math.sqrt(len(windows)) / energy.window_s
    assert energy.gross_half_j >= edges_frac * energy.gross_j * (1 - 1e-9)
    assert (energy.net_j, energy.net_half_j) == (None, None)
    estimate = item_energy(windows, AssumedMeter(TABLE, busy_cpu_s=None, cpus=1), None)
    assert estimate.gross_half_j >= 0.5 * estimate.gross_j * (1 - 1e-9)
    assert estimate.is_estimate


def test_windows_that_differ_give_the_interval_of_their_mean():
    """Three windows of 0.9, 1.0 and 1.1 J per item: t(0.975, 2) = 4.3027 times 0.1 over the root of 3."""
    windows = [EnergyWindow(energy_j=joules * 1000, duration_s=100.0, items=1000.0) for joules in (0.9, 1.0, 1.1)]
    assert item_energy(windows, METER, None).gross_half_j == pytest.approx(4.3027 * 0.1 / math.sqrt(3), rel=1e-4)


def test_idle_power_that_was_not_measured_afterwards_counts_as_before():
    """A measurement that was stopped has one idle power only."""
    idle = IdlePower(method="nvml_counter", before_w=10.0)
    energy = item_energy([EnergyWindow(energy_j=100.0, duration_s=5.0, items=10.0)], METER, idle)
    assert energy.net_j == pytest.approx(5.0)
    assert energy.net_half_j == energy.gross_half_j


def test_energy_without_a_window_is_refused():
    """There is nothing to divide."""
    with pytest.raises(ValueError, match="at least one window"):
        item_energy([], METER, None)
