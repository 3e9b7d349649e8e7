"""A runtime's nodes are given to layers by whatever names they kept, and what has none is told apart."""

from __future__ import annotations

import pytest

from shootout.apps.explain.measure import LayerSide, add_times, place_nodes
from shootout.backends.optional import RanNode

OWNERS = {"node_conv": 0, "relu": 0, "fc": 1, "node_fc": 1}


def _ran(*names: str, reads: str = "", makes: str = "", **how: float | bool | str) -> RanNode:
    facts = {"kind": "Any", "ns": 1.0, **how}
    return RanNode(names=names, reads=tuple(reads.split()), makes=tuple(makes.split()), **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("node_conv", 0),
        ("node_conv_quant", 0),
        ("relu_nchwc", 0),
        ("node_conv/WithoutBiases", 0),
        ("fc_DequantizeLinear_Output", 1),
        ("node_fc_token_12", 1),
        ("node_fc/fq_output_0", 1),
        ("reorder", None),
    ],
)
def test_a_name_is_known_with_what_optimizers_add_to_it(name: str, layer: int | None) -> None:
    assert place_nodes([_ran(name)], OWNERS) == [layer]


def test_a_node_without_a_name_follows_what_it_reads_else_what_reads_it() -> None:
    nodes = [
        _ran("made_up", reads="x", makes="blocked"),
        _ran("node_conv", reads="blocked", makes="c"),
        _ran("made_up_2", reads="c", makes="d"),
        _ran("alone", reads="z", makes="w"),
    ]
    assert place_nodes(nodes, OWNERS) == [0, 0, 0, None]


def test_times_are_summed_by_layer_and_none_is_made_up() -> None:
    nodes = [_ran("fc", ns=5.0, precision="int8", kind="QGemm"), _ran("q", ns=2.0, converts=True)]
    found = add_times(LayerSide(), nodes, is_told=True)
    assert (found.ns, found.conversions_ns) == (7.0, 2.0)
    assert found.precisions == {"int8": 1}
    assert add_times(LayerSide(), nodes, is_told=False).ns is None
