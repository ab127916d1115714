"""Timings from elsewhere become a profile whose figures can be computed by hand, or one sentence."""

import datetime
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.domain.profile import Device
from advisor.domain.record import parse_record
from advisor.errors import InputError
from advisor.profiling.timings import PRECISIONS, GivenFacts, read_timings
from advisor.store.profiles import profile_json

TODAY = datetime.date(2026, 11, 30)
FULL = """\
batch_size,concurrency,repeat,caller,call,start_s,service_s,model,device,precision,runtime,date
4,1,1,1,1,10.0,0.2,net,K80,fp32,pytorch,2026-11-29
4,1,1,1,2,10.2,0.4,,,,,
4,1,1,1,3,10.6,0.2,,,,,
4,1,2,1,1,30.0,0.4,,,,,
4,1,2,1,2,30.5,0.4,,,,,
"""


def read(text, **facts):
    """Profile of a text, with a device of any name."""
    return read_timings(
        text if isinstance(text, bytes) else text.encode(),
        file="k80.csv",
        facts=GivenFacts(**facts),
        find_device=lambda name: Device(kind="gpu", name=name, gpu_id=name, gpus=1),
        today=TODAY,
    )


def test_a_cell_has_the_figures_that_its_calls_have_by_hand():
    """Two windows of means 4/15 s and 0.4 s weigh the same; percentiles and the count are of all calls."""
    (cell,) = read(FULL).cells
    first_s, second_s = 0.8 / 3, 0.4
    mean_s = (first_s + second_s) / 2
    assert (cell.batch_size, cell.concurrency, cell.count, cell.threads) == (4, 1, 5, None)
    assert cell.service_mean_s == pytest.approx(mean_s)
    assert cell.service_m2_s2 == pytest.approx((0.24 / 3 + 0.16) / 2)
    assert (cell.service_p50_s, cell.service_max_s, cell.service_p99_s) == (0.4, 0.4, None)
    assert sum(cell.histogram.counts) == 5
    # Student's t of one degree of freedom is 12.706; two means lie half their difference from their mean.
    assert cell.mean_ci95_frac == pytest.approx(12.7062 * (second_s - first_s) / 2 / mean_s, rel=1e-4)
    # From start to start: two calls in 0.6 s, and in the second window one in 0.5 s, since the caller paused.
    assert cell.throughput_rps == pytest.approx(4 * (2 / 0.6 + 1 / 0.5) / 2)
    assert cell.series_s == (0.2, 0.4, 0.2, 0.4, 0.4)
    assert [warning.split(":")[0] for warning in cell.warnings] == ["UNSETTLED", "FEW_SAMPLES"]


def test_facts_come_from_the_file_or_from_the_user_who_goes_first():
    """What neither says stays open and is told."""
    profile = read(FULL, model="resnet50", sequence_length=7)
    assert (profile.model.name, profile.model.precision, profile.model.sequence_length) == ("resnet50", "fp32", 7)
    assert (profile.evidence.kind, profile.evidence.date) == ("imported", datetime.date(2026, 11, 29))
    assert profile.profile_id == "resnet50-fp32-s7-k80-pytorch-imported"
    assert (profile.runtime.name, profile.runtime.version) == ("pytorch", None)
    bare = read("batch_size,service_s\n1,0.5\n", model="net", device="K80", profile_id="mine")
    assert (bare.profile_id, bare.runtime.name, bare.evidence.date) == ("mine", "not stated", None)
    assert "does not name the software" in bare.evidence.note
    assert bare.cells[0].throughput_rps == 2.0
    assert bare.cells[0].mean_ci95_frac is None
    assert bare.cells[0].series_s is None


def test_what_the_script_says_about_itself_is_kept():
    """The target, the tool and the surroundings are part of the record."""
    text = "batch_size,service_s,tool,python,os,target\n1,0.5,time_inference.py 1,3.8.18,Linux x86_64,net:factory\n"
    profile = read(text, model="net", device="K80")
    assert profile.model.target == "net:factory"
    assert {name: fact.value for name, fact in profile.environment.items()} == {
        "python": "3.8.18",
        "os": "Linux x86_64",
    }
    assert profile.evidence.note.startswith("Timed by time_inference.py 1.")


def test_several_callers_finish_together_what_one_finishes_alone():
    """Two callers without pause finish twice the items, counted while both are at work; the series is of one."""
    rows = [f"2,2,1,{caller},{call},{0.5 * call},0.5" for caller in (1, 2) for call in range(1, 9)]
    text = "\n".join(["batch_size,concurrency,repeat,caller,call,start_s,service_s", *rows])
    profile = read(text, model="net", device="K80")
    assert profile.cells[0].throughput_rps == pytest.approx(2 * 2 / 0.5)
    assert len(profile.cells[0].series_s) == 8
    assert "waiting for the others" in profile.evidence.note


def test_a_hundred_calls_have_a_99th_percentile():
    """As with `advisor profile`."""
    rows = "\n".join(f"1,{0.001 * number:.3f}" for number in range(1, 102))
    (cell,) = read(f"batch_size,service_s\n{rows}\n", model="net", device="K80").cells
    assert cell.service_p99_s == pytest.approx(0.1)


