"""The shipped price list and maps say what their sources say, and a cell that does not fit is named."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from advisor.catalog import find_offers, load_catalog
from advisor.domain.machine import Catalog
from advisor.domain.profile import CpuIdentity
from advisor.errors import CatalogError, InputError

DATA = Path(__file__).parent.parent / "data"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    """Load the shipped catalog once for all tests."""
    return load_catalog(DATA)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three rows of the price list with the whole maps, for a test to spoil."""
    for name in ("gpu_specs.csv", "cpu_microarchitecture.csv", "cpu_cpuid.csv"):
        shutil.copy(DATA / name, tmp_path)
    lines = (DATA / "cloud_prices.csv").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line.startswith(("aws,us-east-1,g4dn.xlarge,", "aws,us-east-1,p2.xlarge,"))]
    again = next(line for line in lines if line.startswith("aws,us-gov-west-1,p2.xlarge,"))
    (tmp_path / "cloud_prices.csv").write_text("\n".join([lines[0], *kept, again, ""]), encoding="utf-8")
    return tmp_path


def spoil(folder: Path, file: str, old: str, new: str) -> None:
    """Replace the first occurrence of a text in one file."""
    text = (folder / file).read_text(encoding="utf-8")
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1), encoding="utf-8")


def cpu(vendor: str, family: int | str, model: int, **more: object) -> CpuIdentity:
    """Build what CPUID would tell of a machine with four logical CPUs."""
    return CpuIdentity.model_validate({"vendor": vendor, "family": family, "model": model, "logical_cpus": 4, **more})


def test_every_row_of_the_price_list_is_an_offer(catalog: Catalog) -> None:
    """Every row of the price list is an offer."""
    assert len(catalog.offers) == 3054
    assert len(catalog.machine_types) == 774
    assert Counter(offer.region.split("/")[0] for offer in catalog.offers) == {
        "azure": 2181, "aws": 609, "gcp": 225, "oci": 15, "nebius": 12, "lambda": 10, "runpod": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "price_usd_per_h", "date"),
    [
        # aws/karpenter-provider-aws@1d927085dd81, generated 2026-07-20
        ("g6.xlarge", 0.8048, "2026-07-20"),
        ("g4dn.xlarge", 0.526, "2026-07-20"),
        ("p2.xlarge", 0.9, "2026-07-20"),
    ],
)
def test_prices_are_those_of_the_source(catalog: Catalog, name: str, price_usd_per_h: float, date: str) -> None:
    """Prices are those of the source."""
    offer = next(offer for offer in catalog.offers if offer.key == f"aws/{name}@aws/us-east-1:on_demand")
    assert offer.price_usd_per_h == price_usd_per_h
    assert offer.price_date.isoformat() == date
    assert offer.source.startswith("aws/karpenter-provider-aws@1d927085dd81")


@pytest.mark.parametrize(
    ("key", "gpu_ids"),
    [
        ("aws/p4d.24xlarge", ("A100-PCIe-40GB", "A100-SXM-40GB")),
        ("aws/p4de.24xlarge", ("A100-PCIe-80GB", "A100-SXM-80GB")),
        ("aws/p3.2xlarge", ("V100-PCIe-16GB", "V100-SXM2-16GB")),
        ("aws/g5.xlarge", ("A10G",)),
        ("oci/VM.GPU.A10.1", ("A10",)),
        ("aws/g6.xlarge", ("L4",)),
        ("aws/g6e.xlarge", ("L40S",)),
        ("azure/Standard_NC40ads_H100_v5", ("H100-NVL-94GB",)),
        ("lambda/gpu_8x_h100_sxm5", ("H100-SXM-80GB",)),
        ("lambda/gpu_1x_a6000", ("RTX-A6000",)),
        ("aws/p6-b200.48xlarge", ("B200",)),
        ("aws/inf2.xlarge", ()),
        ("azure/Standard_ND128isr_NDR_GB200_v6", ()),
        ("aws/c6a.xlarge", ()),
    ],
)
def test_an_accelerator_is_every_gpu_of_its_model_and_memory(
    catalog: Catalog, key: str, gpu_ids: tuple[str, ...]
) -> None:
    """An accelerator is every GPU of its model and memory."""
    assert catalog.by_key[key].gpu_ids == gpu_ids


@pytest.mark.parametrize(
    ("key", "generations"),
    [
        ("aws/c6a.xlarge", ("zen3",)),
        ("aws/c5.xlarge", ("skylake-sp", "cascade-lake")),
        ("aws/c5.12xlarge", ("cascade-lake",)),
        ("azure/Standard_D4as_v5", ("zen3", "zen4")),
        ("aws/c7g.xlarge", ("graviton3",)),
        ("runpod/1x_A100-80GB_SECURE", ()),
    ],
)
def test_a_mixed_type_lists_its_candidates(catalog: Catalog, key: str, generations: tuple[str, ...]) -> None:
    """A mixed type lists its candidates."""
    assert catalog.by_key[key].microarchitectures == generations


def test_burstable_legacy_and_shared_machines_are_marked(catalog: Catalog) -> None:
    """Burstable legacy and shared machines are marked."""
    assert catalog.by_key["aws/t3.large"].burstable
    assert not catalog.by_key["aws/c6a.xlarge"].burstable
    assert catalog.by_key["aws/p2.xlarge"].legacy
    assert catalog.by_key["azure/Standard_NV6ads_A10_v5"].gpu_count == 0.1667
    shared = catalog.by_key["aws/g6f.xlarge"]
    assert (shared.gpu_model, shared.gpu_count, shared.kind) == ("L4", 0, "gpu")


