"""What `advisor verify` will do, known before it starts: the server, the loads, and the time it takes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.capacity.knee import KNEE_FRAC, Sweep, batch_sweeps
from advisor.domain.profile import Device, Profile, RuntimeInfo
from advisor.errors import InputError
from advisor.profiling.cell import Configuration, PlannedCell
from advisor.profiling.forecast import ServiceModel, service_model
from advisor.profiling.serving import WARM_CALLS, ServerSetup
from advisor.profiling.window import WindowRules

FEWEST_COUNTED = 300
"""Requests at least, for three of them to lie beyond the 99th percentile: an assumption, and still few."""
LONGEST_RUN_S = 300.0
"""A run that gets too few requests in this time is judged to have too few [s]: an assumption."""
WARM_UP_SERVICES, SHORTEST_WARM_UP_S, LONGEST_WARM_UP_S = 50, 1.0, 10.0
"""Start of a run that does not count: 50 service times, as the protocol asks; at least 1 s is an assumption."""
MANY_CPUS = 8
"""From so many CPUs on, replicas on all of them hardly feel the load generator, which needs a few percent of one: an
assumption. On fewer a CPU is left to it."""
ANCHOR_SIZES = 3
"""Batch sizes measured again just before and after; in trials this brought the mean to within 2 %."""
ANCHOR_RULES = WindowRules(warmup_calls=3, warmup_s=0.1, min_calls=20, min_s=2.0, cap_s=8.0, settle=False)
"""The trials took two seconds for three sizes, for calls of some ms. Two seconds each know calls of 50 ms to the 3 %
that tell drift."""
VAGUE_ERROR_FRAC = 0.10
"""Half width of the interval of a service time from which on a prediction is too vague to be a test: an assumption."""


@dataclass(frozen=True)
class VerificationPlan:
    """Runs to be made; `plan_verification` makes it.

    Attributes
    ----------
    setup
        The server.
    model
        Service times that the profile states for it.
    loads
        Load ρ of each run: its rate over the saturated throughput.
    duration_s
        Time of a run that counts, at least [s].
    seed
        Seed of the arrivals; run k has seed + k.
    anchor_sizes
        Batch sizes that are measured again before and after each run.
    cpus
        CPUs that the process may use.
    notes
        Sentences about what was chosen and what the profile lacks.
    runtime
        What ran the model when it was profiled; None: whatever runs it now will do.
    asks_address
        Whether a server is asked, which may be on this machine: what it does to the CPUs disturbs nothing.
    """

    setup: ServerSetup
    model: ServiceModel
    loads: tuple[float, ...]
    duration_s: float
    seed: int
    anchor_sizes: tuple[int, ...]
    cpus: int
    notes: tuple[str, ...]
    runtime: RuntimeInfo | None = None
    asks_address: bool = False

    @property
    def leaves_a_cpu_free(self) -> bool:
        """Whether the load generator has a CPU that no replica uses."""
        return _leaves_a_cpu_free(self.setup.configuration, self.cpus)

    def warm_up_requests(self, rate_rps: float) -> int:
        """Requests at the start of a run that do not count."""
        return math.ceil(rate_rps * self._warm_up_s)

    def counted_requests(self, rate_rps: float) -> int:
        """Requests of a run that count."""
        wanted = max(self.duration_s * rate_rps, FEWEST_COUNTED)
        return math.ceil(min(wanted, max(LONGEST_RUN_S, self.duration_s) * rate_rps))

    @property
    def estimated_s(self) -> float:
        """Time of everything, the opening of the model left out [s]."""
        times_s = self.model.curve.batch_time_s
        anchor_s = sum(
            PlannedCell(
                size, self.setup.configuration, call_s=float(times_s[size - 1]), prepare_s=0.0, memory_gib=None
            ).seconds(ANCHOR_RULES)
            for size in self.anchor_sizes
        )
        rates = [load * self.model.saturated_rps for load in self.loads]
        runs_s = sum(self._warm_up_s + self.counted_requests(rate) / rate for rate in rates)
        shapes_s = WARM_CALLS * float(times_s[: self.setup.max_batch].sum())
        return shapes_s + anchor_s * (len(rates) + 1) + runs_s

    @property
    def _warm_up_s(self) -> float:
        services_s = WARM_UP_SERVICES * float(self.model.curve.batch_time_s[0])
        return min(max(services_s, SHORTEST_WARM_UP_S), LONGEST_WARM_UP_S)


def plan_verification(
    profile: Profile,
    loads: Sequence[float],
    *,
    duration_s: float,
    cpus: int,
    threads: int | None = None,
    replicas: int | None = None,
    max_batch: int | None = None,
    batch_delay_s: float = 0.0,
    seed: int = 0,
    anyway: bool = False,
) -> VerificationPlan:
    """Choose what is left open and say so.

    Parameters
    ----------
    profile
        The profile to check.
    loads
        Load of each run.
    duration_s
        Time of each run that counts [s].
    cpus
        CPUs that the process may use.
    threads, replicas
        Configuration; by default the one of the profile with the most throughput that leaves a CPU to the load
        generator, or the one with the most where none does.
    max_batch
        Largest batch; by default the smallest that reaches 95 % of the best throughput.
    batch_delay_s
        Longest wait of a free worker for its batch to fill [s].
    seed
        Seed of the arrivals.
    anyway
        Whether another version of the runtime will do.

    Raises
    ------
    InputError
        When the profile cannot be checked here, or a number is not allowed.
    """
    if profile.evidence.kind != "measured":
        raise InputError("profile", profile.evidence.kind, "a profile that advisor profile measured")
    if not loads or min(loads) <= 0:
        raise InputError("loads", list(loads), "one or more numbers above 0")
    sweep, notes = _choose(profile, threads, replicas, cpus)
    place = Configuration(sweep.threads or 1, sweep.concurrency or 1)
    sizes = [point.size for point in sweep.points]
    largest = sweep.knee.size if max_batch is None else max_batch
    if not 1 <= largest <= sizes[-1]:
        raise InputError("max batch", largest, f"a whole number from 1 to {sizes[-1]}, the largest batch measured")
    if max_batch is None:
        notes.append(f"Largest batch {largest}: the smallest that reaches 95 % of the best throughput in the profile.")
    setup = ServerSetup(place, largest, batch_delay_s)
    model = service_model(profile, setup)
    return VerificationPlan(
        setup=setup,
        model=model,
        loads=tuple(loads),
        duration_s=duration_s,
        seed=seed,
        anchor_sizes=_spread([size for size in sizes if size <= largest] or sizes[:1]),
        cpus=cpus,
        notes=(*notes, *model.notes, *_vagueness(model, largest)),
        runtime=None if anyway else profile.runtime,
        asks_address=profile.model.is_address,
    )


def refuse_other_machine(profile: Profile, device: Device) -> None:
    """Refuse hardware that is not of the kind that was profiled: its service times are others.

    Raises
    ------
    InputError
        When the GPU or the CPU differs, or the number of CPUs that can be used.
    """
    there, here = _identity(profile.device), _identity(device)
    if there != here:
        raise InputError("this machine", here, f"the one that was profiled, {there}; --anyway checks all the same")


def _identity(device: Device) -> str:
    cpu = device.cpu
    if cpu is None:
        return device.gpu_id or device.name
    kind = f"{cpu.vendor} family {cpu.family} model {cpu.model} stepping {cpu.stepping}"
    return f"{f'{device.gpu_id} with ' if device.gpu_id else ''}{kind}, {cpu.logical_cpus} CPUs usable"


def _choose(profile: Profile, threads: int | None, replicas: int | None, cpus: int) -> tuple[Sweep, list[str]]:
    """Take the configuration to serve with, and say how it was chosen."""
    known = [sweep for sweep in batch_sweeps(profile) if sweep.threads is not None and sweep.concurrency is not None]
    fitting = [sweep for sweep in known if threads in (None, sweep.threads) and replicas in (None, sweep.concurrency)]
    if not fitting:
        listed = ", ".join(f"{sweep.concurrency} × {sweep.threads}" for sweep in known) or "none"
        asked = f"{replicas or 'any number'} × {threads or 'any number'}"
        raise InputError("replicas × threads", asked, f"what the profile measured: {listed}")
    if profile.model.is_address:
        return _choose_callers(fitting)
    if profile.device.kind == "gpu":
        best = max(fitting, key=lambda sweep: sweep.best_rps)
        return best, [f"Replicas {best.concurrency}: those of the profile with the most throughput on the GPU."]
    free = [
        sweep
        for sweep in fitting
        if _leaves_a_cpu_free(Configuration(sweep.threads or 1, sweep.concurrency or 1), cpus)
    ]
    best = max(free if free and cpus < MANY_CPUS else fitting, key=lambda sweep: sweep.best_rps)
    name = f"{best.concurrency} × {best.threads} threads"
    if not _leaves_a_cpu_free(Configuration(best.threads or 1, best.concurrency or 1), cpus):
        return best, [
            f"Replicas {name}: they use all {cpus} CPUs, so the load generator and the replicas take time from each "
            "other; what is observed describes both."
        ]
    return best, [
        f"Replicas {name}, which leave a CPU to the load generator; plans use replicas on all {cpus} CPUs, of which "
        "this run says nothing."
    ]


def _choose_callers(known: list[Sweep]) -> tuple[Sweep, list[str]]:
    """Callers of an address: as few as reach 95 % of the best throughput, since more of them only wait in its queue."""
    best_rps = max(sweep.best_rps for sweep in known)
    fewest = min(
        (sweep for sweep in known if sweep.best_rps >= KNEE_FRAC * best_rps), key=lambda sweep: sweep.concurrency or 1
    )
    return fewest, [
        f"At most {fewest.concurrency} requests are with the server at a time, the fewest that reach 95 % of its best "
        "throughput; the others wait here in one queue, as behind a router."
    ]


def _vagueness(model: ServiceModel, largest: int) -> tuple[str, ...]:
    """Tell when the profile knows so little that nearly everything would agree with it."""
    error_frac = float(model.curve.error_frac[:largest].max())
    if error_frac <= VAGUE_ERROR_FRAC:
        return ()
    return (
        f"The profile knows its service times to ±{error_frac:.0%} only (95 % interval): a prediction so vague proves "
        "little; measure again with more repeats on a quiet machine.",
    )


def refuse_other_runtime(profiled: RuntimeInfo, runtime: RuntimeInfo) -> None:
    """Refuse a runtime of another version: the anchor would hide how much faster or slower it is.

    Raises
    ------
    InputError
        When name or version differ.
    """
    there, here = f"{profiled.name} {profiled.version}", f"{runtime.name} {runtime.version}"
    if there != here:
        raise InputError("runtime", here, f"the one that was profiled, {there}; --anyway checks all the same")


def _leaves_a_cpu_free(place: Configuration, cpus: int) -> bool:
    return place.threads * place.concurrency < cpus


def _spread(sizes: list[int]) -> tuple[int, ...]:
    """First, middle and last size."""
    places = {round(k * (len(sizes) - 1) / (ANCHOR_SIZES - 1)) for k in range(ANCHOR_SIZES)}
    return tuple(sizes[place] for place in sorted(places))
