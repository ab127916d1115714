"""The doctor blames what would spoil a measurement, and nothing that is merely not known."""

import dataclasses
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.domain.measurement import Surroundings
from advisor.domain.profile import Fact
from advisor.profiling.doctor import Finding, Look, examine, judge, wait_until_quiet
from advisor.profiling.gpu import GpuReading
from advisor.profiling.host import read_host
from advisor.profiling.machine_state import parse_swap_used_gib, readings, settings
from advisor.profiling.system_files import Folders
from tests.system_files import write

UNTOLD = Fact(value=None, why="not told")
QUIET = Surroundings(other_cpus=0.01, steal_frac=0.0, throttled_frac=0.0)
FACTS = {
    "governor": Fact(value="performance"),
    "boost": Fact(value="on"),
    "clock_limit_mhz": Fact(value=3000),
    "clock_possible_mhz": Fact(value=3000),
    "clock_limited_cpus": Fact(value=0),
    "on_battery": Fact(value=False),
    "memory_limit_gib": UNTOLD,
    "memory_available_gib": Fact(value=8.0),
    "swap_used_gib": Fact(value=0.5),
    "cpu_pressure_frac": Fact(value=0.9),
    "load_average_1min": Fact(value=3.0),
    "tasks_running": Fact(value=1.0),
}
FIT = Look(seconds=2.0, around=QUIET, facts=FACTS, cpus=4, granted_cpus=None, swapped_pages=0)
CARD = {
    "gpu_name": Fact(value="NVIDIA L4"),
    "gpu_power_limit_w": Fact(value=72.0),
    "gpu_default_power_limit_w": Fact(value=72.0),
    "gpu_mig_mode": Fact(value="disabled"),
}


def card_reading(**fields: Fact) -> GpuReading:
    """Reading of a card at rest, with these changes."""
    facts = {field.name: UNTOLD for field in dataclasses.fields(GpuReading)}
    rest = {"throttle": Fact(value=""), "foreign_processes": Fact(value=0)}
    return GpuReading(**(facts | {"at_s": 0.0} | rest | fields))


def blamed(look: Look) -> dict[str, str]:
    """Codes that are not in order, with their levels."""
    return {finding.code: finding.level for finding in judge(look) if finding.level != "ok"}


def facts(**changes: Fact) -> dict[str, Any]:
    """Facts of the machine that is fit, with these changes."""
    return {"facts": FACTS | changes}


def test_a_quiet_machine_is_fit():
    """High pressure and load averages alone blame nobody: threads of one's own raise them."""
    assert blamed(FIT) == {}


def test_whatever_is_blamed_has_a_remedy_and_nothing_else_has():
    """A finding without a way out would help nobody."""
    everything = dataclasses.replace(
        FIT,
        around=Surroundings(other_cpus=1.0, steal_frac=0.1, throttled_frac=0.1),
        facts=FACTS | {"governor": Fact(value="powersave"), "on_battery": Fact(value=True)},
        gpus=((CARD, card_reading(foreign_processes=Fact(value=2), throttle=Fact(value="hardware slowdown"))),),
    )
    for finding in (*judge(everything), *judge(FIT)):
        assert (finding.remedy is not None) == (finding.level != "ok"), finding


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"around": QUIET.model_copy(update={"other_cpus": 0.11})}, {"OTHER_LOAD": "error"}),
        ({"around": QUIET.model_copy(update={"other_cpus": 0.10})}, {}),
        ({"around": QUIET.model_copy(update={"steal_frac": 0.02})}, {"STEAL": "error"}),
        ({"around": QUIET.model_copy(update={"throttled_frac": 0.01})}, {"CGROUP_THROTTLED": "error"}),
        ({"granted_cpus": 0.5}, {"CGROUP_THROTTLED": "warning"}),
        ({"granted_cpus": 1.5}, {}),
        ({"swapped_pages": 12}, {"SWAP": "warning"}),
        (facts(governor=Fact(value="powersave")), {"GOVERNOR": "warning"}),
        (facts(clock_limit_mhz=Fact(value=2000), clock_limited_cpus=Fact(value=4)), {"CLOCK": "warning"}),
        (facts(on_battery=Fact(value=True)), {"BATTERY": "warning"}),
        (facts(memory_available_gib=Fact(value=0.5)), {"MEMORY": "warning"}),
    ],
)
def test_each_trouble_is_named(changes: dict[str, Any], expected: dict[str, str]):
    """One change of a machine that is fit gives one finding."""
    assert blamed(dataclasses.replace(FIT, **changes)) == expected


