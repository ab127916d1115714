"""The hardware behind a profile: seen where it can be, told by the user where it cannot, and never guessed."""

import pytest

from advisor.catalog import load_catalog
from advisor.cli.hardware import name_card, observe_hardware, open_cards
from advisor.domain.profile import Fact
from advisor.errors import InputError
from advisor.profiling.engines import IN_PROCESS, Placement
from advisor.profiling.environment import observe_device
from advisor.store.paths import DATA

SPECS = load_catalog(DATA).gpu_specs
HERE = Placement(kind="endpoint", takes_threads=False)
ELSEWHERE = Placement(kind="endpoint", takes_threads=False, local=False)


class Card:
    """A card with a name and memory."""

    def __init__(self, name, memory_gib):
        self._facts = {"gpu_name": Fact(value=name), "gpu_memory_gib": Fact(value=memory_gib)}

    def facts(self):
        """Name and memory."""
        return self._facts


@pytest.mark.parametrize(
    ("name", "memory_gib", "gpu_id"),
    [
        ("Tesla K80", 11.2, "K80"),
        ("Tesla V100-SXM2-32GB", 32.0, "V100-SXM2-32GB"),
        ("NVIDIA A10G", 22.5, "A10G"),
        ("NVIDIA A10", 22.5, "A10"),
        ("NVIDIA A100-PCIE-40GB", 40.0, "A100-PCIe-40GB"),
        ("NVIDIA A100-SXM4-80GB", 80.0, "A100-SXM-80GB"),
        ("NVIDIA L40S", 45.0, "L40S"),
        ("NVIDIA H100 80GB HBM3", 79.6, "H100-SXM-80GB"),
        ("NVIDIA H100 PCIe", 79.6, "H100-PCIe-80GB"),
        ("NVIDIA H100 NVL", 93.6, "H100-NVL-94GB"),
        ("NVIDIA H200 NVL", 140.4, "H200-NVL-141GB"),
        ("NVIDIA GeForce RTX 4090", 24.0, "RTX4090"),
        ("NVIDIA RTX A6000", 48.0, "RTX-A6000"),
        ("NVIDIA RTX 6000 Ada Generation", 48.0, "RTX6000-Ada"),
    ],
)
def test_a_card_is_known_by_the_name_of_its_driver(name, memory_gib, gpu_id):
    """Forms and memory tell cards of one family apart."""
    assert name_card(name, memory_gib, SPECS) == gpu_id


@pytest.mark.parametrize(
    ("name", "memory_gib"),
    [("NVIDIA GeForce RTX 3090 Ti", 24.0), ("NVIDIA A100-SXM4-40GB", 10.0), ("NVIDIA GH200 480GB", 95.6)],
)
def test_a_card_that_the_table_lacks_is_asked_for(name, memory_gib):
    """A faster namesake, a slice of a card, a new one: the user says what to take it for."""
    with pytest.raises(InputError, match="say which it is with --on"):
        name_card(name, memory_gib, SPECS)


def test_a_gpu_is_seen_and_the_user_may_say_which_it_is():
    """With the CPU beside it, whose speed shows in small models."""
    placement = Placement(kind="gpu", takes_threads=False, gpu_uuid="GPU-1")
    seen = observe_hardware(placement, [Card("NVIDIA H200", 140.4)], on=None, machine_type=None)
    assert (seen.kind, seen.gpu_id, seen.gpus, seen.name) == ("gpu", "H200-SXM-141GB", 1, "NVIDIA H200")
    assert seen.cpu == observe_device().cpu
    told = observe_hardware(placement, [Card("NVIDIA Secret", 1.0)], on="L4", machine_type=None)
    assert told.gpu_id == "L4"


def test_an_address_elsewhere_needs_to_be_told():
    """A loopback address is taken to run on this machine's CPUs unless the user says otherwise."""
    assert observe_hardware(HERE, (), on=None, machine_type="m5.large") == observe_device(machine_type="m5.large")
    assert observe_hardware(HERE, (), on="Tesla T4", machine_type=None).gpu_id == "T4"
    assert observe_hardware(ELSEWHERE, (), on="Xeon E5-2690", machine_type=None).cpu is None
    with pytest.raises(InputError, match="--on is missing; allowed: what the address runs on"):
        observe_hardware(ELSEWHERE, (), on=None, machine_type=None)


def test_what_can_be_seen_need_not_be_told(tmp_path):
    """Nor can a GPU be recorded that is not there."""
    with pytest.raises(InputError, match="--on is 'T4'; allowed: only with the address"):
        observe_hardware(IN_PROCESS, (), on="T4", machine_type=None)
    with (
        pytest.raises(InputError, match=r"--record-gpu is .*; allowed: only with a model that runs on a GPU"),
        open_cards(IN_PROCESS, record=tmp_path / "r.jsonl"),
    ):
        pass
    assert list(tmp_path.iterdir()) == []
