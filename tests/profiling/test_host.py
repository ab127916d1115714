"""Counters of the host tell other load from one's own."""

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from advisor.profiling.acceptance import OTHER_CPUS_LIMIT, find_stalls, reasons_to_reject
from advisor.profiling.control_group import (
    cpu_limit,
    memory_limit_bytes,
    memory_room_bytes,
    parse_memberships,
    throttled_s,
)
from advisor.profiling.host import (
    HostReading,
    own_cpus,
    parse_clocks_mhz,
    parse_cpu_lines,
    read_host,
    resolution_s,
    run_delay_frac,
    surroundings,
)
from advisor.profiling.memory import available_gib
from advisor.profiling.system_files import Folders
from tests.system_files import write

STAT = """cpu  400 0 100 3000 50 0 10 40 0 0
cpu0 100 10 50 800 20 2 3 15 7 0
cpu1 300 0 50 2200 30 0 5 25 0 0
intr 123456 0 0
ctxt 99
procs_running 2
"""
X86_CLOCKS = """processor\t: 0
flags\t\t: fpu sse avx2
cpu MHz\t\t: 2900.000

processor\t: 1
flags\t\t: fpu sse avx2
cpu MHz\t\t: 1200.000
"""
VIRTUAL_CLOCK = "processor : 0\nflags : fpu hypervisor\ncpu MHz : 2445.426\n"
ARM_CLOCK = "processor : 0\nBogoMIPS : 50.00\nCPU implementer : 0x41\n"

LOOK_S = 0.6
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's own")
NO_QUOTA = pytest.mark.skipif(read_host().has_quota, reason="under a CPU quota the load of others is not told")


def reading(**fields: object) -> HostReading:
    """Counters at time zero, with these changes."""
    zero = {
        "at_s": 0.0,
        "own_cpu_s": 0.0,
        "busy_cpu_s": 0.0,
        "steal_s": 0.0,
        "tasks": {1: (0, 0)},
        "throttled_s": (0.0,),
        "clock_mhz": 2000.0,
    }
    return HostReading(**(zero | fields))


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    """Roots of an empty machine."""
    return Folders(tmp_path / "proc", tmp_path / "sys")


def test_other_load_is_what_the_cpus_did_beyond_this_process():
    """Three CPU seconds in two seconds, of which one is one's own, are one CPU of others less the resolution."""
    seen = surroundings(reading(), reading(at_s=2.0, own_cpu_s=1.0, busy_cpu_s=3.0))
    assert seen.other_cpus == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(("cpus", "elapsed_s"), [(2, 0.3), (2, 1.0), (16, 1.0), (64, 1.0)])
@pytest.mark.parametrize("off", [-1, 1])
def test_what_the_counters_round_is_no_load(cpus, elapsed_s, off):
    """All CPUs at work and little else: neither side of the rounding rejects, and one CPU of others does."""
    # The timer misses one of its periods on every CPU, and the ticks add their square root.
    rounding_s = off * (0.004 * cpus + 0.01 * cpus**0.5)
    own_s = (cpus - 0.1) * elapsed_s
    quiet = reading(at_s=elapsed_s, own_cpu_s=own_s, busy_cpu_s=cpus * elapsed_s + rounding_s)
    crowded = reading(at_s=elapsed_s, own_cpu_s=own_s - elapsed_s, busy_cpu_s=cpus * elapsed_s)
    assert surroundings(reading(), quiet).other_cpus <= OTHER_CPUS_LIMIT
    assert surroundings(reading(), crowded).other_cpus > OTHER_CPUS_LIMIT


def test_on_two_cpus_a_second_tells_load_to_two_hundredths_of_a_cpu():
    """The limit stays close to what the trials found."""
    just_above = reading(at_s=1.0, own_cpu_s=1.85, busy_cpu_s=2.0)
    assert surroundings(reading(), just_above).other_cpus > OTHER_CPUS_LIMIT


def test_idle_cpus_do_not_err():
    """One CPU at work of 64 is told as well as one of two."""
    assert resolution_s(1.0, 1.0) == pytest.approx(0.014)
    assert resolution_s(0.0, 1.0) == resolution_s(1.0, 1.0)


def test_under_a_quota_the_load_of_others_is_not_told():
    """Other containers of the host run on time that is not this one's; what the hypervisor takes is still told."""
    after = reading(at_s=1.0, busy_cpu_s=8.0, steal_s=2.0, has_quota=True)
    seen = surroundings(reading(has_quota=True), after)
    assert (seen.other_cpus, seen.steal_frac) == (None, 0.2)


