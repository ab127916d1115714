"""The folders in which Linux tells about itself."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Folders:
    """Roots of the two trees; a system without them tells nothing."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")


SYSTEM = Folders()
"""Those of this machine."""


def read_text(path: Path) -> str | None:
    """Text of a small system file without its line end; None where it is missing, unreadable or empty."""
    try:
        with path.open("rb") as file:
            return file.read().decode(errors="replace").strip() or None
    except OSError:
        return None
