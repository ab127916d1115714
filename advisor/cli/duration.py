"""Durations as people write them."""

import re

from advisor.errors import InputError


def parse_duration(option: str, text: str) -> float:
    """Seconds of a duration such as 90s, 5m or 1h, given to an option.

    Raises
    ------
    InputError
        When the text is no duration.

    Examples
    --------
    >>> parse_duration("--budget", "5m")
    300.0
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if match is None or float(match[1]) == 0:
        raise InputError(option, text, "a time such as 90s, 5m or 1h")
    return float(match[1]) * {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}[match[2]]
