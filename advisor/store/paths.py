"""Folders that ship with the project."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = ROOT / "data"
PROFILES = ROOT / "profiles"
SCENARIOS = DATA / "scenarios"
