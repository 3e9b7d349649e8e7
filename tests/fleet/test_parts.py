"""Groups are dealt to nodes, each once; what a node began stays its own."""

from __future__ import annotations

import pytest
from support.fleets.nodes import GROUPS, node

from shootout.errors import UsageError
from shootout.fleet.node_kinds import FleetNode, NodeKind, find_kinds
from shootout.fleet.parts import FleetPart, HeldPart, deal, narrow_identity, share_s


def kind(*nodes: FleetNode) -> NodeKind:
    return find_kinds(nodes)[0]


def held(one: NodeKind, number: int, groups: tuple[str, ...], finished: tuple[str, ...], by: FleetNode) -> HeldPart:
    header = by.header
    mine = tuple(group for group in header.groups if group.name in groups)
    identity = narrow_identity(header.identity, [group.name for group in header.groups], groups)
    begun = header.model_copy(update={"groups": mine, "identity": identity})
    return HeldPart(kind=one.key, number=number, header=begun, finished=frozenset(finished))


def dealt(parts: list[FleetPart]) -> list[str]:
    return sorted(name for part in parts for name in part.groups)


def test_every_group_is_dealt_once_and_nodes_share_small_and_large():
    parts = deal(kind(node("one"), node("other")))
    assert [part.groups for part in parts] == [("g1", "g3", "g5"), ("g2", "g4")]
    assert [part.number for part in parts] == [1, 2]


def test_no_node_gets_an_empty_part():
    assert dealt(deal(kind(node("one", groups=["g1"]), node("other", groups=["g1"])))) == ["g1"]


def test_what_a_node_began_stays_its_own_and_the_rest_is_dealt_anew():
    one, other = node("one"), node("other")
    mine = kind(one, other)
    before = [held(mine, 1, ("g1", "g3"), ("g1",), other), held(mine, 2, ("g2", "g4"), ("g2",), node("gone"))]
    resumed, new = deal(mine, before)
    assert (resumed.number, resumed.groups, resumed.node) == (1, ("g1", "g3"), other)
    assert (new.number, new.groups, new.node) == (3, ("g4", "g5"), None)


def test_a_finished_fleet_has_nothing_left():
    one = node("one")
    mine = kind(one)
    assert deal(mine, [held(mine, 1, GROUPS, GROUPS, one)]) == []


def test_what_was_lost_and_measured_elsewhere_since_is_not_gone_on_with():
    one = node("one")
    mine = kind(one)
    before = [held(mine, 1, GROUPS, ("g1",), one), held(mine, 2, GROUPS[1:], GROUPS[1:], node("other"))]
    assert deal(mine, before) == []


def test_what_is_unfinished_is_dealt_again_where_its_node_is_gone():
    mine = kind(node("one"))
    assert [part.groups for part in deal(mine, [held(mine, 1, GROUPS, GROUPS[:3], node("gone"))])] == [GROUPS[3:]]


@pytest.mark.parametrize("finished", [GROUPS, ()], ids=["finished", "not finished"])
def test_what_is_held_of_another_study_is_refused(finished: tuple[str, ...]):
    one = node("one")
    mine = kind(one)
    asked_before = one.header.model_copy(update={"identity": "the plan with another net.py"})
    other = HeldPart(kind=mine.key, number=1, header=asked_before, finished=frozenset(finished))
    with pytest.raises(UsageError, match="-1 in this folder holds another study"):
        deal(mine, [other])


def test_what_is_held_of_other_versions_is_not_gone_on_with():
    now, then = node("one"), node("one", libraries={"onnxruntime": "1.30.0"})
    mine = kind(now)
    with pytest.raises(UsageError, match=r"onnxruntime 1\.30\.0 and 1\.31\.1\. Install those again"):
        deal(mine, [held(mine, 1, GROUPS, GROUPS[:2], then)])
    assert deal(mine, [held(mine, 1, GROUPS, GROUPS, then)]) == [], "nothing more is measured"


def test_all_of_a_plan_is_what_a_run_without_a_cluster_holds():
    assert narrow_identity("the plan", GROUPS, GROUPS) == "the plan"
    assert len({narrow_identity("the plan", GROUPS, mine) for mine in (GROUPS, GROUPS[:2], GROUPS[2:])}) == 3


def test_a_share_takes_its_share_of_the_time():
    assert share_s(node("one"), ("g1", "g2")) == 4.0
