"""Groups are dealt to nodes, each once; what a node began stays its own."""

from __future__ import annotations

from support.fleets.nodes import GROUPS, node

from shootout.fleet.nodes import Kind, Node, find_kinds
from shootout.fleet.plan import Held, Part, deal, narrow_identity, share_s


def kind(*nodes: Node) -> Kind:
    return find_kinds(nodes)[0]


def held(one: Kind, number: int, groups: tuple[str, ...], finished: tuple[str, ...], by: Node) -> Held:
    return Held(kind=one.key, number=number, groups=groups, finished=frozenset(finished), fingerprint=by.fingerprint)


def dealt(parts: list[Part]) -> list[str]:
    return sorted(name for part in parts for name in part.groups)


def test_every_group_is_dealt_once_and_nodes_share_small_and_large():
    parts = deal(kind(node("one"), node("other")))
    assert [part.groups for part in parts] == [("g1", "g3", "g5"), ("g2", "g4")]
    assert [part.number for part in parts] == [1, 2]


def test_no_node_gets_an_empty_part():
    assert dealt(deal(kind(node("one", groups=["g1"]), node("other", groups=["g1"])))) == ["g1"]


def test_a_search_between_groups_is_one_nodes():
    assert [part.groups for part in deal(kind(node("one"), node("other")), together=True)] == [GROUPS]


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


def test_all_of_a_plan_is_what_a_run_without_a_cluster_holds():
    assert narrow_identity("the plan", GROUPS, GROUPS) == "the plan"
    assert len({narrow_identity("the plan", GROUPS, mine) for mine in (GROUPS, GROUPS[:2], GROUPS[2:])}) == 3


def test_a_share_takes_its_share_of_the_time():
    assert share_s(node("one"), ("g1", "g2")) == 4.0