@given(st.randoms(use_true_random=False), st.integers(1, 3), st.booleans())
def test_the_order_of_the_rows_means_nothing(shuffler: random.Random, callers, numbered):
    """A spreadsheet may sort them; the profile is the same to the last digit."""
    rows = [
        [
            *(str(batch), str(callers), str(repeat), str(caller) if numbered else "", str(call) if numbered else ""),
            *(str(call * 0.3), repr(0.1 * batch + 0.017 * ((7 * call + caller + 3 * repeat) % 5))),
            "net" if (batch, repeat, caller, call) == (8, 2, 1, 3) else "",
        ]
        for batch in (1, 8)
        for repeat in (1, 2)
        for caller in range(1, callers + 1)
        for call in range(1, 5)
    ]
    header = "batch_size,concurrency,repeat,caller,call,start_s,service_s,model"
    expected = read("\n".join([header, *map(",".join, rows)]), device="K80")
    shuffler.shuffle(rows)
    assert read("\n".join([header, *map(",".join, rows)]), device="K80") == expected


def test_a_profile_survives_its_file():
    """What is written is read back equal."""
    profile = read(FULL)
    assert parse_record(type(profile), profile_json(profile), file="k80.json") == profile


def test_files_of_spreadsheets_are_read():
    """With a byte order mark, semicolons, blanks around cells and empty rows."""
    text = "\ufeffbatch_size; service_s \r\n1; 0.5\r\n;\r\n\r\n2;0.75\r\n"
    assert [cell.service_mean_s for cell in read(text, model="net", device="K80").cells] == [0.5, 0.75]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("10.2,0.4", "10.2,-0.4", "row 3, column service_s is '-0.4'"),
        ("10.2,0.4", "10.2,0", "row 3, column service_s is '0'"),
        ("10.2,0.4", "10.2,nan", "row 3, column service_s is 'nan'"),
        ("10.2,0.4", "10.2,fast", "row 3, column service_s is 'fast'"),
        ("10.2,0.4", "10.2,", "row 3, column service_s is missing"),
        ("10.2,0.4", "-1,0.4", "row 3, column start_s is '-1'"),
        ("10.2,0.4", ",0.4", "row 3, column start_s is missing; allowed: a value in every row, or in none"),
        ("4,1,1,1,2", "four,1,1,1,2", "row 3, column batch_size is 'four'"),
        ("4,1,1,1,2", "0,1,1,1,2", "row 3, column batch_size is '0'"),
        ("4,1,1,1,2", "4,1,1,2,2", "row 3, column caller is '2'; allowed: at most 1"),
        ("4,1,1,1,2", "4,1,1,1,1", "row 3, column call is '1'; allowed: each call of a window once, and row 2 has it"),
        (
            "0.4,,,,,\n4,1,1,1,3",
            "0.4,other,,,,\n4,1,1,1,3",
            "row 3, column model is 'other'; allowed: net, as in row 2",
        ),
        ("0.4,,,,,\n4,1,1,1,3", "0.4,,,\n4,1,1,1,3", "row 3 is '10 cells'; allowed: 12, as in the header"),
        ("fp32", "FP32", "precision is 'FP32'; allowed: " + " or ".join(PRECISIONS)),
        ("2026-11-29", "2026-12-01", "date is '2026-12-01'; allowed: a date as YYYY-MM-DD, not after 2026-11-30"),
        ("2026-11-29", "29.11.2026", "date is '29.11.2026'"),
        ("service_s", "service_ms", "row 1, column is 'service_ms'; allowed: each at most once: batch_size"),
        ("model,device", "model,model", "row 1, column is 'model'"),
        ("net,K80", ",K80", "model is missing; allowed: the name that scenarios ask for"),
        ("net,K80", "net,", "device is missing; allowed: the hardware that answers"),
    ],
)
def test_what_does_not_fit_is_one_sentence_with_its_place(old, new, words):
    """File, row, column, value, what is allowed."""
    text = FULL.replace(old, new, 1)
    assert text != FULL
    with pytest.raises(InputError) as caught:
        read(text)
    sentence = str(caught.value)
    assert sentence.startswith("k80.csv: ")
    assert words in sentence
    assert "\n" not in sentence
    assert sentence.endswith(".")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "column batch_size is missing"),
        (b"batch_size,service_s\n", "rows is 0; allowed: at least one call"),
        (b"service_s\n0.5\n", "row 1, column batch_size is missing"),
        (b"batch_size\n1\n", "row 1, column service_s is missing"),
        (b"batch_size,service_s\n1,\n", "row 2, column service_s is missing"),
        (b"batch_size,service_s\n1,0,5\n", "row 2 is '3 cells'"),
        (b"batch_size;service_s\n1;0,5\n", "with a point before decimals"),
        (b'batch_size,service_s\n1,"0.5\n', "line"),
        (b"\xff\xfe", "UTF-8 text"),
        (b"batch_size,service_s\n1,1_0\n", "row 2, column service_s is '1_0'"),
        (b"batch_size,service_s,sequence_length\n1,0.5,long\n", "sequence_length is 'long'"),
    ],
)
def test_a_file_that_is_no_such_table_is_refused(content, words):
    """The sentence names the file."""
    with pytest.raises(InputError, match=r"k80\.csv") as caught:
        read(content, model="net", device="K80")
    assert words in str(caught.value)
