"""Write the pages of reference from the program itself: `make reference`. A test holds the kept pages to it.

They are kept, so that a reader on GitHub has them too.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from docs.site.commands import write_commands
from docs.site.keys import write_keys, write_schemas
from docs.site.links import ROOT
from docs.site.offers import write_matrix, write_options, write_schemes, write_support
from shootout import studies
from shootout.core.contract import Device
from shootout.core.errors import ExitCode
from shootout.core.study import points
from shootout.core.study.schema import Study
from shootout.core.study.target import parse_targets

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
    ExitCode.UNDECIDED: "A decision or a gate has not enough evidence; a run, only with `--require-verdict`.",
    ExitCode.INTERRUPTED: "Interrupted by Ctrl-C or SIGTERM. What is known was printed.",
}
STUDIES_HEAD = """# The named studies

`shootout run NAME` runs one of these studies, and `shootout run NAME --dry-run` shows its groups and how long they
take. The words below are the keys of a study file: [Choose targets, sizes, time](../studies.md) shows how to change
them.
"""
BLOCK = "<!-- the support matrix, written by make reference -->"
_BLOCK = re.compile(rf"{re.escape(BLOCK)}\n\n.*?\n\n", re.DOTALL)


def write_exit_codes() -> str:
    """Write what each exit code means."""
    rows = "".join(f"| {code:d} | {EXIT_CODES[code]} |\n" for code in sorted(ExitCode, key=int))
    return EXIT_HEAD + rows + EXIT_ORDER


def write_named_studies() -> str:
    """Write each study that ships: its question, and the keys that it sets."""
    named = {name: studies.load(name) for name in studies.shipped()}
    index = "".join(f"| [{name}](#{name}) | {study.description} |\n" for name, study in named.items())
    sections = (
        f"\n## {name}\n\n{study.description}\n\n| key | value |\n|---|---|\n{''.join(_study_rows(study))}"
        for name, study in named.items()
    )
    return f"{STUDIES_HEAD}\n| study | question |\n|---|---|\n{index}{''.join(sections)}"


def _study_rows(study: Study) -> Iterator[str]:
    told: Mapping[str, Any] = {**study.model_dump(mode="json", exclude_unset=True), "goal": study.aims_at}
    for key, value in told.items():
        if key == "targets":
            for name, targets in _split_by_device(value).items():
                yield f"| `targets` {name} | {', '.join(f'`{one}`' for one in targets)} |\n"
        elif isinstance(value, Mapping):
            yield from (f"| `{key}.{name}` | {_tell(one)} |\n" for name, one in value.items())
        elif key not in ("name", "description"):
            yield f"| `{key}` | {_tell(value)} |\n"


def _split_by_device(targets: list[str]) -> dict[str, list[str]]:
    """Return the targets on the CPU and those on other devices; a part without any is left out."""
    on_cpu = [one for one in targets if parse_targets(one, points.describe)[0].device is Device.CPU]
    others = [one for one in targets if one not in on_cpu]
    return {name: found for name, found in (("on the CPU", on_cpu), ("on a GPU", others)) if found}


def _tell(value: Any) -> str:
    """Return a value of a study as a person would write it in the file."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_tell(one)}" for key, one in value.items())
    if isinstance(value, list):
        nested = any(isinstance(one, list | Mapping) for one in value)
        return ("; " if nested else ", ").join(map(_tell, value))
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def fill_matrix(page: str) -> str:
    """Return the page with the table behind its mark written anew."""
    return _BLOCK.sub(lambda _: f"{BLOCK}\n\n{write_matrix()}\n", page)


def write_reference() -> dict[str, str]:
    """Return the text of each kept page and file, by its path below docs/."""
    pages = {
        "reference/commands.md": write_commands(),
        "reference/options.md": write_options(),
        "reference/schemes.md": write_schemes(),
        "reference/studies.md": write_named_studies(),
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
