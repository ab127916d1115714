"""Text of docs/platforms.md, with the facts of a measurement filled in."""

from collections.abc import Mapping, Sequence

from advisor.domain.profile import Profile
from advisor.profiling.example_dimensions import MLP
from advisor.units import SECONDS_PER_DAY, s_to_ms, usd_per_month
from benchmarks.platform_figures import BUDGET, REGION, UNIT, VCPUS, Band, Measured, Price, command, order
from examples.platforms.check import BATCH_SIZES, TOLERANCE_FRAC, Platform

BUSY_FRAC = 0.5
"""Share of the time that a core may be busy in the figures of load: an assumption that keeps waits short."""
EXAMPLE_RPS = 10.0
_PER_MILLION = 1e6
INSIDE = {
    "onnx_mlp": "one call of the session",
    "numpy_mlp": "three matrix products",
    "torch_mlp": "eager, without gradients; tensors share the memory of the arrays",
    "duckdb_arrays": "the Arrow view of the inputs, parsing, planning and running the statement, fetching the scores; "
    "a layer is a cross join with `array_inner_product` and a `list` per input",
    "duckdb_relational": "the same with a row per feature; a layer is a join, `sum ... GROUP BY`, and a join with the "
    "biases",
}
"""What a call does, by module."""


def page(found: Sequence[Measured], price: Price | None, *, missing: Sequence[Platform] = (), budget: str) -> str:
    """Make the whole page.

    Parameters
    ----------
    found
        What was measured.
    price
        Offer that cost is told by; None where there is none.
    missing
        Platforms that are not installed.
    budget
        Time that each was given.
    """
    parts = [
        _head(found, missing, budget),
        _contract(found),
        _equality(found),
        _times(found),
        _loads(found),
        _energy(found),
        _cost(found, price),
        _advice(found, price),
        _LIMITS,
    ]
    return "\n\n".join(parts) + "\n"


def _head(found: Sequence[Measured], missing: Sequence[Platform], budget: str) -> str:
    first = found[0].profile
    cpus = first.device.cpu.logical_cpus if first.device.cpu else "?"
    system = ", ".join(f"{name} {_fact(first, name)}" for name in ("python", "numpy"))
    lines = [
        f"# One network on {len(found)} platforms",
        f"Written by `make platforms`, {first.evidence.date}: do not edit. Measured on {first.device.name} with {cpus} "
        f"CPUs, {_fact(first, 'os')}, hypervisor: {_fact(first, 'hypervisor')}; {system}. Each platform had {budget} "
        "in a process of its own, one replica with one thread.",
        *(f"{platform.name} was not measured: {platform.package} is not installed." for platform in missing),
    ]
    doubtful = [f"{entry.name} ({', '.join(entry.doubts)})" for entry in found if entry.doubts]
    if doubtful:
        lines.append(
            f"Reasons to doubt the figures, as codes that [profiling.md](profiling.md) explains: {'; '.join(doubtful)}."
        )
    return "\n\n".join(lines)


def _contract(found: Sequence[Measured]) -> str:
    rows = [
        f"| {entry.name} | {entry.profile.runtime.name} {entry.profile.runtime.version} | "
        f"{INSIDE[entry.platform.module]} |"
        for entry in found
    ]
    return f"""## What is the same for all

- The weights: a fully connected network 784-128-64-10 with ReLU, {MLP.parameters:,} weights in float32, the one that
  `advisor example-model mlp` writes. The code is in [examples/platforms](../examples/platforms).
- The unit of work: one inference is one input of 784 numbers to ten scores, whatever the batch.
- The boundary of the timer: from an array of inputs to an array of scores, both in the client's memory. Inside:
  everything that a platform needs to take the inputs over and to hand the scores back. Outside: loading the weights,
  which are a session, arrays or tables that exist beforehand, and making the inputs.
- The hardware, the harness and its rules: `{" ".join(command(found[0].platform, BUDGET))}`, and so for the others.

In SQL the database reads the inputs where they lie, as an Arrow table that is registered under a name: in trials an
INSERT into a table, and a prepared statement, were no faster. The databases run inside the process, in memory.

| platform | software | inside the timer |
| --- | --- | --- |
{_lines(rows)}"""


def _equality(found: Sequence[Measured]) -> str:
    rows = [f"| {entry.name} | {entry.difference_frac:.1e} |" for entry in found]
    equal = all(entry.difference_frac <= TOLERANCE_FRAC for entry in found)
    verdict = "All are equal within it." if equal else "**Not all are equal within it: their times do not compare.**"
    return f"""## Do they give the same scores?

Largest difference from numpy in double precision over batches of {_sizes()} inputs, as a fraction of the largest score.
The bound of a float32 sum of 784 terms is {TOLERANCE_FRAC:.1e}. {verdict}

| platform | largest difference |
| --- | ---: |
{_lines(rows)}"""


