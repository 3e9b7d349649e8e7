"""Run the conformance suite on hosts by ssh: `python -m shootout.testing.elsewhere ssh://HOST --backend NAME …`.

The suite's models are exported here and sent, so a host needs pytest and the runtimes, and no torch.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from shootout.apps.fleet.ssh_hosts import run_on_hosts
from shootout.core.errors import ShootoutError, UsageError, printable
from shootout.core.exported.model import ExportedModel
from shootout.tell.cache_limit import in_use
from shootout.tell.delivery import SENT_EXPORTS, Contents, list_files
from shootout.testing.cases import export_for, name_request, targets


def main() -> None:
    """Run the suite as the command line asks, and end with pytest's exit code."""
    parser = argparse.ArgumentParser(prog="python -m shootout.testing.elsewhere", description=__doc__)
    parser.add_argument("address", help="ssh://[USER@]HOST[:PORT][/PATH/TO/PYTHON], or several with commas")
    parser.add_argument("--backend", action="append", metavar="NAME", required=True, help="may be repeated")
    asked, words = parser.parse_known_args()
    try:
        code = conform_there(asked.address, asked.backend, words)
    except ShootoutError as error:
        sys.stderr.write(f"shootout: {error}\n")
        code = int(error.exit_code)
    sys.exit(code)


def conform_there(address: str, names: Sequence[str], words: Sequence[str] = ()) -> int:
    """Run the suite on these backends on each host; return the largest of pytest's exit codes.

    Args:
        address: as `--on` takes it.
        words: further options for pytest.

    Raises:
        UsageError: a host can't be used, or can't run it; says what to do.
    """
    with in_use():
        _say("exporting what the suite runs")
        pairs = export_for(targets(names))
        made = {name_request(request): one for request, one in pairs if isinstance(one, ExportedModel)}
        contents: dict[str, Contents] = {f"exported/{one.key}": list_files(one.folder) for one in made.values()}
        keys = json.dumps({name: one.key for name, one in made.items()}).encode()
        suite = ["-p", "shootout.testing.plugin", "-p", "no:cacheprovider", "--pyargs", "shootout.testing"]
        suite += [word for name in names for word in ("--backend", name)]
        answers = run_on_hosts(address, ["pytest", *suite, *words], _say, files={SENT_EXPORTS: keys}, sent=contents)
    for place, answer in answers.items():
        if "No module named pytest" in answer.said:
            raise UsageError(f"{place.name}: the suite needs pytest: install it for the Python that --on names")
        sys.stderr.write(answer.printed)
    return max(answer.code for answer in answers.values())


def _say(text: str) -> None:
    sys.stderr.write(f"{printable(text)}\n")


if __name__ == "__main__":
    main()
