"""Files of /proc and /sys as a test wants them."""

from pathlib import Path


def write(root: Path, name: str, text: str) -> None:
    """Put a text where the kernel would."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
