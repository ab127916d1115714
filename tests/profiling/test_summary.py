"""Cells made of samples: what counts is pooled, what does not is kept, and every doubt is a sentence."""

import numpy as np
import pytest

from advisor.domain.measurement import IdlePower, Outlier
from advisor.domain.profile import ModelInfo, RuntimeInfo
from advisor.profiling.cell import Configuration, PlannedCell
from advisor.profiling.grid import GridPlan
from advisor.profiling.power import MeterReading, NoMeter
from advisor.profiling.summary import anchors, drift_warning, summarize_cells, usable
from advisor.profiling.window import WindowRules

NO_METER = NoMeter("none here")
STALLED = ("STALLS: 3 % of the calls took over 1.5 times the median.",)


class FixedMeter:
    """A meter that nobody has to read any more."""

    method = "rapl"
    scope = "all CPU packages"
    is_estimate = False
    error_frac = 0.0
    update_s = 0.001

    def read(self):
        """Give nothing new."""
        return MeterReading(at_s=0.0, energy_j=0.0)

    def close(self):
        """Have nothing to give back."""


def plan(repeats=3):
    """One cell of 2 items on one thread."""
    cell = PlannedCell(2, Configuration(1, 1), call_s=0.01, prepare_s=0.0, memory_gib=0.5)
    model, runtime = ModelInfo(name="m"), RuntimeInfo(name="r")
    return GridPlan(model, runtime, (cell,), WindowRules(), repeats=repeats, seed=0, opening_s=0.0, warnings=())


def cell_of(samples, repeats=3, meter=NO_METER, idle=None):
    """The one cell of these samples."""
    (cell,) = summarize_cells(plan(repeats), samples, meter, idle)
    return cell


def codes(cell):
    """Codes of the warnings."""
    return [warning.split(":")[0] for warning in cell.warnings]


def test_windows_that_count_are_pooled_and_others_only_kept(sample):
    """Mean, histogram and series are those of the accepted windows; all windows are in the file."""
    good = [sample(2, calls_s=[0.010, 0.012]), sample(2, calls_s=[0.011, 0.013]), sample(2, calls_s=[0.010, 0.010])]
    bad = sample(2, calls_s=[0.5, 0.5], rejected=STALLED, outliers=(Outlier(at_s=1.0, service_s=0.5),))
    cell = cell_of([*good, bad])
    assert cell.service_mean_s == pytest.approx(np.mean([0.010, 0.012, 0.011, 0.013, 0.010, 0.010]))
    assert cell.count == sum(cell.histogram.counts) == 6
    assert cell.service_max_s == pytest.approx(0.013)
    assert len(cell.repeats) == 4
    assert cell.outliers == (Outlier(at_s=1.0, service_s=0.5),)
    assert cell.series_s == (0.010, 0.012, 0.011, 0.013, 0.010, 0.010)
    assert codes(cell)[0] == "DISTURBED"
    assert "3 of 4 repeats count" in cell.warnings[0]
    assert "DISTURBED" not in codes(cell_of(good))


def test_too_few_windows_that_count_are_told(sample):
    """Two of four are used, and the sentence gives the commonest reason with what was seen."""
    cell = cell_of([sample(2), sample(2), sample(2, rejected=STALLED), sample(2, rejected=STALLED)])
    assert codes(cell)[0] == "DISTURBED"
    assert "2 of 4 repeats count; mostly STALLS, such as: 3 % of the calls" in cell.warnings[0]
    assert cell.count == 4


@pytest.mark.parametrize("good", [0, 1])
def test_with_fewer_than_two_that_count_all_are_used_and_the_cell_is_contaminated(sample, good):
    """One window alone does not tell how much the mean drifts."""
    samples = [sample(2)] * good + [sample(2, rejected=STALLED)] * 3
    cell = cell_of(samples)
    assert codes(cell)[0] == "CONTAMINATED"
    assert cell.count == 2 * len(samples)
    assert usable(samples) == samples


