"""Profile files: what fits is read whole, what does not gets one sentence."""

import json

import pytest

from advisor.domain.measurement import Histogram
from advisor.errors import InputError
from advisor.store.paths import PROFILES
from advisor.store.profiles import read_profile, read_profiles
from tests.conftest import cpu_profile


def document(**changes):
    """JSON document of a small profile with some fields changed."""
    return json.loads(cpu_profile({1: 0.05, 2: 0.09}).model_dump_json()) | changes


def test_round_trip():
    """A profile written and read again is the same."""
    profile = cpu_profile({1: 0.05, 2: 0.09})
    assert read_profile(profile.model_dump_json(), file="x.json") == profile


EXAMPLES = {"resnet50", "bert-base", "minilm", "mlp"}


def test_shipped_profiles_hold_four_measured_models():
    """The shipped measurements cover ResNet-50, BERT-base at 128 tokens, MiniLM and a small model, all cores busy."""
    measured = [profile for profile in read_profiles(PROFILES) if profile.evidence.kind == "measured"]
    assert {profile.model.name for profile in measured} >= EXAMPLES
    assert {profile.model.sequence_length for profile in measured if profile.model.name == "bert-base"} == {128}
    for profile in measured:
        assert profile.status == "complete"
        assert profile.device.cpu is not None
        cpus = profile.device.cpu.logical_cpus
        busy = {cell.batch_size for cell in profile.cells if cell.threads * cell.concurrency == cpus}
        assert busy == {cell.batch_size for cell in profile.cells}
        for cell in profile.cells:
            assert sum(cell.histogram.counts) == cell.count
            assert cell.service_m2_s2 >= cell.service_mean_s**2 * (1 - 1e-9)


def test_full_protocol_profiles_hold_threads_replicas_int8_and_runs_under_load():
    """What was measured with judged windows covers both precisions and three ways to share the CPUs."""
    judged = [profile for profile in read_profiles(PROFILES) if any(cell.repeats for cell in profile.cells)]
    assert {(profile.model.name, profile.model.precision) for profile in judged} == {
        (name, precision) for name in EXAMPLES for precision in ("fp32", "int8")
    }
    for profile in judged:
        assert {(cell.threads, cell.concurrency) for cell in profile.cells} == {(1, 2), (2, 1), (1, 1)}
        assert not any(cell.contaminated for cell in profile.cells)
        assert profile.idle_starts
    checked = {profile.model.name for profile in judged if profile.load_runs}
    assert checked >= {"minilm", "resnet50"}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"schema_version": 2}, "schema_version is 2; allowed: 1"),
        ({"colour": "blue"}, "colour is 'blue'; allowed: no such field"),
        ({"cells": []}, "cells"),
        ({"profile_id": "Bad Name"}, "profile_id is 'Bad Name'"),
        (
            {"evidence": {"kind": "guessed", "source": "x", "date": None}},
            "evidence.kind is 'guessed'; allowed: 'measured'",
        ),
    ],
)
def test_one_sentence_names_the_field(change, sentence):
    """The first problem is told with file, field, value and what is allowed."""
    with pytest.raises(InputError) as caught:
        read_profile(json.dumps(document(**change)), file="mine.json")
    assert str(caught.value).startswith("mine.json: ")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"batch_size": 0}, "cells[0].batch_size is 0; allowed: greater than 0"),
        ({"service_mean_s": -1.0}, "cells[0].service_mean_s is -1.0; allowed: greater than 0"),
        ({"service_m2_s2": 1e-9}, "second moment"),
        ({"service_p50_s": 0.2, "service_p99_s": 0.1}, "percentiles p50"),
        ({"power_w": 40.0}, "power_w and power_method together"),
        ({"service_mean_s": None}, "a service time or a throughput"),
        ({"batch_size": 2}, "one cell per batch size"),
    ],
)
def test_impossible_cells_are_refused(change, sentence):
    """A cell that contradicts itself is refused with its place in the file."""
    bad = document()
    bad["cells"][0] |= change
    with pytest.raises(InputError) as caught:
        read_profile(json.dumps(bad), file="mine.json")
    assert sentence in str(caught.value)


@pytest.mark.parametrize("text", ["", "not json", "[1, 2]", '{"a": NaN}'])
def test_what_is_no_profile_is_refused(text):
    """Text that is no JSON object gets one sentence, never a traceback."""
    with pytest.raises(InputError, match=r"mine\.json"):
        read_profile(text, file="mine.json")


def test_two_profiles_of_one_name_are_refused(tmp_path):
    """A profile_id stands once in a folder."""
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(cpu_profile({1: 0.05}).model_dump_json())
    with pytest.raises(InputError, match=r"b\.json: profile_id"):
        read_profiles(tmp_path)


def test_merged_histograms_hold_all_calls():
    """Merging adds counts bin by bin, whatever the order."""
    one, two = Histogram(first_bin=-10, counts=(1, 0, 2)), Histogram(first_bin=-12, counts=(4, 5))
    assert one.merged(two) == two.merged(one)
    assert sum(one.merged(two).counts) == 12
