"""The timing script as people run it on old hosts: one file, one CSV, one sentence when something fails."""

import ast
import csv
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from advisor.profiling import timings_table
from advisor.store.paths import ROOT

SCRIPT = ROOT / "scripts" / "time_inference.py"
HANG_S = 120
SHORT = ("--repeats", "2", "--seconds", "0.01", "--calls", "3")

NET = """
import time

class Net:
    def prepare(self, batch_size, rng):
        with open("generators.txt", "a") as log:
            log.write(type(rng).__name__ + "\\n")
        return [rng.random() for _ in range(batch_size)]

    def __call__(self, item):
        if len(item) > 64:
            raise RuntimeError("CUDA out of memory.\\nTried to allocate 2 GiB")
        time.sleep(0.001 * len(item))

    def close(self):
        with open("closed.txt", "a") as log:
            log.write("closed\\n")

def factory():
    return Net()

def broken():
    raise OSError("no weights. Download them")

def nothing():
    return None
"""


@pytest.fixture
def folder(tmp_path):
    """Make a folder with a module of factories."""
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    return tmp_path


def run(folder, *arguments, flags=()):
    """Run the script as a user does, from a folder of the user's."""
    return subprocess.run(
        [sys.executable, *flags, SCRIPT, *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        cwd=folder,
    )


def rows_of(path):
    """Rows of a file by column."""
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def is_one_sentence(text):
    """One line that ends in one full stop."""
    return text.count("\n") == 1 and text.endswith(".\n") and ". " not in text


@contextmanager
def server(*, status=200, closes=False, most=10**9):
    """Answer requests over HTTP and keep their bodies and headers; after so many with an error."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # an answer goes out whole; in two parts the second would wait for the client's delayed ACK

        def do_POST(self):
            seen.append((self.rfile.read(int(self.headers["Content-Length"])), dict(self.headers), self.path))
            self.send_response(status if len(seen) <= most else 500)
            if closes:
                self.send_header("Connection", "close")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.server_port}/predict", seen
        finally:
            listening.shutdown()
            thread.join(HANG_S)


def test_it_is_python_3_8_and_only_the_standard_library():
    """Old hosts have nothing else; NumPy is asked for by name and may be missing."""
    source = SCRIPT.read_text(encoding="utf-8")
    tree = ast.parse(source, feature_version=(3, 8))
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {module.split(".")[0] for module in modules} <= sys.stdlib_module_names
    assert "__future__" in modules  # annotations are not evaluated, so that they may be of newer forms
    newer = ("removeprefix", "removesuffix", "datetime.UTC", "strict=True", "slots=True", "is_relative_to", "pairwise")
    assert not [name for name in newer if name in source]
    # What is not an annotation is evaluated: no subscript of a built-in type, no union of types.
    annotations = {id(part) for node in ast.walk(tree) for root in _annotations(node) for part in ast.walk(root)}
    evaluated = [node for node in ast.walk(tree) if id(node) not in annotations]
    built_in = {"list", "dict", "tuple", "set", "type", "Callable"}
    assert not [
        node
        for node in evaluated
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in built_in
    ]


def _annotations(node):
    """Annotations of a node."""
    found = [getattr(node, "annotation", None), getattr(node, "returns", None)]
    return [part for part in found if part is not None]


def test_its_columns_are_those_that_are_imported():
    """The script stands alone, so that its lists are a second copy."""
    spec = importlib.util.spec_from_file_location("time_inference", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    sys.modules["time_inference"] = script  # where its dataclasses look for their module
    try:
        spec.loader.exec_module(script)
    finally:
        del sys.modules["time_inference"]
    assert script.COLUMNS == timings_table.CALL_COLUMNS
    assert script.FACTS == timings_table.FACT_COLUMNS


def test_every_window_is_there_with_all_its_calls_and_the_facts_once(folder):
    """Windows are interleaved; calls are numbered without a gap, do not overlap, and take the time that they take."""
    facts = ("--model", "net", "--on", "Tesla K80", "--precision", "fp32", "--runtime", "sleep", "--sequence-length", 9)
    done = run(folder, "net:factory", "--batches", "4,1", *SHORT, *facts, "-o", "k80.csv")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "window 4 of 4" in done.stderr
    assert "advisor import k80.csv" in done.stderr
    rows = rows_of(folder / "k80.csv")
    windows = Counter((row["batch_size"], row["repeat"]) for row in rows)
    assert set(windows) == {("1", "1"), ("4", "1"), ("1", "2"), ("4", "2")}
    assert min(windows.values()) >= 3
    for (batch, repeat), count in windows.items():
        own = [row for row in rows if (row["batch_size"], row["repeat"]) == (batch, repeat)]
        assert [int(row["call"]) for row in own] == list(range(1, count + 1))
        starts = [float(row["start_s"]) for row in own]
        ends = [float(row["start_s"]) + float(row["service_s"]) for row in own]
        assert all(end <= start + 1e-8 for end, start in zip(ends, starts[1:], strict=False))
        assert min(float(row["service_s"]) for row in own) >= 0.001 * int(batch)
    first = rows[0]
    assert (first["model"], first["device"], first["precision"]) == ("net", "Tesla K80", "fp32")
    assert (first["runtime"], first["sequence_length"], first["target"]) == ("sleep", "9", "net:factory")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", first["date"])
    assert not any(row[name] for row in rows[1:] for name in ("model", "device", "date", "tool", "target"))
    assert (folder / "closed.txt").read_text() == "closed\n"


def test_the_generator_is_that_of_numpy_where_there_is_one(folder):
    """One factory serves the script and `advisor profile`; without NumPy it gets one of the standard library."""
    assert np.random.default_rng(0).random() < 1
    assert run(folder, "net:factory", *SHORT).returncode == 0
    (folder / "sitecustomize.py").write_text("import sys\nsys.modules['numpy'] = None\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, SCRIPT, "net:factory", *SHORT, "-o", "again.csv"]
    subprocess.run(command, check=True, capture_output=True, cwd=folder, env=environment, timeout=HANG_S)
    kinds = Counter((folder / "generators.txt").read_text().split())
    assert set(kinds) == {"Generator", "Random"}


def test_several_callers_have_a_replica_each(folder):
    """Callers are numbered; every window has calls of each."""
    done = run(folder, "net:factory", "--concurrency", "1,3", *SHORT)
    assert done.returncode == 0, done.stderr
    rows = rows_of(folder / "timings.csv")
    callers = {(row["concurrency"], row["repeat"], row["caller"]) for row in rows}
    assert {caller for copies, _, caller in callers if copies == "1"} == {"1"}
    assert {caller for copies, _, caller in callers if copies == "3"} == {"1", "2", "3"}
    assert (folder / "closed.txt").read_text() == "closed\n" * 3


def test_a_window_ends_at_the_most_calls(folder):
    """And says so by their number: none is dropped to save space."""
    options = ("--repeats", "2", "--seconds", "60", "--calls", "2", "--most-calls", "5")
    assert run(folder, "net:factory", *options).returncode == 0
    assert len(rows_of(folder / "timings.csv")) == 10


def test_a_batch_that_fails_is_found_before_any_window(folder):
    """One sentence without line breaks, exit code 1, and no file that holds nothing."""
    done = run(folder, "net:factory", "--batches", "1,65", *SHORT)
    assert done.returncode == 1
    sentence = done.stderr.splitlines(keepends=True)[-1]
    assert is_one_sentence(sentence)
    assert "RuntimeError: CUDA out of memory; Tried to allocate 2 GiB" in sentence
    assert not (folder / "timings.csv").exists()


def test_ctrl_c_keeps_whole_windows(folder):
    """Exit code 130; the file has what was written before, each window to its last call."""
    command = [sys.executable, SCRIPT, "net:factory", "--repeats", "10000", "--seconds", "0.05", "--calls", "2"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stderr:
                if line.startswith("window 2 of"):
                    break
            process.send_signal(signal.SIGINT)
            rest = process.communicate(timeout=HANG_S)[1]
        finally:
            process.kill()
    assert process.returncode == 130
    assert rest.endswith("Interrupted; what was written stays: a file has only whole windows.\n")
    text = (folder / "timings.csv").read_text(encoding="utf-8")
    assert text.endswith("\n")
    assert {row["repeat"] for row in rows_of(folder / "timings.csv")} >= {"1", "2"}


def test_a_server_is_timed_with_items_drawn_from_the_body(folder):
    """Each request has as many items as the batch; the address is kept without what may be a secret."""
    (folder / "body.json").write_text(json.dumps({"in": {"instances": [[1], [2]]}, "id": 7}), encoding="utf-8")
    options = ("--body", "body.json", "--batch-at", "in.instances", "--batches", "1,3", "--concurrency", "1,2")
    with server() as (address, seen):
        done = run(folder, f"{address}?key=secret", *options, "--header", "Authorization: Bearer x", *SHORT)
    assert done.returncode == 0, done.stderr
    bodies = [json.loads(body) for body, _, _ in seen]
    assert {len(body["in"]["instances"]) for body in bodies} == {1, 3}
    assert all(item in ([1], [2]) for body in bodies for item in body["in"]["instances"])
    assert {body["id"] for body in bodies} == {7}
    assert {headers["Authorization"] for _, headers, _ in seen} == {"Bearer x"}
    assert {headers["Content-Type"] for _, headers, _ in seen} == {"application/json"}
    assert {path for _, _, path in seen} == {"/predict?key=secret"}
    text = (folder / "timings.csv").read_text(encoding="utf-8")
    assert address in text
    assert "secret" not in text


def test_a_server_that_closes_every_connection_is_timed(folder):
    """It is connected to again between the calls."""
    (folder / "body.txt").write_text("select predict(1)", encoding="utf-8")
    with server(closes=True) as (address, seen):
        done = run(folder, address, "--body", "body.txt", "--header", "content-type: text/plain", *SHORT)
    assert done.returncode == 0, done.stderr
    assert {(body, headers["content-type"]) for body, headers, _ in seen} == {(b"select predict(1)", "text/plain")}


def test_a_server_that_fails_on_the_way_ends_the_run_and_leaves_what_was_measured(folder):
    """The file stays valid."""
    (folder / "body.json").write_text("{}", encoding="utf-8")
    options = ("--body", "body.json", "--repeats", "10000", "--seconds", "0.01", "--calls", "3", "--most-calls", "3")
    with server(most=2000) as (address, _):
        done = run(folder, address, *options)
    assert done.returncode == 1
    sentence = done.stderr.splitlines(keepends=True)[-1]
    assert is_one_sentence(sentence)
    assert "answers 500" in sentence
    assert rows_of(folder / "timings.csv")


def test_a_server_that_is_not_there_is_one_sentence(folder):
    """It names the address."""
    (folder / "body.json").write_text("{}", encoding="utf-8")
    with server() as (address, _):
        pass
    done = run(folder, address, "--body", "body.json")
    assert done.returncode == 1
    assert is_one_sentence(done.stderr)
    assert address in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "The following arguments are required: TARGET"),
        (("net",), "TARGET is 'net'; allowed: module:factory"),
        (("http://:x/",), "TARGET is 'http://:x/'; allowed: an address"),
        (("http://127.0.0.1/",), "--body is missing"),
        (("http://127.0.0.1/", "--body", "none.json"), "--body is 'none.json'"),
        (("http://127.0.0.1/", "--body", "net.py", "--batches", "2"), "--batches is '2'; allowed: 1, or --batch-at"),
        (
            ("http://127.0.0.1/", "--body", "net.py", "--batch-at", "x"),
            "--batch-at is 'x'; allowed: the place of a list",
        ),
        (("http://127.0.0.1/", "--body", "net.py", "--header", "x"), "A --header is no header line"),
        (("absent:factory",), "importing absent failed with ModuleNotFoundError"),
        (("net:absent",), "net has no function absent"),
        (("net:nothing",), "returns a NoneType; allowed: an object with prepare and __call__"),
        (("net:factory", "--batches", "1,x"), "--batches is '1,x'; allowed: whole numbers from 1 to 65536"),
        (("net:factory", "--batches", "0"), "--batches is '0'"),
        (("net:factory", "--concurrency", "2000"), "--concurrency is '2000'"),
        (("net:factory", "--repeats", "0"), "--repeats is 0"),
        (("net:factory", "--seconds", "nan"), "--seconds is nan"),
        (("net:factory", "--calls", "many"), "invalid int value: 'many'"),
        (("net:factory", "--most-calls", "3"), "--most-calls is 3; allowed: a whole number of at least 30"),
        (("net:factory", "--sequence-length", "long"), "--sequence-length is 'long'"),
        (("net:factory", "-o", "net.py"), "--output is 'net.py'; allowed: a file that does not exist yet"),
        (("net:factory", "-o", "absent/t.csv"), "--output is 'absent/t.csv'"),
    ],
)
def test_what_does_not_fit_is_one_sentence_and_exit_code_2(folder, arguments, words):
    """Before anything is measured."""
    done = run(folder, *arguments)
    assert done.returncode == 2
    assert is_one_sentence(done.stderr)
    assert words in done.stderr


def test_a_factory_that_fails_is_one_sentence(folder):
    """Its message is cut to one line."""
    done = run(folder, "net:broken")
    assert done.returncode == 1
    assert done.stderr == "net:broken: the factory failed with OSError: no weights; Download them.\n"
