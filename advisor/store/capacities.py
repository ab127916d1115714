"""Capacities found earlier, kept on disk: the search for a rate is the longest part of a plan.

A cache: it may be deleted at any time. Its keys hold everything a capacity depends on, and the program that found it.
"""

import hashlib
import os
import sqlite3
import threading
from collections.abc import Iterator, MutableMapping
from pathlib import Path

from advisor.store.paths import ROOT

PROGRAM = ("capacity", "queueing", "simulation")
"""Packages whose code decides what a capacity is: a change of it makes older entries unreachable."""


def default_cache_path() -> Path:
    """File of the cache: below XDG_CACHE_HOME, or ~/.cache where that is not set."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "inference-fleet-advisor" / "capacities.sqlite"


def program_version() -> str:
    """Hash of the code that finds capacities.

    A version number alone would let a changed model answer with figures of the old one.
    """
    digest = hashlib.sha256()
    for package in PROGRAM:
        for path in sorted((ROOT / "advisor" / package).glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


class CapacityStore(MutableMapping[str, tuple[float, bool]]):
    """Capacities by key: rate [1/s] and whether saturation binds.

    Entries of other versions of the program are not seen. Where the file cannot be written, as on a read-only disk,
    entries live in memory only.

    Parameters
    ----------
    path
        SQLite file; it and its folder are made when missing.
    """

    def __init__(self, path: Path) -> None:
        self._version = program_version()
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._open(str(path))
        except (OSError, sqlite3.Error):
            self._open(":memory:")

    def _open(self, place: str) -> None:
        self._file = sqlite3.connect(place, check_same_thread=False, isolation_level=None, timeout=10)
        # Losing the last entries in a crash costs a moment of computing, waiting for the disk costs every time.
        self._file.execute("PRAGMA synchronous = OFF")
        self._file.execute("PRAGMA journal_mode = WAL")
        self._file.execute(
            "CREATE TABLE IF NOT EXISTS capacity (version TEXT, key TEXT, rate_rps REAL, stability INTEGER, "
            "PRIMARY KEY (version, key)) WITHOUT ROWID"
        )

    def __getitem__(self, key: str) -> tuple[float, bool]:
        with self._lock:
            row = self._file.execute(
                "SELECT rate_rps, stability FROM capacity WHERE version = ? AND key = ?", (self._version, key)
            ).fetchone()
        if row is None:
            raise KeyError(key)
        return float(row[0]), bool(row[1])

    def __setitem__(self, key: str, value: tuple[float, bool]) -> None:
        with self._lock:
            self._file.execute(
                "INSERT OR REPLACE INTO capacity VALUES (?, ?, ?, ?)", (self._version, key, value[0], int(value[1]))
            )

    def __delitem__(self, key: str) -> None:
        with self._lock:
            self._file.execute("DELETE FROM capacity WHERE version = ? AND key = ?", (self._version, key))

    def __iter__(self) -> Iterator[str]:
        with self._lock:
            rows = self._file.execute("SELECT key FROM capacity WHERE version = ?", (self._version,)).fetchall()
        return iter([row[0] for row in rows])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()
