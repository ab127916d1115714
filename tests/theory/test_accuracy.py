"""What the documentation promises of the models' errors, on a few of the queues that `make accuracy` runs."""

import pytest

from advisor.queueing.approximations import P99_ERROR_FRAC, VARIABLE_P99_ERROR_FRAC
from benchmarks.accuracy import (
    ARRIVAL_SCVS,
    BATCH_BAR_FRAC,
    LOADS,
    SERVERS,
    SERVICES,
    Cell,
    Row,
    bars,
    batch_cells,
    measure,
    pages,
    put_between_markers,
    queue_cells,
)

# Loads at which a few million requests tell a percent from chance.
TAME = [
    Cell(0.3, 1, "lognormal", 0.5, 4.0),
    Cell(0.5, 2, "lognormal", 0.1, 2.0),
    Cell(0.7, 4, "lognormal", 1.0, 1.0),
    Cell(0.8, 16, "lognormal", 0.5, 1.0),
    Cell(0.8, 4, "lognormal", 0.0, 1.0),
    Cell(0.7, 16, "lognormal", 0.0, 4.0),
    Cell(0.8, 2, "exponential", 1.0, 2.0),
    Cell(0.9, 64, "lognormal", 1.0, 2.0),
]
VARIABLE = [Cell(0.7, 4, "lognormal", 4.0, 4.0), Cell(0.8, 16, "lognormal", 4.0, 1.0)]
BATCHED = [
    Cell(0.8, 1, "lognormal", 0.0, curve="gpu", max_batch=8),
    Cell(0.7, 1, "lognormal", 0.0, curve="cpu", max_batch=32),
    Cell(0.5, 1, "lognormal", 0.5, curve="gpu", max_batch=4),
]
MOST = 4_000_000


@pytest.mark.parametrize("cell", TAME, ids=lambda cell: cell.name)
def test_tame_queues_keep_the_stated_error(cell):
    """For a service SCV of at most 1 mean and p99 are within 5 %, of exact models within twice the interval."""
    row = measure(cell, seed=1, most_requests=MOST)
    assert abs(row.error_frac["mean"]) <= P99_ERROR_FRAC
    assert abs(row.error_frac["p99"]) <= P99_ERROR_FRAC
    if "approximation" not in row.model:
        assert all(abs(row.error_frac[figure]) <= 2 * row.interval_frac[figure] for figure in row.error_frac)


@pytest.mark.parametrize("cell", VARIABLE, ids=lambda cell: cell.name)
def test_variable_service_keeps_the_stated_error(cell):
    """For a service SCV of 4 p99 is within 13 %."""
    assert abs(measure(cell, seed=1, most_requests=MOST).error_frac["p99"]) <= VARIABLE_P99_ERROR_FRAC


@pytest.mark.parametrize("cell", BATCHED, ids=lambda cell: cell.name)
def test_batches_are_exact(cell):
    """All figures of the batch queue lie within twice the simulation's interval, and p99 within 2 %."""
    row = measure(cell, seed=1, most_requests=2 * MOST)
    assert abs(row.error_frac["p99"]) <= BATCH_BAR_FRAC
    assert all(abs(row.error_frac[figure]) <= 2 * row.interval_frac[figure] for figure in row.error_frac)


def test_the_grid_spans_all_factors():
    """Loads, servers and services meet once each, and any of them meets each kind of arrivals about equally."""
    cells = queue_cells()
    assert len({(cell.load, cell.servers, cell.service, cell.scv) for cell in cells}) == len(cells) == 180
    for factor, values in (("load", LOADS), ("servers", SERVERS), ("scv", {scv for _, scv in SERVICES})):
        for value in values:
            for arrival in ARRIVAL_SCVS:
                group = [cell for cell in cells if getattr(cell, factor) == value]
                share = sum(cell.arrival_scv == arrival for cell in group) / len(group)
                assert 0.25 <= share <= 0.42
    assert len(batch_cells()) == 72


def invented(cell, error):
    """Row with one error everywhere, and an interval of 1 %."""
    figures = ("mean", "p50", "p95", "p99", "p99.9")
    return Row(cell, "model", dict.fromkeys(figures, error), dict.fromkeys(figures, 0.01), 1000)


def test_a_missed_promise_is_found():
    """Errors above a bar are told from those below, and only the cells that lie outside the interval are listed."""
    good, bad = [invented(cell, 0.005) for cell in TAME + BATCHED], [invented(cell, -0.06) for cell in TAME + BATCHED]
    assert all(found <= bar for _, found, bar in bars(good))
    assert [found > bar for _, found, bar in bars(bad)] == [True, True, False, True]
    assert BATCHED[0].name not in pages(good, 1.0)[0]
    assert BATCHED[0].name in pages(bad, 1.0)[0]


def test_only_what_is_between_the_markers_is_replaced(tmp_path):
    """The rest of the page stays as it is; without markers nothing is written."""
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- written by make accuracy: begin -->\nold\n<!-- written by make accuracy: end -->\nb\n")
    put_between_markers(page, "new")
    assert page.read_text().split("\n")[0::2] == ["a", "new", "b"]
    page.write_text("nothing")
    with pytest.raises(ValueError, match="lacks the markers"):
        put_between_markers(page, "new")
