"""Which nodes are of one kind, and which two of a kind can't stand for each other."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from support.fleets.nodes import node

from shootout.errors import UsageError
from shootout.fleet.node_kinds import find_kinds


def test_nodes_that_are_alike_are_one_kind_in_any_order():
    one, other, large = node("one"), node("other"), node("large", cpu={"logical_cpus": 64})
    assert [[each.place.name for each in kind.nodes] for kind in find_kinds([one, large, other])] == [
        ["one", "other"],
        ["large"],
    ]
    assert find_kinds([other])[0].key == find_kinds([one])[0].key


@pytest.mark.parametrize(
    "changes",
    [
        {"cpu": {"flags": ["avx2"]}},
        {"cpu": {"model": "another"}},
        {"cpu": {"allowed_cpus": [0]}},
        {"memory": {"total_bytes": 64 << 30}},
        {"gpus": [{"name": "a GPU", "memory_bytes": 80 << 30}]},
        {"os": {"name": "another"}},
        {"label": "slow"},
    ],
    ids=str,
)
def test_each_of_these_makes_another_kind(changes: dict[str, Any]):
    assert len(find_kinds([node("one"), node("other", **copy.deepcopy(changes))])) == 2


def test_what_changes_by_itself_makes_no_kind():
    other = node(
        "other", machine="another", cpu={"governor": "powersave"}, memory={"total_bytes": (32 << 30) - (1 << 28)}
    )
    assert len(find_kinds([node("one"), other])) == 1


def test_two_of_a_kind_with_other_versions_are_refused_by_name():
    with pytest.raises(
        UsageError, match=r"nodes one and other .* versions: onnxruntime 1\.31\.1 and 1\.30\.0\."
    ) as error:
        find_kinds([node("one"), node("other", libraries={"onnxruntime": "1.30.0"})])
    assert "shootout.kind" in str(error.value)


def test_a_library_that_one_of_them_lacks_is_told():
    with pytest.raises(UsageError, match=r"jax absent and 0\.10\.2"):
        find_kinds([node("one"), node("other", libraries={"jax": "0.10.2"})])


def test_a_label_lets_them_be_two_kinds():
    kinds = find_kinds([node("one"), node("other", label="old", libraries={"onnxruntime": "1.30.0"})])
    assert [kind.key.rpartition("-")[0] for kind in kinds] == ["some-cpu", "old"]
