"""Counters of the host tell other load from one's own."""

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from advisor.profiling.control_group import cpu_limit, memory_limit_bytes, parse_memberships, throttled_s
from advisor.profiling.host import (
    HostReading,
    own_cpus,
    parse_clocks_mhz,
    parse_cpu_lines,
    read_host,
    run_delay_frac,
    surroundings,
)
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


def reading(**fields: object) -> HostReading:
    """Counters at time zero, with these changes."""
    zero = {
        "at_s": 0.0,
        "own_cpu_s": 0.0,
        "busy_cpu_s": 0.0,
        "steal_s": 0.0,
        "tasks": {1: (0, 0)},
        "throttled_s": 0.0,
        "clock_mhz": 2000.0,
    }
    return HostReading(**(zero | fields))


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    """Roots of an empty machine."""
    return Folders(tmp_path / "proc", tmp_path / "sys")


def test_other_load_is_what_the_cpus_did_beyond_this_process():
    """Three CPU seconds in two seconds, of which one is one's own, are one CPU of others."""
    seen = surroundings(reading(), reading(at_s=2.0, own_cpu_s=1.0, busy_cpu_s=3.0))
    assert seen.other_cpus == 1.0


def test_one_tick_less_than_the_own_time_is_no_load():
    """Ticks are coarser than the clock of the process."""
    assert surroundings(reading(), reading(at_s=1.0, own_cpu_s=1.0, busy_cpu_s=0.99)).other_cpus == 0.0


def test_steal_is_a_share_of_the_time_wanted_and_of_one_cpu_at_least():
    """Idle CPUs do not dilute it, and a tick on an idle machine stays a tick."""
    busy = surroundings(reading(), reading(at_s=1.0, busy_cpu_s=3.6, steal_s=0.4))
    idle = surroundings(reading(), reading(at_s=1.0, busy_cpu_s=0.0, steal_s=0.01))
    assert (busy.steal_frac, idle.steal_frac) == (0.1, 0.01)


def test_throttled_time_is_a_share_of_the_window():
    """The kernel adds up CPUs; the share ends at one."""
    assert surroundings(reading(), reading(at_s=2.0, throttled_s=0.5)).throttled_frac == 0.25
    assert surroundings(reading(), reading(at_s=2.0, throttled_s=9.0)).throttled_frac == 1.0


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
    assert parse_clocks_mhz(X86_CLOCKS, {1}) == [1200.0]
    assert parse_clocks_mhz(VIRTUAL_CLOCK, {0}) == []
    assert parse_clocks_mhz(ARM_CLOCK, {0}) == []


@LINUX
def test_all_counters_are_read_from_their_files(folders: Folders):
    """Threads that have no times are left out, ticks become seconds, and the fastest clock is taken."""
    write(folders.proc, "stat", STAT)
    write(folders.proc, "self/schedstat", "1 1 1\n")
    write(folders.proc, "self/task/11/schedstat", "5000 40 3\n")
    write(folders.proc, "self/task/12/comm", "ended\n")
    write(folders.proc, "self/cgroup", "0::/\n")
    write(folders.sys, "fs/cgroup/cpu.stat", "usage_usec 5\nthrottled_usec 1500000\n")
    write(folders.sys, "devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "800000\n")
    write(folders.sys, "devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "3100000\n")
    seen = read_host(folders, cpus={0, 1})
    assert (seen.busy_cpu_s, seen.steal_s) == (520 / os.sysconf("SC_CLK_TCK"), 40 / os.sysconf("SC_CLK_TCK"))
    assert seen.tasks == {11: (5000, 40)}
    assert (seen.throttled_s, seen.clock_mhz) == (1.5, 3100.0)


def test_clocks_come_from_cpuinfo_without_a_frequency_interface(folders: Folders):
    """The second source is only asked where there is no first."""
    write(folders.proc, "cpuinfo", X86_CLOCKS)
    assert read_host(folders, cpus={0, 1}).clock_mhz == 2900.0


def test_a_machine_without_these_files_tells_nothing(folders: Folders):
    """Own CPU time is known everywhere."""
    seen = read_host(folders, cpus={0})
    assert seen.own_cpu_s > 0
    assert (seen.busy_cpu_s, seen.steal_s, seen.tasks, seen.throttled_s, seen.clock_mhz) == (None, None, {}, None, None)


def test_version_2_limits_hold_on_the_way_up(folders: Folders):
    """The smallest limit counts, throttling anywhere above adds up, and the machine's root has no limits."""
    write(folders.proc, "self/cgroup", "0::/pod/box\n")
    write(folders.sys, "fs/cgroup/cpu.stat", "usage_usec 1\n")
    write(folders.sys, "fs/cgroup/pod/cpu.max", "150000 100000\n")
    write(folders.sys, "fs/cgroup/pod/cpu.stat", "throttled_usec 250000\n")
    write(folders.sys, "fs/cgroup/pod/box/cpu.max", "max 100000\n")
    write(folders.sys, "fs/cgroup/pod/box/cpu.stat", "throttled_usec 500000\n")
    write(folders.sys, "fs/cgroup/pod/box/memory.max", "1073741824\n")
    assert (cpu_limit(folders), throttled_s(folders), memory_limit_bytes(folders)) == (1.5, 0.75, 2**30)


def test_version_1_limits_hold_inside_a_container(folders: Folders):
    """The path is one of the host; the root of the mounted tree is the container's own group."""
    write(folders.proc, "self/cgroup", "5:memory:/docker/ab\n3:cpu,cpuacct:/docker/ab\n0::/\n")
    write(folders.sys, "fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n")
    write(folders.sys, "fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
    write(folders.sys, "fs/cgroup/cpu,cpuacct/cpu.stat", "nr_throttled 4\nthrottled_time 2000000000\n")
    write(folders.sys, "fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert (cpu_limit(folders), throttled_s(folders), memory_limit_bytes(folders)) == (2.0, 2.0, None)


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
