"""Convert published benchmark tables into profile files.

Upstream tables: the batch sweeps of NVIDIA/DeepLearningExamples and NVIDIA/TensorRT (``profiles.json``), the
K80 and P100 measurements of microsoft/AKSDeploymentTutorial and ilkarman/DeepLearningFrameworks, and the
OpenVINO benchmark table. What a table does not say stays null. What stands above a table in its README
(precision, XLA, base or large) is kept in ``published_labels.csv`` with its line; the first row of each
table is compared with it, so that a label cannot slip to another table.

Run from the top of the repository, with the upstream files at hand::

    python -m scripts.convert_published --tables profiles.json --gpus data/k80_p100_measurements.csv \
        --cpus data/openvino_cpu.csv --output profiles/published --document docs/published-profiles.md
"""

import argparse
import csv
import datetime
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.domain.evidence import Evidence
from advisor.domain.profile import Cell, Device, FactValue, ModelInfo, Profile, RuntimeInfo
from advisor.errors import InputError
from advisor.units import ms_to_s

LABELS_FILE = Path(__file__).with_name("published_labels.csv")
GAPS_FILE = Path(__file__).with_name("published_gaps.txt")
LITTLE_TOLERANCE_FRAC = 0.06
PERCENTILES = ("p50", "p90", "p95", "p99")
OTHER_MODELS = re.compile(r"BERT/triton/dist|Megatron")
CPU_MODELS = {"resnet-50": "resnet50", "bert-base-cased": "bert-base", "bert-large-squad": "bert-large"}
GPU_MODELS = {"ResNet-50 (to avg-pool)": "resnet50", "ResNet-152": "resnet152"}
YEAR_2018 = datetime.date(2018, 1, 1)


@dataclass(frozen=True)
class Label:
    """What the README says about one table: what was run, and the first row to recognize the table by."""

    model: str
    precision: str
    sequence_length: int | None
    runtime: RuntimeInfo
    streams: int | None
    first_row: tuple[float, float] | None
    text: str


@dataclass(frozen=True)
class Conversion:
    """Profiles made, and sentences that say what was left out."""

    profiles: tuple[Profile, ...]
    gaps: tuple[str, ...]


def slug(*words: str | None) -> str:
    """Join words to an identifier.

    Examples
    --------
    >>> slug("resnet50", "A100-SXM-80GB", None, "Keras(TF)")
    'resnet50-a100-sxm-80gb-keras-tf'
    """
    return re.sub(r"[^a-z0-9.]+", "-", " ".join(word for word in words if word).lower()).strip("-")


def read_labels(path: Path) -> dict[str, Label]:
    """Read what stands above each table in its README."""
    with path.open(encoding="utf-8", newline="") as stream:
        return {row["table_id"]: _label(row) for row in csv.DictReader(stream)}


def _label(row: dict[str, str]) -> Label:
    pairs = (pair.split("=", 1) for pair in row["options"].split(";") if pair)
    options: dict[str, FactValue] = {
        key: text == "true" if text in {"true", "false"} else int(text) if text.isdigit() else text
        for key, text in pairs
    }
    return Label(
        model=row["model"],
        precision=row["precision"],
        sequence_length=int(row["sequence_length"]) if row["sequence_length"] else None,
        runtime=RuntimeInfo(name=row["runtime"], version=row["runtime_version"] or None, options=options),
        streams=int(row["streams"]) if row["streams"] else None,
        first_row=(float(row["first_batch"]), float(row["first_throughput_rps"])),
        text=f"README line {row['line']}: {row['label']}",
    )


def convert_tables(tables: Iterable[dict[str, Any]], labels: dict[str, Label]) -> Conversion:
    """Convert the batch sweeps of ResNet-50 and BERT; say which tables are left out and why."""
    profiles: list[Profile] = []
    left_out: Counter[str] = Counter()
    for table in tables:
        name = str(table["model"])
        if not re.search(r"resnet50|RN50|BERT|ConvNets/triton$", name):
            continue
        label = labels.get(table["id"]) or _own_label(table)
        if table["kind"] != "batch_sweep":
            left_out[f"{name}: online concurrency sweep, whose latency contains queueing"] += 1
        elif OTHER_MODELS.search(name):
            left_out[f"{name}: another model (distilled or sparse)"] += 1
        elif (table.get("n_accelerators") or 1) > 1:
            left_out[f"{name}: several accelerators behind one figure"] += 1
        elif label is None:
            left_out[f"{name}: the text does not say which model or precision"] += 1
        else:
            profiles.append(convert_table(table, label))
    gaps = tuple(f"{reason} ({count} tables)." for reason, count in sorted(left_out.items()))
    return Conversion(tuple(profiles), gaps)


