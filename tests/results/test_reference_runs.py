"""The runs in results/reference: each is whole, has its row, and tells no host and no person.

CONTRIBUTING.md says how a run becomes one of these.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from shootout.core.host.environment import variables
from shootout.core.journal import journal, samples

REFERENCE = Path(__file__).parents[2] / "results" / "reference"
FOLDERS = sorted(path.parent for path in REFERENCE.rglob(journal.PACKED))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.relative_to(REFERENCE).as_posix())
def test_a_reference_run_is_whole_and_names_no_host_and_no_person(folder: Path):
    history = journal.read(folder)
    assert history.damaged == ()
    assert (folder / samples.PACKED).is_file(), "pack it with --raw"
    assert f"`{folder.relative_to(REFERENCE).parts[0]}`" in (REFERENCE / "README.md").read_text(), "it needs a row"
    facts = history.header.environment
    assert facts["shootout"]["version"]
    assert facts["variables"] == variables(facts["variables"]), "a variable that looks like a secret's"
    assert history.header.on == "", "the address of a host"
    assert not any(home in history.header.model_dump_json() for home in ("/home/", "/Users/", "/root/"))
