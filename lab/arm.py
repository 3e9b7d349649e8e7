"""Make an ARM machine of this one: Debian's arm64 userland under QEMU, reached by ssh as any board is.

It needs root and Debian's packages debootstrap, qemu-user-static and openssh-server. What runs there is proven and
never timed. `make test-arm` runs tests/arm on it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from shootout.apps.fleet.ssh_hosts import needed_packages

CPU = "cortex-a76"
"""A Raspberry Pi 5's. QEMU 7.2's own `max` computes LiteRT's INT8 products wrong, which the grid probe finds."""
CPUINFO = """processor\t: {number}
BogoMIPS\t: 108.00
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x4
CPU part\t: 0xd0b
CPU revision\t: 1

"""
"""Such a CPU's own account; QEMU shows the real machine's, from which ONNX Runtime crashes."""
NEEDED = {
    "debootstrap": "debootstrap",
    "qemu-aarch64-static": "qemu-user-static",
    "update-binfmts": "binfmt-support",
    "/usr/sbin/sshd": "openssh-server",
}
"""Debian's package of each program."""
RUNTIMES = ("onnx", "ml_dtypes", "onnxruntime", "ncnn", "iree-base-compiler", "iree-base-runtime")
APART = ("ai-edge-litert", "pnnx")
"""Packages whose own demands a board needn't meet: pnnx asks for torch, which it doesn't use to convert."""
LITERT_NEEDS = ("flatbuffers", "backports.strenum")
PLATFORMS = [f"manylinux_2_{minor}_aarch64" for minor in (34, 31, 28, 27, 24, 17)] + ["manylinux2014_aarch64"]
DEBIAN = "bookworm"
"""Its Python is 3.11, for which the wheels are."""
SITE, CACHE = "usr/local/lib/python3.11/dist-packages", "var/cache/shootout"
"""Below the userland: its Python packages, where isolated processes find them too, and the cache of what was sent."""
BOARD = Path(__file__).parents[1] / "build" / "arm"
"""The folder of the board that `make test-arm` uses."""
CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
HOST = "arm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A machine to be reached by ssh.

    Attributes:
        address: for `--on`.
        ssh: the folder of an `ssh` that knows the machine; it goes first on PATH.
        root: its file system.
    """

    address: str
    ssh: Path
    root: Path


def require_tools() -> None:
    """Let the kernel run ARM programs by QEMU.

    Raises:
        SystemExit: something that it takes isn't here; says what.
    """
    lacks = [package for program, package in NEEDED.items() if shutil.which(program) is None]
    if lacks or os.geteuid() != 0:
        sys.exit(
            f"an ARM board takes root, and Debian's packages: apt-get install {' '.join(lacks or NEEDED.values())}"
        )
    if not Path("/proc/sys/fs/binfmt_misc/register").exists():
        _run("mount", "-t", "binfmt_misc", "binfmt_misc", "/proc/sys/fs/binfmt_misc")
    if not Path("/proc/sys/fs/binfmt_misc/qemu-aarch64").exists():
        _run("update-binfmts", "--enable", "qemu-aarch64")


def make_userland(folder: Path) -> Path:
    """Make a userland with Python, our packages and the runtimes, or find it made; return its root.

    Raises:
        SystemExit: something that it takes isn't here, or can't be had; says what.
    """
    require_tools()
    root, is_made = folder / "root", folder / "made"
    if not is_made.exists():
        refuse_mounted(folder)
        shutil.rmtree(root, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        # It mounts /proc and more, which a namespace of its own unmounts however it ends.
        options = ("--arch=arm64", "--variant=minbase", "--include=python3,libgomp1")
        _run("unshare", "--mount", "debootstrap", *options, DEBIAN, str(root))
        _install(root, *needed_packages(), *RUNTIMES)
        _install(root, *APART, *LITERT_NEEDS, "--no-deps")
        is_made.touch()
    return root


def _install(root: Path, *words: str) -> None:
    """Install wheels for ARM with this machine's own pip, which is many times as fast as an emulated one."""
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    abis = ["--abi", "cp311", "--abi", "abi3", "--abi", "none"]
    python = ["--python-version", "3.11", "--implementation", "cp", *abis, "--only-binary=:all:"]
    where = ["--quiet", "--disable-pip-version-check", "--upgrade", "--target", str(root / SITE)]
    _run(sys.executable, "-m", "pip", "install", *where, *python, *platforms, "-c", str(CONSTRAINTS), *words)