def test_a_fact_that_one_region_lacks_is_taken_from_another(catalog: Catalog) -> None:
    """A fact that one region lacks is taken from another."""
    assert catalog.by_key["aws/p2.xlarge"].vcpus == 4
    assert catalog.by_key["azure/Standard_ND96asr_v4"].gpu_model == "A100"
    assert catalog.by_key["azure/Standard_NC6_Promo"].vcpus is None


@pytest.mark.parametrize(
    ("identity", "generation"),
    [
        (cpu("AuthenticAMD", 25, 1), "zen3"),
        (cpu("GenuineIntel", 6, 143), "sapphire-rapids"),
        (cpu("GenuineIntel", 6, 85, flags=("avx512_vnni",)), "cascade-lake"),
        (cpu("GenuineIntel", 6, 85, stepping=7), "cascade-lake"),
        (cpu("GenuineIntel", 6, 85, stepping=4), "skylake-sp"),
        (cpu("GenuineIntel", 6, 85), None),
        (cpu("0x41", "0x41", 0xD40), "graviton3"),
        (cpu("0x41", "0x41", 0xD0C), "neoverse-n1"),
        (cpu("0x41", "0x41", 0xD4F), "neoverse-v2"),
        (cpu("AuthenticAMD", 99, 1), None),
    ],
)
def test_cpuid_tells_the_generation_where_one_row_fits(
    catalog: Catalog, identity: CpuIdentity, generation: str | None
) -> None:
    """CPUID tells the generation where one row fits."""
    assert catalog.microarchitecture(identity) == generation


def test_found_offers_fit_every_word_and_come_cheapest_first(catalog: Catalog) -> None:
    """Found offers fit every word and come cheapest first."""
    found = find_offers(catalog, gpu="l4", region="aws/us-east-1", provider="aws", text="G6.")
    assert [machine.name for machine, _ in found][:2] == ["g6.xlarge", "g6.2xlarge"]
    prices = [offer.price_usd_per_h for _, offer in found]
    assert prices == sorted(prices)
    assert {offer.region for _, offer in found} == {"aws/us-east-1"}


def test_a_bare_region_means_every_provider_that_has_it(catalog: Catalog) -> None:
    """A bare region means every provider that has it."""
    assert {offer.region for _, offer in find_offers(catalog, region="us-east-1")} == {
        "aws/us-east-1",
        "lambda/us-east-1",
    }


def test_a_gpu_is_found_by_its_identifier_too(catalog: Catalog) -> None:
    """A GPU is found by its identifier too."""
    assert {machine.gpu_model for machine, _ in find_offers(catalog, gpu="A100-SXM-40GB")} == {"A100"}


@pytest.mark.parametrize(
    ("words", "known"),
    [({"gpu": "L5"}, "L40S"), ({"region": "mars"}, "aws/us-east-1"), ({"provider": "acme"}, "gcp")],
)
def test_an_unknown_word_is_answered_with_the_known_ones(catalog: Catalog, words: dict[str, str], known: str) -> None:
    """An unknown word is answered with the known ones."""
    with pytest.raises(InputError, match=known):
        find_offers(catalog, **words)


@pytest.mark.parametrize("price", ["-0.9", "0", "nan", "inf", "", "free"])
def test_a_price_that_is_no_price_is_named_with_its_place(folder: Path, price: str) -> None:
    """A price that is no price is named with its place."""
    spoil(folder, "cloud_prices.csv", ",K80,1,12.0,0.9,", f",K80,1,12.0,{price},")
    with pytest.raises(InputError, match=r"cloud_prices.csv: row 3, column on_demand_usd_h is .*above 0"):
        load_catalog(folder)


def test_the_same_offer_twice_is_refused(folder: Path) -> None:
    """The same offer twice is refused."""
    spoil(folder, "cloud_prices.csv", "aws,us-gov-west-1,p2", "aws,us-east-1,p2")
    with pytest.raises(InputError, match=r"row 4, instance_type is 'aws/us-east-1/p2.xlarge'.*row 3 has it"):
        load_catalog(folder)


def test_two_rows_that_contradict_each_other_are_refused(folder: Path) -> None:
    """Two rows that contradict each other are refused."""
    spoil(
        folder,
        "cloud_prices.csv",
        "p2.xlarge,x86_64,,,K80,1,12.0,1.08",
        "p2.xlarge,x86_64,8,,K80,1,12.0,1.08",
    )
    with pytest.raises(CatalogError, match=r"aws/p2.xlarge has vcpus 4.0 in row 3 and 8.0 in row 4"):
        load_catalog(folder)


def test_an_unknown_column_is_refused(folder: Path) -> None:
    """An unknown column is refused."""
    spoil(folder, "cloud_prices.csv", "price_date", "prize_date")
    with pytest.raises(InputError, match=r"header is 'price_date, prize_date'"):
        load_catalog(folder)


def test_a_date_that_is_no_date_is_refused(folder: Path) -> None:
    """A date that is no date is refused."""
    spoil(folder, "cloud_prices.csv", "2026-07-20", "20 July")
    with pytest.raises(InputError, match=r"row 2, column price_date is '20 July'; allowed: a date"):
        load_catalog(folder)


def test_a_mixed_microarchitecture_without_candidates_is_refused(folder: Path) -> None:
    """A mixed microarchitecture without candidates is refused."""
    spoil(folder, "cpu_microarchitecture.csv", "candidates: ", "perhaps: ")
    with pytest.raises(InputError, match=r"cpu_microarchitecture\.csv: row 2, column note"):
        load_catalog(folder)


def test_a_missing_file_is_named(folder: Path) -> None:
    """A missing file is named."""
    (folder / "gpu_specs.csv").unlink()
    with pytest.raises(CatalogError, match=r"gpu_specs.csv cannot be read"):
        load_catalog(folder)
