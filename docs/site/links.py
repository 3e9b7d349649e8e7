"""Turn links as GitHub reads them into links of the site: to a page of it, or to the repository."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path
from posixpath import dirname, join, normpath, relpath

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = {
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "results/reference/README.md": "results.md",
    "results/reference/shootout.svg": "shootout.svg",
}
"""Files of the repository outside docs/ → what they are called in the site."""
BETTER = {"docs/notebook.ipynb#": "notebook.md"}
"""Files that are no Markdown → the page that tells the same here."""
_LINK = re.compile(r"^ *```.*?^ *```|(!?)\[([^\]]*)\]\(([^)\s]+)\)", re.MULTILINE | re.DOTALL)
"""A link, its bang and its text; or a block of code, in which there is none."""


def find_repository(root: Path = ROOT) -> str:
    """Find the repository's address on the web: the variable REPOSITORY, else what an sdist says, else git's origin.

    Returns:
        It without a slash at its end; "" if none is known.
    """
    declared = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"].get("urls", {})
    found: str = os.environ.get("REPOSITORY") or declared.get("Source") or _find_remote(root)
    return found.rstrip("/").removesuffix(".git")


def _find_remote(root: Path) -> str:
    """Return where a checkout came from, if that is an address on the web without a name or a token in it."""
    if not (root / ".git").exists():
        return ""
    command = ["git", "remote", "get-url", "origin"]
    found = subprocess.run(  # noqa: S603
        command, cwd=root, capture_output=True, text=True, check=False, encoding="utf-8", errors="replace"
    ).stdout.strip()
    named = re.fullmatch(r"(?:ssh://)?git@([^:/]+)[:/](.*)", found)
    found = f"https://{named[1]}/{named[2]}" if named else found
    return found if re.match(r"https://[^@]+$", found) else ""


def find_origin(page: str) -> str:
    """Return the place in the repository that a page of the site comes from."""
    return next((path for path, name in ELSEWHERE.items() if name == page), f"docs/{page}")


def move_links(markdown: str, page: str, pages: Collection[str], repository: str) -> str:
    """Return a page's text with every link changed to the place of its goal.

    Args:
        page: its name in the site.
        pages: the names of all that the site holds.
        repository: its address; "" if it has none: what leads there becomes plain text.
    """
    origin, known = find_origin(page), ELSEWHERE | {f"docs/{one}": one for one in pages}

    def move(match: re.Match[str]) -> str:
        bang, text, link = match.groups()
        name, hash_, heading = (link or "").partition("#")
        if not name or ":" in name:
            return match[0]
        path = normpath(join(dirname(origin), name))
        if better := BETTER.get(f"{path}#{heading}"):
            return f"[{text}]({relpath(better, dirname(page) or '.')})"
        if path in known:
            return f"{bang}[{text}]({relpath(known[path], dirname(page) or '.')}{hash_}{heading})"
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"[{text}]({repository}/{kind}/HEAD/{path}{hash_}{heading})" if repository else text

    return _LINK.sub(move, markdown)


def find_broken(markdown: str, origin: str) -> Iterator[str]:
    """Yield the links of a page of the repository that lead to no file."""
    for _, _, link in _LINK.findall(markdown):
        name = link.partition("#")[0]
        if name and ":" not in name and not (ROOT / dirname(origin) / name).exists():
            yield link
