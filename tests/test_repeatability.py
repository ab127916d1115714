"""The page on repeatability: what counts as agreement, which load runs decide, and what an interrupted run leaves."""

import pytest

from advisor.domain.measurement import Surroundings
from advisor.profiling.machine_state import fact
from benchmarks.repeatability import (
    FEWEST_CLEAN,
    PAIRS,
    PAIRS_BAR,
    Attempt,
    agreement,
    agrees,
    attempt_rows,
    judged_s,
    largest_difference_frac,
    page,
    pair_rows,
    take_attempts,
    verdict,
)
from tests.conftest import cpu_profile
from tests.measured_profile import full_profile, load_run, repeat

OTHER_LOAD = "OTHER_LOAD: other processes kept 0.50 CPUs busy."


def attempt(*cpu_means_s, rejected=(), unfit=(), steal_frac=0.001, hypervisor="none seen"):
    """Attempt with one cell per mean CPU time of a call [s], each of one quiet window and one as given."""
    profile = cpu_profile(dict.fromkeys(range(1, len(cpu_means_s) + 1), 0.01))
    disturbed = repeat(0.01, 1, rejected=rejected).model_copy(update={"surroundings": Surroundings(other_cpus=0.07)})
    cells = tuple(
        cell.model_copy(update={"cpu_mean_s": mean_s, "repeats": (repeat(0.01, 1), disturbed)})
        for cell, mean_s in zip(profile.cells, cpu_means_s, strict=True)
    )
    environment = {"steal_frac": fact(steal_frac, "not counted"), "hypervisor": fact(hypervisor, "not visible")}
    return Attempt(profile.model_copy(update={"cells": cells, "environment": environment}), unfit)


def test_the_difference_is_that_of_the_cell_that_differs_most_up_or_down():
    """Faster counts as much as slower."""
    first, second = attempt(0.010, 0.020).profile, attempt(0.0101, 0.018).profile
    assert largest_difference_frac(first, second) == pytest.approx(0.1)


@pytest.mark.parametrize("missing", [None, 0.0])
def test_a_cell_without_cpu_time_leaves_the_difference_unknown_and_unknown_does_not_agree(missing):
    """Neither a division by zero nor a pair that agrees by what was not measured."""
    whole, gap = attempt(0.010, 0.020), attempt(0.010, missing)
    for pair in ((whole, gap), (gap, whole), (gap, gap)):
        difference = largest_difference_frac(*(found.profile for found in pair))
        assert difference is None
        assert not agrees(difference)
        assert pair_rows(pair)[0].startswith("| 1 and 2 | unknown | no |")


def test_threads_that_wait_in_busy_loops_are_judged_by_wall_time():
    """Their CPU time counts waiting as work; that of a single thread is the work."""
    cell = attempt(0.010).profile.cells[0].model_copy(update={"service_mean_s": 0.012})
    assert judged_s(cell) == 0.010
    assert judged_s(cell.model_copy(update={"threads": 2, "cpu_mean_s": 0.024})) == 0.012


def test_a_pair_shows_the_load_that_either_of_its_attempts_saw():
    """The doctor's findings of the first attempt are shown like those of the second."""
    first = attempt(0.010, unfit=("STEAL: the hypervisor gave 2.0% of the CPU time to others",), steal_frac=0.02)
    second = attempt(0.012, rejected=(OTHER_LOAD,))
    assert pair_rows([first, second, second]) == [
        "| 1 and 2 | 20.0% | no | STEAL, OTHER_LOAD; stolen 2.0% and 0.1% |",
        "| 2 and 3 | 0.0% | yes | OTHER_LOAD; stolen 0.1% and 0.1% |",
    ]


def test_each_attempt_has_a_line_with_its_windows_and_its_load():
    """Two cells with one disturbed window each; what the doctor refused stands there with its figures."""
    unfit = ("OTHER_LOAD: other processes kept 1.20 CPUs busy for 2.0 s",)
    noisy = attempt(0.01, 0.02, rejected=(OTHER_LOAD, "CLOCK: the clock changed by 5.0%."), unfit=unfit)
    quiet = attempt(0.01, steal_frac=None)
    assert attempt_rows([noisy, quiet]) == [
        f"| 1 | 2 of 4 | OTHER_LOAD 2, CLOCK 2 | 0.1% | 0.05 | {unfit[0]} |",
        "| 2 | 2 of 2 | none | unknown | 0.05 | fit |",
    ]


