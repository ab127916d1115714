"""Trace: the time stamps of requests as they arrived somewhere."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InputError


@dataclass(frozen=True, eq=False)
class Trace:
    """Arrival times of requests, counted from the first one. One request is one item.

    Attributes
    ----------
    name
        Name of the file that the trace was read from.
    times_s
        Time stamps [s], ascending, the first is 0; read-only. Several requests may share a stamp.
    sha256
        Hash of the file, which says later what was replayed.
    warnings
        Sentences on what was changed or left out in reading.
    """

    name: str
    times_s: NDArray[np.float64]
    sha256: str
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Keep a read-only copy, and refuse what is no trace.

        Raises
        ------
        InputError
            With fewer than two distinct time stamps, or when they do not ascend from 0.
        """
        times_s = np.array(self.times_s, dtype=np.float64)
        if times_s.size < 2 or not times_s[-1] > times_s[0]:
            distinct = int(np.unique(times_s).size)
            raise InputError("distinct time stamps", distinct, "at least 2", file=self.name)
        if times_s[0] != 0 or not np.isfinite(times_s).all() or (np.diff(times_s) < 0).any():
            raise InputError("time stamps", "unordered", "finite numbers that ascend from 0", file=self.name)
        times_s.setflags(write=False)
        object.__setattr__(self, "times_s", times_s)

    @property
    def duration_s(self) -> float:
        """Time from the first request to the last [s]."""
        return float(self.times_s[-1])

    @property
    def requests(self) -> int:
        """Number of requests."""
        return self.times_s.size

    @property
    def rate_rps(self) -> float:
        """Mean arrival rate, (n - 1) / duration [1/s].

        The clock starts at the first request, so that n requests enclose n - 1 times between requests. Counting the
        first as well would add a request without the time in which it came: two requests a second apart are 1/s.

        Examples
        --------
        >>> Trace("two.csv", np.array([0.0, 1.0]), "").rate_rps
        1.0
        """
        return (self.requests - 1) / self.duration_s
