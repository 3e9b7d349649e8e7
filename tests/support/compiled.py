"""A C++ compiler that remembers: a `g++` for Inductor, which compiles the same kernels in one test after the other.

What it was called with decides, never when: the arguments with the contents of the files they name, and standard input.
Only calls that write one file (`-o`) are remembered, and its version; all others, and failures, go to the real compiler
each time.
A kernel is a few lines behind a header of Inductor's, two thirds of its compilation: that one is compiled beforehand.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REAL = shutil.which("g++")
HEADER = "torch/csrc/inductor/cpp_prefix.h"


def install(folder: Path) -> Path | None:
    """Put the compiler into a folder; None where there is no real one."""
    if REAL is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    command = folder / "g++"  # Inductor knows compilers by their names
    version = folder / "version"  # asked several times for each kernel
    _place(version, subprocess.run([REAL, "--version"], capture_output=True, text=True, check=True).stdout)
    told = f'[ "$*" = --version ] && exec cat {version}'
    _place(command, f'#!/bin/sh\n{told}\nexec {sys.executable} -IS {Path(__file__).resolve()} {REAL} {folder} "$@"\n')
    return command


def _place(path: Path, words: str) -> None:
    """Write an executable file at once: the process beside this one may be reading it."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(words)
    Path(file.name).chmod(0o755)
    Path(file.name).replace(path)


def main(real: str, folder: Path, arguments: list[str]) -> int:
    """Compile, or copy what the same call has written before; its exit code."""
    if "-o" not in arguments or "c++-header" in arguments:
        return subprocess.run([real, *arguments], check=False).returncode
    given = sys.stdin.buffer.read() if "-" in arguments else b""
    target = Path(arguments[arguments.index("-o") + 1])
    stored = folder / _key(real, arguments, given)
    if not stored.exists():
        command = [real, *_beforehand(real, folder, arguments), *arguments]
        code = subprocess.run(command, input=given, check=False).returncode
        if code or not target.is_file():
            return code
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            shutil.copyfile(target, file.name)
        shutil.copymode(target, file.name)
        Path(file.name).replace(stored)
        return code
    shutil.copyfile(stored, target)
    shutil.copymode(stored, target)
    return 0


def _beforehand(real: str, folder: Path, arguments: list[str]) -> list[str]:
    """What lets the compiler find a kernel's header already compiled; nothing for all that isn't one kernel."""
    sources = [word for word in arguments if word.endswith(".cpp")]
    if "-shared" not in arguments or len(sources) != 1 or f"#include <{HEADER}>" not in Path(sources[0]).read_text():
        return []
    target = arguments[arguments.index("-o") + 1]
    dropped = {*sources, "-o", target, "-shared"}
    flags = [word for word in arguments if word not in dropped and not word.startswith(("-l", "-L"))]
    found = [file for word in flags if word.startswith("-I") and (file := Path(word[2:], HEADER)).exists()]
    if not found:
        return []
    place = folder / f"headers-{_key(real, [*flags, str(found[0]), '-o', ''], b'')}"
    made = place / f"{HEADER}.gch"
    made.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{place}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the process beside this one needs the same
        if not made.exists():
            part = made.with_suffix(".part")
            command = [real, *flags, "-w", "-x", "c++-header", str(found[0]), "-o", str(part)]
            if subprocess.run(command, capture_output=True, check=False).returncode:
                return []
            part.replace(made)
    return [f"-I{place}"]


def _key(real: str, arguments: list[str], given: bytes) -> str:
    digest = hashlib.sha256(repr((real, Path(real).stat().st_mtime_ns, given)).encode())
    target = arguments.index("-o") + 1
    for place, word in enumerate(arguments):
        if place == target:
            continue
        file = Path(word)
        if file.is_file():
            digest.update(file.suffix.encode() + hashlib.sha256(file.read_bytes()).digest())
        elif word.startswith("-I"):
            folder = Path(word[2:])
            digest.update(f"{word} {folder.stat().st_mtime_ns if folder.is_dir() else 0}".encode())
        else:
            digest.update(word.encode())
        digest.update(b"\0")
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
