"""The tree that is published: the tracked files, with addresses where a package index can't follow a relative link."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
README, PROJECT, DESCRIPTION = "README.md", "pyproject.toml", "DESCRIPTION.md"
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:)([^)\s]+)\)")


def read_project(root: Path = ROOT) -> dict[str, Any]:
    """What pyproject.toml says."""
    return tomllib.loads((root / PROJECT).read_text())


def tracked(root: Path = ROOT) -> list[str]:
    """The files that git tracks and that are there, by their path from the root.

    Raises:
        subprocess.CalledProcessError: `root` is no git checkout.
    """
    found = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True).stdout
    return [name for name in found.split("\0") if name and (root / name).is_file()]


def changed(root: Path = ROOT) -> list[str]:
    """The tracked files that differ from the commit which a release's tag would name.

    Raises:
        subprocess.CalledProcessError: `root` is no git checkout.
    """
    command = ["git", "--no-optional-locks", "diff", "--name-only", "-z", "HEAD"]
    found = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    return [name for name in found.split("\0") if name]


def stage(files: Sequence[str], into: Path, address: str, root: Path = ROOT) -> list[str]:
    """Copy the files, and beside them write what an index shows: the README with addresses, and the project's links.

    Args:
        address: of the repository on the web, without a slash at its end; "": it isn't known.

    Returns:
        The names of all files there.
    """
    for name in files:
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, into / name)  # with its mode: .ci/run is a program
    tag = f"v{read_project(root)['project']['version']}"
    (into / DESCRIPTION).write_text(link((root / README).read_text(), address, tag))
    told = (root / PROJECT).read_text().replace(f'readme = "{README}"', f'readme = "{DESCRIPTION}"')
    (into / PROJECT).write_text(told + (name_addresses(address, tag) if address else ""))
    return [*files, DESCRIPTION]


def link(text: str, address: str, tag: str) -> str:
    """Markdown whose links lead to the files of that tag at that address; without one, the words of each link alone.

    An image without an address has nothing to show, and goes.
    """

    def lead(found: re.Match[str]) -> str:
        image, words, goal = found.groups()
        if not address:
            return "" if image else words
        inside = goal.startswith("#")
        return found[0] if inside else f"{image}[{words}]({address}/{'raw' if image else 'blob'}/{tag}/{goal})"

    return _LINK.sub(lead, text)


def name_addresses(address: str, tag: str) -> str:
    """The section of pyproject.toml that an index shows as a project's links."""
    urls = {
        "Source": address,
        "Documentation": f"{address}/tree/{tag}/docs",
        "Changelog": f"{address}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }
    return "\n[project.urls]\n" + "".join(f'{name} = "{url}"\n' for name, url in urls.items())
