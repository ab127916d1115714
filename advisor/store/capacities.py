"""Capacities found earlier, kept on disk: the search for a rate is the longest part of a plan.

A cache: it may be deleted at any time. Its keys hold everything a capacity depends on, and the program that found it.
"""

import hashlib
import os
import sqlite3
import threading
from collections.abc import Iterator, MutableMapping
from importlib import metadata
from pathlib import Path
from typing import Any

from advisor.store.paths import ROOT

PROGRAM = ("capacity/*.py", "queueing/*.py", "simulation/*.py", "store/traces.py")
"""Code that decides what a capacity is, a trace that is read differently included: a change makes older entries
unreachable."""
LIBRARIES = ("numpy", "scipy", "numba")
"""Libraries whose versions do so, too: their random streams, quadratures and compiled loops."""


def default_cache_path() -> Path:
    """File of the cache: below XDG_CACHE_HOME, or ~/.cache where that is not set."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "inference-fleet-advisor" / "capacities.sqlite"


def program_version() -> str:
    """Hash of the code that finds capacities and of the versions of its libraries.

    A version number alone would let a changed model answer with figures of the old one.
    """
    digest = hashlib.sha256()
    for pattern in PROGRAM:
        for path in sorted((ROOT / "advisor").glob(pattern)):
            digest.update(path.read_bytes())
    for library in LIBRARIES:
        digest.update(f"{library} {metadata.version(library)}".encode())
    return digest.hexdigest()


class CapacityStore(MutableMapping[str, tuple[float, bool]]):
    """Capacities by key: rate [1/s] and whether saturation binds.

    Entries of other versions of the program are not seen. A cache must not stop a plan: what the file does not take or
    give, as on a read-only or full disk or while another program locks it, lives in memory only, and once it was locked
    it is left alone, since each further try would wait again.

    Parameters
    ----------
    path
        SQLite file; it and its folder are made when missing.
    lock_timeout_s
        How long another program's lock is waited for [s].
    """

    def __init__(self, path: Path, *, lock_timeout_s: float = 10.0) -> None:
        self._version = program_version()
        self._lock = threading.Lock()
        # What the file did not take; None: an entry that it did not give up.
        self._memory: dict[str, tuple[float, bool] | None] = {}
        self._file: sqlite3.Connection | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._open(str(path), lock_timeout_s)
        except (OSError, sqlite3.Error):
            self._leave()

    def _open(self, place: str, lock_timeout_s: float) -> None:
        self._file = sqlite3.connect(place, check_same_thread=False, isolation_level=None, timeout=lock_timeout_s)
        # Losing the last entries in a crash costs a moment of computing, waiting for the disk costs every time.
        self._file.execute("PRAGMA synchronous = OFF")
        self._file.execute("PRAGMA journal_mode = WAL")
        self._file.execute(
            "CREATE TABLE IF NOT EXISTS capacity (version TEXT, key TEXT, rate_rps REAL, stability INTEGER, "
            "PRIMARY KEY (version, key)) WITHOUT ROWID"
        )

    def _rows(self, statement: str, *values: object) -> list[tuple[Any, ...]] | None:
        """Rows that the file answers with; None when it fails."""
        if self._file is None:
            return None
        try:
            return self._file.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            # The low byte is the kind of an error; the others say more of it.
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                self._leave()
            return None

    def _leave(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def __getitem__(self, key: str) -> tuple[float, bool]:
        with self._lock:
            if key in self._memory:
                found = self._memory[key]
            else:
                statement = "SELECT rate_rps, stability FROM capacity WHERE version = ? AND key = ?"
                rows = self._rows(statement, self._version, key)
                found = (float(rows[0][0]), bool(rows[0][1])) if rows else None
        if found is None:
            raise KeyError(key)
        return found

    def __setitem__(self, key: str, value: tuple[float, bool]) -> None:
        statement = "INSERT OR REPLACE INTO capacity VALUES (?, ?, ?, ?)"
        with self._lock:
            self._remember(key, value, self._rows(statement, self._version, key, value[0], int(value[1])))

    def __delitem__(self, key: str) -> None:
        statement = "DELETE FROM capacity WHERE version = ? AND key = ?"
        with self._lock:
            self._remember(key, None, self._rows(statement, self._version, key))

    def _remember(self, key: str, value: tuple[float, bool] | None, written: object) -> None:
        """Keep in memory what the file did not take, and forget what it did."""
        if written is None:
            self._memory[key] = value
        else:
            self._memory.pop(key, None)

    def __iter__(self) -> Iterator[str]:
        with self._lock:
            rows = self._rows("SELECT key FROM capacity WHERE version = ?", self._version) or []
            keys = dict.fromkeys([*self._memory, *(row[0] for row in rows)])
            return iter([key for key in keys if self._memory.get(key, ()) is not None])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._leave()
