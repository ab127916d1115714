"""Factories in the user's own Python: found by module and name, called for every replica."""

import contextlib
import hashlib
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import AdvisorError, InputError, MeasurementError
from advisor.profiling.engines import OutOfMemory

TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
"""Form of a target: a module and a name in it, such as my_model:Classifier."""

_MOST_LETTERS = 200
"""Of what an exception says: enough for a reason, too few for a page of them."""
_FOLDERS = re.compile(
    r"""(?<=['"])(?:/|[A-Za-z]:\\)[^'"]*[/\\]      # in quotes, where names may hold blanks
    |(?<![\w.:/])(?:/|[A-Za-z]:\\)[^\s'",;()]*[/\\]  # bare""",
    re.VERBOSE,
)
"""Absolute folders before a file name: a reason may end up in a profile, which tells nobody's folders."""


@dataclass(frozen=True, slots=True)
class Factory:
    """A function or class of the user that makes replicas."""

    target: str
    """Module and name, as the user gave them."""
    call: Callable[..., object]
    """The function or class itself."""
    source: Path
    """File that the module is in."""

    @property
    def takes_threads(self) -> bool:
        """Whether the factory can be told how many threads a replica may use."""
        try:
            parameter = inspect.signature(self.call).parameters.get("threads")
        except (TypeError, ValueError):  # some written in C do not say what they take
            return False
        return parameter is not None and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)

    def make(self, threads: int) -> object:
        """Make one replica.

        Parameters
        ----------
        threads
            Threads that the replica may use; passed on where the factory takes a parameter of this name.

        Raises
        ------
        InputError
            When several threads are asked of a factory that cannot be told.
        OutOfMemory
            When there is no room for one more replica.
        MeasurementError
            When the factory fails.
        """
        if threads != 1 and not self.takes_threads:
            raise InputError("threads", threads, f"1, since {self.target} takes no parameter 'threads'")
        arguments = {"threads": threads} if self.takes_threads else {}
        with in_one_sentence(f"{self.target}: the factory fails"):
            return self.call(**arguments)

    def sha256(self) -> str:
        """Hash of the source file; what it imports or reads is not covered."""
        return hashlib.sha256(self.source.read_bytes()).hexdigest()


def find_factory(target: str) -> Factory:
    """Import a module and take the function or class that the target names.

    The current folder comes first in the search, as with ``python -m``; a module that was imported under this name
    before stays what it is.

    Parameters
    ----------
    target
        Module and name, such as ``my_model:Classifier``.

    Raises
    ------
    InputError
        When there is no such module, or nothing in it that can be called.
    MeasurementError
        When the module fails as it is imported.

    Examples
    --------
    >>> factory = find_factory("queue:SimpleQueue")
    >>> factory.source.name, factory.takes_threads
    ('queue.py', False)
    """
    if not TARGET.fullmatch(target):
        raise InputError("model", target, "a module and a name in it, such as my_model:Classifier")
    module_name, _, name = target.partition(":")
    folder = str(Path.cwd())
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)
    importlib.invalidate_caches()  # the file may be younger than the last look into its folder
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise _not_found(target, module_name, error) from error
    except (Exception, SystemExit) as error:
        raise failure(f"{target}: {module_name} cannot be imported", error) from error
    call = getattr(module, name, None)
    if not callable(call):
        raise InputError("model", target, f"a function or class {name} in {module_name}")
    file = getattr(module, "__file__", None)  # neither a built-in module nor a folder without __init__.py has one
    if file is None:
        raise InputError("model", target, f"a module with a file, which {module_name} has not")
    return Factory(target, call, Path(file))


@contextlib.contextmanager
def in_one_sentence(what: str) -> Iterator[None]:
    """Turn whatever the user's code raises into one sentence that begins with `what`; see `failure`."""
    try:
        yield
    except AdvisorError:
        raise
    except (Exception, SystemExit) as error:
        raise failure(what, error) from error


def failure(what: str, error: BaseException) -> MeasurementError:
    """One sentence with the type and the first words of an exception; `OutOfMemory` where it means that.

    Frameworks have classes of their own for a full memory that share only the word in their names.

    Examples
    --------
    >>> failure("my_model:load: the factory fails", ValueError("no such layer. Did you mean conv1?"))
    MeasurementError('my_model:load: the factory fails: ValueError, no such layer; Did you mean conv1?')
    >>> failure("my_model:load: the factory fails", OSError("cannot read '/home/someone/my models/a.bin'"))
    MeasurementError("my_model:load: the factory fails: OSError, cannot read 'a.bin'.")
    >>> failure("my_model:load: the call fails", MemoryError())
    OutOfMemory('my_model:load: the call fails: MemoryError.')
    """
    words = _FOLDERS.sub("", " ".join(str(error).split())).rstrip(". ").replace(". ", "; ")
    if len(words) > _MOST_LETTERS:
        words = words[: _MOST_LETTERS - 3] + "..."
    text = f"{what}: {type(error).__name__}{', ' if words else ''}{words}"
    full = isinstance(error, MemoryError) or any("OutOfMemory" in kind.__name__ for kind in type(error).__mro__)
    return (OutOfMemory if full else MeasurementError)(text if text.endswith(("?", "!", "...")) else f"{text}.")


def _not_found(target: str, module_name: str, error: ModuleNotFoundError) -> AdvisorError:
    """Tell a module that is not there, which takes another name, from one that lacks something to be installed."""
    if error.name is None:
        return failure(f"{target}: {module_name} cannot be imported", error)
    if not f"{module_name}.".startswith(f"{error.name}."):
        return MeasurementError(f"{target}: {module_name} needs {error.name}, which is not installed.")
    if module_name.endswith(".py"):
        return InputError("model", target, f"the name of a module without its ending: {target.replace('.py:', ':')}")
    return InputError("model", target, f"a module {module_name} in this folder or installed")
