"""What a race is for, as people write it."""

from __future__ import annotations

import re

import pytest

from shootout.core.errors import UsageError
from shootout.core.stats.goals import Goal, read_goal


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("best", Goal(aim="best")),
        (" baseline ", Goal()),
        ("resolve 3%", Goal(aim="resolve", within=0.03)),
        ("resolve=0.5 %", Goal(aim="resolve", within=0.005)),
        ("limit 5%", Goal(aim="limit", within=0.05)),
    ],
)
def test_a_goal_is_read_and_told_again(text: str, wanted: Goal):
    assert read_goal(text) == wanted
    assert read_goal(str(wanted)) == wanted


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("bset", "unknown goal 'bset': did you mean 'best'?"),
        ("", "unknown goal ''"),
        ("resolve", "goal 'resolve' doesn't say how closely: write 'resolve 3%', in quotes"),
        ("limit", "goal 'limit' doesn't say by how much: write 'limit 5%', in quotes"),
        ("resolve 3", "goal 'resolve 3' doesn't say how closely"),
        ("resolve 0.1%", "invalid goal 'resolve 0.1%': differences below 0.5% could be the harness's own"),
        ("resolve 80%", "invalid goal 'resolve 80%': that says next to nothing; use a value from 0.5% to 50%"),
    ],
)
def test_a_goal_that_cannot_be_is_refused_in_plain_words(text: str, says: str):
    with pytest.raises(UsageError, match=re.escape(says)):
        read_goal(text)
