"""Build a wheel and an sdist of the commit in dist/, or report what is wrong with them (`make dist`); upload nothing.

What is published has addresses where a package index can't follow a relative link, so it is built from a copy.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

from docs.site.links import find_repository

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:)([^)\s]+)\)")
TRIED = (("--version",), ("list",), ("show", str(ROOT / "results" / "reference" / "shootout")))
"""The commands that must work if nothing but the core is installed."""


def link(text: str, address: str, tag: str) -> str:
    """Let Markdown's links lead to the files of a tag; without an address, keep the words of each link alone."""

    def lead(found: re.Match[str]) -> str:
        image, words, goal = found.groups()
        if not address:
            return "" if image else str(words)
        inside = goal.startswith("#")
        return found[0] if inside else f"{image}[{words}]({address}/{'raw' if image else 'blob'}/{tag}/{goal})"

    return LINK.sub(lead, text)


def describe(source: Path, address: str) -> None:
    """Write what an index shows into a copy of the project: a README with addresses, and the project's links."""
    project = source / "pyproject.toml"
    told = project.read_text()
    tag = f"v{tomllib.loads(told)['project']['version']}"
    (source / "DESCRIPTION.md").write_text(link((source / "README.md").read_text(), address, tag))
    told = told.replace('readme = "README.md"', 'readme = "DESCRIPTION.md"')
    if address:
        urls = {
            "Source": address,
            "Documentation": f"{address}/tree/{tag}/docs",
            "Changelog": f"{address}/blob/{tag}/CHANGELOG.md",
            "Issues": f"{address}/issues",
        }
        told += "\n[project.urls]\n" + "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    project.write_text(told)


def make(folder: Path, address: str) -> list[Path]:
    """Build both files of the commit in a folder, check them, and try the wheel in an empty environment.

    Raises:
        subprocess.CalledProcessError: a check fails; it has said why.
    """
    source, python = folder / "source", str(folder / "empty" / "bin" / "python")
    (folder / "commit.tar").write_bytes(run("git", "archive", "HEAD"))
    with tarfile.open(folder / "commit.tar") as packed:
        packed.extractall(source, filter="data")
    describe(source, address)
    run(sys.executable, "-m", "build", "--outdir", str(folder / "made"), str(source))
    made = sorted((folder / "made").iterdir())
    wheel = next(str(one) for one in made if one.suffix == ".whl")
    run(sys.executable, "-m", "twine", "check", "--strict", *map(str, made))
    run(sys.executable, "-m", "check_wheel_contents", wheel)
    run(sys.executable, "-m", "venv", str(folder / "empty"))
    run(python, "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), wheel)
    for words in TRIED:
        run(python.replace("/python", "/shootout"), *words)
    return made


def run(*command: str) -> bytes:
    """Return what a command prints.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


def main() -> int:
    """Leave both files in dist/ and no older ones; none at all if something is wrong."""
    into = ROOT / "dist"
    into.mkdir(exist_ok=True)
    for old in into.glob("shootout-*"):
        old.unlink()
    if changed := run("git", "diff", "--name-only", "HEAD").decode().split():
        print(f"wrong: {', '.join(changed)} is not as it is committed", file=sys.stderr)
        return 1
    address = find_repository()
    if not address:
        print("no address is known, so the description has no links: make dist REPOSITORY=https://…", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="shootout-dist-") as folder:
        try:
            for one in make(Path(folder), address):
                shutil.copy(one, into)
                print(f"{into / one.name}: {one.stat().st_size:,} bytes")
        except subprocess.CalledProcessError as error:
            print(f"wrong: {error}\n{error.stdout.decode()[-2000:]}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
