"""Temporary folders of killed processes are gone with what still works in them, and those in use are left alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from shootout.core.host import folders
from shootout.core.host.folders import Scratch, collect

OWNER = """
import sys
from pathlib import Path
from shootout.core.host.folders import Scratch
folder = Scratch(Path(sys.argv[1])).path
(folder / "part").mkdir()
print(folder.name, flush=True)
sys.stdin.read()
"""


def owner(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", OWNER, str(parent)], stdin=pipe, stdout=pipe, text=True)
    assert process.stdout
    return process, parent / process.stdout.readline().strip()


def test_what_a_killed_process_left_is_removed_and_what_is_in_use_stays(tmp_path: Path):
    running, used = owner(tmp_path)
    killed, left = owner(tmp_path)
    mine = Scratch(tmp_path)
    (tmp_path / f"{folders.NAME}a-file").touch()
    (tmp_path / f"{folders.NAME}a-link").symlink_to(tmp_path)
    (tmp_path / "another's").mkdir()
    try:
        killed.kill()
        killed.communicate()
        assert left.is_dir()
        collect(tmp_path)
        assert not left.exists()
        kept = {used, mine.path, *(tmp_path / name for name in ("another's", f"{folders.NAME}a-file"))}
        assert {*tmp_path.iterdir()} - {tmp_path / f"{folders.NAME}a-link"} == kept
    finally:
        running.communicate()
        collect(tmp_path)
        mine.close()


def test_a_process_collects_where_it_makes_its_first_one(tmp_path: Path):
    (tmp_path / f"{folders.NAME}left").mkdir()
    first = Scratch(tmp_path)
    assert [*tmp_path.iterdir()] == [first.path]
    (tmp_path / f"{folders.NAME}later").mkdir()
    Scratch(tmp_path).close()
    assert len([*tmp_path.iterdir()]) == 2
    first.close()
    first.close()  # harmless
