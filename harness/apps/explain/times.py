"""Give each node that a runtime ran to a layer of the model, by whatever names it kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shootout.core.contract import RanNode
from shootout.models.onnx.layers import find_owner


def place_nodes(nodes: Sequence[RanNode], owners: Mapping[str, int]) -> list[int | None]:
    """Return the layer of each node, by its number; None if nothing tells it.

    A node without a known name belongs to the layer of what it reads, or else of what reads its result, such as a
    conversion before the first layer.

    Args:
        owners: see `Outline`.
    """
    found: list[int | None] = [find_owner(node.names, owners) for node in nodes]
    made: dict[str, int | None] = {}
    for at, node in enumerate(nodes):
        if found[at] is None:
            known = [owner for name in node.reads if (owner := made.get(name)) is not None]
            found[at] = max(known, default=None)
        made |= dict.fromkeys(node.makes, found[at])
    wanted: dict[str, int | None] = {}
    for at, node in reversed([*enumerate(nodes)]):
        if found[at] is None:
            known = [owner for name in node.makes if (owner := wanted.get(name)) is not None]
            found[at] = min(known, default=None)
        wanted |= dict.fromkeys(node.reads, found[at])
    return found
