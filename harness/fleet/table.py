"""Who measures what, for people and as JSON values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.text import Text

from shootout.fleet.nodes import Kind, Node
from shootout.fleet.plan import Part, share_s
from shootout.units import counted, size, span

SHOWN = 4
"""Groups of a node that are named; `--json` has them all."""


def as_data(kinds: Sequence[Kind], parts: Sequence[Part], sent: Sequence[str], sent_bytes: int) -> dict[str, Any]:
    """The plan as JSON values.

    Args:
        sent: the user's files that nodes are sent.
        sent_bytes: of all that each is sent.
    """
    return {
        "kinds": [
            {
                "key": kind.key,
                "title": kind.title,
                "nodes": [node.place.name for node in kind.nodes],
                "parts": [
                    {
                        "name": part.name,
                        "node": node.place.name,
                        "groups": list(part.groups),
                        "cells": sum(node.cells.get(name, 0) for name in part.groups),
                        "estimate_s": round(share_s(node, part.groups), 1),
                    }
                    for part, node in _given(kind, parts)
                ],
            }
            for kind in kinds
        ],
        "files": list(sent),
        "sent_bytes": sent_bytes,
    }


def render(kinds: Sequence[Kind], parts: Sequence[Part], sent: Sequence[str], sent_bytes: int) -> Text:
    """The plan as text; arguments as for `as_data`."""
    files = f" and {', '.join(sent)}" if sent else ""
    lines = [f"Each node is sent {size(sent_bytes)}: this package{files}."]
    for kind in kinds:
        lines += ["", f"{kind.key}: {kind.title}; {counted(len(kind.nodes), 'node')}"]
        given = _given(kind, parts)
        for part, node in given:
            cells = sum(node.cells.get(name, 0) for name in part.groups)
            lines.append(
                f"  {node.place.name}: {counted(len(part.groups), 'group')}, {counted(cells, 'cell')}, at least "
                f"{span(share_s(node, part.groups))}: {_listed(part.groups)}"
            )
        idle = [node.place.name for node in kind.nodes if node not in [one for _, one in given]]
        lines += [f"  nothing is left for {', '.join(idle)}"] if idle else []
    return Text("\n".join(lines))


def _given(kind: Kind, parts: Sequence[Part]) -> list[tuple[Part, Node]]:
    """This kind's parts, each with the node that is expected to get it."""
    mine = [part for part in parts if part.kind == kind.key]
    free = [node for node in kind.nodes if node not in [part.node for part in mine]]
    return [(part, part.node or free.pop(0)) for part in mine]


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return "; ".join(every[:SHOWN]) + more