def test_under_a_quota_the_load_of_others_is_no_doubt():
    """It is not told there, for a reason; windows are judged by what the container itself meets."""
    untold = QUIET.model_copy(update={"other_cpus": None})
    look = dataclasses.replace(FIT, around=untold, granted_cpus=2.0)
    assert blamed(look) == {}
    (load,) = [finding for finding in judge(look) if finding.code == "OTHER_LOAD"]
    assert "run delay" in load.evidence
    assert blamed(dataclasses.replace(look, granted_cpus=4.0)) == {"OTHER_LOAD": "warning"}


def hybrid(tmp_path: Path, *limits_mhz: int) -> Finding:
    """What the doctor says of the clocks of two fast and two slow cores that are limited so."""
    folders = Folders(tmp_path / "proc", tmp_path / "sys")
    for cpu, (limit_mhz, possible_mhz) in enumerate(zip(limits_mhz, (5200, 5200, 3800, 3800), strict=True)):
        place = f"devices/system/cpu/cpu{cpu}/cpufreq"
        write(folders.sys, f"{place}/scaling_max_freq", f"{limit_mhz}000\n")
        write(folders.sys, f"{place}/cpuinfo_max_freq", f"{possible_mhz}000\n")
    (clock,) = [finding for finding in examine(0.0, folders=folders) if finding.code == "CLOCK"]
    return clock


def test_slow_cores_are_not_limited_and_show_as_a_range(tmp_path: Path):
    """Each CPU is compared with what it can do itself."""
    clock = hybrid(tmp_path, 5200, 5200, 3800, 3800)
    assert (clock.level, clock.evidence) == ("ok", "up to 3800 to 5200 MHz")


def test_one_limited_core_among_others_is_named(tmp_path: Path):
    """A fast core held to the clock of the slow ones leaves lowest and highest as they are."""
    clock = hybrid(tmp_path, 5200, 3800, 3800, 3800)
    assert (clock.level, clock.remedy) == ("warning", "sudo cpupower frequency-set -u 5200MHz")
    assert clock.evidence == "limited to 3800 to 5200 MHz of 3800 to 5200 MHz (CPUs limited: 1)"


def test_a_full_container_has_little_memory(tmp_path: Path):
    """Usage counts, not the limit alone."""
    folders = Folders(tmp_path / "proc", tmp_path / "sys")
    write(folders.proc, "self/cgroup", "0::/\n")
    write(folders.sys, "fs/cgroup/memory.max", f"{8 * 2**30}\n")
    write(folders.sys, "fs/cgroup/memory.current", f"{8 * 2**30 - 2**28}\n")
    (memory,) = [finding for finding in examine(0.0, folders=folders) if finding.code == "MEMORY"]
    assert (memory.level, memory.evidence) == ("warning", "0.2 GiB available, limit of the container 8.00 GiB")


def test_what_the_system_does_not_tell_is_said_and_not_blamed():
    """Most virtual machines show neither clocks nor batteries; only unknown load is a doubt."""
    nothing = dict.fromkeys(FACTS, UNTOLD) | {"memory_available_gib": Fact(value=8.0)}
    look = dataclasses.replace(FIT, facts=nothing, around=Surroundings(), swapped_pages=None)
    assert blamed(look) == {"OTHER_LOAD": "warning"}
    assert "BOOST_UNKNOWN" in {finding.code for finding in judge(look)}


@pytest.mark.parametrize(
    ("card", "reading", "expected"),
    [
        ({}, {}, {}),
        ({}, {"foreign_processes": Fact(value=1)}, {"GPU_SHARED": "error"}),
        ({}, {"throttle": Fact(value="software power cap")}, {"GPU_THROTTLED": "error"}),
        ({"gpu_power_limit_w": Fact(value=40.0)}, {}, {"POWER_CAP": "warning"}),
        ({"gpu_mig_mode": Fact(value="enabled")}, {}, {"MIG": "warning"}),
        (dict.fromkeys(CARD, UNTOLD), {"foreign_processes": UNTOLD, "throttle": UNTOLD}, {}),
    ],
)
def test_each_trouble_of_a_card_is_named(card: dict[str, Fact], reading: dict[str, Fact], expected: dict[str, str]):
    """What a card does not tell is not blamed."""
    look = dataclasses.replace(FIT, gpus=((CARD | card, card_reading(**reading)),))
    assert blamed(look) == expected


def test_every_card_is_named_by_its_number():
    """The second of two is the one that is shared."""
    shared = card_reading(foreign_processes=Fact(value=1))
    look = dataclasses.replace(FIT, gpus=((CARD, card_reading()), (CARD, shared)))
    (finding,) = [finding for finding in judge(look) if finding.level == "error"]
    assert finding.evidence.startswith("GPU 1 (NVIDIA L4)")


