"""One model through four engines: do their service times agree once overheads are taken away? Writes docs/engines.md.

Also how late the client of HTTP is at 500 requests a second, and how well it times streamed tokens. Takes about ten
minutes on a quiet machine.
"""

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from advisor.domain.measurement import LoadRun
from advisor.domain.profile import Cell, Profile
from advisor.profiling.example_models import build_example_model
from advisor.store.paths import ROOT
from advisor.store.profiles import read_profile_file
from advisor.units import s_to_ms
from benchmarks.engine_subjects import OnnxCallable, encode

SUBJECTS = {"resnet50": "ResNet-50, 224 × 224", "minilm": "MiniLM, 128 tokens"}
BATCHES = (1, 2)
BUDGET = "45s"
RATE_RPS, LATE_LIMIT_S = 500, 0.005
FIRST_TOKEN_S, INTER_TOKEN_S, TOKENS, TIMING_FRAC = 0.100, 0.020, 32, 0.05
_DOUBTFUL = 3
_READING = """The callable runs the very library of the first row, and differs by the call of a Python function.
PyTorch computes the same network with kernels of its own (oneDNN): its difference is that of the libraries, and is what
a comparison of platforms is about. Behind HTTP the time of the client is that of the model plus text, base64 and
loopback; what is left after these is how well the parts were measured, and that server, client and kernel share caches
and CPUs."""


@dataclass(frozen=True)
class Row:
    """One engine at one batch size."""

    engine: str
    batch_size: int
    cell: Cell
    overhead_s: float
    """What the engine needs beside the model, measured apart [s]."""
    note: str

    @property
    def fastest_s(self) -> float:
        """Mean time of a call in the fastest window [s]."""
        return min(repeat.service_mean_s for repeat in self.cell.repeats)

    @property
    def model_s(self) -> float:
        """Time of the model alone, in the fastest window [s]."""
        return self.fastest_s - self.overhead_s


def profiled(target: str, folder: Path, *options: str, subject: Path | None = None) -> Profile:
    """Run `advisor profile` with one replica of one thread."""
    output = folder / "profile.json"
    words = ["profile", target, "--output", str(output), "--threads", "1", "--replicas", "1", "--budget", BUDGET]
    environment = os.environ | ({} if subject is None else {"ENGINE_SUBJECT": str(subject)})
    done = subprocess.run(
        [sys.executable, "-m", "advisor", *words, "--wait-quiet", "2m", "--force", "--quiet", *options],
        check=False,
        env=environment,
        cwd=ROOT,
    )
    if done.returncode not in {0, _DOUBTFUL}:
        sys.exit(done.returncode)
    return read_profile_file(output)


