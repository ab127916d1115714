"""The hardware that answers: CPUs of this machine, a card in it, or what the user says of an address."""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from advisor.catalog import load_catalog
from advisor.cli.devices import find_device
from advisor.domain.machine import GpuSpec
from advisor.domain.profile import Device
from advisor.errors import InputError
from advisor.profiling.engines import Placement
from advisor.profiling.environment import observe_device
from advisor.profiling.gpu import Gpu, card_with
from advisor.profiling.replay import RecordingGpu
from advisor.store.paths import DATA

_OTHER_CARDS = {"TI", "SUPER", "LAPTOP", "MOBILE", "MAX", "D"}
"""Words in the names of cards that are slower or faster than their namesakes in the table."""
_MEMORY_TOLERANCE_FRAC = 0.15
"""Drivers count GiB, hold back some for error correction, and tables count GB: they differ by up to a tenth."""


@contextmanager
def open_cards(placement: Placement, *, record: Path | None = None) -> Iterator[tuple[Gpu, ...]]:
    """Open the card that a model runs on, and close it in the end; none for a model on CPUs or behind an address.

    Parameters
    ----------
    placement
        Where calls are answered.
    record
        File that every reading of the card is written to, as `advisor.profiling.replay` reads it.

    Raises
    ------
    InputError
        When readings shall be written and there is no card.
    MeasurementError
        When the card cannot be opened.
    """
    if placement.gpu_uuid is None:
        if record is not None:
            raise InputError("--record-gpu", record.name, "only with a model that runs on a GPU here")
        yield ()
        return
    with ExitStack() as stack:
        card: Gpu = card_with(placement.gpu_uuid)
        stack.callback(card.close)
        if record is not None:
            card = RecordingGpu(card, stack.enter_context(record.open("w", encoding="utf-8")))
        yield (card,)


def observe_hardware(placement: Placement, cards: Sequence[Gpu], *, on: str | None, machine_type: str | None) -> Device:
    """Identify what answers the calls.

    Parameters
    ----------
    placement, cards
        Where calls are answered; see `open_cards`.
    on
        What the user says that it is.
    machine_type
        Cloud machine type, when the user named it.

    Raises
    ------
    InputError
        When only the user can tell and did not, or told what can be seen.
    """
    if placement.kind == "cpu" or (placement.kind == "endpoint" and placement.local and on is None):
        if on is not None:
            raise InputError("--on", on, "only with the address of a server: what runs a model here can be seen")
        return observe_device(machine_type=machine_type)
    specs = load_catalog(DATA).gpu_specs
    if placement.kind == "endpoint":
        if on is None:
            raise InputError("--on", None, "what the address runs on, such as 'Tesla T4' or the name of a CPU")
        return find_device(on, specs, machine_type)
    facts = cards[0].facts()
    name, memory_gib = facts["gpu_name"].value, facts["gpu_memory_gib"].value
    gpu_id = (
        name_card(str(name), float(memory_gib or 0.0), specs) if on is None else find_device(on, specs, None).gpu_id
    )
    return Device(
        kind="gpu", name=str(name), gpu_id=gpu_id, gpus=1, cpu=observe_device().cpu, machine_type=machine_type
    )


def name_card(name: str, memory_gib: float, specs: Sequence[GpuSpec]) -> str:
    """Identifier of a card in the table of GPUs, from the name that its driver gives and its memory.

    Drivers name the form only where it is not the usual one: "H200" and "H100 80GB HBM3" are SXM modules, the others
    say PCIe or NVL.

    Parameters
    ----------
    name
        Name by the driver.
    memory_gib
        Memory of the card [GiB].
    specs
        The table.

    Raises
    ------
    InputError
        When no card of the table fits, or more than one.

    Examples
    --------
    >>> specs = load_catalog(DATA).gpu_specs
    >>> cards = {"NVIDIA H200": 140.4, "Tesla T4": 15.0, "NVIDIA A100-SXM4-40GB": 40.0, "NVIDIA A100 80GB PCIe": 80.0}
    >>> [name_card(name, memory_gib, specs) for name, memory_gib in cards.items()]
    ['H200-SXM-141GB', 'T4', 'A100-SXM-40GB', 'A100-PCIe-80GB']
    """
    tokens = re.findall(r"[A-Z0-9]+", name.upper())
    joined = {"".join(tokens[first:last]) for first in range(len(tokens)) for last in range(first + 1, len(tokens) + 1)}
    form = next((form for form in ("NVL", "PCIE") if form in tokens), "SXM")
    if _OTHER_CARDS.isdisjoint(tokens):
        found = [
            spec.gpu_id
            for spec in specs
            for family, own_form in [_family_and_form(spec.gpu_id)]
            if family in joined
            and own_form in ("", form)
            and abs(memory_gib / spec.memory_gb - 1) <= _MEMORY_TOLERANCE_FRAC
        ]
        if len(found) == 1:
            return found[0]
    known = ", ".join(spec.gpu_id for spec in specs)
    raise InputError("the GPU", name, f"a card that the table of GPUs knows; say which it is with --on: {known}")


def _family_and_form(gpu_id: str) -> tuple[str, str]:
    """Family and form of an identifier, without signs.

    Examples
    --------
    >>> _family_and_form("A100-SXM-40GB"), _family_and_form("RTX6000-Ada")
    (('A100', 'SXM'), ('RTX6000ADA', ''))
    """
    family, *rest = re.split(r"-(PCIe|SXM|NVL)\d?-", gpu_id)
    return re.sub(r"\W", "", family).upper(), rest[0].upper() if rest else ""