def _own_label(table: dict[str, Any]) -> Label | None:
    """Label of a table that says everything itself, as those of the TensorRT demo do."""
    size = re.fullmatch(r"BERT (base|large)", table["variant"] or "", re.IGNORECASE)
    if not (size and table["precision"] and table["seq_len"] and "TensorRT@" in table["source"]):
        return None
    return Label(
        model=f"bert-{size[1].lower()}",
        precision=table["precision"],
        sequence_length=int(table["seq_len"]),
        runtime=RuntimeInfo(name="tensorrt"),
        streams=None,
        first_row=None,
        text="",
    )


def convert_table(table: dict[str, Any], label: Label) -> Profile:
    """Convert one batch sweep.

    Raises
    ------
    InputError
        When the first row is not the one that the label was read above.
    """
    points = table["points"]
    first = (float(points[0]["batch"]), float(points[0]["throughput"]))
    if label.first_row is not None and first != label.first_row:
        raise InputError(f"{table['id']}, first row", first, f"{label.first_row}, as above the label's table")
    length = f"s{label.sequence_length}" if label.sequence_length else None
    date = (table["config"] or {}).get("readme_date")
    note = [f"Table {table['id']}: {table['heading']}.", label.text]
    if table.get("throughput_derived"):
        note.append("Throughput was derived from the mean latency (batch / latency), so it confirms nothing.")
    if label.runtime.name == "triton":
        note.append("Latency is what a client on the same host sees.")
    tail = str(table["id"]).rsplit("-", maxsplit=1)[-1]
    return Profile(
        schema_version=1,
        profile_id=slug(label.model, table["device_id"], _software(label.runtime), label.precision, length, tail),
        status="complete",
        evidence=Evidence(
            kind="published",
            source=table["source"],
            date=datetime.date.fromisoformat(date) if date else None,
            license=table["licence"],
            note=" ".join(filter(None, note)),
        ),
        model=ModelInfo(name=label.model, precision=label.precision, sequence_length=label.sequence_length),
        runtime=label.runtime,
        device=Device(kind="gpu", name=f"NVIDIA {table['accelerator']}", gpu_id=table["device_id"], gpus=1),
        warnings=tuple(_table_warnings(table)),
        cells=tuple(_cell(point, label.streams) for point in points),
    )


def _table_warnings(table: dict[str, Any]) -> Iterator[str]:
    places = f"{table.get('accelerator_text')} {table['heading']}"
    if "SXM" in table["device_id"] and not re.search("SXM|DGX", places):
        yield f"The source says {table['accelerator']} without the form; {table['device_id']} is assumed."
    told = (table["config"] or {}).get("GPU")
    if told and told not in places:
        yield f"The README names {told} in the configuration under this heading."
    high = [point for point in table["points"] if point["lat_avg_ms"] > point.get("lat_p99_ms", float("inf"))]
    if len(high) > len(table["points"]) / 2:
        yield f"The mean is above the 99th percentile in {len(high)} rows: the means are doubtful."
    for before, after in zip(table["points"], table["points"][1:], strict=False):
        if after["lat_avg_ms"] < before["lat_avg_ms"]:
            yield (
                f"Mean latency falls from {before['lat_avg_ms']:g} ms at batch {before['batch']:g} to "
                f"{after['lat_avg_ms']:g} ms at batch {after['batch']:g}."
            )


def _cell(point: dict[str, Any], streams: int | None) -> Cell:
    mean_ms = float(point["lat_avg_ms"])
    given_ms = {name: point.get(f"lat_{name}_ms") for name in PERCENTILES}
    kept_ms, warnings = sound_percentiles(given_ms, mean_ms)
    in_flight = point["throughput"] * ms_to_s(mean_ms) / point["batch"]
    if abs(in_flight - 1) > LITTLE_TOLERANCE_FRAC:
        warnings.append(f"Throughput × mean latency / batch is {in_flight:.2f}, not 1: they disagree.")
    seconds = {name: round(ms_to_s(value), 9) for name, value in kept_ms.items()}
    return Cell(
        batch_size=int(point["batch"]),
        concurrency=streams,
        service_mean_s=round(ms_to_s(mean_ms), 9),
        throughput_rps=float(point["throughput"]),
        warnings=tuple(warnings),
        service_p50_s=seconds.get("p50"),
        service_p90_s=seconds.get("p90"),
        service_p95_s=seconds.get("p95"),
        service_p99_s=seconds.get("p99"),
    )


