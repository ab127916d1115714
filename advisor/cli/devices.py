"""The hardware that a user's words mean: a GPU of the catalog, or a CPU."""

import difflib
import re
from collections.abc import Sequence

from advisor.domain.machine import GpuSpec
from advisor.domain.profile import Device
from advisor.errors import InputError

_MAKERS = frozenset({"nvidia", "tesla", "geforce", "gpu"})
"""Words that drivers put before a name or leave out."""
_LOOKS_LIKE_GPU = re.compile(r"tesla|geforce|\b[rg]tx|quadro|nvidia|radeon|instinct|\bgpus?\b", re.IGNORECASE)


def find_device(text: str, specs: Sequence[GpuSpec], machine_type: str | None) -> Device:
    """Find the device that a user's words mean.

    A GPU is found by the words of its identifier or its name, without the maker's and in any case; some of them do if
    no other GPU has them. What is no GPU is a CPU of that name.

    Parameters
    ----------
    text
        Words of the user, such as K80 or NVIDIA Tesla K80.
    specs
        GPUs of the catalog.
    machine_type
        Cloud machine type, if any.

    Raises
    ------
    InputError
        When the words fit several GPUs, or look like a GPU that the catalog does not have.

    Examples
    --------
    >>> k80 = GpuSpec(gpu_id="K80", name="Tesla K80", memory_gb=12, tdp_w=300)
    >>> find_device("nvidia k80", [k80], None).gpu_id
    'K80'
    >>> find_device("Snapdragon 888", [k80], None).kind
    'cpu'
    """
    name = text.strip()
    if not name:
        raise InputError("--on", text, "the name of a GPU or CPU, such as K80")
    wanted = _words(name)
    exact = [spec for spec in specs if wanted in (_words(spec.gpu_id), _words(spec.name))]
    fitting = exact or [spec for spec in specs if wanted and wanted <= _words(spec.gpu_id) | _words(spec.name)]
    if len(fitting) > 1:
        raise InputError("--on", name, f"one GPU: {' or '.join(spec.gpu_id for spec in fitting)}")
    if fitting:
        return Device(kind="gpu", name=name, gpu_id=fitting[0].gpu_id, gpus=1, machine_type=machine_type)
    if _LOOKS_LIKE_GPU.search(name):
        raise InputError(
            "--on", name, f"a GPU of data/gpu_specs.csv; the closest are {', '.join(_closest(name, specs))}"
        )
    return Device(kind="cpu", name=name, machine_type=machine_type)


def _words(text: str) -> frozenset[str]:
    """Words of a GPU's name without those of its maker; "RTX 3090" and "80 GB" are one word each.

    Examples
    --------
    >>> sorted(_words("NVIDIA A100-SXM4-80GB")), sorted(_words("GeForce RTX 3090"))
    (['80gb', 'a100', 'sxm4'], ['rtx3090'])
    """
    joined = re.sub(r"\b(rtx|gtx)[\s-]+(?=\w*\d)|\b(\d+)\s+(?=gb\b)", r"\1\2", text.casefold())
    return frozenset(re.findall(r"[^\W_]+", joined)) - _MAKERS


def _closest(text: str, specs: Sequence[GpuSpec]) -> list[str]:
    """Identifiers of the three GPUs whose names are most like a text."""
    names = {name.casefold(): spec.gpu_id for spec in specs for name in (spec.name, spec.gpu_id)}
    found = [names[name] for name in difflib.get_close_matches(text.casefold(), names, n=len(names), cutoff=0)]
    return list(dict.fromkeys(found))[:3]
