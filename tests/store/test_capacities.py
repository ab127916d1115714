"""Capacities on disk: found again by equal questions to the same program, and only then."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest

from advisor.store import capacities
from advisor.store.capacities import CapacityStore, default_cache_path, program_version


def test_what_was_put_in_is_found_after_reopening(tmp_path):
    """Entries outlive the process."""
    path = tmp_path / "deep" / "kept.sqlite"
    first = CapacityStore(path)
    first["a"] = (12.5, True)
    first["a"] = (13.5, False)
    first.close()
    again = CapacityStore(path)
    assert again["a"] == (13.5, False)
    assert again.get("b") is None
    assert list(again) == ["a"]
    del again["a"]
    assert len(again) == 0
    again.close()


def test_another_version_of_the_program_does_not_see_them(tmp_path, monkeypatch):
    """A changed model never answers with figures of the old one."""
    store = CapacityStore(tmp_path / "kept.sqlite")
    store["a"] = (1.0, False)
    monkeypatch.setattr(capacities, "program_version", lambda: "another")
    changed = CapacityStore(tmp_path / "kept.sqlite")
    assert "a" not in changed
    store.close()
    changed.close()


def test_a_place_that_cannot_be_written_is_no_error(tmp_path):
    """Without a disk entries live in memory."""
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    store = CapacityStore(blocked / "kept.sqlite")
    store["a"] = (1.0, False)
    assert store["a"] == (1.0, False)
    store.close()


def test_a_locked_file_is_no_error(tmp_path):
    """While another program writes, entries live in memory, and the lock is waited for only once."""
    path = tmp_path / "kept.sqlite"
    store = CapacityStore(path, lock_timeout_s=0.01)
    store["before"] = (1.0, False)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    store["a"] = (2.0, True)
    assert (store["a"], store.get("b"), list(store)) == ((2.0, True), None, ["a"])
    del store["a"]
    assert "a" not in store
    while_locked = CapacityStore(path, lock_timeout_s=0.01)
    while_locked["c"] = (3.0, False)
    assert while_locked["c"] == (3.0, False)
    other.close()
    store.close()
    while_locked.close()


def test_a_broken_file_is_no_error(tmp_path):
    """Where every statement fails, entries can still be put in, read, listed and deleted."""
    path = tmp_path / "kept.sqlite"
    store = CapacityStore(path)
    store["before"] = (1.0, False)
    other = sqlite3.connect(path)
    other.execute("DROP TABLE capacity")
    other.close()
    assert "before" not in store
    store["a"] = (2.0, True)
    assert (store["a"], list(store)) == ((2.0, True), ["a"])
    del store["a"]
    assert (store.get("a"), len(store)) == (None, 0)
    store.close()


@pytest.mark.parametrize("part", ["store/traces.py", "simulation/engine.py"])
def test_the_version_follows_what_decides_a_capacity(part, tmp_path, monkeypatch):
    """Code that simulates or reads traces and the versions of the libraries are part of the version."""
    file = tmp_path / "advisor" / part
    file.parent.mkdir(parents=True)
    file.write_text("a = 1")
    monkeypatch.setattr(capacities, "ROOT", tmp_path)
    versions = [program_version()]
    file.write_text("a = 2")
    versions.append(program_version())
    for library in ("numpy", "scipy", "numba"):
        with monkeypatch.context() as patch:
            installed = capacities.metadata.version
            patch.setattr(
                capacities.metadata,
                "version",
                lambda name, library=library, installed=installed: "0" if name == library else installed(name),
            )
            versions.append(program_version())
    assert len(set(versions)) == 5


def test_threads_share_a_store(tmp_path):
    """Several threads put in and read at once."""
    store = CapacityStore(tmp_path / "kept.sqlite")
    with ThreadPoolExecutor(4) as executor:
        list(executor.map(lambda k: store.__setitem__(str(k), (float(k), False)), range(200)))
        found = list(executor.map(lambda k: store[str(k)][0], range(200)))
    assert found == [float(k) for k in range(200)]
    store.close()


def test_the_place_follows_the_environment(monkeypatch, tmp_path):
    """XDG_CACHE_HOME says where caches live."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_path().parent == tmp_path / "inference-fleet-advisor"