@contextmanager
def start_board(folder: Path) -> Iterator[Board]:
    """Start an ssh server whose sessions are in the userland, with keys of its own."""
    root, keys = make_userland(folder), folder / "ssh"
    shutil.rmtree(keys, ignore_errors=True)
    keys.mkdir(mode=0o700)
    with ExitStack() as stack:
        yield Board(address=_start_server(stack, root, keys), ssh=keys, root=root)


def refuse_mounted(folder: Path, mounts: Path = Path("/proc/self/mounts")) -> None:
    """Refuse to remove a folder below which something is mounted: it would be removed with it.

    Args:
        mounts: a file in the form of that one.

    Raises:
        SystemExit: something is mounted; says how to unmount it.
    """
    places = [line.split()[1] for line in mounts.read_text().splitlines()]
    if below := sorted((place for place in places if Path(place).is_relative_to(folder.resolve())), reverse=True):
        sys.exit(f"{folder} can't be removed while something is mounted below it; run: umount {' '.join(below)}")


def mount_commands(root: Path, cpuinfo: Path) -> str:
    """Return the shell's commands that mount what Linux's programs expect. Debian's own devices are in the userland.

    Args:
        cpuinfo: what the userland has in place of /proc/cpuinfo.
    """
    return (
        f"mount -t proc proc {root}/proc && mount --bind {cpuinfo} {root}/proc/cpuinfo && "
        f"mount -t sysfs -o ro sysfs {root}/sys && mount -t tmpfs tmpfs {root}/dev/shm"
    )


def _start_server(stack: ExitStack, root: Path, keys: Path) -> str:
    for name in ("host", "user"):
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    variables = f"HOME=/root PATH=/usr/bin:/bin QEMU_CPU={CPU} SHOOTOUT_CACHE=/{CACHE}"
    (keys / "session").write_text(
        f'#!/bin/sh\nexec chroot {root} /usr/bin/env -i {variables} /bin/sh -c "$SSH_ORIGINAL_COMMAND"\n'
    )
    (keys / "session").chmod(0o700)
    (keys / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {keys}/host\nAuthorizedKeysFile {keys}/user.pub\n"
        f"StrictModes no\nUsePAM no\nPasswordAuthentication no\nPidFile none\nForceCommand {keys}/session\n"
    )
    (keys / "known").write_text(f"[127.0.0.1]:{port} {(keys / 'host.pub').read_text()}")
    (keys / "ssh_config").write_text(
        f"Host {HOST}\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {keys}/user\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {keys}/known\n"
    )
    (keys / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {keys}/ssh_config "$@"\n')
    (keys / "ssh").chmod(0o700)
    cpuinfo = keys / "cpuinfo"
    cpuinfo.write_text("".join(CPUINFO.format(number=number) for number in range(os.cpu_count() or 1)))
    Path("/run/sshd").mkdir(exist_ok=True)
    # In a namespace of its own, nothing stays mounted if this process is killed.
    serve = f"{mount_commands(root, cpuinfo)} && exec /usr/sbin/sshd -D -e -f {keys}/sshd_config"
    server = stack.enter_context(subprocess.Popen(["unshare", "--mount", "/bin/sh", "-c", serve]))
    stack.callback(server.terminate)
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return f"ssh://{HOST}"
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the ssh server doesn't answer")


def _run(*words: str) -> None:
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{words[0]} ended with {done.returncode}: {(done.stdout + done.stderr).strip()[-2000:]}")


if __name__ == "__main__":  # make the board of `make test-arm`, or say what it takes
    make_userland(BOARD)
