"""Trace files: time stamps in all usual forms are read alike, what does not fit gets one sentence."""

import hashlib
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.domain.trace import Trace
from advisor.errors import InputError
from advisor.store import traces
from advisor.store.paths import DATA
from advisor.store.traces import parse_trace, read_trace

OFFSETS_S = [0.0, 0.5, 0.5, 2.25]


def parse(text):
    """Trace from text."""
    return parse_trace(text.encode(), file="web.csv")


def refusal(text):
    """Sentence with which a text is refused."""
    with pytest.raises(InputError) as caught:
        parse(text)
    return str(caught.value)


@pytest.mark.parametrize("name", ["azure_llm_2023_code", "azure_llm_2023_conv"])
def test_shipped_traces_have_the_rows_of_their_provenance(name):
    """The shipped traces are read whole, one hour each, and are told by their hash."""
    path = DATA / "traces" / f"{name}.csv"
    known = json.loads((DATA / "PROVENANCE.json").read_text(encoding="utf-8"))["files"][f"traces/{name}.csv"]
    trace = read_trace(path)
    assert trace.requests == known["rows"]
    assert trace.name == path.name
    assert 3400 < trace.duration_s < 3600
    assert trace.rate_rps == (trace.requests - 1) / trace.duration_s
    assert trace.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert trace.warnings == ("columns input_tokens, output_tokens are not used: one row is one request of one item",)
    assert f"`traces/{name}.csv` | {trace.requests:,} |" in (DATA / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "text",
    [
        "t_s\n0\n0.5\n0.5\n2.25\n",
        "t_s\r\n100\r\n100.5\r\n100.5\r\n102.25\r\n",
        "\ufefftime\n0\n0.5\n0.5\n2.25",
        "anything\n1700000000\n1700000000.5\n1700000000.5\n1700000002.25\n\n",
        "n;Arrival_Time;x\n1;7;a\n2;7.5;b\n3;7.5;c\n4;9.25;d\n",
        "TIMESTAMP,x\n2023-11-16 18:17:03.9799600,1\n2023-11-16 18:17:04.4799600,1\n"
        "2023-11-16 18:17:04.47996,1\n2023-11-16 18:17:06.2299600,1\n",
        "ts\n2024-02-28T23:59:59Z\n2024-02-28T23:59:59.5Z\n2024-02-28T23:59:59.500Z\n2024-02-29T00:00:01.25Z\n",
        "date\n2024-03-01T00:00:00+01:00\n2024-02-29T23:00:00.5+00:00\n2024-02-29T18:00:00.5-05:00\n"
        "2024-03-01T00:00:02.250000000000+0100\n",
        '"timestamp_utc","path"\n"2024-03-01 00:00:00","/a, b"\n2024-03-01 00:00:00.5,c\n'
        "2024-03-01 00:00:00.5,\n2024-03-01 00:00:02.25,\n",
        "timestamp_ms\n0\n500\n500\n2250\n",
        "Time [us]\n0\n500000\n500000\n2250000\n",
        "t_ns\n0\n500000000\n500000000\n2250000000\n",
        "timestamp\n1700000000000\n1700000000500\n1700000000500\n1700000002250\n",
        "timestamp\n1700000000000000\n1700000000500000\n1700000000500000\n1700000002250000\n",
        "timestamp\n1700000000000000000\n1700000000500000000\n1700000000500000000\n1700000002250000000\n",
    ],
)
def test_all_forms_of_time_give_the_same_trace(text):
    """Seconds, dates, zones, units by name or by size, separators and line ends all lead to the same offsets."""
    trace = parse(text)
    np.testing.assert_allclose(trace.times_s, OFFSETS_S, atol=1e-6)
    assert trace.times_s[0] == 0


@pytest.mark.parametrize("name", traces.TIME_NAMES)
def test_time_columns_are_found_by_name_in_any_case_and_unit(name):
    """Each name is found beside others, in capitals, and with a unit."""
    for column, step_s in ((name.upper(), 1.0), (f"{name}_sec", 1.0), (f"{name} (ms)", 1e-3), (f"{name}_us", 1e-6)):
        assert parse(f"time_zone,{column},size\n1,0,9\n1,1,9\n").times_s[-1] == step_s


