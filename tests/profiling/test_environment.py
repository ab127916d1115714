"""The environment is told by facts, each with a value or the reason why there is none."""

import getpass
import platform

import psutil

from advisor.profiling.environment import (
    observe_device,
    observe_environment,
    parse_cpuinfo,
    usable_cpus,
)

X86 = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Platinum 8488C
stepping\t: 8
flags\t\t: fpu sse avx2 fma avx512f avx512_vnni amx_int8 hypervisor

processor\t: 1
vendor_id\t: GenuineIntel
"""

ARM = """processor\t: 0
BogoMIPS\t: 2100.00
Features\t: fp asimd sve i8mm bf16 paca
CPU implementer\t: 0x41
CPU architecture: 8
CPU part\t: 0xd40
"""


def test_x86_is_identified_by_vendor_family_model_and_stepping():
    """Only the flags that change inference speed are kept."""
    name, cpu = parse_cpuinfo(X86, logical_cpus=8, threads_per_core=2)
    assert name == "Intel(R) Xeon(R) Platinum 8488C"
    assert (cpu.vendor, cpu.family, cpu.model, cpu.stepping) == ("GenuineIntel", 6, 143, 8)
    assert cpu.flags == ("avx2", "fma", "avx512f", "avx512_vnni", "amx_int8")


def test_arm_is_identified_by_implementer_and_part():
    """Neoverse V1 is part 0xd40 of implementer 0x41."""
    _, cpu = parse_cpuinfo(ARM, logical_cpus=4, threads_per_core=1)
    assert (cpu.vendor, cpu.family, cpu.model, cpu.stepping) == ("0x41", "0x41", 0xD40, None)
    assert cpu.flags == ("asimd", "sve", "i8mm", "bf16")


def test_text_without_an_identity_gives_none():
    """Then another source is asked."""
    assert parse_cpuinfo("processor : 0\n", logical_cpus=1, threads_per_core=None) is None


def test_this_machine_can_be_observed():
    """Every fact has a value or a reason, and the device has an identity."""
    device = observe_device(machine_type="m7a.large")
    assert device.cpu is not None
    assert device.cpu.logical_cpus == usable_cpus() <= psutil.cpu_count()
    assert device.machine_type == "m7a.large"
    facts = observe_environment()
    assert {"os", "python", "numpy", "onnxruntime", "governor", "cgroup_cpu_limit"} <= set(facts)
    assert all((fact.value is None) == (fact.why is not None) for fact in facts.values())


def test_no_fact_names_the_host_or_the_user():
    """A profile is a file that people publish."""
    text = " ".join(str(fact.value) for fact in observe_environment().values()).split()
    assert platform.node() not in text
    assert getpass.getuser() not in text
    assert not any(word.startswith("/") for word in text)
