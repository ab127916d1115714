"""What counts as a regression between two profiles, and when two profiles must not be compared."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.domain.measurement import Energy
from advisor.domain.profile import Cell, CpuIdentity, Fact, ModelInfo, Profile, Protocol, RuntimeInfo, TensorSpec
from advisor.errors import InputError
from advisor.profiling.comparison import CHANCE_FRAC, compare, ratio_interval
from tests.conftest import cpu_profile, gpu_profile, make_cell

ratios = st.floats(0.2, 5.0)
errors = st.floats(0.0, 0.3)


def one_cell(mean_s: float, error: float | None = 0.01, **fields: Any) -> Profile:
    """Profile with one cell."""
    profile = cpu_profile({1: mean_s})
    return changed(profile, cells=(make_cell(1, mean_s, threads=1, concurrency=2, mean_ci95_frac=error, **fields),))


def changed(profile: Profile, **fields: Any) -> Profile:
    """Profile with other values, checked."""
    return Profile.model_validate({**dict(profile), **fields})


def changed_model(profile: Profile, **fields: Any) -> Profile:
    """Profile of another model."""
    return changed(profile, model=ModelInfo.model_validate({**dict(profile.model), **fields}))


@given(ratios, errors, errors, st.floats(0.0, 0.5))
def test_a_regression_needs_a_large_change_that_is_no_noise(ratio: float, old: float, new: float, limit: float) -> None:
    """Above the limit and wholly above 1: each alone is not enough."""
    result = compare(one_cell(0.01, old), one_cell(0.01 * ratio, new), fail_over_frac=limit)
    (cell,) = result.cells
    low, _ = ratio_interval(cell.ratio, old, new)
    assert cell.regression == (cell.ratio > 1 + limit and low > 1)
    assert (result.outcome == "regression") == cell.regression


def test_a_large_change_within_noise_is_no_regression() -> None:
    """20 % slower, known within 30 %."""
    (cell,) = compare(one_cell(0.010, 0.3), one_cell(0.012, 0.3)).cells
    assert (cell.verdict, cell.regression) == ("same within noise", False)


def test_a_sure_change_below_the_limit_is_no_regression() -> None:
    """3 % slower, known within 0.1 %: slower, and not worth a failure at 5 %."""
    (cell,) = compare(one_cell(0.0100, 0.001), one_cell(0.0103, 0.001)).cells
    assert (cell.verdict, cell.regression) == ("slower", False)


@given(ratios, errors, errors)
def test_swapping_the_profiles_turns_the_verdict_around(ratio: float, old: float, new: float) -> None:
    """What is slower one way is faster the other way, with the inverse interval."""
    there = compare(one_cell(0.01, old), one_cell(0.01 * ratio, new)).cells[0]
    back = compare(one_cell(0.01 * ratio, new), one_cell(0.01, old)).cells[0]
    assert back.ratio == pytest.approx(1 / there.ratio)
    assert there.ratio_low is not None
    assert back.ratio_high == pytest.approx(1 / there.ratio_low)
    opposite = {"slower": "faster", "faster": "slower", "same within noise": "same within noise"}
    if min(abs(edge - 1) for edge in (there.ratio_low, there.ratio_high or 0.0)) > 1e-9:
        assert back.verdict == opposite[there.verdict]


@given(errors)
def test_a_profile_against_itself_is_the_same(error: float) -> None:
    """No regression, all ratios 1, nothing differs."""
    profile = cpu_profile({1: 0.01, 2: 0.02, 4: 0.04}, error=error)
    result = compare(profile, profile, fail_over_frac=0.0)
    assert result.outcome == "pass"
    assert {cell.ratio for cell in result.cells} == {1.0}
    assert result.geometric_mean_ratio == 1.0
    assert (result.differences, result.mismatches, result.doubts) == ((), (), ())


def test_a_halving_undoes_a_doubling_in_the_geometric_mean() -> None:
    """One cell twice as slow and one twice as fast cancel; the regression stays a regression."""
    result = compare(cpu_profile({1: 0.01, 2: 0.02}), cpu_profile({1: 0.02, 2: 0.01}))
    assert result.geometric_mean_ratio == pytest.approx(1.0)
    assert [cell.batch_size for cell in result.regressions] == [1]


def test_one_repeat_gives_no_verdict() -> None:
    """A growth that nobody can tell from noise is neither a regression nor a pass."""
    result = compare(one_cell(0.010, None), one_cell(0.020, 0.01))
    assert result.cells[0].verdict == "unknown (one repeat)"
    assert result.outcome == "undecided"


def test_a_gate_that_judged_nothing_does_not_pass() -> None:
    """Without repeats not even an equal time is known to be equal."""
    assert compare(one_cell(0.010, None), one_cell(0.010, None)).outcome == "undecided"


def test_the_number_expected_by_chance_grows_with_the_judged_cells() -> None:
    """One tail of each 95 % interval."""
    profile = cpu_profile({batch: 0.01 * batch for batch in (1, 2, 4, 8)})
    assert compare(profile, profile).by_chance == pytest.approx(4 * CHANCE_FRAC)


def test_cells_pair_by_batch_threads_and_replicas() -> None:
    """Cells of one profile only are told, and never compared with another configuration."""
    old = changed(
        cpu_profile({1: 0.01}),
        cells=(make_cell(1, 0.01, threads=1, concurrency=2), make_cell(2, 0.02, threads=1, concurrency=2)),
    )
    new = changed(
        cpu_profile({1: 0.01}),
        cells=(make_cell(1, 0.01, threads=1, concurrency=2), make_cell(2, 0.02, threads=2, concurrency=1)),
    )
    result = compare(old, new)
    assert [cell.batch_size for cell in result.cells] == [1]
    assert result.only_old == ((2, 1, 2),)
    assert result.only_new == ((2, 2, 1),)


def test_no_common_cell_is_refused() -> None:
    """Nothing to compare is an error, not a pass."""
    with pytest.raises(InputError, match="cells is"):
        compare(cpu_profile({1: 0.01}), cpu_profile({2: 0.01}))


@pytest.mark.parametrize(
    ("field", "old", "new"),
    [
        ("model.sha256", {"sha256": "aa"}, {"sha256": "bb"}),
        ("model.sha256", {"sha256": "aa"}, {"sha256": None}),
        ("model.name", {"name": "net"}, {"name": "other"}),
        ("model.precision", {"precision": "fp32"}, {"precision": "int8"}),
        ("model.sequence_length", {"sequence_length": 128}, {"sequence_length": 384}),
        (
            "model.inputs.x",
            {"inputs": (TensorSpec(name="x", dtype="float32", shape=("batch", 224), fill="normal"),)},
            {"inputs": (TensorSpec(name="x", dtype="float32", shape=("batch", 320), fill="normal"),)},
        ),
    ],
)
def test_another_model_is_refused_unless_told(field: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    """The refusal names the field and both values; insisted upon, the result says what differs."""
    profile = cpu_profile({1: 0.01})
    before, after = changed_model(profile, **old), changed_model(profile, **new)
    with pytest.raises(InputError) as refused:
        compare(before, after)
    assert refused.value.field == field
    assert "--anyway" in str(refused.value)
    (difference, *_) = compare(before, after, anyway=True).mismatches
    assert difference.field == field
    assert repr(difference.old) in str(refused.value)


def test_a_renamed_file_is_the_same_model() -> None:
    """The hash tells what was measured."""
    profile = changed_model(cpu_profile({1: 0.01}), sha256="aa")
    assert compare(profile, changed_model(profile, name="other")).mismatches == ()


@pytest.mark.parametrize(
    ("field", "value"), [("vendor", "GenuineIntel"), ("family", 26), ("model", 17), ("logical_cpus", 4)]
)
def test_another_cpu_is_refused_unless_told(field: str, value: object) -> None:
    """A change of the machine is not a change of the software."""
    old = cpu_profile({1: 0.01})
    cpu = CpuIdentity.model_validate({**dict(old.device.cpu or ()), field: value})
    new = changed(old, device=old.device.model_copy(update={"cpu": cpu}))
    with pytest.raises(InputError, match=f"device.cpu.{field}"):
        compare(old, new)
    assert compare(old, new, anyway=True).mismatches[0].new == value


def test_another_gpu_is_refused_unless_told() -> None:
    """The same holds for cards."""
    with pytest.raises(InputError, match=r"device\.gpu_id"):
        compare(gpu_profile({1: 0.004}), gpu_profile({1: 0.004}, gpu_id="L4"))


def test_versions_and_settings_are_told_and_never_refused() -> None:
    """Comparing versions is what a regression test is for; readings of the moment are left out."""
    old = changed(
        cpu_profile({1: 0.01}),
        runtime=RuntimeInfo(name="onnxruntime", version="1.31"),
        environment={
            "governor": Fact(value="powersave"),
            "python": Fact(value="3.11.7"),
            "load_average_1min": Fact(value=0.2),
            "gone": Fact(value="yes"),
        },
    )
    new = changed(
        old,
        runtime=RuntimeInfo(name="onnxruntime", version="1.32", options={"spin": True}),
        environment={
            "governor": Fact(value=None, why="not visible"),
            "python": Fact(value="3.11.7"),
            "load_average_1min": Fact(value=1.2),
        },
    )
    told = {difference.field for difference in compare(old, new).differences}
    assert told == {"runtime.version", "runtime.options.spin", "environment.governor"}


def test_doubts_of_a_profile_and_its_cells_are_told() -> None:
    """A partial, forced or doubtful measurement is compared, and says so."""
    rules = Protocol(
        warmup_calls=3, warmup_s=0.2, repeats=3, min_calls=5, min_s=1.0, percentile_method="linear", order_seed=0,
        forced=True,
    )  # fmt: skip
    old = changed(one_cell(0.01), status="partial", warnings=("a warning",))
    new = changed(one_cell(0.01, warnings=("unsettled",)), protocol=rules)
    result = compare(old, new)
    assert [doubt.split(":")[0] for doubt in result.doubts] == [
        "the old profile is partial",
        "old",
        "the new profile was measured although the machine was not fit for it",
    ]
    assert result.cells[0].doubts == ("new: unsettled",)


def test_other_figures_are_compared_where_both_have_them() -> None:
    """They inform and decide nothing: a worse p99 alone is no regression."""
    energy = Energy(scope="test", is_estimate=True, gross_j=0.0, gross_half_j=0.0, window_s=5.0)
    metered: dict[str, Any] = {"energy": energy, "power_w": 1.0, "power_method": "tdp_estimate"}
    old = one_cell(0.01, service_p50_s=0.009, service_p99_s=0.012, memory_gib=0.5, **metered)
    new = one_cell(0.01, service_p99_s=0.024, memory_gib=1.0, **metered)
    result = compare(old, new)
    assert {change.name: change.ratio for change in result.cells[0].changes} == {
        "p99": pytest.approx(2.0),
        "energy": None,  # nothing over nothing
        "memory": pytest.approx(2.0),
    }
    assert [change.name for change in result.cells[0].changes if change.is_estimate] == ["energy"]
    assert result.outcome == "pass"


def test_cells_without_a_mean_are_not_compared() -> None:
    """A published throughput alone has no service time to compare."""
    old = changed(one_cell(0.01), cells=(*one_cell(0.01).cells, Cell(batch_size=2, throughput_rps=10.0)))
    assert [cell.batch_size for cell in compare(old, old).cells] == [1]
