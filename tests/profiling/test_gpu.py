"""Cards behind our own protocol: a recording tells what the card told, at the same pace."""

import dataclasses
import io
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.domain.profile import Fact
from advisor.errors import InputError, MeasurementError
from advisor.profiling.gpu import NO_THROTTLE, THROTTLE_REASONS, GpuReading, choose_card, count_foreign, throttle_names
from advisor.profiling.replay import RecordingGpu, ReplayGpu, read_recording

RECORDING = Path(__file__).parents[1] / "data" / "gpu_recording.jsonl"


class Clock:
    """A clock that stands still until it is set forward."""

    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        """Tell the time."""
        return self.now_s


@pytest.fixture
def clock():
    """Give a clock of our own."""
    return Clock()


@pytest.fixture
def gpu(clock):
    """Replay the recorded card by that clock."""
    return ReplayGpu(read_recording(RECORDING), clock=clock)


def test_a_replay_shows_the_last_reading_of_its_moment(gpu, clock):
    """The recorded card uses 200 W and is recorded every 0.1 s: 0.25 s after its start it shows that of 0.2 s."""
    first = gpu.read()
    clock.now_s += 0.25
    later = gpu.read()
    assert later.at_s == clock.now_s
    assert later.energy_j.value - first.energy_j.value == pytest.approx(200.0 * 0.2)


def test_a_replay_shows_throttling_when_it_was_recorded(gpu, clock):
    """From 4.0 to 4.4 s the recorded card ran into its power cap."""
    seen = []
    gpu.read()
    for _ in range(3):
        clock.now_s += 2.05
        seen.append(gpu.read().throttle.value)
    assert seen == ["", "software power cap", ""]


def test_after_its_end_a_replay_says_so(gpu, clock):
    """Nothing is made up after the last reading: each value is null with that reason."""
    gpu.read()
    clock.now_s += 11.0
    reading = gpu.read()
    values = {getattr(reading, field.name) for field in dataclasses.fields(GpuReading) if field.name != "at_s"}
    assert values == {Fact(value=None, why="the recording ended after 10.0 s")}


def test_what_is_recorded_is_what_is_replayed(gpu, clock, tmp_path):
    """A recording of a card holds its facts and readings whole, the missing ones with their reasons."""
    stream = io.StringIO()
    recorder = RecordingGpu(gpu, stream)
    readings = []
    for step_s in (0.0, 1.0, 20.0):
        clock.now_s += step_s
        readings.append(recorder.read())
    recorder.close()
    path = tmp_path / "again.jsonl"
    path.write_text(stream.getvalue(), encoding="utf-8")
    again = read_recording(path)
    assert again.readings == tuple(readings)
    assert again.facts == gpu.facts() == recorder.facts()
    assert again.facts["gpu_mig_mode"].why == "NVML: Not Supported"


class Watched:
    """A card that notices when a second look begins before the first is written down."""

    def __init__(self, gpu):
        self.facts, self._gpu = gpu.facts, gpu
        self._first, self.second, self.overlapped = threading.Event(), threading.Event(), []

    def read(self):
        """Wait in the first look for a second one, which must not come."""
        if self._first.is_set():
            self.second.set()
        else:
            self._first.set()
            self.overlapped.append(self.second.wait(0.3))
        return self._gpu.read()


def test_two_threads_record_one_look_after_the_other(gpu):
    """A meter polls from a thread of its own while the surroundings are looked at: lines stay whole and in order."""
    card = Watched(gpu)
    recorder = RecordingGpu(card, io.StringIO())
    with ThreadPoolExecutor(2) as pool:
        for look in [pool.submit(recorder.read) for _ in range(2)]:
            look.result()
    assert card.overlapped == [False]
    assert card.second.is_set()


def lines():
    """Lines of a good recording."""
    return RECORDING.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "0 lines"),
        (lines()[0], "1 lines"),
        ("\n".join([*lines()[:2], "{}"]), "line 3"),
        ("\n".join([lines()[1], *lines()[:2]]), "line 1"),
        ("\n".join([lines()[0], lines()[2], lines()[1]]), "line 3, at_s"),
    ],
)
def test_a_recording_that_does_not_fit_is_refused_with_its_line(tmp_path, text, problem):
    """One sentence names the file and the line."""
    path = tmp_path / "card.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=problem) as caught:
        read_recording(path)
    assert str(caught.value).startswith("card.jsonl: ")


def test_a_missing_recording_is_refused(tmp_path):
    """The sentence names the file."""
    with pytest.raises(InputError, match=r"recording is 'none\.jsonl'"):
        read_recording(tmp_path / "none.jsonl")


@given(st.integers(0, 2**12 - 1))
def test_every_bit_that_lowers_the_clocks_is_named_once(bits):
    """Idle and the clocks that the user chose are no throttle; every other bit is named, known or not."""
    names = [name for name in throttle_names(bits).split(", ") if name]
    known = [name for bit, name in THROTTLE_REASONS.items() if bits & bit]
    rest = bits & ~NO_THROTTLE & ~sum(THROTTLE_REASONS)
    assert names == known + ([f"unknown reason {rest:#x}"] if rest else [])


@given(st.sets(st.integers(2, 50), max_size=6), st.booleans())
def test_foreign_processes_are_never_overstated(others, present):
    """However the host numbers processes, the count is at most the number of those that are foreign."""
    pids = [*others, 1] if present else list(others)
    seen = count_foreign(pids, own=1, is_visible=lambda _: True)
    assert seen.value == len(others)
    hidden = count_foreign(pids, own=1, is_visible=lambda _: False)
    if present or not others:
        assert hidden.value == len(others)
    elif len(others) == 1:
        assert hidden.value is None
    else:
        assert hidden.value == len(others) - 1


CARDS = ["GPU-1a", "GPU-1b", "GPU-2c"]


@given(st.permutations(range(3)))
def test_the_first_entry_of_the_list_is_the_first_card(order):
    """CUDA numbers cards as they are listed, by number or by name."""
    for entries in ([str(index) for index in order], [CARDS[index] for index in order]):
        assert choose_card(CARDS, ",".join(entries), order="PCI_BUS_ID") == CARDS[order[0]]


@pytest.mark.parametrize("chosen", ["GPU-1", "3", ""])
def test_a_name_that_fits_two_cards_and_a_number_past_the_last_are_no_card(chosen):
    """CUDA then shows no device at all."""
    with pytest.raises(MeasurementError, match="begins with no card"):
        choose_card(CARDS, chosen, order="PCI_BUS_ID")


def test_numbers_in_another_order_than_the_drivers_are_refused():
    """A number then means another card to CUDA; a name, or the only card, means the same."""
    for chosen in (None, "0"):
        with pytest.raises(MeasurementError, match="CUDA_DEVICE_ORDER is 'FASTEST_FIRST'"):
            choose_card(CARDS, chosen, order="FASTEST_FIRST")
    assert choose_card(CARDS, "GPU-2c", order="FASTEST_FIRST") == "GPU-2c"
    assert choose_card(CARDS[:1], None, order="FASTEST_FIRST") == "GPU-1a"
