"""Which files of a folder a user's source can import, told from their text: a scratch file beside them is none of it.

Rather one too many than one too few: a file counts where any name in an import of those that count is its own, and all
of them do where one imports by other means than a statement. What is loaded all the same is told (`Source.unseen`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from shootout.errors import UsageError

_COMMENT = re.compile(rb"#[^\n]*|\\\r?\n")
_IMPORT = re.compile(rb"(?:^|[;:])[ \t]*import[ \t]+([\w., \t]+)", re.MULTILINE)
_FROM = re.compile(rb"(?:^|[;:])[ \t]*from(?=[. \t])([\w. \t]+?)\bimport\b[ \t]*(\([^)]*\)|[\w, \t*]+)", re.MULTILINE)
_OPAQUE = re.compile(
    rb"\b(?:importlib|imp|__import__|pkgutil|runpy|zipimport|pydoc|lazy_loader|entry_points|hydra|instantiate|fromfile"
    rb"|exec|execfile|pickle|dill|cloudpickle|joblib|unsafe_load|weights_only\s*=\s*False)\b|^def __getattr__",
    re.MULTILINE,
)
"""What imports modules by names that no statement holds; unpickling does."""
_LISTED = re.compile(rb"[\"'](\w+)[\"']")
_PACKAGE = "__init__"


def imports_of(text: bytes) -> Iterator[tuple[str, frozenset[str]]]:
    """Each import of a source: the first name of the module, "" for a relative one, and all names in it."""
    plain = _COMMENT.sub(b" ", text)
    for match in _FROM.finditer(plain):
        where = match[1].decode().strip()
        yield "" if where.startswith(".") else where.partition(".")[0], _words(match[0])
    for match in _IMPORT.finditer(plain):
        for one in match[1].decode().split(","):
            yield re.split(r"[. \t]", one.strip())[0], _words(one.encode())


def _words(text: bytes) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.decode()))


def reached(
    first: Path, named: Iterable[str], files: Sequence[Path], read: Callable[[Path], bytes]
) -> dict[Path, bytes]:
    """The text of a source and of all files that it can import, directly or not, in the order of `files`.

    Args:
        named: names that are imported besides, such as those of the source's own packages.
        files: all that there are.

    Raises:
        UsageError: the source itself can't be read; of another file, that it isn't anybody's source.
    """
    texts = {first: read(first)}
    by_name: dict[str, list[Path]] = {}
    for file in files:
        by_name.setdefault(file.parent.name if file.stem == _PACKAGE else file.stem, []).append(file)
    names, seen, todo = set(named), {first}, [first]
    while todo:
        for file in todo:
            names |= set(by_name) if _OPAQUE.search(texts[file]) else _names(file, texts[file])
        found = [file for name in names for file in by_name.get(name, ()) if file not in seen]
        seen |= set(found)
        texts |= (new := _texts(found, read))
        todo = list(new)
    return {file: texts[file] for file in (first, *(one for one in files if one != first)) if file in texts}


def _names(file: Path, text: bytes) -> set[str]:
    names = {name for _, some in imports_of(text) for name in some}
    if file.stem == _PACKAGE and b"__all__" in text:  # what a star imports may be modules
        names |= {match[1].decode() for match in _LISTED.finditer(text)}
    return names


def _texts(files: Iterable[Path], read: Callable[[Path], bytes]) -> dict[Path, bytes]:
    texts = {}
    for file in files:
        try:
            texts[file] = read(file)
        except UsageError:  # another user's, or gone by now
            continue
    return texts