@pytest.mark.parametrize(
    ("text", "warnings"),
    [
        ("t_s\n1\n2\n", ()),
        ("t_s,bytes\n1,1\n2,1\n", ("column bytes is not used: one row is one request of one item",)),
        ("t_ms\n1\n2\n", ("column t_ms is read as milliseconds, as its name says",)),
        (
            "time\n1700000000000\n1700000000001\n",
            ("column time holds numbers from 1.7e+12 on: read as milliseconds since 1970",),
        ),
        ("t_s\n1\n3\n2\n4\n", ("1 row is earlier than the row before: all rows were sorted by time",)),
        ("t_s\n3\n2\n1\n", ("2 rows are earlier than the rows before: all rows were sorted by time",)),
        (
            "t," + ",".join("abcdefgh") + "\n" + 2 * ("1" + 8 * "," + "\n") + "2" + 8 * ",",
            ("columns a, b, c, d, e, f and 2 more are not used: one row is one request of one item",),
        ),
    ],
)
def test_what_was_changed_or_left_out_is_a_warning(text, warnings):
    """Units that were converted, rows that were sorted and columns that were not used are named."""
    assert parse(text).warnings == warnings


NUMBER = "a finite number of at least 0"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "content is 'empty'; allowed: a header and at least 2 rows."),
        (" \n\n", "content is 'empty'; allowed: a header and at least 2 rows."),
        ("t_s\n", "rows is 0; allowed: at least 2 besides the header."),
        ("t_s\n1\n", "rows is 1; allowed: at least 2 besides the header."),
        ("t_s\n1\n1\n1\n", "distinct time stamps is 1; allowed: at least 2."),
        ("0.5\n1\n2\n", "row 1 is '0.5'; allowed: a header with the names of the columns."),
        (
            "2023-11-16 18:17:03,374\n2023-11-16 18:17:04,3\n",
            "row 1 is '2023-11-16 18:17:03, 374'; allowed: a header",
        ),
        ("a,b\n1,2\n2,3\n", "row 1, columns is 'a, b'; allowed: exactly one column of times, named such as t_s"),
        (
            "time,arrival\n1,2\n2,3\n",
            "row 1, columns of times is 'time, arrival'; allowed: exactly one column of times",
        ),
        ("t_s\n1\nx\n3\n", f"row 3, column t_s is 'x'; allowed: {NUMBER}, as in the first row."),
        ("t_s\n1\n\nx\n", f"row 4, column t_s is 'x'; allowed: {NUMBER}"),
        ("t_s\n1\n-2\n", f"row 3, column t_s is '-2'; allowed: {NUMBER}"),
        ("t_s\n1\nnan\n", f"row 3, column t_s is 'nan'; allowed: {NUMBER}"),
        ("t_s\nNaN\n1\n", f"row 2, column t_s is 'NaN'; allowed: {NUMBER}"),
        ("t_s\n1\ninf\n", f"row 3, column t_s is 'inf'; allowed: {NUMBER}"),
        ("t_s\n1\n1e999\n", f"row 3, column t_s is '1e999'; allowed: {NUMBER}"),
        ("t_s,a\n1,1\n,1\n", f"row 3, column t_s is missing; allowed: {NUMBER}"),
        ("t_s;a\n1;1\n1,5;1\n", f"row 3, column t_s is '1,5'; allowed: {NUMBER}"),
        ("t_s\n1\n2023-11-16 18:17:03\n", f"row 3, column t_s is '2023-11-16 18:17:03'; allowed: {NUMBER}"),
        ("t_s\nyes\nno\n", f"row 2, column t_s is 'yes'; allowed: {NUMBER}, or a date and time such as"),
        ("t_s,a\n,1\n1,1\n", f"row 2, column t_s is missing; allowed: {NUMBER}, or a date and time such as"),
        ("t\n2024-02-29\n2023-02-29\n", "row 3, column t is '2023-02-29'; allowed: a date and time such as"),
        ("t\n2024-02-29\n7\n", "row 3, column t is '7'; allowed: a date and time such as"),
        ("t\n2024-02-29\nnow\n", "row 3, column t is 'now'; allowed: a date and time such as"),
        ("t\nnow\ntoday\n", f"row 2, column t is 'now'; allowed: {NUMBER}, or a date and time such as"),
        ("t\n2024-02-29\n2025\n", "row 3, column t is '2025'; allowed: a date and time such as"),
        ("t\n1969-12-31\n1970-01-01\n", "row 2, column t is '1969-12-31'; allowed: a date and time such as"),
        (
            "t\n2024-02-29 00:00:00Z\n2024-02-29 00:00:00\n",
            "row 3, column t is '2024-02-29 00:00:00'; allowed: a time zone in every row, or in none.",
        ),
        ("t_s,a\n1,2\n2,3,4\n", "row 3 is '3 cells'; allowed: 2, as in the header."),
        ("t_s,a\n1,2\n2\n", "row 3 is '1 cell'; allowed: 2, as in the header."),
        ('t_s,a\n1,"2\n2,3\n', "line 3 is 'unexpected end of data'; allowed: a row of a CSV file."),
        ("t\n0\n1700000000\n", "time spanned by column t is '1.7e+09 s'; allowed: at most ten years"),
        ("t\n2024-01-01\n3024-01-01\n", "time spanned by column t is '3.16e+10 s'; allowed: at most ten years"),
    ],
)
def test_one_sentence_names_row_column_value_and_what_is_allowed(text, sentence):
    """Each way in which a file does not fit gets its sentence; rows are numbered as a spreadsheet shows them."""
    assert refusal(text).startswith(f"web.csv: {sentence}")


