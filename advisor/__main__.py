"""``python -m advisor``: run the command line, and turn what the advisor refuses into one sentence and an exit code.

Exit codes: 0 done; 1 failed (machine, solver); 2 bad input or usage; 3 done, but the answer is negative or doubtful;
130 interrupted.
"""

import sys

from advisor.cli import app
from advisor.errors import AdvisorError, InputError


def main() -> None:
    """Entry point of the ``advisor`` script."""
    try:
        app()
    except InputError as error:
        _fail(error, 2)
    except AdvisorError as error:
        _fail(error, 1)
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted; nothing was written.\n")
        sys.exit(130)


def _fail(error: AdvisorError, code: int) -> None:
    sys.stderr.write(f"{error}\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
