"""The package installed on a host that only measures: what it brings, what works, and what the rest says."""

import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

from advisor.cli import COMMANDS, Command, load_command
from advisor.store.paths import ROOT, shipped_folder

HANG_S = 600
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
HEAVY = ("streamlit", "pandas", "plotly", "numba", "pyarrow")


def plain_name(requirement):
    """Name of a package without case, version and comment, as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement.strip())[0]).lower()


def without_surroundings():
    """Environment in which nothing of this process's Python is found."""
    return {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}


@pytest.fixture(scope="session")
def light(tmp_path_factory):
    """Virtual environment with ``pip install REPOSITORY[profile]``; the path of its programs."""
    folder = tmp_path_factory.mktemp("light")
    source = folder / "source"
    # A copy is built, so that the build leaves nothing in the repository.
    for name in ("advisor", "data", "profiles"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source)
    venv.create(folder / "venv", symlinks=True)
    programs = folder / "venv" / "bin"
    # Bytecode is left to the first import: compiling all of it takes half of the time.
    pip = [sys.executable, "-m", "pip", "--python", programs / "python", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "install", "--quiet", "--no-compile", "--constraint", ROOT / "constraints.txt", f"{source}[profile]"],
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env=without_surroundings(),
    )
    assert done.returncode == 0, done.stderr
    return programs


@pytest.fixture
def advisor(light, tmp_path):
    """Run the installed ``advisor`` in an empty folder, and wait for it."""

    def run(*arguments):
        return subprocess.run(
            [light / "advisor", *map(str, arguments)],
            check=False,
            capture_output=True,
            text=True,
            timeout=HANG_S,
            cwd=tmp_path,
            env=without_surroundings(),
        )

    return run


def test_the_light_install_brings_no_page_table_chart_or_compiler(light):
    """Neither Streamlit nor pandas, Plotly or numba is there: a production host needs none of them to measure."""
    found = "import importlib.util, sys; print([name for name in sys.argv[1:] if importlib.util.find_spec(name)])"
    done = subprocess.run(
        [light / "python", "-I", "-c", found, *HEAVY, "onnxruntime"],
        check=True,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.stdout.strip() == "['onnxruntime']"


def test_a_light_install_looks_measures_and_compares(advisor, tmp_path):
    """Doctor, example-model, profile, compare and import run outside the repository, with the shipped tables."""
    examined = advisor("doctor", "--seconds", "0.5", "--json")
    assert examined.returncode in (0, 3), examined.stderr
    assert json.loads(examined.stdout)
    built = advisor("example-model", "mlp", "mlp.onnx")
    assert built.returncode == 0, built.stderr
    options = ("--batches", "1,2", "--budget", "3s", "--repeats", "1", "--threads", "1", "--replicas", "1")
    measured = advisor("profile", "mlp.onnx", "-o", "mlp.json", *options, "--force", "--quiet")
    assert measured.returncode in (0, 3), measured.stderr
    profile = json.loads((tmp_path / "mlp.json").read_text(encoding="utf-8"))
    assert {cell["batch_size"] for cell in profile["cells"]} == {1, 2}
    compared = advisor("compare", "mlp.json", "mlp.json")
    assert compared.returncode in (0, 3), compared.stderr
    assert "mlp" in compared.stdout
    (tmp_path / "k80.csv").write_text("batch_size,service_s\n1,0.25\n1,0.26\n", encoding="utf-8")
    imported = advisor("import", "k80.csv", "--model", "net", "--on", "K80", "-o", "k80.json")
    assert imported.returncode in (0, 3), imported.stderr
    assert "Wrote k80.json" in imported.stderr


def test_shipped_tables_are_installed_with_the_package(light, tmp_path):
    """Installed data and profiles are those of the repository, file by file."""
    show = "from advisor.store.paths import DATA, PROFILES; print(DATA); print(PROFILES)"
    done = subprocess.run(
        [light / "python", "-I", "-c", show], check=True, capture_output=True, text=True, timeout=HANG_S, cwd=tmp_path
    )
    for name, installed in zip(("data", "profiles"), map(Path, done.stdout.split("\n")), strict=False):
        assert light.parent in installed.parents
        shipped = {path.relative_to(ROOT / name) for path in (ROOT / name).rglob("*") if path.is_file()}
        assert {path.relative_to(installed) for path in installed.rglob("*") if path.is_file()} == shipped


@pytest.mark.parametrize(("command", "extra"), [("plan", "all"), ("verify", "verify")])
def test_what_a_light_install_cannot_do_names_what_to_install(advisor, command, extra):
    """One sentence on standard error with the extra that is missing, and exit code 1."""
    done = advisor(command)
    assert done.returncode == 1
    needs = rf'advisor {command} needs \w+; this installs it: pip install "inference-fleet-advisor\[{extra}\]"\.\n'
    assert re.fullmatch(needs, done.stderr), done.stderr


def test_the_list_of_commands_imports_none_of_them():
    """Help lists every command with its sentence without a numeric library, let alone a model runtime."""
    show = (
        "import sys; from advisor.cli import app; app(['--help'], standalone_mode=False); "
        "print(set(sys.argv[1:]) & sys.modules.keys())"
    )
    heavy = (*HEAVY, "numpy", "scipy", "onnx", "onnxruntime")
    done = subprocess.run(
        [sys.executable, "-c", show, *heavy], check=True, capture_output=True, text=True, timeout=HANG_S, cwd=ROOT
    )
    assert done.stdout.endswith("set()\n")
    assert all(re.search(rf"^\W+{name} ", done.stdout, flags=re.MULTILINE) for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_of_a_command_what_the_command_says(name):
    """The help in the list is the first paragraph of the command's own."""
    command = COMMANDS[name]
    function = getattr(importlib.import_module(f"advisor.cli.{command.module}"), command.function)
    assert command.help == " ".join(inspect.getdoc(function).partition("\n\n")[0].split())


def test_a_fault_of_our_own_is_not_taken_for_a_missing_package(monkeypatch):
    """A module of the advisor that does not exist is an error in the program, for which nothing can be installed."""
    monkeypatch.setitem(COMMANDS, "plan", Command("no_such_module", "plan", "Nothing."))
    with pytest.raises(ModuleNotFoundError):
        load_command("plan")


def test_an_installed_folder_goes_before_one_that_lies_beside_the_package(tmp_path):
    """A folder named data beside an installed package belongs to somebody else."""
    (tmp_path / "data").mkdir()
    assert shipped_folder("data", tmp_path) == tmp_path / "data"
    (tmp_path / "advisor" / "data").mkdir(parents=True)
    assert shipped_folder("data", tmp_path) == tmp_path / "advisor" / "data"


def test_every_package_of_the_code_is_installed():
    """The list in pyproject.toml has each folder of advisor/ that holds a module."""
    listed = set(PROJECT["tool"]["setuptools"]["packages"])
    code = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "advisor").rglob("*.py")}
    assert listed - {"advisor.data", "advisor.profiles"} == code


def test_extras_and_requirements_name_the_same_packages():
    """What ``[all]`` brings is what requirements.txt lists, so that no dependency is in only one of them."""
    extras = PROJECT["project"]["optional-dependencies"]
    given = [*PROJECT["project"]["dependencies"], *(name for key in extras if key != "torch" for name in extras[key])]
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    required = {plain_name(line) for line in lines if line and not line.startswith(("#", "-"))}
    assert {plain_name(name) for name in given} - {PROJECT["project"]["name"]} == required