def _times(found: Sequence[Measured]) -> str:
    by_size = {size: _bands(found, size) for size in BATCH_SIZES}
    rows = [
        f"| {entry.name} | {' | '.join(_time_cell(entry.name, by_size[size]) for size in BATCH_SIZES)} |"
        for entry in found
    ]
    orders = [f"- batch {size}: {order(bands)}" for size, bands in by_size.items()]
    titles = " | ".join(f"batch {size}" for size in BATCH_SIZES)
    return f"""## Time of one inference

Mean wall time of a call over its inputs [µs] with the half width of its 95 % interval, and in brackets how many times
that of the fastest.

| platform | {titles} |
| --- |{" ---: |" * len(BATCH_SIZES)}
{_lines(rows)}

From fast to slow; an equals sign where the intervals overlap, so that the order is not known:

{_lines(orders)}"""


def _loads(found: Sequence[Measured]) -> str:
    rows = []
    for entry in found:
        single, best = entry.cell(1), entry.time_s(entry.best_batch_size)
        if single is None or single.service_mean_s is None or best is None:
            continue
        p99 = "unknown" if single.service_p99_s is None else _number(s_to_ms(single.service_p99_s))
        most = f"{_number(1 / best.value)} (batch {entry.best_batch_size})"
        rows.append(
            f"| {entry.name} | {_number(s_to_ms(single.service_mean_s))} | {p99} | "
            f"{_number(BUSY_FRAC / single.service_mean_s)} | {most} |"
        )
    return f"""## Answering one at a time, and as many as it can

Two questions with two answers. A service that people wait for gets single requests: the time of a call with one input
counts, and its slow end. A job over stored data fills batches: inferences per second count. The load is that at which
one core is busy {BUSY_FRAC:.0%} of the time, which leaves waits short.

| platform | one input, mean [ms] | p99 [ms] | load, one at a time [1/s] | most on one core [1/s] |
| --- | ---: | ---: | ---: | ---: |
{_lines(rows)}"""


def _energy(found: Sequence[Measured]) -> str:
    sizes = (BATCH_SIZES[0], BATCH_SIZES[-1])
    known = [entry for entry in found if any(entry.energy_j(size) for size in sizes)]
    title = f"## Energy of {UNIT:,} inferences"
    if not known:
        return f"{title}\n\nNot known: this machine has no meter, and no table has its CPU."
    energy, method = next(
        (cell.energy, cell.power_method) for entry in known for cell in entry.profile.cells if cell.energy is not None
    )
    kind = (
        "**An estimate**, assumed watts of busy and idle CPUs times the time: what is shown after ± is its band. "
        "The watts are the same for all, so it says nothing beyond the times, and platforms whose bands overlap are "
        "not ranked"
        if energy.is_estimate
        else "Measured; what is shown after ± is half the 95 % interval, and platforms whose intervals overlap are not "
        "ranked"
    )
    by_size = {size: {entry.name: band for entry in known if (band := entry.energy_j(size))} for size in sizes}
    rows = [
        f"| {entry.name} | {' | '.join(_band_text(by_size[size].get(entry.name)) for size in sizes)} |"
        for entry in known
    ]
    orders = [f"- batch {size}: {order(bands)}" for size, bands in by_size.items()]
    titles = " | ".join(f"batch {size} [J]" for size in sizes)
    return f"""{title}

{kind}. It covers {energy.scope}, also those that idle ({method}).

| platform | {titles} |
| --- |{" ---: |" * len(sizes)}
{_lines(rows)}

{_lines(orders)}"""


def _cost(found: Sequence[Measured], price: Price | None) -> str:
    title = f"## Cost of {UNIT:,} inferences"
    if price is None:
        return f"{title}\n\nNot known: no machine type of {VCPUS} vCPUs in {REGION} has this CPU."
    sizes = (BATCH_SIZES[0], BATCH_SIZES[-1])
    rows = [f"| {entry.name} | {' | '.join(_cost_text(entry, price, size) for size in sizes)} |" for entry in found]
    titles = " | ".join(f"batch {size} [µUSD]" for size in sizes)
    machine, offer = price.machine, price.offer
    rented = machine.microarchitectures[0]
    stand_in = (
        ""
        if rented == price.measured
        else f" No machine type with the CPU that was measured ({price.measured}) is in the price list: the next "
        f"generation of its maker that is stands in, and is taken to be as fast."
    )
    return f"""{title}

{machine.key} ({rented}, {VCPUS} vCPUs, one being a {machine.vcpu_is}) in {offer.region}: {offer.price_usd_per_h:g}
USD/h on demand, {offer.price_date}, source: {offer.source}.{stand_in} It is the cheapest of {VCPUS} vCPUs there.

cost = {UNIT:,} × time of one inference × price per hour / {VCPUS} vCPUs / 3,600 s, so the vCPU is busy all the time; at
half the load an inference costs twice as much. In millionths of a dollar, which is also USD per billion inferences.

| platform | {titles} |
| --- |{" ---: |" * len(sizes)}
{_lines(rows)}"""


