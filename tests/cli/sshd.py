"""A server of ssh on this machine, for tests that measure "on another host"."""

import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

START_S = 60


@dataclass(frozen=True)
class Box:
    """A host that ssh knows as `box`: this machine, through its own server."""

    temporary: Path
    """Folder for temporary files there."""
    path: str
    """PATH in which `ssh` knows the host."""


@contextmanager
def running_sshd(folder: Path) -> Iterator[Box]:
    """Start a server for this user on a free port, with keys of its own, and stop it in the end."""
    if sys.platform != "linux":
        pytest.skip("the server of ssh is started as on Linux")
    server, client = _program("sshd"), _program("ssh")
    temporary, programs, config = folder / "there", folder / "bin", folder / "ssh_config"
    temporary.mkdir()
    programs.mkdir()
    for key in ("host_key", "user_key"):
        subprocess.run(
            [_program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", key, "-f", folder / key], check=True
        )
    shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # its packages make it when they start the service
    port = _free_port()
    (folder / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {folder}/host_key\nPidFile none\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\nPermitRootLogin prohibit-password\n"
        f"PasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\nSetEnv TMPDIR={temporary}\n"
    )
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {(folder / 'host_key.pub').read_text()}")
    (folder / "known_nobody").touch()
    config.write_text(
        f"Host box\n Port {port}\n"
        f"Host stranger\n Port {port}\n UserKnownHostsFile {folder}/known_nobody\n"
        f"Host closed\n Port 1\n"
        f"Host *\n HostName 127.0.0.1\n IdentityFile {folder}/user_key\n IdentitiesOnly yes\n"
        f" UserKnownHostsFile {folder}/known_hosts\n StrictHostKeyChecking yes\n GlobalKnownHostsFile none\n"
    )
    # ssh takes the home folder from the system and not from HOME, so that its configuration is given by name.
    wrapper = programs / "ssh"
    wrapper.write_text(f'#!/bin/sh\nexec {client} -F {config} "$@"\n')
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    with (
        (folder / "sshd.log").open("wb") as log,
        subprocess.Popen([server, "-D", "-e", "-f", folder / "sshd_config"], stderr=log) as process,
    ):
        try:
            _wait_until_up(port, process, folder / "sshd.log")
            yield Box(temporary, f"{programs}{os.pathsep}{os.environ['PATH']}")
        finally:
            process.terminate()


def _program(name: str) -> str:
    """Path of a program of OpenSSH."""
    found = shutil.which(name, path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")
    if found is None:
        pytest.fail(f"{name} is not installed; install openssh-server and openssh-client to run these tests.")
    return found


def _free_port() -> int:
    """Port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _wait_until_up(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait until the server takes connections."""
    deadline = time.monotonic() + START_S
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
