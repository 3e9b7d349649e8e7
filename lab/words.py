"""Check the words that people read: `python -m lab.words` prints FILE:LINE: RULE: SENTENCE and exits 1 if it finds any.

It reads the documentation's pages, the help of every command, the messages of errors, and what the code says of programs.
CONTRIBUTING.md has the rules. `--figures` prints how long each page's sentences are instead.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import typer

from shootout import errors
from shootout.cli import app

ROOT = Path(__file__).resolve().parents[1]
APART = ("docs/design/", "docs/evidence/")
"""These pages keep derivations and history as they were written."""
CODE = ("harness", "backends", "models", "lab")
MOST_WORDS, LONG = 35, 30
PEOPLE = "anyone author authors colleague colleagues contributors engineer engineers maintainers newcomer people person reader readers user users"
ALLOWED = re.compile(rf"\b(?:{PEOPLE.replace(' ', '|')}),? who\b|\bwho (?:you|we) (?:are|trust)\b", re.IGNORECASE)
"""A human being may be a "who"."""
PERSON = re.compile(r"\b(?:who|whoever|whom|nobody|somebody|everybody)\b", re.IGNORECASE)
WHERE = re.compile(r"^\W*Where\b[^?]*,")
REPLACED = {
    "restart": r"(?<!text )(?<!token )(?<!code )\bgenerations?\b",
    "reference outputs": r"\boracles?\b",
    "control": r"\bsentinels?\b",
    "shipped:DIR": r"\bbundle:",
    "group": r"\bentrants?\b",
    "significantly faster, or can't tell": r"\btold apart\b",
    "95 % interval": r"\bfor sure\b",
    "not a regular file, no text file, …": r"\bis no (?:ordinary|text|JSON|run folder)\b",
}
"""The glossary's term → what it took the place of."""
TERMS = {term: re.compile(old, re.IGNORECASE) for term, old in REPLACED.items()}
ERRORS = {name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, Exception)}
NOTED = {*ERRORS, "NotRun"}
"""Calls of these hold words for people."""
UNREAD = re.compile(
    r"\A---\n.*?\n---\n|<!--.*?-->|^[ \t]*(```|~~~).*?^[ \t]*\1[^\n]*$|^[ \t]*\|[^\n]*$|<[/a-z][^>]*>",
    re.DOTALL | re.MULTILINE,
)
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
BLOCK = re.compile(r"\n\s*\n|\n(?=[ \t]*(?:[-*+>]|\d+\.)[ \t])|\n(?=#)|(?<=\n)(?=#)")
END = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!vs\.)(?<!cf\.)[\"')\]*_]*\s+(?=[\"'(\[*_`]*[A-Z`\d])")


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence, and where it is: FILE:LINE, or the command whose help it is."""

    place: str
    text: str

    @property
    def words(self) -> int:
        """Count its words; code counts as one."""
        return len(re.findall(r"\S*\w\S*", self.text))


def _blank(found: re.Match[str]) -> str:
    """Keep the lines of what isn't read, so that those after it keep their numbers."""
    return "\n" * found[0].count("\n")


def split_page(text: str, name: str) -> Iterator[Sentence]:
    """Split a page's prose into sentences, without code, tables, comments and the addresses of links."""
    text = UNREAD.sub(_blank, text)
    text = re.sub(r"`+[^`]+`+", lambda found: "`C`" + _blank(found), text)
    text = LINK.sub(lambda found: found[1] + "\n" * (found[0].count("\n") - found[1].count("\n")), text)
    start = 0
    for end in [*(found.end() for found in BLOCK.finditer(text)), len(text)]:
        yield from split(text[start:end], f"{name}:", 1 + text.count("\n", 0, start))
        start = end


def split(text: str, place: str, line: int | None = None) -> Iterator[Sentence]:
    """Split a paragraph into sentences; with a first line, each place ends in its sentence's own."""
    start = 0
    for end in [*(found.end() for found in END.finditer(text)), len(text)]:
        told = text[start:end]
        own = "" if line is None else line + text.count("\n", 0, start + len(told) - len(told.lstrip()))
        if re.search(r"\w", told):
            yield Sentence(f"{place}{own}", " ".join(told.split()))
        start = end


