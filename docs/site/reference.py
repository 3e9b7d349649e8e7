"""Write the pages of reference from the program itself: `make reference`. A test holds the kept pages to it.

They are kept, so that a reader on GitHub has them too.
"""

from __future__ import annotations

import json
import re
import sys

from docs.site.commands import write_commands
from docs.site.keys import write_keys, write_schemas
from docs.site.links import ROOT
from docs.site.offers import write_matrix, write_options, write_schemes, write_support
from shootout.core.errors import ExitCode

DOCS = ROOT / "docs"
EXIT_HEAD = """# Exit codes

Every command ends with one of these codes. `shootout selftest` ends with 1 if it got a verdict wrong.

| code | means |
|---|---|
"""
EXIT_ORDER = """
If several hold, the command ends with the first of 130, 2, 6, 4, 5, 3, 7. A run with `--policy` that chooses nothing
ends with the decision's 3 or 7 before 6 and 4.
"""
EXIT_CODES = {
    ExitCode.OK: "The command did what it was asked.",
    ExitCode.ERROR: "Internal error, or standard output can't be written to.",
    ExitCode.USAGE: "The request can't be read or makes no sense.",
    ExitCode.NOTHING: "Nothing was measured. A decision: no candidate meets the limits.",
    ExitCode.FAILED: "A target named in `--backends` failed; with `--strict`, any target.",
    ExitCode.REFUSED: "The gate refused: the candidate is slower, larger or less accurate than it may be.",
    ExitCode.UNAVAILABLE: "A target named in `--backends` can't run on this machine. The others were measured.",
    ExitCode.UNDECIDED: "A decision or a gate has not enough evidence.",
    ExitCode.INTERRUPTED: "Interrupted by Ctrl-C or SIGTERM. What is known was printed.",
}
BLOCK = "<!-- the support matrix, written by make reference -->"
_BLOCK = re.compile(rf"{re.escape(BLOCK)}\n\n.*?\n\n", re.DOTALL)


def write_exit_codes() -> str:
    """Write what each exit code means."""
    rows = "".join(f"| {code:d} | {EXIT_CODES[code]} |\n" for code in sorted(ExitCode, key=int))
    return EXIT_HEAD + rows + EXIT_ORDER


def fill_matrix(page: str) -> str:
    """Return the page with the table behind its mark written anew."""
    return _BLOCK.sub(lambda _: f"{BLOCK}\n\n{write_matrix()}\n", page)


def write_reference() -> dict[str, str]:
    """Return the text of each kept page and file, by its path below docs/."""
    pages = {
        "reference/commands.md": write_commands(),
        "reference/options.md": write_options(),
        "reference/schemes.md": write_schemes(),
        "reference/support.md": write_support(),
        "reference/exit-codes.md": write_exit_codes(),
        "reference/keys.md": write_keys(),
        "runtimes/README.md": fill_matrix((DOCS / "runtimes" / "README.md").read_text(encoding="utf-8")),
    }
    schemas = {f"reference/schema/{name}.json": json.dumps(told, indent=1) for name, told in write_schemas().items()}
    return pages | {name: f"{text}\n" for name, text in schemas.items()}


def main() -> None:
    """Write all pages, and say which of them changed."""
    for name, text in write_reference().items():
        page = DOCS / name
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text, encoding="utf-8")
            sys.stderr.write(f"docs/{name}\n")


if __name__ == "__main__":
    main()
