"""Give each node that a runtime ran to a layer of the model, by whatever names it kept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from shootout.contract import RanNode

_ADDED = re.compile(
    r"(?:_(?:Quantize|Dequantize)Linear(?:_(?:Input|Output))?|_quantized|_quant|_scale|_zero_point|_nchwc|_token_\d+"
    r"|_bias_int32|_bias|_MatMul(?:_output)?|_reshaped?|/WithoutBiases|/fq_\w+|/Dequantization\w+|_output_\d+)$"
)
"""What quantizers and optimizers add to a name, at its end."""


def place_nodes(nodes: Sequence[RanNode], owners: Mapping[str, int]) -> list[int | None]:
    """Return the layer of each node, by its number; None if nothing tells it.

    A node without a known name belongs to the layer of what it reads, or else of what reads its result, such as a
    conversion before the first layer.

    Args:
        owners: see `Outline`.
    """
    found: list[int | None] = [_find_owner(node.names, owners) for node in nodes]
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


def _find_owner(names: Iterable[str], owners: Mapping[str, int]) -> int | None:
    for name in names:
        while name:
            if name in owners:
                return owners[name]
            name, before = _ADDED.sub("", name), name
            if name == before:
                break
    return None