def pages() -> list[Path]:
    """Return the pages that are checked."""
    docs = [path for path in sorted((ROOT / "docs").rglob("*.md")) if not _name(path).startswith(APART)]
    return [ROOT / "README.md", *docs, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def read_help(command: Any, name: str = "shootout") -> Iterator[Sentence]:
    """Split the help of a command and of those below it."""
    yield from split(command.help or "", name)
    for parameter in command.params:
        yield from split(getattr(parameter, "help", None) or "", f"{name} {max([parameter.name, *parameter.opts])}")
    for below in getattr(command, "commands", {}).values():
        yield from read_help(below, f"{name} {below.name}")


def read_messages(tree: ast.Module, name: str) -> Iterator[Sentence]:
    """Split the texts that a module gives to errors and skips; a value in them counts as one word."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and getattr(call.func, "id", getattr(call.func, "attr", "")) in NOTED:
            for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
                yield from split(_text(argument), f"{name}:{argument.lineno}")


def _text(node: ast.AST) -> str:
    """Return the words of an expression, with `X` for each value."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(part.value if isinstance(part, ast.Constant) else "`X`" for part in parts)
        case ast.BinOp(left=left, right=right):
            return _text(left) + _text(right)
        case ast.IfExp(body=body, orelse=orelse):
            return f"{_text(body)}. {_text(orelse)}"
    return ""


def find_person(text: str) -> bool:
    """Find out if a text calls a program a person."""
    return bool(PERSON.search(ALLOWED.sub("", text)))


def check(sentence: Sentence) -> Iterator[str]:
    """Return each rule that a sentence breaks, with its place and words."""
    if find_person(sentence.text):
        yield f"{sentence.place}: programs are things, not persons: {sentence.text}"
    if sentence.words > MOST_WORDS:
        yield f"{sentence.place}: {sentence.words} words, at most {MOST_WORDS}: {sentence.text}"
    if WHERE.search(sentence.text):
        yield f'{sentence.place}: "if" or "when", not "where": {sentence.text}'
    for term, old in TERMS.items():
        if old.search(sentence.text):
            yield f'{sentence.place}: the word is "{term}": {sentence.text}'


def check_code(path: Path) -> Iterator[str]:
    """Return what a module's messages break, and each line that calls a program a person."""
    text = path.read_text(encoding="utf-8")
    for sentence in read_messages(ast.parse(text), _name(path)):
        yield from check(sentence)
    for number, line in enumerate(text.splitlines(), 1):
        if find_person(line) and path != Path(__file__):
            yield f"{_name(path)}:{number}: programs are things, not persons: {line.strip()}"


def figures() -> Iterator[str]:
    """Return the words, the mean sentence, and the share of long ones, by page and in all."""
    found = {_name(path): _count_words(path) for path in pages()}
    for name, counts in {**found, "all": [count for counts in found.values() for count in counts]}.items():
        if counts:
            share = mean(count > LONG for count in counts)
            yield f"{name:<40} {sum(counts):>6} words, {mean(counts):.1f} a sentence, {share:.1%} over {LONG}"


def _count_words(path: Path) -> list[int]:
    sentences = split_page(path.read_text(encoding="utf-8"), _name(path))
    return [sentence.words for sentence in sentences if not sentence.text.startswith("#")]


def main() -> int:
    """Print what is wrong, or the figures; return the exit code."""
    if sys.argv[1:] == ["--figures"]:
        sys.stdout.writelines(f"{line}\n" for line in figures())
        return 0
    texts = [one for path in pages() for one in split_page(path.read_text(encoding="utf-8"), _name(path))]
    wrong = [line for one in [*texts, *read_help(typer.main.get_command(app))] for line in check(one)]
    wrong += [line for folder in CODE for path in sorted((ROOT / folder).rglob("*.py")) for line in check_code(path)]
    sys.stdout.writelines(f"{line}\n" for line in dict.fromkeys(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