def test_files_that_are_no_text_or_not_there_are_refused(tmp_path):
    """Bytes, folders and missing files get a sentence."""
    with pytest.raises(InputError, match=r"^web.csv: content is 'bytes that are no text'; allowed: UTF-8 text\.$"):
        parse_trace(b"t_s\n\xff\xfe\n", file="web.csv")
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(InputError, match="allowed: a trace file that exists"):
            read_trace(path)


def test_too_large_files_are_refused_before_they_are_read(tmp_path, monkeypatch):
    """More bytes or rows than the limits are refused."""
    path = tmp_path / "large.csv"
    path.write_bytes(b"t_s\n" + b"".join(b"%d\n" % number for number in range(20)))
    monkeypatch.setattr(traces, "LARGEST_ROWS", 19)
    with pytest.raises(InputError, match=r"^large.csv: rows is 'more than 19'; allowed: at most 19\.$"):
        read_trace(path)
    with path.open("wb") as file:
        file.truncate(traces.LARGEST_BYTES + 1)
    with pytest.raises(InputError, match=r"^large.csv: size is '100.0 MB'; allowed: at most 100 MB\.$"):
        read_trace(path)


def test_a_trace_is_valid_once_made_and_cannot_be_changed():
    """A trace keeps a read-only copy of ascending times from 0 and refuses others."""
    times_s = np.array([0.0, 1.0, 3.0])
    trace = Trace("web.csv", times_s, "")
    times_s[1] = 2.0
    assert trace.times_s[1] == 1.0
    assert (trace.requests, trace.duration_s, trace.rate_rps) == (3, 3.0, 2 / 3)
    with pytest.raises(ValueError, match="read-only"):
        trace.times_s[1] = 2.0
    for bad in ([1.0, 2.0], [0.0, 2.0, 1.0], [0.0, np.nan, 1.0], [0.0, np.inf]):
        with pytest.raises(InputError, match="finite numbers that ascend from 0"):
            Trace("web.csv", np.array(bad), "")
    with pytest.raises(InputError, match="distinct time stamps is 0"):
        Trace("web.csv", np.array([]), "")


@given(st.lists(st.integers(0, 10**9), min_size=2, max_size=50), st.integers(0, 10**9))
def test_order_and_start_do_not_matter(times_us, start_us):
    """Rows in any order and with any start give the same ascending offsets from 0."""
    times_us = [*times_us, max(times_us) + 1]
    rows = "\n".join(f"{(start_us + time) / 1e6:.6f}" for time in times_us)
    found = parse(f"t_s\n{rows}\n")
    np.testing.assert_allclose(found.times_s, (np.sort(times_us) - min(times_us)) / 1e6, atol=1e-6)
