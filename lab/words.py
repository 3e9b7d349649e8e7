"""Check the words that people read: `python -m lab.words` prints FILE:LINE: RULE: SENTENCE and exits 1 if it finds any.

It reads the documentation's pages, the help of every command, the messages of errors, and what code says of programs.
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

from shootout.cli import app
from shootout.core import errors

ROOT = Path(__file__).resolve().parents[1]
CODE = ("harness", "backends", "models", "lab")
APART = ("docs/design/", "docs/evidence/")
"""These pages keep derivations and history as they were written."""
MOST_WORDS, LONG = 35, 30

PEOPLE = (
    "authors?|colleagues?|contributors?|engineers?|maintainers?|newcomers?|people|person|readers?|teams?|users?|anyone"
)
HUMAN = re.compile(rf"\b(?:{PEOPLE}),? who\b", re.IGNORECASE)
PERSON = re.compile(r"\b(?:who|whoever|whom|nobody|somebody|everybody)\b", re.IGNORECASE)
WHERE = re.compile(r"\W*Where\b[^?]*,")
REPLACED = {
    "restart": r"(?<!text )(?<!token )(?<!code )\bgenerations?\b",
    "reference outputs": r"\boracles?\b",
    "control": r"\bsentinels?\b",
    "shipped:DIR": r"\bbundle:",
    "group": r"\bentrants?\b",
    "significantly faster, or: can't tell": r"\btold apart\b",
    "95 % interval": r"\bfor sure\b",
    "not a regular file, text file, …": r"\bis no (?:ordinary|text|JSON|run folder)\b",
}
"""The glossary's term → what it took the place of."""
BRITISH = re.compile(
    r"\b\w*(?:labell(?:ed|ing)|colour|behaviour|neighbour|favour|flavour|honour|catalogue|licence|learnt|judgement|"
    r"modelled|cent(?:re|red)\b|grey\b|towards\b|(?:util|optim|normal|special|synchron|virtual|recogn|initial|general)is"
    r"(?:e|ed|er|es|ing|ation)\b)\w*",
    re.IGNORECASE,
)
TERMS = {term: re.compile(old, re.IGNORECASE) for term, old in REPLACED.items()}
NOTED = {
    "NotRun",
    *(name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, Exception)),
}
"""Calls of these hold words for people."""

UNREAD = re.compile(
    r"\A---\n.*?\n---\n|<!--.*?-->|^[ \t]*(```|~~~).*?^[ \t]*\1[^\n]*$|^[ \t]*\|[^\n]*$|<[/a-z][^>]*>",
    re.DOTALL | re.MULTILINE,
)
CODE_SPAN, LINK = re.compile(r"(`+)[^`]+\1"), re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
BLOCK_END = re.compile(r"\n\s*\n|\n(?=[ \t]*(?:[-*+>]|\d+\.)[ \t])|\n(?=#)|(?<=\n)(?=#)")
SENTENCE_END = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!vs\.)[\"')\]*_]*\s+(?=[\"'(\[*_`]*[A-Z`\d])")


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence, and where it is: FILE:LINE, or the command whose help has it."""

    place: str
    text: str

    @property
    def words(self) -> int:
        """Count its words; code counts as one."""
        return len(re.findall(r"\S*\w\S*", self.text))


def split_page(text: str, name: str) -> Iterator[Sentence]:
    """Split a page's prose into sentences, without code, tables, comments and the addresses of links."""
    text = UNREAD.sub(_blank, text)
    text = CODE_SPAN.sub(lambda found: "`C`" + _blank(found), text)
    text = LINK.sub(lambda found: found[1] + "\n" * (found[0].count("\n") - found[1].count("\n")), text)
    for start, block in _cut(text, BLOCK_END):
        for place, sentence in _cut(block, SENTENCE_END):
            line = 1 + text.count("\n", 0, start + place + len(sentence) - len(sentence.lstrip()))
            if re.search(r"\w", sentence):
                yield Sentence(f"{name}:{line}", " ".join(sentence.split()))


def _blank(found: re.Match[str]) -> str:
    """Keep the line ends of what isn't read, so that later lines keep their numbers."""
    return "\n" * found[0].count("\n")