def _advice(found: Sequence[Measured], price: Price | None) -> str:
    bands = {entry.name: band for entry in found if (band := entry.time_s(1))}
    fastest = min(bands, key=lambda name: bands[name].value)
    lines = []
    for entry in found:
        single, best = entry.time_s(1), entry.time_s(entry.best_batch_size)
        if entry.platform.package != "duckdb" or single is None or best is None:
            continue
        rate_rps = BUSY_FRAC / single.value
        text = (
            f"- **{entry.name}**: up to {_number(rate_rps)} requests per second one at a time "
            f"({_number(rate_rps * SECONDS_PER_DAY)} a day) keep one core busy {BUSY_FRAC:.0%} of the time, and up to "
            f"{_number(BUSY_FRAC / best.value)} per second in batches of {entry.best_batch_size}. "
        )
        text += f"At {EXAMPLE_RPS:g} requests per second it keeps {_share(single)} of a core busy"
        text += f", {fastest} {_share(bands[fastest])}"
        if price is not None:
            text += f"; the difference is worth {_difference(single, bands[fastest], price)} USD a month"
        lines.append(f"{text}.")
    return f"""## When a SQL form is enough

Below these loads the database that runs anyway answers from a core that it has to spare, at no extra cost. Above them,
or where p99 must lie below its time for one input, a runtime beside the database is the better tool.

{_lines(lines)}

A call in SQL takes a time that does not depend on the batch, mostly for parsing and planning: the inputs of a batch
share it. What is left per input in the largest batch is the price of the form itself."""


_LIMITS = """## What this page does not show

- Other databases, and databases behind a network: a round trip would come on top.
- Larger networks: the work per input grows, and the time that every call takes matters less.
- Several threads, and several callers at once: one replica answered with one thread.
- Data that are in the database already: then the inputs need no way in, and it is the other platforms that have to
  fetch them first.
- Other hardware: factors between platforms change with the CPU. Run `make platforms` on yours."""


def _bands(found: Sequence[Measured], batch_size: int) -> dict[str, Band]:
    """Times of the platforms that were measured at a batch size [s]."""
    return {entry.name: band for entry in found if (band := entry.time_s(batch_size))}


def _time_cell(name: str, bands: Mapping[str, Band]) -> str:
    """Time with its interval, and how many times that of the fastest."""
    if name not in bands:
        return "left out"
    band, fastest_s = bands[name], min(other.value for other in bands.values())
    half = "?" if band.half is None else _number(_PER_MILLION * band.half)
    return f"{_number(_PER_MILLION * band.value)} ± {half} (× {_number(band.value / fastest_s)})"


def _band_text(band: Band | None) -> str:
    """Figure with its band."""
    return "unknown" if band is None or band.half is None else f"{_number(band.value)} ± {_number(band.half)}"


def _cost_text(entry: Measured, price: Price, batch_size: int) -> str:
    """Cost of `UNIT` inferences [µUSD]."""
    band = entry.time_s(batch_size)
    return "unknown" if band is None else _number(_PER_MILLION * price.cost_usd(UNIT * band.value))


def _share(time_s: Band) -> str:
    """Share of a core that the load of the example keeps busy."""
    return f"{_number(100 * EXAMPLE_RPS * time_s.value)}%"


def _difference(slow: Band, fast: Band, price: Price) -> str:
    """What the load of the example costs more with one platform than with another [USD per month]."""
    return _number(usd_per_month(price.usd_per_vcpu_h * EXAMPLE_RPS * (slow.value - fast.value)))


def _number(value: float) -> str:
    """Three significant digits, with commas between thousands.

    Examples
    --------
    >>> _number(1692.4), _number(0.93251), _number(12_345_678.0)
    ('1,690', '0.933', '12,300,000')
    """
    return f"{float(f'{value:.3g}'):,.15g}"


def _sizes() -> str:
    """Batch sizes as words."""
    return ", ".join(map(str, BATCH_SIZES))


def _lines(rows: Sequence[str]) -> str:
    return "\n".join(rows)


def _fact(profile: Profile, key: str) -> object:
    """Value of a fact about the machine; words where the system does not tell."""
    fact = profile.environment.get(key)
    return "not told" if fact is None or fact.value is None else fact.value
