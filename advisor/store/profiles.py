"""Profile files: one JSON document each, in a folder and its subfolders."""

import os
from pathlib import Path

from advisor.domain.profile import Profile
from advisor.domain.record import parse_record
from advisor.errors import InputError


def read_profile(content: str | bytes, *, file: str) -> Profile:
    """Profile from the text of a file.

    Raises
    ------
    InputError
        When it does not fit: one sentence with file, field, value and what is allowed.
    """
    return parse_record(Profile, content, file=file)


def read_profile_file(path: Path) -> Profile:
    """Profile from a file.

    Raises
    ------
    InputError
        When the file is missing or does not fit.
    """
    if not path.is_file():
        raise InputError("profile", path.name, "a profile file that exists")
    return read_profile(path.read_bytes(), file=path.name)


def write_profile(profile: Profile, path: Path) -> None:
    """Write a profile, beside the file first: a crash leaves the old file or the new one, never half of one."""
    draft = path.with_name(path.name + ".new")
    with draft.open("w", encoding="utf-8") as stream:
        stream.write(profile_json(profile))
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(path)


def profile_json(profile: Profile) -> str:
    """JSON text of a profile, without what is not known."""
    return profile.model_dump_json(indent=1, exclude_defaults=True) + "\n"


def read_profiles(folder: Path) -> tuple[Profile, ...]:
    """All profiles below a folder, in order of their file names.

    Raises
    ------
    InputError
        When a file does not fit, or two files share a profile_id.
    """
    found: dict[str, Profile] = {}
    for path in sorted(folder.rglob("*.json")):
        profile = read_profile_file(path)
        if profile.profile_id in found:
            raise InputError("profile_id", profile.profile_id, "a name that no other profile has", file=path.name)
        found[profile.profile_id] = profile
    return tuple(found.values())
