"""Which files of a folder a user's source can import, told from their text: a scratch file beside them is none of it.

Rather one too many than one too few: a file counts where any name in an import of those that count is its own, and all
of them do where one imports by other means than a statement. What is loaded all the same is told (`Source.unseen`).
"""

from __future__ import annotations

import io
import re
import tokenize
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from shootout.errors import UsageError

_GAP = r"(?:[ \t\f]|\\\n)"
_COMMENT = re.compile(r"#[^\n]*")
_IMPORT = re.compile(rf"(?:^|[;:]){_GAP}*import{_GAP}+((?:[\w.,]|{_GAP})+)", re.MULTILINE)
_FROM = re.compile(
    rf"(?:^|[;:]){_GAP}*from(?=\.|{_GAP})((?:[\w.]|{_GAP})+?)\bimport\b{_GAP}*"
    rf"(\([^)#]*(?:#[^\n]*\n[^)#]*)*\)|(?:[\w,*]|{_GAP})+)",
    re.MULTILINE,
)
"""Comments are left out inside its brackets alone, where no string can be: elsewhere a # may be part of one."""
_OPAQUE = re.compile(
    r"\b(?:importlib|imp|__import__|pkgutil|runpy|zipimport|pydoc|lazy_loader|entry_points|hydra|instantiate|fromfile"
    r"|exec|execfile|pickle|dill|cloudpickle|joblib|unsafe_load|weights_only\s*=\s*False)\b|^def __getattr__",
    re.MULTILINE,
)
"""What imports modules by names that no statement holds; unpickling does."""
_LISTED = re.compile(r"[\"'](\w+)[\"']")
_PACKAGE = "__init__"


def decoded(source: bytes) -> str:
    """The text of a source as Python reads it, in the form that it gives names."""
    try:
        text = source.decode(tokenize.detect_encoding(io.BytesIO(source).readline)[0], errors="replace")
    except (SyntaxError, LookupError, UnicodeError):  # Python couldn't read it either
        text = source.decode(errors="replace")
    return _name(text.replace("\r\n", "\n").replace("\r", "\n"))


def imports_of(text: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Each import of a `decoded` source: the first name of the module, "" for a relative one, and all names in it."""
    for match in _FROM.finditer(text):
        where = re.sub(_GAP, "", match[1])
        yield "" if where.startswith(".") else where.partition(".")[0], frozenset(_words(_COMMENT.sub("", match[0])))
    for match in _IMPORT.finditer(text):
        for words in map(_words, match[1].split(",")):
            if words:
                yield words[0], frozenset(words)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def _name(text: str) -> str:
    """Names are equal for Python where these are, whichever way a letter with an accent is written."""
    return unicodedata.normalize("NFKC", text)


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
        by_name.setdefault(_name(file.parent.name if file.stem == _PACKAGE else file.stem), []).append(file)
    names, seen, todo = set(map(_name, named)), {first}, [first]
    while todo:
        for file, text in [(file, decoded(texts[file])) for file in todo]:
            names |= set(by_name) if _OPAQUE.search(text) else _names(file, text)
        found = [file for name in names for file in by_name.get(name, ()) if file not in seen]
        seen |= set(found)
        texts |= (new := _texts(found, read))
        todo = list(new)
    return {file: texts[file] for file in (first, *(one for one in files if one != first)) if file in texts}


def _names(file: Path, text: str) -> set[str]:
    names = {name for _, some in imports_of(text) for name in some}
    if file.stem == _PACKAGE and "__all__" in text:  # what a star imports may be modules
        names |= {match[1] for match in _LISTED.finditer(text)}
    return names


def _texts(files: Iterable[Path], read: Callable[[Path], bytes]) -> dict[Path, bytes]:
    texts = {}
    for file in files:
        try:
            texts[file] = read(file)
        except UsageError:  # another user's, or gone by now
            continue
    return texts
