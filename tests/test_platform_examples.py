"""One network on several platforms: equal scores, the contract of a callable, and a page that ranks what it knows."""

import importlib

import numpy as np
import pytest

from advisor.domain.measurement import Energy
from advisor.profiling.engines.callables import CallableModel
from advisor.profiling.engines.factories import find_factory
from benchmarks.platform_figures import BUDGET, Band, Measured, choose_price, tiers
from benchmarks.platform_page import page
from examples.platforms.check import PLATFORMS, TOLERANCE_FRAC, largest_difference_frac
from examples.platforms.weights import FEATURES, exact_scores, layers, make_inputs
from tests.conftest import cpu_profile, machine, make_catalog, offer

TIMES_S = {
    "onnx_mlp": 10e-6,
    "numpy_mlp": 10.2e-6,
    "torch_mlp": 30e-6,
    "duckdb_arrays": 2e-3,
    "duckdb_relational": 4e-3,
}


@pytest.fixture(params=PLATFORMS, ids=lambda platform: platform.module)
def platform(request):
    """Each platform that is installed."""
    if not request.param.is_installed():
        pytest.skip(f"{request.param.package} is not installed")
    return request.param


def test_every_platform_gives_the_scores_of_double_precision_within_the_bound_of_float32(platform):
    """Batches of one, of a few and of more than one vector of a database."""
    assert largest_difference_frac(platform, batch_sizes=(1, 3, 32)) <= TOLERANCE_FRAC


def test_every_platform_is_a_model_of_the_callable_engine_that_is_told_its_threads(platform):
    """The batch axis is found, the network described, and items joined are answered row by row in their order."""
    model = CallableModel(find_factory(platform.target), name="mlp")
    assert model.placement.takes_threads
    assert model.model.parameters == 109386
    assert [spec.shape for spec in model.model.inputs] == [("batch", FEATURES)]
    assert not [note for note in model.notes if not note.startswith("HASH")]
    engine = model.open(1, concurrency=1)
    rng = np.random.default_rng(1)
    items = [engine.prepare(size, rng) for size in (1, 2)]
    joined = engine.join(items)
    np.testing.assert_array_equal(joined, np.concatenate(items))
    engine.call(joined)
    engine.close()


def test_scores_are_float32_arrays_of_their_own_one_row_per_input(platform):
    """A second call leaves the scores of the first as they were."""
    rng = np.random.default_rng(2)
    replica = platform.replica()
    first, second = (make_inputs(4, rng) for _ in range(2))
    scores = replica(first)
    replica(second)
    assert scores.shape == (4, 10)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, exact_scores(first), atol=1e-4)
    if hasattr(replica, "close"):
        replica.close()


@pytest.mark.parametrize("module", ["duckdb_arrays", "duckdb_relational"])
def test_a_database_uses_as_many_threads_as_it_is_told(module):
    """Also one that differs from the number of CPUs."""
    pytest.importorskip("duckdb")
    replica = importlib.import_module(f"examples.platforms.{module}").replica(threads=3)
    assert replica._database.execute("SELECT current_setting('threads')").fetchall() == [(3,)]
    replica.close()


def test_the_weights_are_those_of_the_example_model():
    """Whoever profiles the ONNX file profiles the same network."""
    assert [layer.weights.shape for layer in layers()] == [(784, 128), (128, 64), (64, 10)]
    assert [layer.biases.shape for layer in layers()] == [(128,), (64,), (10,)]


def measured(platform, *, batches=(1, 32, 256), error=0.02, difference=1e-7):
    """Platform with a made-up profile: calls of several inputs take half as long per input."""
    time_s = TIMES_S[platform.module]
    profile = cpu_profile({size: time_s * (1 if size == 1 else size / 2) for size in batches}, threads=2, error=error)
    cells = tuple(
        cell.model_copy(
            update={
                "threads": 1,
                "power_w": 4.0,
                "power_method": "tdp_estimate",
                "energy": Energy(
                    scope="2 vCPUs, by a table",
                    is_estimate=True,
                    gross_j=4 * time_s,
                    gross_half_j=2 * time_s,
                    window_s=1.0,
                ),
            }
        )
        for cell in profile.cells
    )
    return Measured(platform, profile.model_copy(update={"cells": cells}), difference)


