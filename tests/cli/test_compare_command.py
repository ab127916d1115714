"""``advisor compare``: what it prints and how it ends."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from advisor.cli.compare import WIDTH, compare_profiles, parse_percent
from advisor.domain.profile import Profile
from advisor.errors import InputError
from tests.conftest import cpu_profile

TIMES_S = {1: 0.010, 2: 0.020, 4: 0.040}


@pytest.fixture
def app() -> typer.Typer:
    """Build a program of this one command."""
    program = typer.Typer()
    program.command("compare")(compare_profiles)
    return program


def written(folder: Path, name: str, profile: Profile) -> str:
    """Path of a profile written to a folder."""
    path = folder / f"{name}.json"
    path.write_text(profile.model_copy(update={"profile_id": name}).model_dump_json(), encoding="utf-8")
    return str(path)


def slowed(factor: float, **fields: Any) -> Profile:
    """Profile whose largest batch takes so many times longer."""
    return cpu_profile({**TIMES_S, 4: TIMES_S[4] * factor}, **fields)


def test_no_change_passes(app: typer.Typer, tmp_path: Path) -> None:
    """Exit code 0 and a heading that says so."""
    old = written(tmp_path, "old", cpu_profile(TIMES_S))
    done = CliRunner().invoke(app, [old, old])
    assert done.exit_code == 0
    assert done.stdout.startswith("## No regression above 5 % in 3 cells\n")


def test_a_regression_ends_with_three(app: typer.Typer, tmp_path: Path) -> None:
    """The slower cell is named, the others are not blamed; a wider limit passes."""
    files = [written(tmp_path, "old", cpu_profile(TIMES_S)), written(tmp_path, "new", slowed(1.2))]
    done = CliRunner().invoke(app, files)
    assert done.exit_code == 3
    assert done.stdout.startswith("## Regression: 1 cell more than 5 % slower\n")
    assert done.stdout.count("**REGRESSION**") == 1
    assert CliRunner().invoke(app, [*files, "--fail-over", "25%"]).exit_code == 0


def test_one_repeat_is_undecided(app: typer.Typer, tmp_path: Path) -> None:
    """A growth that cannot be judged does not pass as if it were none."""
    files = [written(tmp_path, "old", cpu_profile(TIMES_S)), written(tmp_path, "new", slowed(1.2, error=None))]
    done = CliRunner().invoke(app, files)
    assert done.exit_code == 3
    assert done.stdout.startswith("## Undecided")
    assert "1 of them more than 5 % slower." in " ".join(done.stdout.split())


def test_a_growth_within_noise_is_undecided(app: typer.Typer, tmp_path: Path) -> None:
    """A noisier measurement must not look better than a quiet one."""
    files = [written(tmp_path, "old", cpu_profile(TIMES_S)), written(tmp_path, "new", slowed(1.2, error=0.4))]
    done = CliRunner().invoke(app, files)
    assert done.exit_code == 3
    assert "Undecided: 1 cell grew above the limit within noise; measure again" in done.stdout
    assert "1 cell grew by more than 5 % within noise" in " ".join(done.stdout.split())


def test_another_precision_is_refused_unless_told(app: typer.Typer, tmp_path: Path) -> None:
    """Refused with the field and both values; --anyway compares and says what differs."""
    other = cpu_profile(TIMES_S)
    other = other.model_copy(update={"model": other.model.model_copy(update={"precision": "int8"})})
    files = [written(tmp_path, "old", cpu_profile(TIMES_S)), written(tmp_path, "new", other)]
    refused = CliRunner().invoke(app, files)
    assert isinstance(refused.exception, InputError)
    assert str(refused.exception) == (
        "model.precision is 'int8'; allowed: 'fp32', as in the old profile; --anyway compares them all the same."
    )
    done = CliRunner().invoke(app, [*files, "--anyway"])
    assert done.exit_code == 0
    assert "`model.precision`: `fp32` before, `int8` now" in done.stdout


def test_json_holds_what_the_markdown_says(app: typer.Typer, tmp_path: Path) -> None:
    """--json leaves standard output to one document, with the same exit code."""
    files = [written(tmp_path, "old", cpu_profile(TIMES_S)), written(tmp_path, "new", slowed(1.2))]
    done = CliRunner().invoke(app, [*files, "--json"])
    document = json.loads(done.stdout)
    assert done.exit_code == 3
    assert document["outcome"] == "regression"
    assert [cell["batch_size"] for cell in document["cells"] if cell["regression"]] == [4]


def test_markdown_is_readable_in_eighty_columns(app: typer.Typer, tmp_path: Path) -> None:
    """Tables are padded, paragraphs are wrapped, and every row of a table has the cells of its head."""
    old = cpu_profile({1: 0.0001, 128: 123.456}, error=0.21)
    new = cpu_profile({1: 0.0002, 128: 160.456, 256: 200.0}, error=0.21).model_copy(
        update={"status": "partial", "warnings": ("a *long* warning <b>" + " and more" * 20,)}
    )
    done = CliRunner().invoke(app, [written(tmp_path, "old", old), written(tmp_path, "new", new)])
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= WIDTH
    table = [line for line in lines if line.startswith("|")]
    assert len({len(line) for line in table[:4]}) == 1
    assert "a \\*long\\* warning \\<b>" in done.stdout
    assert "new: batch 256, R × T 2 × 1" in done.stdout


@pytest.mark.parametrize("text", ["0.05", "five", "-5%", "", "5000%", "nan"])
def test_a_limit_that_could_be_misread_is_refused(text: str) -> None:
    """0.05 could mean 5 % or 0.05 %: the command asks instead of guessing."""
    with pytest.raises(InputError, match="--fail-over"):
        parse_percent(text)


@pytest.mark.parametrize(("text", "frac"), [("5%", 0.05), ("5", 0.05), ("0.5%", 0.005), ("0", 0.0), ("12.5 %", 0.125)])
def test_a_limit_is_a_percentage(text: str, frac: float) -> None:
    """With or without its sign."""
    assert parse_percent(text) == pytest.approx(frac)