def test_a_laptop_is_read_from_its_files(tmp_path: Path):
    """Settings and readings come from where the kernel shows them; the battery of a mouse is none of the machine's."""
    folders = Folders(tmp_path / "proc", tmp_path / "sys")
    cpu = "devices/system/cpu"
    write(folders.sys, f"{cpu}/cpu0/cpufreq/scaling_governor", "powersave\n")
    write(folders.sys, f"{cpu}/cpu1/cpufreq/scaling_governor", "performance\n")
    write(folders.sys, f"{cpu}/cpu0/cpufreq/scaling_max_freq", "2000000\n")
    write(folders.sys, f"{cpu}/cpu0/cpufreq/cpuinfo_max_freq", "4200000\n")
    write(folders.sys, f"{cpu}/intel_pstate/no_turbo", "1\n")
    write(folders.sys, f"{cpu}/cpu0/cache/index3/size", "8192K\n")
    write(folders.sys, "class/power_supply/BAT0/type", "Battery\n")
    write(folders.sys, "class/power_supply/BAT0/status", "Discharging\n")
    write(folders.sys, "class/power_supply/AC/type", "Mains\n")
    write(folders.sys, "class/power_supply/AC/online", "0\n")
    write(folders.sys, "class/power_supply/mouse/type", "Battery\n")
    write(folders.sys, "class/power_supply/mouse/scope", "Device\n")
    write(folders.proc, "pressure/cpu", "some avg10=1.50 avg60=0.00 avg300=0.00 total=1\n")
    write(folders.proc, "stat", "cpu0 1 1 1 1 1 1 1 1\nprocs_running 5\n")
    write(folders.proc, "meminfo", "SwapTotal: 4194304 kB\nSwapFree: 1048576 kB\n")
    told = {name: fact.value for name, fact in (settings(folders) | readings(folders)).items()}
    assert (told["governor"], told["boost"], told["on_battery"]) == ("performance, powersave", "off", True)
    assert (told["clock_limit_mhz"], told["clock_possible_mhz"], told["l3_cache_bytes"]) == (2000, 4200, 2**23)
    assert (told["cpu_pressure_frac"], told["tasks_running"], told["swap_used_gib"]) == (0.015, 5.0, 3.0)
    found = {finding.code: finding.level for finding in examine(0.0, folders=folders)}
    assert (found["GOVERNOR"], found["BATTERY"], found["CLOCK"]) == ("warning", "warning", "warning")


def test_an_empty_machine_has_a_reason_for_every_missing_fact(tmp_path: Path):
    """A system without /proc and /sys is examined as well."""
    folders = Folders(tmp_path / "proc", tmp_path / "sys")
    missing = [fact for fact in settings(folders).values() if fact.value is None]
    assert len(missing) == len(settings(folders))
    assert {finding.code for finding in examine(0.0, folders=folders) if finding.level == "error"} == set()


def test_swap_without_both_lines_is_unknown():
    """Half an answer is none."""
    assert parse_swap_used_gib("SwapTotal: 5 kB") is None


NOISY = (Finding("OTHER_LOAD", "error", "much", "stop it"), Finding("GOVERNOR", "warning", "powersave", "change it"))


def waiter(looks: list[tuple[Finding, ...]], limit_s: float) -> tuple[bool, list[str], float]:
    """Wait through these looks, each taking two seconds; the answer, what was told, and the time that passed [s]."""
    now_s = 0.0
    told: list[str] = []
    remaining: Iterator[tuple[Finding, ...]] = iter(looks)

    def pass_time(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    def look() -> tuple[Finding, ...]:
        pass_time(2.0)
        return next(remaining)

    clock: Callable[[], float] = lambda: now_s  # noqa: E731 - a clock is one expression
    quiet = wait_until_quiet(limit_s, on_wait=lambda _, why: told.append(why), look=look, pause=pass_time, clock=clock)
    return quiet, told, now_s


def test_waiting_ends_with_the_first_look_without_an_error():
    """A warning does not keep anybody waiting: time does not cure it."""
    quiet, told, _ = waiter([NOISY, NOISY, NOISY[1:]], 600.0)
    assert quiet
    assert told == ["OTHER_LOAD: much"] * 2


def test_waiting_ends_when_the_time_is_up():
    """It is exceeded by one look at most, and a limit of nothing is one look."""
    quiet, _, waited_s = waiter([NOISY] * 100, 30.0)
    assert not quiet
    assert 30.0 <= waited_s <= 32.0
    assert waiter([NOISY], 0.0)[0] is False
    assert waiter([()], 0.0)[0] is True


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other load is read from /proc")
@pytest.mark.skipif(read_host().has_quota, reason="under a CPU quota the load of others is not told")
def test_a_busy_process_makes_this_machine_unfit():
    """A child that spins is reported as other load."""
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            findings = examine(0.6)
        finally:
            child.kill()
    (load,) = [finding for finding in findings if finding.code == "OTHER_LOAD"]
    assert load.level == "error"
    assert "CPUs busy" in load.evidence
