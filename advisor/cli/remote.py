"""Measure on another host over ssh: nothing is installed there, and nothing is left behind.

There is one connection, so a password is asked for once at most. Its first session, the keeper, makes a folder there
and waits for the end of its standard input; all further commands share its connection. When this side is done, is
killed or loses the connection, that input ends: the keeper interrupts a measurement that still runs and removes the
folder.

A connection that dies silently is noticed by both sides in their own time: here after 45 s without an answer, there
when the kernel or sshd gives up, which may take hours. A measurement ends with its --budget before that; what it
measured is lost then, since the folder goes with the connection.

The words of the command line can be seen by other people on the host while it runs (in its list of processes), so
nothing secret may be among them.
"""

import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rich.console import Console

from advisor.cli.remote_files import CODE, FILES, check_files, write_archive
from advisor.errors import InputError, MeasurementError
from advisor.store.profiles import read_profile, write_profile

_SSH_FAILED = 255
_INTERRUPTED = 130
_EXIT_CODES = frozenset({0, 1, 2, 3, _INTERRUPTED})
_MISSING = 4
_STOP_S = 60
_LEAVE_S = 90.0
_ALIVE_S, _ALIVE_COUNT = 15, 3

_MODULES = ("numpy", "pydantic", "psutil", "cpuinfo", "typer", "rich")
_ONNX_MODULES = ("onnx", "onnxruntime")
_INSTALL = 'pip install "inference-fleet-advisor[profile]"'

# Terminals send Ctrl-C to all processes in front of them, and the connection is needed to stop the measurement. The ssh
# that connects may ask for a password at the terminal and honors an inherited SIG_IGN. Those that share its connection
# do not honor it, and ask nothing: each gets a session of its own (`start_new_session`).
_IGNORE_INTERRUPTS = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")

# A login manager may hang up on sessions whose connection is gone; the folder is removed all the same.
_KEEP = f"""\
umask 077; trap "" HUP TERM; folder=$(mktemp -d) || exit 1; echo "$folder"; cat >/dev/null; \
if pid=$(cat "$folder/pid"); then kill -INT "$pid"; n=0; \
while kill -0 "$pid" && [ $n -lt {_STOP_S} ]; do sleep 1; n=$((n+1)); done; kill -KILL "$pid"; fi 2>/dev/null; \
rm -rf "$folder\""""

# Python 2 must be able to read it, too, to say that it is no Python 3.11.
_TRY_IMPORTS = """\
import importlib, sys
print("%d.%d" % sys.version_info[:2])
if sys.version_info >= (3, 11):
    for name in sys.argv[1:]:
        try:
            importlib.import_module(name)
        except ImportError as error:
            print((error.name or name).split(".")[0])
        except Exception:
            print(name)
"""


