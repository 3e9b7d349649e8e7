"""Build, look into and try what is published; uploads nothing. Exit code 1 when something is wrong with it."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from docs.site.links import find_repository
from tests.release import contents, core, source


def main(arguments: Sequence[str] | None = None) -> int:
    """Leave in --into both files and no older ones, and none at all where something is wrong with them."""
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__)
    parser.add_argument("--into", type=Path, default=source.ROOT / "dist", help="where both files go")
    into: Path = parser.parse_args(arguments).into
    address = find_repository()
    if not address:
        _say("no address is known, so the description has no links and no figure: make dist REPOSITORY=https://…")
    with tempfile.TemporaryDirectory(prefix="shootout-dist-") as folder:
        made = Path(folder) / "made"
        faults = [f"{one} isn't as it is committed" for one in source.changed()]
        faults += _make(made, address, Path(folder))
        _publish([] if faults else sorted(made.iterdir()), into)
    for fault in faults:
        _say(f"wrong: {fault}")
    return 1 if faults else 0


def _make(made: Path, address: str, folder: Path) -> Iterator[str]:
    staged = folder / "source"
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
    for archive in (wheel, sdist):
        yield from contents.find_faults(archive, files, version)
    checked = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", wheel, sdist], capture_output=True, text=True, check=False
    )
    if checked.returncode:
        yield f"twine check --strict: {checked.stdout}{checked.stderr}"
    _say("trying it where only the core is installed")
    yield from core.find_faults(wheel, sdist, folder, source.ROOT / "constraints.txt")


def _publish(archives: Sequence[Path], into: Path) -> None:
    """Make these the only files of ours in a folder: whoever uploads it takes all that there is."""
    into.mkdir(parents=True, exist_ok=True)
    for old in into.glob("shootout-*"):
        old.unlink()
    for archive in archives:
        shutil.copyfile(archive, into / archive.name)
        _say(f"{into / archive.name}: {archive.stat().st_size:,} bytes")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
