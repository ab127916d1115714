"""Answers already found, and the thread that finds the next one while the page shows how far it is."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor, wait

from advisor.domain.plan import Infeasible, Plan

Answer = Plan | Infeasible
Compute = Callable[["Work"], Answer]
Capacities = MutableMapping[str, tuple[float, bool]]


class Abandoned(Exception):  # noqa: N818 - nothing went wrong: nobody waits for the answer any more
    """Raised in a step of planning that nobody waits for."""


class Work:
    """An answer in the making.

    Parameters
    ----------
    compute
        Finds the answer; it is handed this object and calls `hear` or `go_on` whenever a step begins, from any thread.
    planners
        Runs it.
    """

    def __init__(self, compute: Compute, planners: ThreadPoolExecutor) -> None:
        self._line = "waiting for another plan to end"
        self._abandoned = threading.Event()
        self._future: Future[Answer] = planners.submit(compute, self)

    @property
    def line(self) -> str:
        """What is being done now."""
        return self._line

    def hear(self, line: str) -> None:
        """Take note of a step that begins."""
        self.go_on()
        self._line = line

    def go_on(self) -> None:
        """Raise `Abandoned` when nobody waits any more."""
        if self._abandoned.is_set():
            raise Abandoned

    def done_within(self, seconds: float) -> bool:
        """Wait for the end, not longer than some time [s]."""
        return bool(wait([self._future], timeout=seconds).done)

    def answer(self) -> Answer:
        """Answer, or the error that stopped it."""
        return self._future.result()

    def abandon(self) -> None:
        """Give up: planning ends where its next step would begin. An answer that is there already stays."""
        self._abandoned.set()
        self._future.cancel()


class LookedUp(Capacities):
    """Capacities that are looked up only as long as somebody waits for the answer.

    One search for a capacity takes up to seconds and a plan needs dozens; each begins with a look at what is known.

    Parameters
    ----------
    known
        Where capacities are kept.
    work
        What they are needed for.
    """

    def __init__(self, known: Capacities, work: Work) -> None:
        self._known, self._work = known, work

    def __getitem__(self, key: str) -> tuple[float, bool]:
        self._work.go_on()
        return self._known[key]

    def __setitem__(self, key: str, value: tuple[float, bool]) -> None:
        self._known[key] = value

    def __delitem__(self, key: str) -> None:
        del self._known[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


class Answers:
    """The answers asked for last, for all sessions of the process.

    Planning runs on threads of its own and never on those of a page: a page that is left, or whose inputs change, does
    not wait for it, and what it leaves behind is either a whole answer or none.

    Parameters
    ----------
    most_kept
        Number of answers kept; the one that was asked for longest ago makes room.
    at_once
        Number of plans computed at the same time; more wait.
    """

    def __init__(self, *, most_kept: int, at_once: int) -> None:
        self._kept: OrderedDict[Hashable, Answer] = OrderedDict()
        self._most_kept = most_kept
        self._lock = threading.Lock()
        self._planners = ThreadPoolExecutor(at_once, thread_name_prefix="planner")

    def known(self, key: Hashable) -> Answer | None:
        """Answer, if it was found before."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def ask(self, key: Hashable, compute: Compute) -> Work:
        """Begin to compute an answer; it is kept under its key when it is whole."""

        def found(work: Work) -> Answer:
            # Another session may have asked the same while this one waited for its turn.
            answer = self.known(key) or compute(work)
            with self._lock:
                self._kept[key] = answer
                while len(self._kept) > self._most_kept:
                    self._kept.popitem(last=False)
            return answer

        return Work(found, self._planners)
