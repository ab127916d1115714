"""Small worlds that tests share: one catalog, made-up profiles with known service times."""

import datetime
import os

import pytest
from hypothesis import settings

from advisor.domain.evidence import Evidence
from advisor.domain.machine import Catalog, CpuIdRule, MachineType, Offer
from advisor.domain.profile import Cell, CpuIdentity, Device, ModelInfo, Profile, RuntimeInfo
from advisor.store.scenarios import online_scenario

# Small matrices: threads of the linear algebra library would only wait for each other. Set before numpy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# The same examples on every run; these machines are too noisy for a deadline.
settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("fixed")

TODAY = datetime.date(2026, 11, 30)
PRICE_DAY = datetime.date(2026, 11, 1)


def make_cell(batch, mean_s, **fields):
    """Cell with a service time."""
    return Cell(batch_size=batch, service_mean_s=mean_s, **fields)


def cpu_profile(times, *, threads=1, logical_cpus=2, model="net", profile_id="net-cpu", error=0.02, **model_fields):
    """Measured CPU profile: batch size -> mean service time [s]."""
    concurrency = max(1, logical_cpus // threads)
    return Profile(
        schema_version=1,
        profile_id=profile_id,
        status="complete",
        evidence=Evidence(kind="measured", source="test", date=TODAY),
        model=ModelInfo(name=model, precision="fp32", **model_fields),
        runtime=RuntimeInfo(name="test"),
        device=Device(
            kind="cpu",
            name="test CPU",
            cpu=CpuIdentity(vendor="AuthenticAMD", family=25, model=1, stepping=1, logical_cpus=logical_cpus),
        ),
        cells=tuple(
            make_cell(batch, mean, threads=threads, concurrency=concurrency, mean_ci95_frac=error, memory_gib=0.5)
            for batch, mean in times.items()
        ),
    )


def gpu_profile(
    times,
    *,
    gpu_id="T4",
    model="net",
    profile_id="net-gpu",
    precision="fp16",
    p99_over_mean=None,
    **model_fields,
):
    """Published GPU profile: batch size -> mean service time [s]."""
    return Profile(
        schema_version=1,
        profile_id=profile_id,
        status="complete",
        evidence=Evidence(kind="published", source="test table", date=None),
        model=ModelInfo(name=model, precision=precision, **model_fields),
        runtime=RuntimeInfo(name="test"),
        device=Device(kind="gpu", name=gpu_id, gpu_id=gpu_id, gpus=1),
        cells=tuple(
            make_cell(batch, mean, service_p99_s=mean * p99_over_mean if p99_over_mean else None)
            for batch, mean in times.items()
        ),
    )


def machine(name, *, vcpus=2.0, gpu=None, count=0.0, micro=("zen3",), provider="cloud", memory_gib=8.0, **fields):
    """Machine type."""
    return MachineType(
        provider=provider,
        name=name,
        arch="x86_64",
        vcpus=vcpus,
        memory_gib=memory_gib,
        gpu_model=gpu,
        gpu_count=count,
        gpu_memory_gib=16.0 if gpu else None,
        gpu_ids=(gpu,) if gpu else (),
        microarchitectures=micro,
        vcpu_is="thread",
        source="test",
        **fields,
    )


def offer(name, price, *, region="cloud/here", provider="cloud", day=PRICE_DAY):
    """On-demand offer."""
    return Offer(
        machine_type=f"{provider}/{name}",
        region=region,
        kind="on_demand",
        price_usd_per_h=price,
        price_date=day,
        source="test list",
        license="test",
    )


def make_catalog(machines, offers):
    """Catalog whose CPUID map knows the test CPU as zen3."""
    rule = CpuIdRule(
        vendor="AuthenticAMD", family=25, model_min=0, model_max=15, microarchitecture="zen3", source="test"
    )
    return Catalog(schema_version=1, machine_types=tuple(machines), offers=tuple(offers), cpuid_rules=(rule,))


def question(rate=20.0, p99_ms=200.0, arrivals=None, sla=None, **fields):
    """Scenario of the model called net."""
    demand = {"rate_rps": rate, "arrivals": arrivals or {"kind": "poisson"}}
    return online_scenario(name="test", model="net", demand=demand, sla=sla or {"p99_ms": p99_ms}, **fields)


@pytest.fixture(scope="session")
def small_catalog():
    """Two CPU sizes, a GPU machine, and types that must fall out."""
    return make_catalog(
        [
            machine("c.small", vcpus=2.0),
            machine("c.big", vcpus=8.0, memory_gib=32.0),
            machine("g.one", vcpus=4.0, gpu="T4", count=1.0),
            machine("b.burst", burstable=True),
            machine("c.other", micro=("zen9",)),
            machine("c.mixed", micro=("zen3", "zen9")),
            machine("g.part", gpu="T4", count=0.5),
            machine("g.rare", gpu="X9", count=1.0),
        ],
        [
            offer("c.small", 0.08),
            offer("c.big", 0.33),
            offer("g.one", 0.53),
            offer("g.one", 0.60, region="cloud/there"),
            offer("b.burst", 0.01),
            offer("c.other", 0.01),
            offer("c.mixed", 0.01),
            offer("g.part", 0.01),
            offer("g.rare", 0.01),
        ],
    )


@pytest.fixture(scope="session")
def small_profiles():
    """One CPU that gains nothing from batches, one GPU that gains much."""
    return (
        cpu_profile({1: 0.050, 2: 0.098, 4: 0.195}),
        gpu_profile({1: 0.004, 2: 0.005, 4: 0.006, 8: 0.009, 16: 0.015, 32: 0.028}),
    )