def catalog():
    """Two machine types of the CPU that was measured, one with another, one that is burstable."""
    machines = [
        machine("dear", provider="aws"),
        machine("fit", provider="aws"),
        machine("other", provider="aws", micro=("zen4",)),
        machine("bursts", provider="aws", burstable=True),
    ]
    prices = {"dear": 0.2, "fit": 0.072, "other": 0.01, "bursts": 0.01}
    return make_catalog(
        machines, [offer(name, price, region="aws/us-east-1", provider="aws") for name, price in prices.items()]
    )


def text_of(found, price, **fields):
    """Page with every number of the test."""
    return page(found, price, budget=BUDGET, **fields)


def test_the_page_tells_time_factor_cost_and_energy_of_each_platform():
    """10 µs at 0.036 USD per vCPU and hour are 1e-10 USD, so a thousand cost a tenth of a millionth of a dollar."""
    found = [measured(platform) for platform in PLATFORMS]
    price = choose_price(catalog(), found[0].profile.device.cpu)
    assert price.machine.name == "fit"
    text = text_of(found, price)
    assert "| ONNX Runtime | 10 ± 0.2 (× 1) | 5 ± 0.1 (× 1) | 5 ± 0.1 (× 1) |" in text
    assert "| DuckDB, a row per neuron | 2,000 ± 40 (× 200) |" in text
    assert "| ONNX Runtime | 0.1 | 0.05 |" in text
    assert "| PyTorch | 0.12 ± 0.06 |" in text
    assert "**An estimate**" in text
    assert "up to 250 requests per second one at a time (21,600,000 a day)" in text
    assert "All are equal within it." in text
    assert not [line for line in text.splitlines() if line.endswith(" ")]


def test_what_the_intervals_do_not_tell_apart_is_not_ranked():
    """Two platforms 2 % apart with intervals of 2 % stand together; the same with energy and its band of a half."""
    text = text_of([measured(platform) for platform in PLATFORMS], None)
    assert "- batch 1: ONNX Runtime = numpy < PyTorch < DuckDB, a row per neuron < DuckDB, a row per weight\n" in text
    assert "- batch 1: ONNX Runtime = numpy = PyTorch < DuckDB, a row per neuron = DuckDB, a row per weight\n" in text
    assert tiers({"a": Band(1.0, 0.1), "b": Band(3.0, None)}) == [["a", "b"]]


def test_the_page_says_what_is_missing_and_what_is_doubtful():
    """A platform that is not installed, a batch that was left out, no price, and a score that differs."""
    first, second = PLATFORMS[0], PLATFORMS[3]
    text = text_of([measured(first), measured(second, batches=(1, 32), difference=0.5)], None, missing=[PLATFORMS[2]])
    assert "PyTorch was not measured: torch is not installed." in text
    assert "| left out |" in text
    assert "no machine type of 2 vCPUs in aws/us-east-1 has this CPU" in text
    assert "**Not all are equal within it" in text


def test_the_next_generation_stands_in_where_no_machine_type_has_the_cpu_and_the_page_says_so():
    """A CPU that nobody rents out takes the price of the next one of its maker, an unknown one has none."""
    found = [measured(PLATFORMS[0])]
    cpu = found[0].profile.device.cpu
    newer = make_catalog(
        [machine("newer", provider="aws", micro=("zen5",))],
        [offer("newer", 0.1, region="aws/us-east-1", provider="aws")],
    )
    price = choose_price(newer, cpu)
    assert price.machine.microarchitectures == ("zen5",)
    assert "No machine type with the CPU that was measured (zen3)" in text_of(found, price)
    assert choose_price(newer, cpu.model_copy(update={"vendor": "someone"})) is None
    assert choose_price(newer, None) is None
