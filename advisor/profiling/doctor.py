"""Whether this machine is fit to be measured right now. The doctor looks, and changes nothing."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from advisor.domain.measurement import Surroundings
from advisor.domain.profile import Fact
from advisor.profiling.acceptance import STEAL_LIMIT_FRAC
from advisor.profiling.control_group import cpu_limit
from advisor.profiling.gpu import Gpu, GpuReading
from advisor.profiling.host import own_cpus, read_host, surroundings
from advisor.profiling.machine_state import parse_swapped_pages, readings, settings
from advisor.profiling.system_files import SYSTEM, Folders, read_text

OTHER_LOAD_LIMIT_CPUS = 0.10
"""A tenth of a core beyond what the counters leave open, a judgement of the protocol."""
LEAST_MEMORY_GIB = 1.0
"""An assumption: below this a model of middling size with its runtime begins to push others out."""
PAUSE_S = 3.0
"""Time between two looks while waiting: an assumption."""

_WAIT = "let advisor profile wait with --wait-quiet 10m"
_UNTOLD = Fact(value=None, why="the card does not tell")

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    code: str
    level: Level
    """Error: what is measured now would describe something else. Warning: it would be in doubt."""
    evidence: str
    """What was seen, with units."""
    remedy: str | None
    """What to do; None when nothing needs to be done."""


@dataclass(frozen=True, slots=True)
class Look:
    """Everything that a judgement needs."""

    seconds: float
    """Time that the counters ran [s]."""
    around: Surroundings
    facts: Mapping[str, Fact]
    """Settings and readings of the machine."""
    cpus: int
    """CPUs that this process may use."""
    granted_cpus: float | None
    """CPUs that its control group grants; None without a limit."""
    swapped_pages: int | None
    """Pages moved to or from the swap space meanwhile; None where the system does not tell."""
    gpus: tuple[tuple[Mapping[str, Fact], GpuReading], ...] = ()


def examine(seconds: float = 2.0, *, gpus: Sequence[Gpu] = (), folders: Folders = SYSTEM) -> tuple[Finding, ...]:
    """Look at the machine for some seconds and judge what was seen.

    Parameters
    ----------
    seconds
        How long the counters of the CPUs run [s]. Below a second their ticks of 10 ms are coarse.
    gpus
        Cards to look at.
    folders
        Roots of /proc and /sys.
    """
    cpus = own_cpus()
    facts = settings(folders) | readings(folders)
    pages = _swapped_pages(folders)
    before = read_host(folders, cpus=cpus)
    time.sleep(seconds)
    after = read_host(folders, cpus=cpus)
    pages_after = _swapped_pages(folders)
    return judge(
        Look(
            seconds=after.at_s - before.at_s,
            around=surroundings(before, after),
            facts=facts,
            cpus=len(cpus),
            granted_cpus=cpu_limit(folders),
            swapped_pages=None if pages is None or pages_after is None else pages_after - pages,
            gpus=tuple((gpu.facts(), gpu.read()) for gpu in gpus),
        )
    )


def judge(look: Look) -> tuple[Finding, ...]:
    """Judge what was seen, thing by thing; what the system does not tell is said and blames nobody."""
    findings = [
        _other_load(look),
        _steal(look),
        _quota(look),
        _governor(look.facts["governor"]),
        _boost(look.facts["boost"]),
        _clock(look.facts),
        _memory(look.facts),
        _swap(look),
        _battery(look.facts["on_battery"]),
    ]
    for index, (facts, reading) in enumerate(look.gpus):
        findings += _gpu(index, facts, reading)
    return tuple(findings)


def wait_until_quiet(
    limit_s: float,
    *,
    on_wait: Callable[[float, str], None],
    gpus: Sequence[Gpu] = (),
    look: Callable[[], tuple[Finding, ...]] | None = None,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Look every few seconds until no error is left, or the time is up; whether the machine became quiet.

    Parameters
    ----------
    limit_s
        Longest wait [s]; there is always at least one look.
    on_wait
        Told after each look in vain: seconds left, and what was seen.
    gpus
        Cards to look at.
    look
        What looks at the machine; `examine` when not given.
    pause, clock
        How time passes.
    """
    began_s = clock()
    while True:
        findings = look() if look is not None else examine(gpus=gpus)
        errors = [finding for finding in findings if finding.level == "error"]
        if not errors:
            return True
        left_s = limit_s - (clock() - began_s)
        if left_s <= 0:
            return False
        on_wait(left_s, "; ".join(f"{finding.code}: {finding.evidence}" for finding in errors))
        pause(min(PAUSE_S, left_s))