def test_one_tick_less_than_the_own_time_is_no_load():
    """Ticks are coarser than the clock of the process."""
    assert surroundings(reading(), reading(at_s=1.0, own_cpu_s=1.0, busy_cpu_s=0.99)).other_cpus == 0.0


def test_steal_is_a_share_of_the_time_wanted_and_of_one_cpu_at_least():
    """Idle CPUs do not dilute it."""
    busy = surroundings(reading(), reading(at_s=1.0, busy_cpu_s=3.6, steal_s=0.4))
    idle = surroundings(reading(), reading(at_s=1.0, busy_cpu_s=0.0, steal_s=0.05))
    assert (busy.steal_frac, idle.steal_frac) == (0.1, 0.05)


@pytest.mark.parametrize(("ticks", "rejects"), [(1, False), (2, False), (3, True)])
def test_two_ticks_of_steal_may_be_rounding(ticks, rejects):
    """In a short window they exceed 1 %; the third one rejects."""
    before = reading(steal_s=17.29)
    seen = surroundings(before, reading(at_s=0.5, steal_s=17.29 + ticks / os.sysconf("SC_CLK_TCK")))
    steady = find_stalls(np.full(1000, 0.010))
    assert bool(reasons_to_reject(steady, seen)) == rejects


def test_throttled_time_is_a_share_of_the_time_wanted():
    """Four CPUs that ran half the time were throttled half the time, though the kernel adds up to two seconds."""
    four = surroundings(reading(), reading(at_s=1.0, own_cpu_s=2.0, busy_cpu_s=2.0, throttled_s=(2.0,)))
    idle = surroundings(reading(), reading(at_s=2.0, throttled_s=(0.5,)))
    assert (four.throttled_frac, idle.throttled_frac) == (0.5, 0.25)
    assert surroundings(reading(), reading(at_s=2.0, throttled_s=(9.0,))).throttled_frac == 1.0


def test_groups_above_each_other_do_not_count_a_moment_twice():
    """The one throttled longest meanwhile counts, however much the other had counted before."""
    before = reading(throttled_s=(1.0, 90.0))
    assert surroundings(before, reading(at_s=1.0, throttled_s=(1.2, 90.1))).throttled_frac == pytest.approx(0.2)
    assert surroundings(before, reading(at_s=1.0, throttled_s=(1.2,))).throttled_frac is None


def test_the_clock_change_has_no_sign():
    """Slower and faster spoil a comparison alike."""
    assert surroundings(reading(), reading(at_s=1.0, clock_mhz=1900.0)).clock_change_frac == 0.05
    assert surroundings(reading(), reading(at_s=1.0, clock_mhz=2100.0)).clock_change_frac == 0.05


def test_only_threads_of_both_readings_count_for_the_delay():
    """A thread that came or went meanwhile has no beginning or no end."""
    assert run_delay_frac({1: (100, 0), 2: (0, 0)}, {1: (300, 10), 3: (900, 900)}) == 0.05
    assert run_delay_frac({1: (5, 5)}, {2: (9, 9)}) is None


def test_what_the_system_does_not_tell_stays_unknown():
    """No counter becomes a zero."""
    untold = {"busy_cpu_s": None, "steal_s": None, "tasks": {}, "throttled_s": None, "clock_mhz": None}
    seen = surroundings(reading(**untold), reading(at_s=1.0, own_cpu_s=1.0, **untold))
    assert not seen.model_dump(exclude_none=True, exclude={"gpu_throttle"})
    assert surroundings(reading(), reading()) == type(seen)()


def test_only_the_cpus_of_the_mask_count():
    """A container that may use one CPU does not see the load of the others; guest time is not counted twice."""
    assert parse_cpu_lines(STAT, {0}) == (100 + 10 + 50 + 2 + 3, 15)
    assert parse_cpu_lines(STAT, {0, 1}) == (165 + 355, 40)
    assert parse_cpu_lines(STAT, {7}) is None
    assert parse_cpu_lines("", {0}) is None


def test_clocks_are_read_where_they_mean_something():
    """Arm does not tell them, and a virtual machine shows a constant."""
    assert parse_clocks_mhz(X86_CLOCKS, {1}) == {1: 1200.0}
    assert parse_clocks_mhz(VIRTUAL_CLOCK, {0}) == {}
    assert parse_clocks_mhz(ARM_CLOCK, {0}) == {}


