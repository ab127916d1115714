"""One network with the same weights on five platforms, measured under one contract. Writes docs/platforms.md.

Takes a quarter of an hour on a quiet machine. ``--quick FILE`` takes about one minute and writes to that file instead:
to see that it works, not to be read.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from advisor.catalog import load_catalog
from advisor.domain.profile import Profile
from advisor.store.paths import DATA, ROOT
from advisor.store.profiles import read_profile_file
from benchmarks.platform_figures import BUDGET, QUICK_BUDGET, Measured, choose_price, command
from benchmarks.platform_page import page
from examples.platforms.check import PLATFORMS, Platform, largest_difference_frac

DOUBTFUL_EXIT_CODE = 3


def measure(platform: Platform, path: Path, budget: str) -> Profile:
    """Measure one platform in a process of its own: threads and memory of one do not disturb the next."""
    words = command(platform, budget)
    arguments = [sys.executable, "-m", "advisor", *words[1:], "--force", "--quiet", "-o", str(path)]
    finished = subprocess.run(arguments, cwd=ROOT, check=False)
    if finished.returncode not in {0, DOUBTFUL_EXIT_CODE}:
        raise subprocess.CalledProcessError(finished.returncode, arguments)
    return read_profile_file(path)


def main() -> None:
    """Check, measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", type=Path, metavar="FILE", help="a few seconds each, written to this file instead")
    quick: Path | None = parser.parse_args().quick
    budget = QUICK_BUDGET if quick else BUDGET
    price_list = load_catalog(DATA)
    ready = [platform for platform in PLATFORMS if platform.is_installed()]
    differences = {platform: largest_difference_frac(platform) for platform in ready}
    with tempfile.TemporaryDirectory() as folder:
        found = [
            Measured(
                platform, measure(platform, Path(folder) / f"{platform.module}.json", budget), differences[platform]
            )
            for platform in ready
        ]
    missing = [platform for platform in PLATFORMS if platform not in ready]
    text = page(found, choose_price(price_list, found[0].profile.device.cpu), missing=missing, budget=budget)
    (quick or ROOT / "docs" / "platforms.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