def sound_percentiles(given_ms: dict[str, float | None], mean_ms: float) -> tuple[dict[str, float], list[str]]:
    """Percentiles that can be true, and a sentence for each one dropped.

    A 90th or higher percentile below the mean is dropped, and so are both of a pair in the wrong order:
    nothing tells which of the two is the misprint. A median below the mean is ordinary.

    Examples
    --------
    >>> kept, warnings = sound_percentiles({"p90": 5.0, "p95": 157.0, "p99": 77.0}, 4.0)
    >>> kept, len(warnings)
    ({'p90': 5.0}, 2)
    """
    values = {name: float(value) for name, value in given_ms.items() if value is not None}
    reasons = {
        name: f"below the mean of {mean_ms:g} ms" for name, value in values.items() if name != "p50" and value < mean_ms
    }
    ordered = [(name, value) for name, value in values.items() if name not in reasons]
    for index, (low, low_ms) in enumerate(ordered):
        for high, high_ms in ordered[index + 1 :]:
            if low_ms > high_ms:
                reasons[low] = f"above {high} ({high_ms:g} ms)"
                reasons[high] = f"below {low} ({low_ms:g} ms)"
    warnings = [f"Published {name} of {values[name]:g} ms is {why}: dropped." for name, why in reasons.items()]
    return {name: value for name, value in values.items() if name not in reasons}, warnings


def convert_gpu_row(row: dict[str, str]) -> Profile:
    """Convert one row of the K80 and P100 measurements."""
    model, precision = GPU_MODELS[row["model"]], "fp32" if "FP32" in row["note"] else None
    # The upstream file repeats the K80's remark in the rows of the P100, which has one GPU.
    note = row["note"]
    if row["device_id"] != "K80":
        note = note.removeprefix("one of the two GPUs of a K80; ")
    elif note == "as above":
        note = "one K80 GPU (Azure NC6) behind Flask on Kubernetes; includes HTTP + image decode"
    warnings = []
    if row["compute_ms"]:
        text = "The mean is of three calls; the throughput includes HTTP and image decoding"
        warnings.append(f"{text} for {row['concurrency']} clients at once.")
    if not row["batch"]:
        warnings.append("The source does not state the batch size.")
    return Profile(
        schema_version=1,
        profile_id=slug(model, row["device_id"], row["framework"], precision),
        status="complete",
        evidence=Evidence(
            kind="published",
            source=row["source"],
            date=YEAR_2018,
            license="MIT",
            note=f"{row['model']}: {note}; {row['lat_note']}. Of the date only the year is known.",
        ),
        model=ModelInfo(name=model, precision=precision),
        runtime=RuntimeInfo(name=slug(row["framework"])),
        device=Device(
            kind="gpu", name=f"NVIDIA Tesla {row['device_id'].split('-')[0]}", gpu_id=row["device_id"], gpus=1
        ),
        cells=(
            Cell(
                batch_size=int(row["batch"]) if row["batch"] else None,
                service_mean_s=round(ms_to_s(float(row["compute_ms"])), 9) if row["compute_ms"] else None,
                throughput_rps=float(row["throughput"]),
                warnings=tuple(warnings),
            ),
        ),
    )