@LINUX
def test_all_counters_are_read_from_their_files(folders: Folders):
    """Threads that have no times are left out, ticks become seconds, and the fastest clock with a base is taken."""
    write(folders.proc, "stat", STAT)
    write(folders.proc, "self/schedstat", "1 1 1\n")
    write(folders.proc, "self/task/11/schedstat", "5000 40 3\n")
    write(folders.proc, "self/task/12/comm", "ended\n")
    write(folders.proc, "self/cgroup", "0::/\n")
    write(folders.sys, "fs/cgroup/cpu.stat", "usage_usec 5\nthrottled_usec 1500000\n")
    for cpu, khz in enumerate((800_000, 3_100_000, 5_000_000)):
        write(folders.sys, f"devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq", f"{khz}\n")
    write(folders.sys, "devices/system/cpu/cpu0/cpufreq/base_frequency", "3200000\n")
    write(folders.sys, "devices/system/cpu/cpu1/cpufreq/base_frequency", "3200000\n")
    seen = read_host(folders, cpus={0, 1})
    assert (seen.busy_cpu_s, seen.steal_s) == (520 / os.sysconf("SC_CLK_TCK"), 40 / os.sysconf("SC_CLK_TCK"))
    assert seen.tasks == {11: (5000, 40)}
    assert (seen.throttled_s, seen.clock_mhz, seen.has_quota) == ((1.5,), 3100.0, False)
    assert read_host(folders, cpus={2}).clock_mhz is None


def test_clocks_come_from_cpuinfo_without_a_frequency_interface(folders: Folders):
    """The second source is only asked where there is no first."""
    write(folders.proc, "cpuinfo", X86_CLOCKS)
    for cpu in (0, 1):
        write(folders.sys, f"devices/system/cpu/cpu{cpu}/acpi_cppc/nominal_freq", "3000\n")
    assert read_host(folders, cpus={0, 1}).clock_mhz == 2900.0


@pytest.mark.parametrize(("end_khz", "change_frac"), [(3_900_000, 0.0), (3_000_000, 0.0), (2_400_000, 0.2)])
def test_turbo_is_no_change_and_a_clock_below_the_base_is(folders: Folders, end_khz, change_frac):
    """Few CPUs at work reach a higher clock than all do; none of them may fall below the base clock."""
    cpu = "devices/system/cpu/cpu0/cpufreq"
    write(folders.sys, f"{cpu}/base_frequency", "3000000\n")
    write(folders.sys, f"{cpu}/scaling_cur_freq", "5100000\n")
    before = read_host(folders, cpus={0})
    write(folders.sys, f"{cpu}/scaling_cur_freq", f"{end_khz}\n")
    assert surroundings(before, read_host(folders, cpus={0})).clock_change_frac == pytest.approx(change_frac)


@pytest.mark.parametrize(("granted", "has_quota"), [("150000", True), ("200000", False), ("max", False)])
def test_a_quota_counts_when_it_grants_less_than_the_mask(folders: Folders, granted, has_quota):
    """Where it grants all CPUs of the mask, whatever else runs on them takes time that was granted."""
    write(folders.proc, "self/cgroup", "0::/\n")
    write(folders.sys, "fs/cgroup/cpu.max", f"{granted} 100000\n")
    assert read_host(folders, cpus={0, 1}).has_quota == has_quota


def test_a_machine_without_these_files_tells_nothing(folders: Folders):
    """Own CPU time is known everywhere."""
    seen = read_host(folders, cpus={0})
    assert seen.own_cpu_s > 0
    assert (seen.busy_cpu_s, seen.steal_s, seen.tasks, seen.throttled_s, seen.clock_mhz) == (None, None, {}, None, None)


def test_version_2_limits_hold_on_the_way_up(folders: Folders):
    """The smallest limit counts, throttling is told level by level, and the machine's root has no limits."""
    write(folders.proc, "self/cgroup", "0::/pod/box\n")
    write(folders.sys, "fs/cgroup/cpu.stat", "usage_usec 1\n")
    write(folders.sys, "fs/cgroup/pod/cpu.max", "150000 100000\n")
    write(folders.sys, "fs/cgroup/pod/cpu.stat", "throttled_usec 250000\n")
    write(folders.sys, "fs/cgroup/pod/box/cpu.max", "max 100000\n")
    write(folders.sys, "fs/cgroup/pod/box/cpu.stat", "throttled_usec 500000\n")
    write(folders.sys, "fs/cgroup/pod/box/memory.max", "1073741824\n")
    assert (cpu_limit(folders), throttled_s(folders), memory_limit_bytes(folders)) == (1.5, (0.5, 0.25), 2**30)


