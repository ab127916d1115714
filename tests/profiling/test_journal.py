"""A journal: what it holds is on the disk, and nothing in it is lost or counted twice."""

import numpy as np
import pytest

from advisor.domain.measurement import JoinTime
from advisor.errors import InputError
from advisor.profiling.grid import plan_grid
from advisor.profiling.journal import Entry, Journal, Sample, pack, read_entries
from advisor.profiling.window import WindowRules

JOIN = Entry(join_time=JoinTime(batch_size=2, median_s=1e-5))


@pytest.fixture
def plan(sleeping_model):
    """A small plan."""
    return plan_grid(sleeping_model(1e-5), batch_sizes=(1, 2), rules=WindowRules(min_s=0.01, warmup_s=0.0))


def test_what_was_appended_is_read_back_the_same(plan, begin, tmp_path):
    """Also the plan itself, by which the measurement goes on."""
    path = tmp_path / "run.jsonl"
    journal = begin(plan, path)
    journal.append(JOIN)
    resumed = Journal.resume(path)
    assert resumed.start.plan == plan
    assert resumed.join_times == (JOIN.join_time,)
    assert (journal.sittings, resumed.sittings) == (0, 0)
    resumed.append(Entry(findings=()))
    assert Journal.resume(path).sittings == 1


def test_service_times_are_kept_to_the_nanosecond():
    """A sample gives back what was packed."""
    times_ns = np.array([1, 1_000_000_007, 12_345])
    kept_s = Sample.model_construct(service=pack(times_ns)).service_s
    assert np.array_equal(np.rint(kept_s * 1e9), times_ns)


@pytest.mark.parametrize("left", [1, 20])
def test_a_line_cut_off_in_the_middle_is_dropped(plan, begin, tmp_path, left):
    """The next line starts where the whole ones end."""
    path = tmp_path / "run.jsonl"
    journal = begin(plan, path)
    whole = path.read_bytes()
    journal.append(JOIN)
    path.write_bytes(path.read_bytes()[: len(whole) + left])
    resumed = Journal.resume(path)
    assert resumed.join_times == ()
    resumed.append(JOIN)
    assert path.read_bytes().startswith(whole)
    assert [entry.join_time for entry in read_entries(path)[0]] == [None, JOIN.join_time]


def test_another_measurement_is_never_overwritten(plan, begin, tmp_path):
    """The sentence says how to go on with it."""
    path = tmp_path / "run.jsonl"
    begin(plan, path)
    with pytest.raises(InputError, match=r"--resume run\.jsonl"):
        begin(plan, path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "a journal file that exists"),
        (b"", "a journal that advisor profile has written"),
        (b"{}\n", "a journal that advisor profile has written"),
        (b'{"start": 1}\n', r"run\.jsonl, line 1: start"),
        (b"no json\n", r"run\.jsonl, line 1: content"),
    ],
)
def test_what_is_no_journal_is_refused_with_its_line(tmp_path, content, sentence):
    """One sentence each."""
    path = tmp_path / "run.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        Journal.resume(path)