def convert_cpu_row(row: dict[str, str], precision: str) -> Profile | None:
    """Convert the int8 or fp32 figures of one row of the OpenVINO table; None where it has none."""
    throughput, latency = row[f"throughput_{precision}_fps"], row.get(f"latency_{precision}_ms")
    cells = []
    if throughput:
        text = "Throughput column: batch size and streams are not stated."
        cells.append(Cell(batch_size=None, throughput_rps=float(throughput), warnings=(text,)))
    if latency:
        text = "Latency column: not taken at the rate of the throughput column."
        cells.append(Cell(batch_size=None, service_mean_s=round(ms_to_s(float(latency)), 9), warnings=(text,)))
    if not cells:
        return None
    model, version = CPU_MODELS[row["model"]], row["release"].removeprefix("OpenVINO ")
    return Profile(
        schema_version=1,
        profile_id=slug(model, row["cpu"], f"{row['sockets']}s", "openvino", precision),
        status="complete",
        evidence=Evidence(
            kind="published",
            source=row["source"],
            date=None,
            license=row["licence"],
            note=f"{row['model']}, {row['release']}.",
        ),
        model=ModelInfo(name=model, precision=precision),
        runtime=RuntimeInfo(name="openvino", version=version),
        device=Device(kind="cpu", name=f"{row['cpu']}, {row['sockets']} socket(s)"),
        cells=tuple(cells),
    )


def profile_text(profile: Profile) -> str:
    """JSON of a profile, defaults left out, one line per cell."""
    record = profile.model_dump(mode="json", exclude_defaults=True)
    cells = record.pop("cells")
    lines = ",\n".join("    " + json.dumps(cell, ensure_ascii=False) for cell in cells)
    head = json.dumps(record, indent=2, ensure_ascii=False).removesuffix("\n}")
    return f'{head},\n  "cells": [\n{lines}\n  ]\n}}\n'


def _software(runtime: RuntimeInfo) -> str:
    backend = [str(runtime.options.get(key, "")) for key in ("backend", "backend_accelerator")]
    return " ".join(filter(None, [runtime.name, *backend, "xla" if runtime.options.get("xla") else ""]))


def document_text(profiles: Sequence[Profile], gaps: Sequence[str]) -> str:
    """Markdown page with a line per profile and the list of gaps."""
    lines = [
        "# Published profiles",
        "",
        "Written by `scripts/convert_published.py`; do not edit. The files are in `profiles/published/`.",
        "The figures are other people's measurements, with their software of that time; a profile of your",
        "own model on your own machine says more. Batch *n. s.* means that the source does not state it.",
        "",
        f"{len(profiles)} profiles.",
        "",
        "| Model | Device | Software | Precision | Tokens | Batch | Doubts | Source | Profile |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for profile in profiles:
        batches = [cell.batch_size for cell in profile.cells if cell.batch_size is not None]
        doubts = len(profile.warnings) + sum(len(cell.warnings) for cell in profile.cells)
        columns = (
            profile.model.name,
            profile.device.gpu_id or profile.device.name,
            _software(profile.runtime),
            profile.model.precision or "n. s.",
            str(profile.model.sequence_length or ""),
            f"{min(batches)}–{max(batches)}" if batches else "n. s.",
            str(doubts or ""),
            profile.evidence.source,
            f"`{profile.profile_id}`",
        )
        lines.append(f"| {' | '.join(columns)} |")
    return "\n".join([*lines, "", "## Gaps", "", *(f"- {gap}" for gap in gaps), ""])


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the upstream tables, write the profile files and the page."""
    parser = argparse.ArgumentParser(description="Convert published benchmark tables into profile files.")
    for name in ("tables", "gpus", "cpus", "output", "document"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    given = parser.parse_args(arguments)
    tables = json.loads(given.tables.read_text(encoding="utf-8"))
    conversion = convert_tables(tables, read_labels(LABELS_FILE))
    rows = [row for row in _rows(given.cpus) if row["model"] in CPU_MODELS]
    cpus = [convert_cpu_row(row, precision) for row in rows for precision in ("int8", "fp32")]
    profiles = [*conversion.profiles, *map(convert_gpu_row, _rows(given.gpus)), *filter(None, cpus)]
    profiles.sort(key=lambda profile: profile.profile_id)
    twice = [name for name, count in Counter(profile.profile_id for profile in profiles).items() if count > 1]
    if twice:
        raise InputError("profile_id", ", ".join(twice), "each identifier once")
    given.output.mkdir(parents=True, exist_ok=True)
    for profile in profiles:
        (given.output / f"{profile.profile_id}.json").write_text(profile_text(profile), encoding="utf-8")
    gaps = [*conversion.gaps, *GAPS_FILE.read_text(encoding="utf-8").splitlines()]
    given.document.write_text(document_text(profiles, gaps), encoding="utf-8")
    sys.stdout.write(f"{len(profiles)} profiles written to {given.output}\n")


if __name__ == "__main__":
    main()
