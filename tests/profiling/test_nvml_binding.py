"""The real binding to NVIDIA's library, driven against a small library of our own with the same functions."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COMPILER = shutil.which("cc") or shutil.which("gcc")

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no C compiler to build the stub library with"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the library is found by LD_LIBRARY_PATH on Linux"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Folder with a libnvidia-ml.so.1 of our own."""
    folder = tmp_path_factory.mktemp("nvml")
    target = folder / "libnvidia-ml.so.1"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", target, HERE / "stub_nvml.c"], check=True, timeout=120)
    return folder


def run(library, script, **settings):
    """Run a script in a process that finds the stub library; what it puts into `answer` comes back."""
    code = (
        "import json, pynvml\n"
        "from advisor.profiling.gpu import open_gpus\n"
        "from advisor.profiling.power import choose_meter\n"
        f"{script}\n"
        "print(json.dumps(answer))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "LD_LIBRARY_PATH": str(library), **settings},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


LOOK = """
card = open_gpus().cards[0]
reading = card.read()
names = ("energy_j", "power_w", "sm_clock_mhz", "memory_clock_mhz", "temperature_c", "throttle", "memory_used_gib",
         "utilization_frac", "foreign_processes")
answer = {name: fact.model_dump() for name, fact in
          [*card.facts().items(), *((name, getattr(reading, name)) for name in names)]}
"""
METER = """
gpus = open_gpus()
meter = choose_meter(gpus.cards, kind="gpu", assumed=[], cpus=1)
answer = [getattr(meter, "method", None), getattr(meter, "scope", None), getattr(meter, "why", None)]
"""


def test_values_arrive_in_our_units_and_what_is_not_supported_voids_nothing(library):
    """Each field is the library's value in SI, or null with its reason; the fields around it stand."""
    seen = run(library, LOOK)
    values = {name: fact["value"] for name, fact in seen.items() if fact["value"] is not None}
    assert values == {
        "gpu_name": "Stub Card",
        "gpu_uuid": "GPU-stub",
        "gpu_driver": "470.82.01",
        "gpu_cuda": "11.4",
        "gpu_memory_gib": 16.0,
        "gpu_power_limit_w": 250.0,
        "gpu_default_power_limit_w": 300.0,
        "gpu_max_sm_clock_mhz": 1980,
        "gpu_max_memory_clock_mhz": 2619,
        "gpu_ecc_mode": "enabled",
        "gpu_pcie_width": 16,
        "gpu_persistence_mode": "disabled",
        "gpu_compute_mode": "exclusive process",
        "energy_j": 1050.0,
        "power_w": 150.5,
        "sm_clock_mhz": 1410,
        "memory_clock_mhz": 1593,
        "temperature_c": 71,
        "throttle": "software power cap, hardware thermal slowdown",
        "memory_used_gib": 3.0,
        "utilization_frac": 0.87,
        "foreign_processes": 1,
    }
    whys = {name: fact["why"] for name, fact in seen.items() if fact["value"] is None}
    assert whys == {
        "gpu_applications_sm_clock_mhz": "NVML: Not Supported",
        "gpu_applications_memory_clock_mhz": "NVML: Not Supported",
        "gpu_mig_mode": "NVML: Not Supported",
        "gpu_pcie_generation": "NVML: Function Not Found",
    }


def test_power_at_once_goes_before_mean_power(library):
    """Where the field's own result code says that it is valid, it is taken; else mean power is."""
    assert run(library, LOOK, STUB_INSTANT="1")["power_w"]["value"] == 222.25
    assert run(library, LOOK, STUB_INSTANT="0")["power_w"]["value"] == 150.5


def test_the_energy_counter_is_taken_first(library):
    """Between two readings the meter gives the difference of the counter: the stub adds 50 J per look."""
    script = METER + "before, after = meter.read(), meter.read()\nanswer += [after.energy_j - before.energy_j]"
    assert run(library, script) == ["nvml_counter", "one card", None, 50.0]


def test_a_divided_card_is_said_to_be_charged_whole(library):
    """With MIG the counter holds all slices, and the scope says so."""
    assert run(library, METER, STUB_MIG="1")[:2] == [
        "nvml_counter",
        "one card with all MIG slices, not only the one that ran",
    ]


@pytest.mark.parametrize("fault", ["none", "still"])
def test_without_a_working_counter_power_is_polled(library, fault):
    """A counter that is missing or stands still is passed over; energy over time is then the power."""
    script = METER + (
        "import time\n"
        "before = meter.read(); time.sleep(0.3); after = meter.read(); meter.close()\n"
        "answer += [(after.energy_j - before.energy_j) / (after.at_s - before.at_s)]"
    )
    method, scope, _, power_w = run(library, script, STUB_COUNTER=fault)
    assert (method, scope) == ("nvml_poll", "one card")
    assert power_w == pytest.approx(150.5)


READ_UNTIL_IT_FAILS = (
    METER
    + """
from advisor.errors import MeasurementError
try:
    for _ in range(100):
        meter.read()
except MeasurementError as error:
    answer += [str(error)]
"""
)


def test_a_lost_card_ends_the_meter_with_one_sentence(library):
    """A card that is lost in mid-run is named with the driver's reason, by either meter."""
    counted = run(library, READ_UNTIL_IT_FAILS, STUB_LOST_AFTER="20")
    assert counted[0] == "nvml_counter"
    assert counted[-1] == "Reading the energy counter of Stub Card failed: NVML: GPU is lost."
    polled = run(library, READ_UNTIL_IT_FAILS + "meter.close()", STUB_LOST_AFTER="20", STUB_COUNTER="none")
    assert polled[0] == "nvml_poll"
    assert polled[-1] == "Reading the power of Stub Card failed: NVML: GPU is lost."


def test_a_lost_card_still_gives_a_reading_of_reasons(library):
    """Looking at a lost card is no error: every value is null and says why."""
    script = LOOK + "\nfor _ in range(9): reading = card.read()\nanswer = [reading.power_w.why, reading.throttle.why]"
    assert run(library, script, STUB_LOST_AFTER="5") == ["NVML: GPU is lost"] * 2


def test_a_counter_that_falls_is_refused(library):
    """After a reload of the driver the counter begins again: the difference means nothing."""
    assert run(library, READ_UNTIL_IT_FAILS, STUB_COUNTER="resets")[-1] == (
        "The energy counter of Stub Card fell from 1250.0 J to 1000.0 J; "
        "it must not be reset, nor the driver reloaded, during a measurement."
    )


@pytest.mark.parametrize(
    ("cards", "why"), [("0", "NVML lists no card"), ("driver", "NVML cannot be used: Driver Not Loaded")]
)
def test_no_card_is_an_answer_with_its_reason(library, cards, why):
    """A library without a driver or a card gives no cards and says why."""
    assert run(library, "gpus = open_gpus()\nanswer = [len(gpus.cards), gpus.why]", STUB_CARDS=cards) == [0, why]


def test_closed_cards_leave_the_library(library):
    """Each card holds the library once; when all are closed nobody does."""
    script = """
gpus = open_gpus()
users = pynvml.nvmlLib.stub_users
answer = [users()]
gpus.cards[0].close()
answer += [users()]
"""
    assert run(library, script) == [1, 0]


CARD = """
import os
from advisor.errors import MeasurementError
from advisor.profiling.gpu import GpuMemory, card_with, first_visible_card
def told(call):
    try:
        return call()
    except MeasurementError as error:
        return str(error)
"""


def test_memory_of_a_card_is_what_all_processes_use_and_leave(library):
    """The stub's card has 16 GiB, of which 3 are in use; an unknown card has none to measure."""
    script = CARD + (
        "memory, lost = GpuMemory('GPU-stub'), GpuMemory('GPU-other')\n"
        "answer = [memory.can_measure_growth(), memory.resident_gib(), memory.available_gib(),\n"
        "          lost.can_measure_growth(), told(lost.resident_gib), pynvml.nvmlLib.stub_users()]"
    )
    assert run(library, script) == [
        True,
        3.0,
        13.0,
        False,
        "The memory of GPU-other cannot be read: NVML: Not Found.",
        0,
    ]


def test_memory_of_a_slice_is_its_own(library):
    """The stub's slice has 8 GiB of the card's 16."""
    script = CARD + "answer = GpuMemory('MIG-stub').available_gib()"
    assert run(library, script, STUB_MIG="1") == 5.0


def test_without_a_driver_no_growth_can_be_measured(library):
    """Nothing is made up where the driver cannot be asked."""
    script = CARD + "answer = [GpuMemory('GPU-stub').can_measure_growth(), told(lambda: card_with('GPU-stub'))]"
    assert run(library, script, STUB_CARDS="driver") == [
        False,
        "The card GPU-stub cannot be opened: NVML: Driver Not Loaded.",
    ]


def test_a_card_is_opened_by_its_name_and_a_slice_gives_its_whole_card(library):
    """Power is metered for whole cards only."""
    script = CARD + (
        "def name(uuid):\n"
        "    card = card_with(uuid)\n"
        "    card.close()\n"
        "    return card.facts()['gpu_uuid'].value\n"
        "holder = open_gpus()\n"
        "answer = [told(lambda: name(uuid)) for uuid in ('GPU-stub', 'MIG-stub', 'GPU-other')]\n"
        "answer += [pynvml.nvmlLib.stub_users()]"
    )
    unknown = "The card GPU-other cannot be opened: NVML: Not Found."
    assert run(library, script, STUB_MIG="1") == ["GPU-stub", "GPU-stub", unknown, 1]


FIRST = CARD + "answer = told(lambda: first_visible_card(os.environ))"


@pytest.mark.parametrize("visible", [None, "0", "0,1", " GPU-stub", "GPU-st"])
def test_the_first_card_of_cuda_is_found(library, visible):
    """By its number, its name, the beginning of its name, or because nothing is hidden."""
    settings = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert run(library, FIRST, **settings) == "GPU-stub"


@pytest.mark.parametrize("visible", ["", "1", "-1", "1,0", "GPU-other", "NoDevFiles"])
def test_where_cuda_sees_no_card_the_sentence_says_which_there_are(library, visible):
    """CUDA stops at the first entry that it does not know."""
    assert run(library, FIRST, CUDA_VISIBLE_DEVICES=visible) == (
        f"CUDA_VISIBLE_DEVICES is {visible!r}, which begins with no card; "
        "allowed: a number below 1, or one of GPU-stub."
    )


def test_a_slice_of_a_divided_card_must_be_named(library):
    """Which slice CUDA takes on its own is its own affair."""
    assert run(library, FIRST, CUDA_VISIBLE_DEVICES="MIG-stub", STUB_MIG="1") == "MIG-stub"
    divided = "GPU-stub is divided; allowed: the name of a slice, MIG-..., as CUDA_VISIBLE_DEVICES."
    assert run(library, FIRST, STUB_MIG="1") == divided
    assert run(library, FIRST, CUDA_VISIBLE_DEVICES="MIG-stub") == (
        "No GPU can be found for CUDA_VISIBLE_DEVICES=MIG-stub: NVML: Not Found."
    )


@pytest.mark.parametrize(
    ("cards", "why"),
    [("0", "The NVIDIA driver lists no card."), ("driver", "No GPU can be found: NVML: Driver Not Loaded.")],
)
def test_without_a_card_there_is_no_first_one(library, cards, why):
    """The sentence tells a missing driver from a missing card."""
    assert run(library, FIRST, STUB_CARDS=cards) == why
