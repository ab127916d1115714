"""Answers are whole or not there, and nobody waits for one that nobody wants."""

import threading

import pytest

from advisor.planning import plan
from advisor.ui.answers import Abandoned, Answers, LookedUp
from tests.conftest import TODAY, question

LONG_S = 60


@pytest.fixture(scope="module")
def answer(small_catalog, small_profiles):
    """One plan."""
    return plan(question(rate=5.0), small_profiles, small_catalog, today=TODAY)


def test_an_answer_is_computed_once(answer):
    """What is known is not computed again."""
    answers, computed = Answers(most_kept=2, at_once=1), []

    def compute(_work):
        computed.append(1)
        return answer

    assert answers.known("one") is None
    assert answers.ask("one", compute).answer() is answer
    assert answers.known("one") is answer
    assert answers.ask("one", compute).answer() is answer
    assert len(computed) == 1


def test_the_answer_asked_for_longest_ago_makes_room(answer):
    """Asking keeps an answer."""
    answers = Answers(most_kept=2, at_once=1)
    for key in ("one", "two"):
        answers.ask(key, lambda _work: answer).answer()
    assert answers.known("one") is answer
    answers.ask("three", lambda _work: answer).answer()
    assert [answers.known(key) is not None for key in ("one", "two", "three")] == [True, False, True]


def test_abandoned_work_ends_at_its_next_step_and_leaves_nothing(answer):
    """The line is there to be shown; after giving up the next step is not begun and nothing is kept."""
    answers, first_step, go_on = Answers(most_kept=2, at_once=1), threading.Event(), threading.Event()

    def compute(work):
        work.hear("first step")
        first_step.set()
        assert go_on.wait(LONG_S)
        work.hear("second step")
        return answer

    work = answers.ask("slow", compute)
    assert first_step.wait(LONG_S)
    assert (work.line, work.done_within(0.01)) == ("first step", False)
    work.abandon()
    go_on.set()
    with pytest.raises(Abandoned):
        work.answer()
    assert work.line == "first step"
    assert answers.known("slow") is None


def test_planning_ends_before_the_next_capacity(small_catalog, small_profiles):
    """Searches for capacities are the long part: the next one is not begun once nobody waits."""
    answers, looked_up, kept = Answers(most_kept=2, at_once=1), [], {}

    class Once(LookedUp):
        def __getitem__(self, key):
            if looked_up:
                self._work.abandon()
            looked_up.append(key)
            return super().__getitem__(key)

    asked = question(rate=5.0)
    work = answers.ask(
        "slow", lambda work: plan(asked, small_profiles, small_catalog, today=TODAY, cache=Once(kept, work))
    )
    with pytest.raises(Abandoned):
        work.answer()
    assert len(looked_up) == 2
    assert list(kept) == looked_up[:1]


def test_an_error_reaches_the_page_and_is_not_kept():
    """The next visitor gets a new try."""

    def fail(_work):
        raise ValueError("no")

    answers = Answers(most_kept=2, at_once=1)
    work = answers.ask("bad", fail)
    with pytest.raises(ValueError, match="no"):
        work.answer()
    assert answers.known("bad") is None
