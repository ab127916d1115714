"""Timings: a CSV with one row per call, written by `scripts/time_inference.py` or by hand, read into a profile."""

import datetime
import itertools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from advisor import __version__
from advisor.domain.evidence import Evidence
from advisor.domain.profile import PROFILE_ID, Cell, Device, Fact, ModelInfo, Profile, RuntimeInfo
from advisor.errors import InputError
from advisor.profiling.statistics import FloatArray, histogram, mean_ci95_frac, summarize
from advisor.profiling.summary import SERIES_CALLS, few_samples_warning, unsettled_warning
from advisor.profiling.timings_table import LARGEST, SHORTEST_S, WHOLE, Table, cut_table

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "int8")


@dataclass(frozen=True, slots=True)
class GivenFacts:
    """What the user says about a file; it goes before what the file says about itself."""

    model: str | None = None
    device: str | None = None
    """Name of the hardware, such as Tesla K80."""
    precision: str | None = None
    sequence_length: int | None = None
    profile_id: str | None = None


class _Call(NamedTuple):
    """One row. In this order of fields calls are sorted, so that the order of the rows changes nothing."""

    batch_size: int
    concurrency: int
    repeat: int
    caller: int | None
    call: int | None
    start_s: float | None
    service_s: float


def read_timings(
    content: bytes,
    *,
    file: str,
    facts: GivenFacts,
    find_device: Callable[[str], Device],
    today: datetime.date,
) -> Profile:
    r"""Profile from the bytes of a CSV file, UTF-8 with a header, cells divided by commas or semicolons.

    A row is a call: ``batch_size`` and ``service_s`` [s] must be there. ``concurrency`` is the number of callers, 1 if
    the column is not there, and ``repeat`` numbers the windows of a cell. ``start_s`` [s] tells the throughput also
    where callers paused, and ``call`` or ``start_s`` the order of the calls of a ``caller``. The order of the rows
    means nothing.

    Parameters
    ----------
    content
        The file.
    file
        Its name, for sentences and for the evidence.
    facts
        What the user adds; the rest is in columns of the file (`FACT_COLUMNS`).
    find_device
        Finds the hardware that a name means.
    today
        Last date that a measurement can have.

    Raises
    ------
    InputError
        When the content does not fit: file, row, column, value and what is allowed.

    Examples
    --------
    >>> cpu = lambda name: Device(kind="cpu", name=name)
    >>> profile = read_timings(
    ...     b"batch_size,service_s\n1,0.25\n1,0.75\n", file="phone.csv", facts=GivenFacts("net", "phone"),
    ...     find_device=cpu, today=datetime.date(2026, 1, 1))
    >>> profile.profile_id, profile.cells[0].service_mean_s, profile.cells[0].throughput_rps
    ('net-phone-imported', 0.5, 2.0)
    """
    table = cut_table(content, file)
    calls = _calls(table)
    model, runtime = _model(table, facts), table.fact("runtime")
    name = facts.device or table.fact("device")
    if name is None:
        raise InputError("device", None, "the hardware that answers, in a column device or by --on", file=file)
    device = find_device(name)
    environment = {column: value for column in ("os", "python") if (value := table.fact(column)) is not None}
    return Profile(
        schema_version=1,
        profile_id=_identifier(facts.profile_id, model, device, runtime),
        status="complete",
        evidence=Evidence(
            kind="imported",
            source=f"advisor import {file}",
            date=_date(table, today),
            note=_note(table, runtime, most_callers=max(call.concurrency for call in calls)),
        ),
        tool_version=__version__,
        model=model,
        runtime=RuntimeInfo(name=runtime or "not stated", version=table.fact("runtime_version")),
        device=device,
        environment={column: Fact(value=value) for column, value in environment.items()},
        cells=tuple(
            _cell(list(group))
            for _, group in itertools.groupby(calls, lambda call: (call.batch_size, call.concurrency))
        ),
    )


def _calls(table: Table) -> list[_Call]:
    """All calls, sorted."""
    counts = {column: table.counts(column) for column in LARGEST}
    starts_s, times_s = table.times_s("start_s", least_s=0.0), table.times_s("service_s", least_s=SHORTEST_S)
    calls: dict[int, _Call] = {}
    seen: dict[tuple[int | None, ...], int] = {}
    for row in table.rows:
        if row not in counts["batch_size"]:
            raise table.error(row, "batch_size", "the number of items of the call")
        if row not in times_s:
            raise table.error(row, "service_s", "the time of the call in seconds")
        call = _Call(
            counts["batch_size"][row],
            counts["concurrency"].get(row, 1),
            counts["repeat"].get(row, 1),
            counts["caller"].get(row),
            counts["call"].get(row),
            starts_s.get(row),
            times_s[row],
        )
        if call.caller is not None and call.caller > call.concurrency:
            raise table.error(row, "caller", f"at most {call.concurrency}, the concurrency of the row")
        name = call[:5]
        if call.call is not None and (call.caller is not None or call.concurrency == 1):
            if name in seen:
                raise table.error(row, "call", f"each call of a window once, and row {seen[name]} has it already")
            seen[name] = row
        calls[row] = call
    return sorted(calls.values())