def profile_on_host(
    host: str,
    arguments: Sequence[str],
    *,
    files: Sequence[Path],
    journal: Path,
    output: Path,
    python: str,
    console: Console,
) -> int:
    """Run `advisor profile` on another host and fetch the profile that it writes.

    Ctrl-C stops the measurement there and fetches what was measured. The journal here becomes what it is there: it is
    written when the measurement is not complete, and removed when it was sent and the measurement is complete now.

    Parameters
    ----------
    host
        What ssh takes: ``box``, ``user@box``, ``ssh://user@box:2222`` or a Host of its configuration.
    arguments
        Words of the command line after `advisor profile`, files by their names alone; neither --output nor --json.
    files
        All files that these words name and that the model needs; their names differ.
    journal
        Where this measurement keeps its journal: beside `output`, or the one to go on with, which is then in `files`.
    output
        File to write the profile to.
    python
        Interpreter there: a name to be found in its PATH, or a whole path.
    console
        Gets the lines that the other side writes to its standard error.

    Returns
    -------
    int
        Exit code of `advisor profile` there: 0, 1, 2, 3 or 130.

    Raises
    ------
    InputError
        When host, python or a file cannot be used, or the profile does not fit.
    MeasurementError
        When ssh fails, the host lacks what a measurement needs, or the measurement there was killed.
    """
    _check_words(host, python)
    check_files(files)
    if shutil.which("ssh") is None:
        raise MeasurementError("ssh is not installed here; install the client of OpenSSH to measure on another host.")
    sent = any(file.name == journal.name for file in files)
    with _folder_on(host) as folder:
        console.print(f"Sending {', '.join(file.name for file in files)} to {host}", highlight=False, markup=False)
        _send(folder, files)
        _check_python(folder, python, onnx=any(file.suffix == ".onnx" for file in files))
        code = _measure(folder, [python, "-m", "advisor", "profile", *arguments, f"--output={output.name}"], console)
        entries, content = folder.fetch(journal.name), folder.fetch(output.name)
        if entries is not None:
            _replace(journal, entries)
        if content is not None:
            write_profile(read_profile(content, file=output.name), output)
            if sent and entries is None:
                journal.unlink()
    if code not in _EXIT_CODES:
        kept = f"; go on with --resume {journal.name}" if entries is not None else ""
        raise MeasurementError(f"{host}: the measurement there was killed (exit code {code}){kept}.")
    return code


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder on a host, and the connection that leads there."""

    host: str
    path: str
    socket: Path
    said: Path
    """What the ssh that connects says."""

    @property
    def environment(self) -> str:
        """Variables for Python there, as words of sh: our code, UTF-8 whatever the language, and room for odd files."""
        # Libraries write to the folder for temporary files when they are imported: ONNX Runtime leaves `.ses` there.
        path = shlex.quote(self.path)
        return f"PYTHONPATH={path}/{CODE} PYTHONUTF8=1 TMPDIR={path}"

    def command(self, script: str) -> list[str]:
        """Command line here that runs a script there, in the folder."""
        # BatchMode: should the shared connection be gone, nobody is asked for a password again.
        options = ("-S", str(self.socket), "-o", "ControlMaster=no", "-o", "BatchMode=yes")
        return _ssh(self.host, options, f"cd {shlex.quote(self.path)} || exit 1; {script}")

    def ask(self, script: str, *, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run a script there to its end.

        Raises
        ------
        MeasurementError
            When ssh fails.
        """
        done = subprocess.run(
            self.command(script), input=stdin, capture_output=True, check=False, start_new_session=True
        )
        self.check_connection(done.returncode, done.stderr)
        return done

    def check_connection(self, code: int, said: bytes) -> None:
        """Tell an exit code of ssh itself from those of the other side."""
        if code == _SSH_FAILED:
            words = _last_words(self.said.read_bytes() or said)
            raise MeasurementError(f"{self.host}: the connection was lost, and the measurement with it: {words}.")

    def fetch(self, name: str) -> bytes | None:
        """Content of a file of the measurement; None where there is none."""
        quoted = shlex.quote(f"./{FILES}/{name}")
        done = self.ask(f"[ -f {quoted} ] || exit {_MISSING}; cat {quoted}")
        if done.returncode == _MISSING:
            return None
        if done.returncode:
            raise MeasurementError(f"{self.host}: {name} cannot be fetched: {_last_words(done.stderr)}.")
        return done.stdout


