"""Watts from tables: every figure is one of the table's, and what no table tells is not made up."""

import csv
import json

import pytest

from advisor.errors import CatalogError, InputError
from advisor.store.paths import DATA
from advisor.store.power import (
    MICROARCHITECTURES,
    TDP_FILE,
    VCPU_POWER_FILE,
    estimate_cpu_power,
    plain_cpu_name,
    tdp_w,
    vcpu_power_w,
)


def rows(name):
    """Rows of a shipped table."""
    with (DATA / name).open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize("name", [VCPU_POWER_FILE, TDP_FILE])
def test_shipped_tables_have_the_rows_of_their_provenance(name):
    """Provenance, page and file agree, and the source and licence are named in NOTICE."""
    known = json.loads((DATA / "PROVENANCE.json").read_text(encoding="utf-8"))["files"][name]
    found = rows(name)
    assert len(found) == known["rows"]
    assert list(found[0]) == known["columns"]
    page = (DATA / "README.md").read_text(encoding="utf-8")
    assert f"`{name}` | {len(found):,} |" in page
    assert all(f"- `{name}`: {caution}" in page for caution in known["cautions"])
    assert f"data/{name}" in (DATA.parent / "NOTICE").read_text(encoding="utf-8")


def test_every_mapped_generation_is_known_to_both_sides():
    """A name is in the table of watts, and in the CPUID map or the map of machine types."""
    assert set(MICROARCHITECTURES) <= {row["microarchitecture"] for row in rows(VCPU_POWER_FILE)}
    known = {row["microarchitecture"] for row in rows("cpu_cpuid.csv")}
    known |= {row["microarchitecture"] for row in rows("cpu_microarchitecture.csv")}
    assert set(MICROARCHITECTURES.values()) <= known


def test_watts_per_vcpu_span_what_the_providers_have():
    """Idle is the lowest and busy the highest of the rows of one generation, however they spell it."""
    skylake = [row for row in rows(VCPU_POWER_FILE) if row["microarchitecture"] in {"Sky Lake", "Skylake"}]
    assert len(skylake) == 3
    idle_w, busy_w = vcpu_power_w("skylake-sp")
    assert idle_w == min(float(row["min_watts_per_vcpu"]) for row in skylake)
    assert busy_w == max(float(row["max_watts_per_vcpu"]) for row in skylake)
    for name in MICROARCHITECTURES.values():
        idle_w, busy_w = vcpu_power_w(name)
        assert 0 < idle_w < busy_w


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz", "Intel Xeon E5-2686 v4"),
        ("Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz", "Intel Xeon Platinum 8259CL"),
        ("INTEL(R) XEON(R) PLATINUM 8468", "Intel Xeon Platinum 8468"),
        ("AMD EPYC 7763 64-Core Processor", "AMD EPYC 7763"),
        ("AMD EPYC 7232P 8-Core Processor", "AMD EPYC 7232P"),
    ],
)
def test_names_of_the_kernel_match_names_of_the_table(name, plain):
    """Trademarks, clock, core count and case make no other CPU."""
    (row,) = [row for row in rows(TDP_FILE) if row["cpu_name"] == plain]
    assert tdp_w(name) == float(row["tdp_w"])


def test_no_two_names_of_the_table_become_one():
    """Leaving out the noise loses no difference that changes the watts."""
    watts = {}
    for row in rows(TDP_FILE):
        assert watts.setdefault(plain_cpu_name(row["cpu_name"]), row["tdp_w"]) == row["tdp_w"]


def test_a_similar_name_is_not_the_same():
    """Only the very name matches: no figure is borrowed from a neighbour."""
    assert tdp_w("AMD EPYC 7763X 64-Core Processor") is None
    assert tdp_w("AMD EPYC") is None


def test_watts_grow_with_the_vcpus():
    """Power is that of the share of a socket, or of as many sockets as the vCPUs fill."""
    one, whole, two_sockets = (
        estimate_cpu_power("AMD EPYC 9654 96-Core Processor", microarchitecture="zen4", vcpus=vcpus)
        for vcpus in (1, 192, 384)
    )
    assert whole.busy_w == pytest.approx(192 * one.busy_w)
    assert two_sockets.busy_w == 720.0
    assert (whole.idle_w, whole.busy_w) == (36.0, 360.0)
    assert "360 W" in whole.scope
    assert "CodeCarbon" in whole.scope
    assert estimate_cpu_power("Any", microarchitecture="zen3", vcpus=1).scope.startswith("1 vCPU, by ")


@pytest.mark.parametrize(
    ("name", "microarchitecture"),
    [
        ("Intel(R) Xeon(R) Platinum 8488C", "sapphire-rapids"),
        ("Intel(R) Xeon(R) Platinum 8468", None),
        ("AMD EPYC 7763v 64-Core Processor", None),
        ("Arm implementer 0x41 part 0xd40", "graviton3"),
    ],
)
def test_what_no_table_tells_is_not_made_up(name, microarchitecture):
    """Without watts per vCPU, or the threads that share the socket, there is no estimate."""
    assert estimate_cpu_power(name, microarchitecture=microarchitecture, vcpus=2) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("cpu_name,tdp_w\nAMD X,\n", r"row 2, column tdp_w is missing"),
        ("cpu_name,tdp_w\nAMD X,much\n", r"row 2, column tdp_w is 'much'"),
        ("cpu_name,tdp_w\nAMD X,inf\n", r"row 2, column tdp_w is 'inf'"),
        ("cpu_name,watts\nAMD X,9\n", r"row 1, header"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path, text, problem):
    """The sentence names the file, the row and the column."""
    (tmp_path / TDP_FILE).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=problem):
        tdp_w("AMD X", folder=tmp_path)


def test_a_missing_table_is_told(tmp_path):
    """The sentence names the file."""
    with pytest.raises(CatalogError, match=VCPU_POWER_FILE):
        vcpu_power_w("zen3", folder=tmp_path)