@pytest.mark.parametrize(
    ("agreed", "differing", "outcome"),
    [
        (PAIRS_BAR, PAIRS - PAIRS_BAR, "met"),
        (PAIRS_BAR - 1, PAIRS - PAIRS_BAR + 1, "**missed**"),
        (2, 0, "not decided"),
        (PAIRS_BAR, 0, "met"),
        (0, PAIRS - PAIRS_BAR + 1, "**missed**"),
    ],
)
def test_the_bar_is_decided_as_soon_as_the_pairs_that_are_missing_cannot_change_it(agreed, differing, outcome):
    """A run that was stopped says how many pairs were planned."""
    text = agreement([0.01] * agreed + [0.2] * differing)
    assert text.startswith(f"{agreed} of {agreed + differing} pairs")
    assert text.endswith(f"is {outcome}.")
    assert ("were planned" in text) == (agreed + differing < PAIRS)


def test_only_clean_runs_of_the_named_models_up_to_the_load_of_the_bar_count():
    """Misses of other models, above 70 % load or in doubt change nothing."""
    judged = [("minilm", load_run(0.7)), ("resnet50", load_run(0.3))] * (FEWEST_CLEAN // 2)
    ignored = [
        ("mlp", load_run(0.3, p99_error_frac=0.9)),
        ("minilm", load_run(0.8, p99_error_frac=0.9)),
        ("minilm", load_run(0.5, p99_error_frac=0.9, doubts=("GENERATOR_LATE: late.",))),
    ]
    text = verdict(judged + ignored)
    assert text.startswith(f"{FEWEST_CLEAN} of {FEWEST_CLEAN} clean runs of MiniLM and ResNet-50 up to 70% load")
    assert "the bar of 90% is met" in text
    assert "other models are listed and not counted" in text


def test_too_few_clean_runs_decide_nothing_and_too_many_misses_miss_the_bar():
    """Nine hits are too few; eight of ten are below 90 %."""
    hit, miss = ("minilm", load_run(0.5)), ("minilm", load_run(0.5, p99_error_frac=0.9))
    assert "decide nothing" in verdict([hit] * (FEWEST_CLEAN - 1))
    assert "the bar of 90% is met" in verdict([hit] * 9 + [miss])
    assert "the bar of 90% is **missed**" in verdict([hit] * 8 + [miss] * 2)


def stopping_after(count):
    """Return a measurement that is interrupted after so many attempts."""
    left = iter([attempt(0.010)] * count)

    def measure_once():
        try:
            return next(left)
        except StopIteration:
            raise KeyboardInterrupt from None

    return measure_once


def test_an_interrupted_run_keeps_its_pairs_and_each_result_is_told_as_it_is_there():
    """Three attempts of eleven are two pairs; the lines hold the CPU times and the difference from the one before."""
    lines = []
    attempts = take_attempts(stopping_after(3), PAIRS + 1, lines.append)
    assert len(attempts) == len(lines) == 3
    assert lines[0] == "1 of 11: batch 1, 2 × 1: 10 ms; 2 of 2 windows count; stolen 0.1%; fit\n"
    assert lines[1].endswith("fit; differs by up to 0.0%\n")
    assert "2 of 2 pairs agree within 5% in every cell (stopped: 10 pairs were planned)" in page(attempts, ())


def test_a_run_interrupted_before_there_is_a_pair_leaves_no_page():
    """One profile has nothing to agree with."""
    with pytest.raises(KeyboardInterrupt):
        take_attempts(stopping_after(1), PAIRS + 1, lambda _: None)


def test_the_page_lists_runs_of_all_models_and_says_when_the_hypervisor_is_not_told():
    """On Arm no hypervisor shows; the shipped profile here is of a model that the bar does not name."""
    text = page([attempt(0.010, hypervisor=None)] * 2, [full_profile()])
    assert "hypervisor: not told." in text
    assert "0 of 0 clean runs of MiniLM and ResNet-50" in text
    assert text.count("| everything-zen3 |") == len(full_profile().load_runs)