def _other_load(look: Look) -> Finding:
    code, other_cpus = "OTHER_LOAD", look.around.other_cpus
    if other_cpus is None and look.granted_cpus is not None and look.granted_cpus < look.cpus:
        # No doubt: a container with a quota is a common place to measure in, and every window is still judged.
        why = "not told under a CPU quota: the counters are the whole host's; run delay and throttling judge instead"
        return Finding(code, "ok", why, None)
    if other_cpus is None:
        return Finding(
            code, "warning", "the system does not tell what others use", "close other programs, or measure on Linux"
        )
    seen = [f"other processes kept {other_cpus:.2f} CPUs busy for {look.seconds:.1f} s"]
    pressure = look.facts["cpu_pressure_frac"].value
    if isinstance(pressure, float):
        # Shown and never judged: threads of one's own raise it as well.
        seen.append(f"pressure {pressure:.0%} over 10 s")
    load = look.facts["load_average_1min"].value
    if isinstance(load, float):
        seen.append(f"load {load:.1f} over a minute")
    if other_cpus > OTHER_LOAD_LIMIT_CPUS:
        return Finding(code, "error", ", ".join(seen), f"stop them (top shows which), or {_WAIT}")
    return Finding(code, "ok", ", ".join(seen), None)


def _steal(look: Look) -> Finding:
    code, steal_frac = "STEAL", look.around.steal_frac
    if steal_frac is None:
        return Finding(code, "ok", "not told by this system", None)
    seen = f"the hypervisor gave {steal_frac:.1%} of the CPU time to others"
    if steal_frac > STEAL_LIMIT_FRAC:
        return Finding(code, "error", seen, f"{_WAIT}, or take a machine type that does not share its CPUs")
    return Finding(code, "ok", seen, None)


def _quota(look: Look) -> Finding:
    code, throttled_frac, granted = "CGROUP_THROTTLED", look.around.throttled_frac, look.granted_cpus
    limit = "no CPU limit" if granted is None else f"{granted:.3g} of {look.cpus} CPUs granted"
    if throttled_frac:
        seen = f"{limit}; the quota withheld {throttled_frac:.1%} of the CPU time wanted"
        return Finding(code, "error", seen, f"raise the container's CPU limit, or {_WAIT}")
    if granted is not None and granted < 1:
        return Finding(code, "warning", limit, "raise the container's CPU limit to 1 or more")
    return Finding(code, "ok", limit, None)


def _governor(fact: Fact) -> Finding:
    if not isinstance(fact.value, str):
        return Finding("GOVERNOR", "ok", f"not known: {fact.why}", None)
    if fact.value == "performance":
        return Finding("GOVERNOR", "ok", fact.value, None)
    remedy = f"sudo cpupower frequency-set -g performance; afterwards back with -g {fact.value.split(', ')[0]}"
    return Finding("GOVERNOR", "warning", f"{fact.value}: the clock follows the load", remedy)


def _boost(fact: Fact) -> Finding:
    if fact.value is None:
        return Finding("BOOST_UNKNOWN", "ok", f"{fact.why}, as in most virtual machines", None)
    seen = "on: the clock depends on heat and on how many CPUs are busy" if fact.value == "on" else "off"
    return Finding("BOOST", "ok", seen, None)


def _clock(facts: Mapping[str, Fact]) -> Finding:
    limit, possible, limited = facts["clock_limit_mhz"], facts["clock_possible_mhz"], facts["clock_limited_cpus"]
    if limited.value is None:
        return Finding("CLOCK", "ok", f"not known: {limited.why}", None)
    if limited.value:
        seen = f"limited to {limit.value} MHz of {possible.value} MHz (CPUs limited: {limited.value})"
        # The end of a range: the kernel cuts what is asked for to what each CPU can do.
        highest = str(possible.value).rpartition(" ")[2]
        return Finding("CLOCK", "warning", seen, f"sudo cpupower frequency-set -u {highest}MHz")
    return Finding("CLOCK", "ok", f"up to {limit.value} MHz", None)


