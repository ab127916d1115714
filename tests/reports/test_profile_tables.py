"""Tables and sentences of profiles: floors are marked, estimates are called so, nothing empty is shown."""

import datetime

import pytest

from advisor.capacity.knee import sweeps
from advisor.domain.measurement import Spread, Streaming
from advisor.domain.profile import Profile
from advisor.reports.profile_sentences import (
    drift_sentences,
    errors_sentence,
    idle_power_sentence,
    repeats_sentence,
    served_sentence,
    streaming_sentence,
    sweep_sentence,
    verification_sentence,
)
from advisor.reports.profile_tables import (
    cells_table,
    energy_table,
    facts_table,
    idle_starts_table,
    load_runs_table,
    profiles_table,
    sweeps_table,
)
from advisor.store.paths import PROFILES
from advisor.store.profiles import read_profiles
from tests.conftest import TODAY, cpu_profile, gpu_profile
from tests.measured_profile import LOAD_RUNS, TIMES_S, checked, full_profile, load_run

PLAIN = cpu_profile({1: 0.01, 2: 0.02})


def test_streamed_answers_show_their_tokens() -> None:
    """In milliseconds; a profile of whole answers has no such columns and no such sentence."""
    first = Spread(count=200, mean_s=0.11, p50_s=0.1, p95_s=0.13, p99_s=0.2)
    inter = Spread(count=6200, mean_s=0.021, p50_s=0.02, p95_s=0.024)
    cell = PLAIN.cells[0].model_copy(
        update={"streaming": Streaming(first_token=first, inter_token=inter, parts_mean=32.0)}
    )
    (row,) = cells_table(PLAIN.model_copy(update={"cells": (cell,)})).to_dict("records")
    assert (row["First token p50 (ms)"], row["Between tokens p95 (ms)"], row["Parts per answer"]) == (100, 24, 32)
    assert streaming_sentence(cell) == (
        "2 callers: first token after 100 ms (median; p95 130 ms), then one every 20 ms (p95 24 ms); "
        "32 parts per answer."
    )
    assert streaming_sentence(PLAIN.cells[0]) is None
    assert not any("token" in column.lower() for column in cells_table(PLAIN).columns)


def test_a_floor_wears_its_mark_in_table_and_sentence() -> None:
    """A sweep that never saturated says "at least"; one that did names its knee."""
    found = sweeps(full_profile())
    table = sweeps_table(found)
    assert [text.startswith("≥ ") for text in table["Most (items/s)"]] == [not sweep.saturated for sweep in found]
    assert {sweep.saturated for sweep in found} == {True, False}
    for sweep, knee in zip(found, table["Knee"], strict=True):
        assert (knee == sweep.knee.size) == sweep.saturated
        assert ("at least" in sweep_sentence(sweep)) == (not sweep.saturated)
        assert ("floor and no capacity" in sweep_sentence(sweep)) == (not sweep.saturated)


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        (
            cpu_profile({1: 0.010, 2: 0.020}),
            "Over batch size (2 replicas × 1 thread): at most 200 items/s; the knee is batch 1, "
            "the smallest with 95% of it (200 items/s).",
        ),
        (
            cpu_profile({1: 0.010}),
            "Over batch size (2 replicas × 1 thread): at least 200 items/s, a floor and no capacity: "
            "no doubling up to batch 1 was measured.",
        ),
        (
            gpu_profile({1: 0.004, 2: 0.005}),
            "Over batch size: at least 400 items/s, a floor and no capacity: "
            "the last doubling, to batch 2, still gained 60%.",
        ),
    ],
)
def test_a_sweep_in_words(profile: Profile, words: str) -> None:
    """One sentence with the configuration as far as it is stated."""
    assert [sweep_sentence(sweep) for sweep in sweeps(profile)] == [words]


def test_the_verdict_counts_clean_runs_only() -> None:
    """A doubtful run neither helps nor harms, and is told apart."""
    assert verification_sentence(LOAD_RUNS) == (
        "In 2 of 3 clean runs from 30% to 70% load the observed p99 lay in the predicted 95 % interval. "
        "1 doubtful run does not count."
    )
    assert verification_sentence(LOAD_RUNS[:1]) == (
        "In 1 of 1 clean run at 30% load the observed p99 lay in the predicted 95 % interval."
    )


def test_without_a_clean_run_nothing_is_verified() -> None:
    """Doubtful runs alone give no verdict and no errors."""
    runs = (load_run(0.3, doubts=("late",)), load_run(0.5, doubts=("late",)))
    assert verification_sentence(runs) == (
        "No clean run under load, so nothing is verified. 2 doubtful runs do not count."
    )
    assert errors_sentence(runs) is None


def test_the_replicas_that_served_are_named_and_whether_plans_use_others() -> None:
    """Runs of one replica on a machine of two CPUs do not speak for two."""
    profile = full_profile()
    assert served_sentence(profile) == "Served by 2 replicas × 1 thread in batches of at most 8."
    alone = profile.load_runs[0].model_copy(update={"concurrency": 1})
    assert served_sentence(profile.model_copy(update={"load_runs": (alone,)})) == (
        "Served by 1 replica × 1 thread in batches of at most 8; plans use replicas that keep all 2 CPUs busy, "
        "of which runs with fewer say nothing."
    )


def test_errors_are_predicted_over_observed() -> None:
    """A figure observed above its prediction gives a negative error."""
    assert errors_sentence(LOAD_RUNS) == (
        "Predicted against observed in clean runs: mean -1%, p95 -2%, p99 -17% to -3%."
    )


