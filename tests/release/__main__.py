"""Build, look into and try what is published; uploads nothing. Exit code 1 when something is wrong with it."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.release import contents, core, source


def main() -> int:
    """Leave both files in --into, also where something is wrong with them."""
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__)
    parser.add_argument("--into", type=Path, default=source.ROOT / "dist", help="where both files go")
    parser.add_argument("--repository", default="", help="its address on the web; default: git's origin, if on the web")
    options = parser.parse_args()
    address = (options.repository or _origin()).rstrip("/").removesuffix(".git")
    if not address:
        _say("no address is known, so the description has no links and no figure: make dist REPOSITORY=https://…")
    with tempfile.TemporaryDirectory(prefix="shootout-dist-") as folder:
        faults = list(_make(options.into, address, Path(folder)))
    for fault in faults:
        _say(f"wrong: {fault}")
    return 1 if faults else 0


def _make(into: Path, address: str, folder: Path) -> Iterator[str]:
    staged, made = folder / "source", folder / "made"
    files = source.stage(source.tracked(), staged, address)
    version = source.read_project(staged)["project"]["version"]
    _say(f"shootout {version}: building an sdist, and a wheel from it")
    built = subprocess.run(
        [sys.executable, "-m", "build", "--outdir", made, staged], capture_output=True, text=True, check=False
    )
    if built.returncode:
        yield f"python -m build: {built.stdout[-2000:]}{built.stderr[-2000:]}"
        return
    wheel, sdist = next(made.glob("*.whl")), next(made.glob("*.tar.gz"))
    into.mkdir(parents=True, exist_ok=True)
    for archive in (wheel, sdist):
        shutil.copyfile(archive, into / archive.name)
        _say(f"{into / archive.name}: {archive.stat().st_size:,} bytes")
        yield from contents.find_faults(archive, files, version)
    checked = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", wheel, sdist], capture_output=True, text=True, check=False
    )
    if checked.returncode:
        yield f"twine check --strict: {checked.stdout}{checked.stderr}"
    _say("trying it where only the core is installed")
    yield from core.find_faults(wheel, sdist, folder, source.ROOT / "constraints.txt")


def _origin() -> str:
    """Where this checkout came from, if that is an address on the web."""
    command = ["git", "remote", "get-url", "origin"]
    found = subprocess.run(command, cwd=source.ROOT, capture_output=True, text=True, check=False).stdout.strip()
    named = re.fullmatch(r"(?:ssh://)?git@([^:/]+)[:/](.*)", found)
    found = f"https://{named[1]}/{named[2]}" if named else found
    return found if re.match(r"https://[^@]+$", found) else ""


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
