"""Exception tree of the advisor.

::

    AdvisorError
    ├── InputError           what the user gave does not fit: file, field, value, what is allowed
    ├── CatalogError         the price book or a map in data/ is inconsistent
    ├── MeasurementError     a measurement could not be made
    └── SolverError          the optimizer stopped without an answer

Each message is one sentence that names the thing, its value and what is allowed. Only the command line
and the pages catch `AdvisorError`.
"""


class AdvisorError(Exception):
    """Anything the advisor refuses with a sentence for the user."""


class InputError(AdvisorError):
    """A value given by the user does not fit.

    Parameters
    ----------
    field
        Name of the field, with its path in the file (``cells[3].batch_size``), or "row 7, column x" in a CSV.
    value
        The value found.
    allowed
        What is allowed, as the end of a sentence.
    file
        Name of the file, when there is one.

    Examples
    --------
    >>> str(InputError("demand.rate_rps", -3, "a number above 0", file="web.yaml"))
    'web.yaml: demand.rate_rps is -3; allowed: a number above 0.'
    """

    def __init__(self, field: str, value: object, allowed: str, *, file: str | None = None) -> None:
        self.field, self.value, self.allowed, self.file = field, value, allowed, file
        shown = "missing" if value is None else repr(value)
        if len(shown) > 80:
            shown = shown[:77] + "..."
        prefix = f"{file}: " if file else ""
        super().__init__(f"{prefix}{field} is {shown}; allowed: {allowed.rstrip('.')}.")


class CatalogError(AdvisorError):
    """The shipped or user-given price book or map cannot be used."""


class MeasurementError(AdvisorError):
    """A measurement could not be made."""


class SolverError(AdvisorError):
    """The optimizer stopped without an answer."""
