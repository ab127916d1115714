"""Folders that ship with the project: inside the package when it is installed, else beside it in the repository."""

from pathlib import Path

ROOT = Path(__file__).parents[2]


def shipped_folder(name: str, root: Path = ROOT) -> Path:
    """Folder of shipped files: that of an installed package goes first, since beside it lie other people's packages.

    Examples
    --------
    >>> (shipped_folder("data") / "gpu_specs.csv").is_file()
    True
    """
    installed = root / "advisor" / name
    return installed if installed.is_dir() else root / name


DATA = shipped_folder("data")
PROFILES = shipped_folder("profiles")
SCENARIOS = DATA / "scenarios"
