"""Capacities on disk: found again by equal questions to the same program, and only then."""

from concurrent.futures import ThreadPoolExecutor

from advisor.store import capacities
from advisor.store.capacities import CapacityStore, default_cache_path


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