def _memory(facts: Mapping[str, Fact]) -> Finding:
    available, limit = facts["memory_available_gib"].value, facts["memory_limit_gib"].value
    capped = f", limit of the container {limit:.2f} GiB" if isinstance(limit, float) else ""
    seen = f"{available:.1f} GiB available{capped}"
    if isinstance(available, float) and available < LEAST_MEMORY_GIB:
        return Finding("MEMORY", "warning", seen, "stop what fills the memory, or raise the limit")
    return Finding("MEMORY", "ok", seen, None)


def _swap(look: Look) -> Finding:
    used_gib = look.facts["swap_used_gib"].value
    seen = f"{used_gib:.2f} GiB in use" if isinstance(used_gib, float) else "use not told by this system"
    if look.swapped_pages:
        # Pages that lie there untouched cost nothing; pages on the move do.
        seen += f", {look.swapped_pages} pages moved in {look.seconds:.1f} s"
        return Finding("SWAP", "warning", seen, "stop what fills the memory (vmstat 1 shows the traffic)")
    return Finding("SWAP", "ok", seen, None)


def _battery(fact: Fact) -> Finding:
    if fact.value is None:
        return Finding("BATTERY", "ok", f"{fact.why}", None)
    if fact.value:
        return Finding("BATTERY", "warning", "running on battery", "connect the mains supply")
    return Finding("BATTERY", "ok", "on mains", None)


def _gpu(index: int, facts: Mapping[str, Fact], reading: GpuReading) -> Iterator[Finding]:
    """Judge one card."""
    name = f"GPU {index} ({facts.get('gpu_name', _UNTOLD).value or 'name unknown'})"
    foreign, throttle = reading.foreign_processes, reading.throttle
    if foreign.value is None:
        yield Finding("GPU_SHARED", "ok", f"{name}: not known: {foreign.why}", None)
    elif foreign.value:
        yield Finding(
            "GPU_SHARED", "error", f"{name}: other processes: {foreign.value}", f"stop them (nvidia-smi), or {_WAIT}"
        )
    else:
        yield Finding("GPU_SHARED", "ok", f"{name}: no other process", None)
    if throttle.value is None:
        yield Finding("GPU_THROTTLED", "ok", f"{name}: not known: {throttle.why}", None)
    elif throttle.value:
        yield Finding(
            "GPU_THROTTLED", "error", f"{name}: {throttle.value}", "let it cool, see nvidia-smi -q -d PERFORMANCE"
        )
    else:
        yield Finding("GPU_THROTTLED", "ok", f"{name}: full clocks allowed", None)
    yield _power_cap(index, name, facts)
    if facts.get("gpu_mig_mode", _UNTOLD).value == "enabled":
        yield Finding(
            "MIG", "warning", f"{name}: split into instances (MIG)", "energy counts the whole card; note the instance"
        )


def _power_cap(index: int, name: str, facts: Mapping[str, Fact]) -> Finding:
    limit, usual = facts.get("gpu_power_limit_w", _UNTOLD), facts.get("gpu_default_power_limit_w", _UNTOLD)
    if not isinstance(limit.value, float) or not isinstance(usual.value, float):
        return Finding("POWER_CAP", "ok", f"{name}: not known: {limit.why or usual.why}", None)
    if limit.value < usual.value:
        seen = f"{name}: {limit.value:.0f} W allowed of {usual.value:.0f} W"
        return Finding("POWER_CAP", "warning", seen, f"sudo nvidia-smi -i {index} -pl {usual.value:.0f}")
    return Finding("POWER_CAP", "ok", f"{name}: {limit.value:.0f} W, not lowered", None)


def _swapped_pages(folders: Folders) -> int | None:
    return parse_swapped_pages(read_text(folders.proc / "vmstat") or "")