@contextmanager
def _folder_on(host: str) -> Iterator[_Folder]:
    """Connect to a host and make a folder there; in the end remove it and disconnect."""
    # Short, since the path of a socket is limited to about 100 bytes.
    with tempfile.TemporaryDirectory(prefix="advisor-") as private:
        socket, said = Path(private) / "s", Path(private) / "stderr"
        options = ("-M", "-S", str(socket), "-o", "ControlPersist=no")
        with (
            said.open("wb") as stderr,
            subprocess.Popen(
                [*_IGNORE_INTERRUPTS, *_ssh(host, options, _KEEP)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
            ) as keeper,
        ):
            path = _read_path(host, keeper, said)
            try:
                yield _Folder(host, path, socket, said)
            except BaseException:
                _let_go(keeper)
                raise
            if _let_go(keeper):
                raise MeasurementError(f"{host}: the folder {path} could not be removed there; remove it by hand.")


def _read_path(host: str, keeper: "subprocess.Popen[bytes]", said: Path) -> str:
    """Path that the keeper says first."""
    assert keeper.stdout is not None
    try:
        path = keeper.stdout.readline().decode(errors="replace").strip()
    except BaseException:
        keeper.kill()  # it may be asking for a password
        raise
    if path.startswith("/"):
        return path
    if path:
        keeper.kill()
        raise MeasurementError(f"{host}: the shell there says {path!r} first; it must print nothing for a command.")
    trouble = "ssh cannot connect" if keeper.wait() == _SSH_FAILED else "no folder can be made there"
    raise MeasurementError(f"{host}: {trouble}: {_last_words(said.read_bytes())}.")


def _let_go(keeper: "subprocess.Popen[bytes]") -> int:
    """End the input of the keeper, which removes the folder then; its exit code."""
    assert keeper.stdin is not None
    keeper.stdin.close()
    try:
        return keeper.wait(_LEAVE_S)
    except subprocess.TimeoutExpired:
        keeper.kill()
        return keeper.wait()
    except KeyboardInterrupt:
        keeper.kill()  # the keeper there goes on: the end of its input is on the way
        raise


def _send(folder: _Folder, files: Sequence[Path]) -> None:
    """Send code and files."""
    with subprocess.Popen(
        folder.command(f"mkdir {CODE} {FILES} && tar -xf -"),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        try:
            with suppress(BrokenPipeError):  # the other side gave up, and says why
                write_archive(process.stdin, files)
            _, said = process.communicate()
        except BaseException:
            process.kill()
            raise
    folder.check_connection(process.returncode, said)
    if process.returncode:
        raise MeasurementError(f"{folder.host}: the files cannot be written there: {_last_words(said)}.")


def _check_python(folder: _Folder, python: str, *, onnx: bool) -> None:
    """Refuse an interpreter that is too old, or lacks a module that the measurement needs."""
    # The last one imports whatever else the command line takes.
    modules = (*_MODULES, *(_ONNX_MODULES if onnx else ()), "advisor.cli")
    script = f"{folder.environment} {shlex.join([python, '-', *modules])}"
    done = folder.ask(script, stdin=_TRY_IMPORTS.encode())
    version, *missing = done.stdout.decode(errors="replace").split() or [""]
    if done.returncode or not version:
        raise MeasurementError(
            f"{folder.host}: {python} does not run there ({_last_words(done.stderr)}); "
            f"name an interpreter of Python 3.11 or newer with --host-python."
        )
    if tuple(map(int, version.split("."))) < (3, 11):
        raise MeasurementError(
            f"{folder.host}: {python} is Python {version}; "
            f"name an interpreter of Python 3.11 or newer with --host-python."
        )
    if missing:
        names = ", ".join(dict.fromkeys(missing))
        raise MeasurementError(
            f"{folder.host}: {python} lacks {names}; run there: {shlex.quote(python)} -m {_INSTALL}, "
            f"or name another interpreter with --host-python."
        )


def _measure(folder: _Folder, words: Sequence[str], console: Console) -> int:
    """Run the measurement there and show what it says; its exit code."""
    script = (
        f"cd {FILES}; {folder.environment} sh -c 'echo $$ >../pid; exec \"$@\"' sh {shlex.join(words)} "
        f"</dev/null >/dev/null; code=$?; rm -f ../pid; exit $code"
    )
    with subprocess.Popen(
        folder.command(script),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        try:
            try:
                last = _show(process.stderr, console)
            except KeyboardInterrupt:
                console.print(f"Stopping the measurement on {folder.host}", highlight=False, markup=False)
                _interrupt(folder)
                last = _show(process.stderr, console)
            code = process.wait()
        except BaseException:
            process.kill()
            raise
    folder.check_connection(code, last)
    return code


def _interrupt(folder: _Folder) -> None:
    """Send SIGINT to the measurement there; one that has ended is left alone, one that is about to begin waited for."""
    folder.ask('for second in 1 2 3; do [ -s pid ] && break; sleep 1; done; kill -INT "$(cat pid)"')


def _show(stream: IO[bytes], console: Console) -> bytes:
    """Show lines as they come; the last one."""
    line = b""
    while more := stream.readline():
        line = more
        console.print(line.decode(errors="replace").rstrip("\r\n"), highlight=False, markup=False)
    return line


def _ssh(host: str, options: Sequence[str], script: str) -> list[str]:
    """Command line of ssh that runs a script of sh, whatever the shell of the account is."""
    alive = ("-o", f"ServerAliveInterval={_ALIVE_S}", "-o", f"ServerAliveCountMax={_ALIVE_COUNT}")
    return ["ssh", "-T", *options, *alive, "--", host, f"exec sh -c {shlex.quote(script)}"]


def _check_words(host: str, python: str) -> None:
    """Refuse words that a program would take for options, and paths that mean nothing in another folder.

    Examples
    --------
    >>> _check_words("-oProxyCommand=reboot", "python3")
    Traceback (most recent call last):
    advisor.errors.InputError: --host is '-oProxyCommand=reboot'; allowed: box, user@box or ssh://user@box:port.
    >>> _check_words("box", "~/venv/bin/python")
    Traceback (most recent call last):
    advisor.errors.InputError: --host-python is '~/venv/bin/python'; allowed: a name such as python3, or a whole path.
    """
    if not host.strip() or host.startswith("-"):
        raise InputError("--host", host, "box, user@box or ssh://user@box:port")
    if not python.strip() or python.startswith("-") or ("/" in python and not python.startswith("/")):
        raise InputError("--host-python", python, "a name such as python3, or a whole path")


def _last_words(said: bytes) -> str:
    r"""Last line of what a program said, as part of a sentence.

    Examples
    --------
    >>> _last_words(b"Warning: known hosts.\r\nHost key verification failed.\r\n")
    'Host key verification failed'
    """
    lines = said.decode(errors="replace").split("\n")
    words = next((line.strip() for line in reversed(lines) if line.strip()), "it says nothing")
    return words.rstrip(".").replace(". ", "; ")


def _replace(path: Path, content: bytes) -> None:
    """Write a file beside its place first, so that a crash leaves the old one or the new one."""
    draft = path.with_name(path.name + ".new")
    draft.write_bytes(content)
    draft.replace(path)
