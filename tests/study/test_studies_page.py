"""docs/studies.md lists every study that ships, once."""

from __future__ import annotations

import re
from pathlib import Path

from shootout import studies

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "studies.md").read_text()


def test_the_page_lists_each_study():
    listed = PAGE[PAGE.index("## Named studies") :]
    heads = re.findall(r"^- (.*?):", listed, re.MULTILINE)
    assert sorted(name for head in heads for name in re.findall(r"`([\w-]+)`", head)) == sorted(studies.shipped())