def test_an_error_that_rounds_to_zero_has_no_minus() -> None:
    """Nobody reads minus nothing."""
    run = load_run(0.5).model_copy(update={"mean": checked(1.001, 1.0)})
    assert "mean +0%, " in (errors_sentence([run]) or "")


def test_the_overview_tells_verification_and_age() -> None:
    """Runs inside of clean runs; days since the measurement; unknown dates stay unknown."""
    later = TODAY + datetime.timedelta(days=40)
    table = profiles_table((full_profile(), PLAIN, gpu_profile({1: 0.004})), today=later)
    assert list(table["Verified under load"]) == ["2 of 3 runs", "no", "no"]
    assert list(table["Age (days)"])[:2] == [40, 40]
    assert table["Age (days)"].isna().tolist() == [False, False, True]


def test_cells_tell_why_windows_do_not_count() -> None:
    """Counted and rejected windows, and the codes of the reasons."""
    table = cells_table(full_profile())
    assert set(table["Windows"]) == {4}
    assert set(table["Undisturbed"]) == {3}
    assert set(table["Counted"]) == {"the undisturbed"}
    assert set(table["Disturbed by"]) == {"OTHER_LOAD, STALLS"}


def test_old_files_show_no_empty_columns() -> None:
    """What no cell states is no column; what one cell states is."""
    table = cells_table(PLAIN)
    assert {"Windows", "Undisturbed", "Counted", "Disturbed by", "p99 (ms)", "Warnings"} & set(table.columns) == set()
    assert {"Batch", "Mean (ms)", "±95 % (%)", "Memory (GiB)"} <= set(table.columns)


def test_old_files_have_no_words_for_what_they_lack() -> None:
    """No sentence about windows, drift, idle power; no row of energy."""
    assert repeats_sentence(PLAIN) is None
    assert list(drift_sentences(PLAIN)) == []
    assert idle_power_sentence(PLAIN) is None
    assert energy_table(PLAIN).empty


def test_an_estimate_is_called_an_estimate() -> None:
    """Evidence and method stand in each row."""
    guessed, metered = energy_table(full_profile(is_estimate=True)), energy_table(full_profile())
    assert set(guessed["Evidence"]) == {"estimate"}
    assert set(guessed["Method"]) == {"estimate by a published table"}
    assert set(metered["Evidence"]) == {"measured"}
    assert metered["Energy (J/item)"].iloc[0] == pytest.approx(24.0 * TIMES_S[1] / 2)


def test_drift_idle_power_and_windows_in_words() -> None:
    """Each sentence names its figures."""
    profile = full_profile()
    assert list(drift_sentences(profile)) == [
        "Drift: batch 1 on 2 replicas × 1 thread took 6 ms at the start and 6.12 ms 116 s later (+2.0%)."
    ]
    assert idle_power_sentence(profile) == (
        "With the model loaded and nothing to do: 12 W before and 12.4 W after the measurement "
        "(energy counter of the CPU (RAPL))."
    )
    assert repeats_sentence(profile) == (
        "21 of 28 windows were undisturbed; the others do not count, but are kept in the file."
    )


def test_a_run_in_the_table_is_the_run() -> None:
    """Observed and predicted figures in milliseconds, doubts in words."""
    table = load_runs_table(LOAD_RUNS)
    assert list(table["Run"]) == ["clean", "clean", "clean", "doubtful"]
    assert list(table["p99 in the interval"]) == ["yes", "yes", "no", "no"]
    assert table["p99 observed (ms)"][0] == pytest.approx(1e3 * LOAD_RUNS[0].p99.observed_s, rel=1e-4)
    assert table["p99 to (ms)"][0] == pytest.approx(1e3 * LOAD_RUNS[0].p99.predicted.high_s, rel=1e-4)
    assert table["Doubts"][3] == "GENERATOR_LATE: the load generator was late."


def test_idle_starts_are_compared_with_the_busy_cell() -> None:
    """6.3 ms after idling against 6.0 ms kept busy."""
    assert list(idle_starts_table(full_profile())["Against busy (%)"]) == [5.0]
    assert "Disturbed by" not in idle_starts_table(full_profile())


def test_idle_starts_that_were_disturbed_say_by_what() -> None:
    """By the code of each reason."""
    profile = full_profile()
    (start,) = profile.idle_starts
    disturbed = start.model_copy(update={"rejected": ("OTHER_LOAD: 0.5 CPUs.", "STEAL: 2 %.")})
    table = idle_starts_table(profile.model_copy(update={"idle_starts": (disturbed,)}))
    assert list(table["Disturbed by"]) == ["OTHER_LOAD, STEAL"]


def test_an_unknown_fact_says_why() -> None:
    """Null is never shown without its reason."""
    table = facts_table(full_profile().environment).set_index("Fact")
    assert table.loc["governor", "Value"] == "not known"
    assert table.loc["governor", "Why not known"] == "no cpufreq interface is visible"
    assert table.loc["load average 1min", "Value"] == "0.12"


def test_every_shipped_profile_has_tables_and_sentences() -> None:
    """Published, imported or measured: all can be shown."""
    shipped = read_profiles(PROFILES)
    assert len(profiles_table(shipped, today=TODAY)) == len(shipped)
    for profile in shipped:
        assert len(cells_table(profile)) == len(profile.cells)
        found = sweeps(profile)
        assert len(sweeps_table(found)) == len(found)
        assert all(sweep_sentence(sweep).startswith("Over ") for sweep in found)