def test_the_interval_comes_from_the_means_of_the_windows(sample):
    """Student's t with two degrees of freedom: 4.303 · sd / √3."""
    cell = cell_of([sample(2, mean) for mean in (0.0099, 0.0100, 0.0101)])
    assert cell.mean_ci95_frac == pytest.approx(4.3027 * 0.0001 / np.sqrt(3) / 0.0100, rel=1e-4)


def test_a_long_window_weighs_no_more_than_a_short_one(sample):
    """The mean is that of the windows, whose spread its interval tells; the histogram holds every call."""
    cell = cell_of([sample(2, calls_s=[0.010] * 100, anchor=True), sample(2, 0.012), sample(2, 0.014)])
    assert cell.service_mean_s == pytest.approx(0.012)
    assert cell.service_m2_s2 == pytest.approx((0.010**2 + 0.012**2 + 0.014**2) / 3)
    assert cell.count == 104


def test_energy_of_an_item_comes_from_the_windows_that_count(sample):
    """0.6 J in 20 ms for 4 items, three times; idle power is taken off for the net figure."""
    samples = [sample(2, 0.010, energy_j=0.6) for _ in range(3)] + [sample(2, 0.010, energy_j=9.0, rejected=STALLED)]
    idle = IdlePower(method="rapl", before_w=10.0, after_w=10.0)
    cell = cell_of(samples, meter=FixedMeter(), idle=idle)
    assert cell.power_w == pytest.approx(30.0)
    assert cell.power_method == "rapl"
    assert cell.energy.gross_j == pytest.approx(0.15)
    assert cell.energy.net_j == pytest.approx(0.15 - 10.0 * 0.020 / 4)
    assert cell.energy.window_s == pytest.approx(0.060)


def test_a_window_without_energy_leaves_the_cell_without(sample):
    """A mean of some windows would not be that of the cell."""
    cell = cell_of([sample(2, energy_j=0.6), sample(2)], meter=FixedMeter(), repeats=2)
    assert cell.energy is None
    assert cell.power_w is None


def test_doubts_are_sentences_with_a_code(sample):
    """Warm-ups that did not settle, stopped repeats, repeats that differ, too few calls for a 99th percentile."""
    cell = cell_of([sample(2, 0.010), sample(2, 0.012, settled=False)])
    assert codes(cell) == ["FEW_REPEATS", "UNSETTLED", "WARM_UP", "FEW_SAMPLES"]
    assert all(warning.endswith(".") for warning in cell.warnings)


def test_calls_that_waited_are_told_by_their_two_clocks(sample):
    """Wall time above 1.1 times the CPU time, at one thread."""
    slow = sample(2)
    slow = slow.model_copy(update={"repeat": slow.repeat.model_copy(update={"cpu_mean_s": 0.008})})
    assert "WALL_OVER_CPU" in codes(cell_of([slow] * 3))
    assert "WALL_OVER_CPU" not in codes(cell_of([sample(2)] * 3))


def test_a_cell_without_windows_is_no_cell():
    """A profile holds what was measured."""
    assert summarize_cells(plan(), [], NO_METER, None) == ()


def test_anchors_tell_drift_above_three_percent(sample):
    """The first and the last one are compared; one alone says nothing."""
    ends = [sample(2, mean, anchor=True, started_s=at) for mean, at in ((0.0100, 1.0), (0.0102, 60.0), (0.0104, 90.0))]
    found = anchors([ends[0], sample(2), *ends[1:]])
    assert [anchor.at_s for anchor in found] == [1.0, 60.0, 90.0]
    assert drift_warning(found[:1]) == ()
    assert drift_warning(found[:2]) == ()
    (warning,) = drift_warning(found)
    assert warning.startswith("DRIFT: batch 2 took 10 ms at the start and 10.4 ms at the end (+4.0%)")