def _cut(text: str, end: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    start = 0
    for stop in [*(found.end() for found in end.finditer(text)), len(text)]:
        yield start, text[start:stop]
        start = stop


def _split(text: str, place: str) -> Iterator[Sentence]:
    for _, sentence in _cut(text, SENTENCE_END):
        yield Sentence(place, " ".join(sentence.split()))


def read_help(command: Any, name: str = "shootout") -> Iterator[Sentence]:
    """Split the help of a command and of those below it."""
    yield from _split(command.help or "", f"{name} --help")
    for parameter in command.params:
        yield from _split(getattr(parameter, "help", None) or "", f"{name} {max(parameter.opts, key=len)}")
    for below in getattr(command, "commands", {}).values():
        yield from read_help(below, f"{name} {below.name}")


def read_messages(tree: ast.Module, name: str) -> Iterator[Sentence]:
    """Split the texts that a module gives to errors and skips; a value in them counts as one word."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and getattr(call.func, "id", getattr(call.func, "attr", "")) in NOTED:
            for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
                yield from _split(_words_of(argument), f"{name}:{argument.lineno}")


def _words_of(node: ast.AST) -> str:
    """Return the words of an expression, with `X` for each value."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else "`X`" for part in parts)
        case ast.BinOp(left=left, right=right):
            return _words_of(left) + _words_of(right)
        case ast.IfExp(body=body, orelse=orelse):
            return f"{_words_of(body)}. {_words_of(orelse)}"
    return ""


def check(sentence: Sentence) -> Iterator[str]:
    """Return each rule that a sentence breaks, with its place and words."""
    if calls_person(sentence.text):
        yield f"{sentence.place}: a program is a thing: {sentence.text}"
    if sentence.words > MOST_WORDS:
        yield f"{sentence.place}: {sentence.words} words, at most {MOST_WORDS}: {sentence.text}"
    if WHERE.match(sentence.text):
        yield f'{sentence.place}: "if" or "when" for "where": {sentence.text}'
    if found := BRITISH.search(sentence.text):
        yield f"{sentence.place}: {found[0]!r} is British: {sentence.text}"
    for term, old in TERMS.items():
        if old.search(sentence.text):
            yield f"{sentence.place}: the term is {term!r}: {sentence.text}"


def calls_person(text: str) -> bool:
    """Find out if a text has a "who" or "nobody" that isn't a human being's."""
    return bool(PERSON.search(HUMAN.sub("", text)))


def check_code(text: str, name: str) -> Iterator[str]:
    """Return what a module's messages break, and each line that makes a person of a program."""
    for sentence in read_messages(ast.parse(text), name):
        yield from check(sentence)
    for number, line in enumerate(text.splitlines(), 1):
        if calls_person(line):
            yield f"{name}:{number}: a program is a thing: {line.strip()}"


def read_pages() -> dict[str, list[Sentence]]:
    """Return the sentences of each page, by its name."""
    paths = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    names = {_name(path): path for path in [*paths, *sorted((ROOT / "docs").rglob("*.md"))]}
    return {
        name: [*split_page(path.read_text(encoding="utf-8"), name)]
        for name, path in names.items()
        if not name.startswith(APART)
    }


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def find_faults() -> Iterator[str]:
    """Return what breaks a rule in the pages, the help and the code."""
    for sentence in [*(one for page in read_pages().values() for one in page), *read_help(typer.main.get_command(app))]:
        yield from check(sentence)
    for path in (path for folder in CODE for path in sorted((ROOT / folder).rglob("*.py"))):
        if path != Path(__file__).resolve():
            yield from check_code(path.read_text(encoding="utf-8"), _name(path))


def tell_figures() -> Iterator[str]:
    """Return the words, the mean sentence and the share of long ones, by page and in all; headings are left out."""
    lengths = {name: [one.words for one in page if not one.text.startswith("#")] for name, page in read_pages().items()}
    for name, some in {**lengths, "all": [one for page in lengths.values() for one in page]}.items():
        if some:
            share = mean(one > LONG for one in some)
            yield f"{name:<40} {sum(some):>6} words, {mean(some):.1f} a sentence, {share:.1%} over {LONG}"


if __name__ == "__main__":
    told = list(tell_figures() if sys.argv[1:] == ["--figures"] else dict.fromkeys(find_faults()))
    sys.stdout.writelines(f"{line}\n" for line in told)
    sys.exit(bool(told) and sys.argv[1:] != ["--figures"])