def test_version_1_limits_hold_inside_a_container(folders: Folders):
    """The path is one of the host; the root of the mounted tree is the container's own group."""
    write(folders.proc, "self/cgroup", "5:memory:/docker/ab\n3:cpu,cpuacct:/docker/ab\n0::/\n")
    write(folders.sys, "fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n")
    write(folders.sys, "fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
    write(folders.sys, "fs/cgroup/cpu,cpuacct/cpu.stat", "nr_throttled 4\nthrottled_time 2000000000\n")
    write(folders.sys, "fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert (cpu_limit(folders), throttled_s(folders), memory_limit_bytes(folders)) == (2.0, (2.0,), None)


def test_room_for_memory_is_the_smallest_on_the_way_up(folders: Folders):
    """A level above may be fuller than one's own; pages that the kernel drops at need are room."""
    write(folders.proc, "self/cgroup", "0::/pod/box\n")
    write(folders.sys, "fs/cgroup/pod/box/memory.max", f"{8 * 2**30}\n")
    write(folders.sys, "fs/cgroup/pod/box/memory.current", f"{2 * 2**30}\n")
    write(folders.sys, "fs/cgroup/pod/box/memory.stat", f"anon 5\ninactive_file {2**30}\n")
    assert memory_room_bytes(folders) == 7 * 2**30
    write(folders.sys, "fs/cgroup/pod/memory.max", f"{9 * 2**30}\n")
    write(folders.sys, "fs/cgroup/pod/memory.current", f"{6 * 2**30}\n")
    assert memory_room_bytes(folders) == 3 * 2**30
    write(folders.sys, "fs/cgroup/pod/memory.current", f"{10 * 2**30}\n")
    assert memory_room_bytes(folders) == 0


def test_version_1_counts_the_groups_below(folders: Folders):
    """Its usage includes them, so the pages to drop must as well."""
    write(folders.proc, "self/cgroup", "5:memory:/docker/ab\n")
    write(folders.sys, "fs/cgroup/memory/memory.limit_in_bytes", f"{4 * 2**30}\n")
    write(folders.sys, "fs/cgroup/memory/memory.usage_in_bytes", f"{3 * 2**30}\n")
    write(folders.sys, "fs/cgroup/memory/memory.stat", f"inactive_file 7\ntotal_inactive_file {2**30}\n")
    assert memory_room_bytes(folders) == 2 * 2**30


def test_memory_can_be_had_within_the_container_only(folders: Folders):
    """The host's free memory is no use beyond the limit; without a limit it counts."""
    assert available_gib(folders) > 0.25
    limited = Folders(folders.proc / "limited", folders.sys / "limited")
    write(limited.proc, "self/cgroup", "0::/\n")
    write(limited.sys, "fs/cgroup/memory.max", f"{2**30}\n")
    write(limited.sys, "fs/cgroup/memory.current", f"{3 * 2**28}\n")
    assert available_gib(limited) == 0.25


def test_a_controller_is_matched_by_its_whole_name():
    """The group of cpuset is not that of cpu."""
    assert parse_memberships("7:cpuset:/a\n6:name=systemd:/b", "cpu") == []


@pytest.fixture
def busy_child() -> Iterator[None]:
    """Keep one CPU busy from another process."""
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            yield
        finally:
            child.kill()


@LINUX
@NO_QUOTA
@pytest.mark.usefixtures("busy_child")
def test_another_process_is_other_load():
    """A child that spins is seen, although this process sleeps."""
    before = read_host()
    time.sleep(LOOK_S)
    after = read_host()
    # Other programs may take the child's CPUs on a busy machine; whoever runs, it is not this process.
    assert surroundings(before, after).other_cpus > 0.3
    assert after.own_cpu_s - before.own_cpu_s < 0.3


@LINUX
@NO_QUOTA
def test_the_own_work_is_no_other_load():
    """With a thread on every CPU, own work and that of others are no more than all CPUs: nothing counts twice."""
    cpus = len(own_cpus())
    before = read_host()
    # Hashing lets go of the interpreter's lock, so that all threads work at the same time.
    with ThreadPoolExecutor(cpus) as pool:
        list(pool.map(_work_for_a_moment, range(cpus)))
    after = read_host()
    own_s, elapsed_s = after.own_cpu_s - before.own_cpu_s, after.at_s - before.at_s
    assert own_s >= LOOK_S
    assert surroundings(before, after).other_cpus + own_s / elapsed_s <= 1.1 * cpus


def _work_for_a_moment(_: int) -> None:
    until = time.thread_time() + LOOK_S
    while time.thread_time() < until:
        hashlib.pbkdf2_hmac("sha256", b"text", b"salt", 20_000)


@LINUX
def test_the_mask_of_the_process_holds_in_every_thread():
    """It has at least one CPU, and the reading counts them."""
    assert own_cpus()
    assert read_host().busy_cpu_s > 0