def _model(table: Table, facts: GivenFacts) -> ModelInfo:
    """The model, by what the user and the file say."""
    name = facts.model or table.fact("model")
    if name is None:
        allowed = "the name that scenarios ask for, in a column model or by --model"
        raise InputError("model", None, allowed, file=table.file)
    precision = facts.precision or table.fact("precision")
    if precision not in (None, *PRECISIONS):
        raise InputError("precision", precision, " or ".join(PRECISIONS), file=table.file)
    length = facts.sequence_length
    text = table.fact("sequence_length")
    if length is None and text is not None:
        if not WHOLE.fullmatch(text) or int(text) < 1:
            raise InputError("sequence_length", text, "a whole number of at least 1", file=table.file)
        length = int(text)
    return ModelInfo(name=name, target=table.fact("target"), precision=precision, sequence_length=length)


def _date(table: Table, today: datetime.date) -> datetime.date | None:
    """Date of the measurement, where the file says it."""
    text = table.fact("date")
    if text is None:
        return None
    allowed = f"a date as YYYY-MM-DD, not after {today}"
    try:
        found = datetime.date.fromisoformat(text)
    except ValueError as error:
        raise InputError("date", text, allowed, file=table.file) from error
    if found > today:
        raise InputError("date", text, allowed, file=table.file)
    return found


def _note(table: Table, runtime: str | None, *, most_callers: int) -> str:
    """What a reader must know: who timed, and what nobody looked at."""
    tool = table.fact("tool")
    sentences = [
        f"Timed by {tool}." if tool else "The file does not say what timed the calls.",
        "Nobody looked at other load, memory or energy meanwhile.",
    ]
    if runtime is None:
        sentences.append("The file does not name the software that ran the model.")
    if most_callers > 1:
        sentences.append("With several callers a time may contain waiting for the others.")
    return " ".join(sentences)


def _identifier(given: str | None, model: ModelInfo, device: Device, runtime: str | None) -> str:
    """Name of the profile: the user's, or one made of model, precision, length, device and runtime."""
    if given is not None:
        if re.fullmatch(PROFILE_ID, given) is None:
            raise InputError("--id", given, "small letters, digits, dots, dashes and underscores")
        return given
    length = f"s{model.sequence_length}" if model.sequence_length else None
    words = (model.name, model.precision, length, device.gpu_id or device.name, runtime, "imported")
    text = " ".join(word for word in words if word).lower()
    return re.sub(r"[^a-z0-9._]+", "-", text).strip("-._")


def _cell(calls: list[_Call]) -> Cell:
    """Pool the windows of one cell; each has the same weight, as in the interval of the mean."""
    windows = [list(window) for _, window in itertools.groupby(calls, lambda call: call.repeat)]
    summaries = [summarize(_times_s(window)) for window in windows]
    service_s = _times_s(calls)
    pooled = summarize(service_s)
    mean_s = float(np.mean([summary.mean_s for summary in summaries]))
    m2_s2 = float(np.mean([summary.m2_s2 for summary in summaries]))
    cell = Cell(
        batch_size=calls[0].batch_size,
        concurrency=calls[0].concurrency,
        count=pooled.count,
        service_mean_s=mean_s,
        service_m2_s2=max(m2_s2, mean_s**2),
        service_p50_s=pooled.p50_s,
        service_p90_s=pooled.p90_s,
        service_p95_s=pooled.p95_s,
        service_p99_s=pooled.p99_s,
        service_max_s=pooled.max_s,
        mean_ci95_frac=mean_ci95_frac([summary.mean_s for summary in summaries]),
        histogram=histogram(service_s),
        series_s=_series_s(windows),
        throughput_rps=float(np.mean([_throughput_rps(window) for window in windows])),
    )
    return cell.model_copy(update={"warnings": (*unsettled_warning(cell), *few_samples_warning(cell))})


def _times_s(calls: Iterable[_Call]) -> FloatArray:
    """Service times [s]."""
    return np.array([call.service_s for call in calls])


def _throughput_rps(window: list[_Call]) -> float:
    """Items per second of all callers in one window [1/s].

    Between the first and the last start all callers are at work; a call across that edge counts by its share. Without
    starts, or with one only, callers are taken never to pause.
    """
    batch_size, concurrency = window[0].batch_size, window[0].concurrency
    starts_s = np.array([call.start_s for call in window if call.start_s is not None])
    service_s = _times_s(window)
    if starts_s.size == 0 or starts_s.max() == starts_s.min():
        return batch_size * concurrency / float(service_s.mean())
    inside_s = np.minimum(starts_s.max() - starts_s, service_s)
    return batch_size * float(np.sum(inside_s / service_s)) / float(starts_s.max() - starts_s.min())


def _series_s(windows: list[list[_Call]]) -> tuple[float, ...] | None:
    """Calls of the first caller in order of time, an equal number from each window, with five digits [s].

    None where the file does not tell the order, or which of several callers made a call.
    """
    first = windows[0][0]
    if (first.call is None and first.start_s is None) or (first.caller is None and first.concurrency > 1):
        return None
    each = SERIES_CALLS // len(windows)
    calls: list[_Call] = []
    for window in windows:
        own = [call for call in window if call.caller == window[0].caller]
        calls += sorted(own, key=lambda call: (call.start_s or 0.0, call.call or 0))[:each]
    return tuple(float(f"{call.service_s:.5g}") for call in calls) if len(calls) > 1 else None
