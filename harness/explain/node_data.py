"""Write a target's errors as node data for Model Explorer (google-ai-edge/model-explorer), by the graph's values."""

from __future__ import annotations

from typing import Any

from shootout.explain.explanation import Explanation

GRADIENT = ({"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#d1661f"})


def as_node_data(explanation: Explanation, side: int = 1) -> dict[str, Any]:
    """Return the own error of each layer that was read in a target, by the name of the value that it makes.

    Model Explorer finds a node by the name of any of its outputs. It shows numbers alone, so a layer whose error isn't
    finite is left out.
    """
    results = {
        layer.output: {"value": layer.sides[side].own}
        for layer in explanation.layers
        if layer.sides[side].value and layer.sides[side].own is not None
    }
    return {"results": results, "gradient": list(GRADIENT)}
