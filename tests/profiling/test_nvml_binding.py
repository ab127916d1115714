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