@contextmanager
def server(module: str, **environment: str) -> Iterator[str]:
    """Start a server that prints its port; its address."""
    with subprocess.Popen(
        [sys.executable, "-m", module], stdout=subprocess.PIPE, text=True, env=os.environ | environment, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


def write_body(path: Path, subject: Path, items: int = 8) -> None:
    """Request with some items to draw from."""
    os.environ["ENGINE_SUBJECT"] = str(subject)
    rng, replica = np.random.default_rng(1), OnnxCallable()
    path.write_text(json.dumps({"instances": [encode(replica.prepare(1, rng)) for _ in range(items)]}), "utf-8")


def rows_of(name: str, folder: Path) -> tuple[list[Row], Profile]:
    """Profile one model through all engines."""
    subject, batches = folder / f"{name}.onnx", ",".join(map(str, BATCHES))
    build_example_model(name, subject)
    local = {
        "ONNX Runtime": (str(subject), ()),
        "callable (ONNX Runtime inside)": ("benchmarks.engine_subjects:OnnxCallable", ()),
        "PyTorch": (f"benchmarks.engine_torch:{name}", ()),
    }
    rows, first = [], None
    for engine, (target, options) in local.items():
        found = profiled(target, folder, "--batches", batches, *options, subject=subject)
        first = first or found
        rows += [Row(engine, cell.batch_size or 0, cell, 0.0, "") for cell in found.cells]
    assert first is not None
    rows += asked_by_http(subject, folder)
    return sorted(rows, key=lambda row: row.batch_size), first


def asked_by_http(subject: Path, folder: Path) -> list[Row]:
    """Profile one model behind a small server, batch by batch, with what server and client need beside it."""
    write_body(body := folder / "body.json", subject)
    rows = []
    with server("benchmarks.engine_server", ENGINE_SUBJECT=str(subject)) as address:
        for size in BATCHES:
            options = ("--batches", str(size), "--body", str(body), "--batch-at", "instances")
            found = profiled(f"{address}/predict", folder, *options)
            with urllib.request.urlopen(f"{address}/times") as answer:
                inside_s, own_s = json.load(answer)[str(size)]
            client_s = float(found.environment["client_round_trip_p50_s"].value or 0.0) * size
            note = (
                f"client and loopback {s_to_ms(client_s):.2f}, server's own text and base64 {s_to_ms(own_s):.2f}; the "
                f"server itself timed the model at {s_to_ms(inside_s):.2f} on average, the client's mean less these "
                f"overheads is {s_to_ms((found.cells[0].service_mean_s or 0.0) - client_s - own_s):.2f}"
            )
            rows += [Row("HTTP (ONNX Runtime behind it)", size, cell, client_s + own_s, note) for cell in found.cells]
    return rows


def late_run(folder: Path) -> LoadRun:
    """Ask a fast server 500 times a second by `advisor verify`; the run with its lateness."""
    subject = folder / "mlp.onnx"
    build_example_model("mlp", subject)
    body = folder / "mlp.json"
    os.environ["ENGINE_SUBJECT"] = str(subject)
    rng = np.random.default_rng(1)
    items = [encode({"features": rng.standard_normal((1, 784), dtype=np.float32)}) for _ in range(8)]
    body.write_text(json.dumps({"instances": items}), "utf-8")
    with server("benchmarks.engine_server", ENGINE_SUBJECT=str(subject)) as address:
        options = ("--batches", "1", "--body", str(body), "--batch-at", "instances")
        found = profiled(f"{address}/predict", folder, *options)
        saturated_rps = found.cells[0].throughput_rps or 1.0
        verified = folder / "verified.json"
        words = ["verify", str(folder / "profile.json"), "--output", str(verified), "--max-batch", "1"]
        words += ["--rates", f"{RATE_RPS / saturated_rps:.4f}", "--duration", "20s", *options[2:]]
        subprocess.run([sys.executable, "-m", "advisor", *words], check=False, cwd=ROOT)
    return read_profile_file(verified).load_runs[-1]


def streamed(folder: Path) -> Cell:
    """Profile a server that streams tokens by a known schedule."""
    body = folder / "chat.json"
    body.write_text('{"model": "clock", "messages": [{"role": "user", "content": "What time is it?"}]}', "utf-8")
    with server("benchmarks.token_server") as address:
        found = profiled(f"{address}/v1/chat/completions", folder, "--body", str(body))
    return found.cells[0]


def page(tables: dict[str, tuple[list[Row], Profile]], late: LoadRun, cell: Cell) -> str:
    """Make the whole page."""
    first = next(iter(tables.values()))[1]
    device, streaming = first.device, cell.streaming
    assert streaming is not None
    assert streaming.inter_token is not None
    client_bound = any(doubt.startswith("CLIENT_BOUND") for doubt in late.doubts)
    first_frac = streaming.first_token.p50_s / FIRST_TOKEN_S - 1
    inter_frac = streaming.inter_token.p50_s / INTER_TOKEN_S - 1
    lines = [
        "# One model through four engines",
        "",
        f"Written by `make engines`, {first.evidence.date}, on {device.name} with "
        f"{device.cpu.logical_cpus if device.cpu else '?'} CPUs. One replica of one thread, each engine profiled by "
        f"`advisor profile` in {BUDGET}. What the engine needs beside the model is measured apart and taken away: the "
        "same weights on the same machine must then take the same time, unless another library computes them. Engines "
        "are measured one after the other, and neighbors on the host slow whole windows; so the fastest window of each "
        "is compared, and the mean with its interval stands beside it.",
        "",
    ]
    for name, (rows, _) in tables.items():
        base = {row.batch_size: row.model_s for row in reversed(rows) if row.engine == "ONNX Runtime"}
        lines += [
            f"## {SUBJECTS[name]}",
            "",
            "| batch | engine | mean call, ms (±95 %) | fastest window, ms | overhead, ms | model, ms | to the first |",
            "| ---: | --- | ---: | ---: | ---: | ---: | ---: |",
            *(_line(row, base.get(row.batch_size)) for row in rows),
            "",
            *(f"HTTP at batch {row.batch_size}, in ms: {row.note}." for row in rows if row.note),
            "",
        ]
    return "\n".join(
        [
            *lines,
            _READING,
            "",
            "## The client's own limits",
            "",
            f"At {late.rate_rps:.0f} requests per second on loopback (wanted: {RATE_RPS}) the 99th percentile of its "
            f"lateness was {s_to_ms(late.lateness_p99_s):.2f} ms; the bar is {s_to_ms(LATE_LIMIT_S):.0f} ms, or that "
            f"the run calls itself client-bound: {'it did' if client_bound else 'it did not'}. "
            f"{_verdict(late.lateness_p99_s <= LATE_LIMIT_S or client_bound)}",
            "",
            "## Streamed tokens",
            "",
            f"A server that sends its first token after {s_to_ms(FIRST_TOKEN_S):.0f} ms and {TOKENS - 1} more every "
            f"{s_to_ms(INTER_TOKEN_S):.0f} ms, by an absolute schedule, was seen with medians of "
            f"{s_to_ms(streaming.first_token.p50_s):.2f} ms ({first_frac:+.1%}) and "
            f"{s_to_ms(streaming.inter_token.p50_s):.2f} ms ({inter_frac:+.1%}), "
            f"{streaming.parts_mean:.4g} parts per answer. The bar is {TIMING_FRAC:.0%}. "
            f"{_verdict(max(abs(first_frac), abs(inter_frac)) <= TIMING_FRAC)}",
            "",
        ]
    )


def _line(row: Row, base_s: float | None) -> str:
    service_s, half_frac = row.cell.service_mean_s or 0.0, row.cell.mean_ci95_frac or 0.0
    return (
        f"| {row.batch_size} | {row.engine} | {s_to_ms(service_s):.2f} (±{half_frac:.1%}) | "
        f"{s_to_ms(row.fastest_s):.2f} | {s_to_ms(row.overhead_s):.2f} | {s_to_ms(row.model_s):.2f} | "
        f"{'not measured' if base_s is None else f'{row.model_s / base_s - 1:+.1%}'} |"
    )


def _verdict(met: bool) -> str:
    return "The bar is met." if met else "The bar is **missed**."


def main() -> None:
    """Measure and write the page."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        late, cell = late_run(folder), streamed(folder)
        tables = {subject: rows_of(subject, folder) for subject in SUBJECTS}
    text = page(tables, late, cell)
    (ROOT / "docs" / "engines.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
