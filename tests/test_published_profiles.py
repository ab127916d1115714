"""The published profiles say what their sources say, and the converter hides no doubt."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from advisor.domain.profile import Cell, Profile
from advisor.domain.record import parse_record
from advisor.errors import InputError

TOP = Path(__file__).parent.parent
FILES = sorted((TOP / "profiles" / "published").glob("*.json"))
PROFILES = {file.stem: parse_record(Profile, file.read_bytes(), file=file.name) for file in FILES}


@pytest.fixture(scope="module")
def converter() -> ModuleType:
    """Load the converter, which is a script and not part of the package."""
    spec = importlib.util.spec_from_file_location("convert_published", TOP / "scripts" / "convert_published.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def table(**changes: Any) -> dict[str, Any]:
    """Make a batch sweep as upstream writes it."""
    point = {"batch": 1.0, "throughput": 100.0, "lat_avg_ms": 10.0, "lat_p90_ms": 11.0, "lat_p99_ms": 12.0}
    given: dict[str, Any] = {
        "id": "trt-T4-x-abc123", "kind": "batch_sweep", "model": "BERT (TensorRT) BERT Base",
        "variant": "BERT Base", "seq_len": 128, "accelerator": "T4", "device_id": "T4", "precision": "int8",
        "heading": "Results / T4", "config": {"readme_date": "2022-11-02"},
        "source": "NVIDIA/TensorRT@1d6bf36034bb:demo/BERT/README.md",
        "licence": "Apache-2.0", "throughput_derived": True, "points": [point],
    }  # fmt: skip
    return {**given, **changes}


def cell(name: str, batch_size: int) -> Cell:
    """Find the cell of a batch size."""
    return next(cell for cell in PROFILES[name].cells if cell.batch_size == batch_size)


def test_each_file_bears_the_name_of_its_profile() -> None:
    """Each file bears the name of its profile."""
    assert len(FILES) == 220
    assert all(profile.profile_id == name for name, profile in PROFILES.items())


def test_every_profile_is_published_evidence_with_a_source() -> None:
    """Every profile is published evidence with a source."""
    for profile in PROFILES.values():
        assert profile.evidence.kind == "published"
        assert profile.evidence.license
        assert "@" in profile.evidence.source


def test_little_s_law_holds_in_a_batch_sweep_or_the_cell_says_that_it_does_not() -> None:
    """Throughput × mean = batch within 6 %; the TensorFlow 1 BERT tables and few other cells break it."""
    checked, broken = 0, []
    for name, profile in PROFILES.items():
        for entry in profile.cells:
            if entry.batch_size and entry.service_mean_s and entry.throughput_rps and len(profile.cells) > 1:
                checked += 1
                if abs(entry.throughput_rps * entry.service_mean_s / entry.batch_size - 1) > 0.06:
                    broken.append((name, entry.batch_size))
                    assert any("they disagree" in warning for warning in entry.warnings)
    assert checked == 973
    assert len(broken) == 56


def test_every_cell_of_a_sweep_rises_in_service_time_or_the_profile_says_so() -> None:
    """Every cell of a sweep rises in service time or the profile says so."""
    for profile in PROFILES.values():
        means = [entry.service_mean_s or 0 for entry in profile.cells]
        if len(means) > 1 and profile.device.kind == "gpu" and means != sorted(means):
            assert any("Mean latency falls" in warning for warning in profile.warnings)


def test_figures_are_those_of_the_source() -> None:
    """Figures are those of the source."""
    # NVIDIA/TensorRT@1d6bf36034bb:demo/BERT/README.md, T4, BERT Base, sequence length 128
    assert cell("bert-base-t4-tensorrt-int8-s128-1d6bf3", 1).service_mean_s == 0.00136
    assert cell("bert-base-t4-tensorrt-fp16-s128-1d6bf3", 1).service_mean_s == 0.0019
    # NVIDIA/DeepLearningExamples@729963dd47e7:MxNet/Classification/RN50v1.5/README.md, line 709
    assert cell("resnet50-a100-sxm-80gb-mxnet-fp16-nv0009", 128).service_mean_s == 0.01596
    # the same, PaddlePaddle/Classification/RN50v1.5/README.md, lines 963 to 999
    assert cell("resnet50-a100-sxm-80gb-paddle-tensorrt-tf32-nv0014", 1).throughput_rps == 969.11
    assert cell("resnet50-a100-sxm-80gb-paddle-tensorrt-int8-nv0016", 1).throughput_rps == 1430.17
    # ilkarman/DeepLearningFrameworks@671e2a0198ff:README.md section 3
    assert PROFILES["resnet50-k80-tensorflow-fp32"].cells[0].throughput_rps == 153.8


def test_only_the_k80_has_two_gpus_on_its_board() -> None:
    """Only the K80 has two GPUs on its board."""
    notes = {name: profile.evidence.note or "" for name, profile in PROFILES.items()}
    assert "one of the two GPUs of a K80" in notes["resnet50-k80-pytorch-fp32"]
    assert not any("K80" in note for name, note in notes.items() if "-p100-" in name)


def test_the_page_lists_every_profile() -> None:
    """The page lists every profile."""
    page = (TOP / "docs" / "published-profiles.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in PROFILES)
    assert "## Gaps" in page


def test_a_table_becomes_a_profile_in_si_units(converter: ModuleType) -> None:
    """A table becomes a profile in SI units."""
    conversion = converter.convert_tables([table()], {})
    profile = conversion.profiles[0]
    assert conversion.gaps == ()
    assert profile.profile_id == "bert-base-t4-tensorrt-int8-s128-abc123"
    assert profile.cells == (
        Cell(batch_size=1, service_mean_s=0.01, service_p90_s=0.011, service_p99_s=0.012, throughput_rps=100.0),
    )
    assert "derived" in profile.evidence.note
    assert parse_record(Profile, converter.profile_text(profile), file="x.json") == profile


def test_a_percentile_that_cannot_be_true_is_dropped_with_a_sentence(converter: ModuleType) -> None:
    """A percentile that cannot be true is dropped with a sentence."""
    point = {"batch": 2, "throughput": 150.0, "lat_avg_ms": 10.0, "lat_p50_ms": 9.0, "lat_p90_ms": 9.5}
    misprint = {**point, "lat_p90_ms": 11.0, "lat_p95_ms": 157.0, "lat_p99_ms": 77.0}
    kept = converter.convert_tables([table(points=[{**point, "batch": 1}, misprint])], {}).profiles[0].cells
    assert (kept[0].service_p50_s, kept[0].service_p90_s) == (0.009, None)
    assert kept[0].warnings[0] == "Published p90 of 9.5 ms is below the mean of 10 ms: dropped."
    assert (kept[1].service_p90_s, kept[1].service_p95_s, kept[1].service_p99_s) == (0.011, None, None)
    assert len([warning for warning in kept[1].warnings if warning.endswith("dropped.")]) == 2
    assert "is 0.75, not 1" in kept[1].warnings[-1]


def test_service_time_that_falls_with_the_batch_is_kept_with_a_warning(converter: ModuleType) -> None:
    """Service time that falls with the batch is kept with a warning."""
    points = [{"batch": size, "throughput": 1.0, "lat_avg_ms": mean} for size, mean in ((1, 9.0), (2, 8.0))]
    profile = converter.convert_tables([table(points=points)], {}).profiles[0]
    assert len(profile.cells) == 2
    assert profile.warnings == ("Mean latency falls from 9 ms at batch 1 to 8 ms at batch 2.",)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kind": "online_concurrency"}, "queueing"),
        ({"model": "BERT (TensorRT) Megatron Large with Sparsity"}, "another model"),
        ({"n_accelerators": 8}, "several accelerators"),
        ({"variant": None}, "does not say"),
    ],
)
def test_a_table_left_out_is_a_gap_with_its_reason(converter: ModuleType, changes: dict[str, Any], reason: str) -> None:
    """A table left out is a gap with its reason."""
    conversion = converter.convert_tables([table(**changes)], {})
    assert conversion.profiles == ()
    assert reason in conversion.gaps[0]


def test_a_label_belongs_to_the_table_with_its_first_row(converter: ModuleType) -> None:
    """A label belongs to the table with its first row."""
    label = converter.read_labels(TOP / "scripts" / "published_labels.csv")["nv0294"]
    assert (label.precision, label.runtime.options) == ("fp16", {"mixed_precision": True})
    with pytest.raises(InputError, match="first row"):
        converter.convert_table(table(), label)
