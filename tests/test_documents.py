"""What the documents say runs: every block of Python in them is executed."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCKS = [
    pytest.param(block, id=f"{path.relative_to(ROOT).as_posix()}-{number}")
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL), 1)
]


@pytest.mark.parametrize("block", BLOCKS)
def test_python_in_the_documents_runs(block):
    """A reader can paste it, and its assertions hold."""
    exec(compile(block, "document", "exec"), {})


def test_there_is_something_to_run():
    """The pattern still finds blocks."""
    assert len(BLOCKS) >= 5


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "adr").glob("*.md")), ids=lambda path: path.stem)
def test_every_decision_is_in_the_index(path):
    """docs/README.md lists each decision record."""
    assert f"adr/{path.name}" in (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
