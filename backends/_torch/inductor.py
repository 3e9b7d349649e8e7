"""Inductor's own state: its configuration and cache for one compilation, and what it then says of the graph."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakSet

SETTINGS: dict[str, Any] = {"cpp_cache_precompile_headers": False, "compile_threads": 1}
"""Precompiled headers lie outside the cache that we keep: each load would compile them again, 6 s. More than one thread
would mean helper processes that live on beside the timed calls.
"""
CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
_IN_USE = WeakSet[Any]()
"""Compiled models that sessions hold."""


@contextmanager
def inductor_with(cache: Path, config: dict[str, Any]) -> Iterator[None]:
    """Inductor with this configuration, its cache in `cache`, and nothing left from an earlier compilation.

    Only what sessions of this process still run stays: forgotten, it would be compiled again in their next call, under
    the configuration of that moment.
    """
    import torch._dynamo.utils
    import torch._inductor.config as config_of

    if not _IN_USE:
        torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    before = os.environ.get(CACHE_VARIABLE)
    os.environ[CACHE_VARIABLE] = str(cache)
    try:
        with config_of.patch({**SETTINGS, **config}):
            yield
    finally:
        os.environ.pop(CACHE_VARIABLE)
        if before is not None:
            os.environ[CACHE_VARIABLE] = before


def keep(compiled: Any) -> None:
    """Let no later compilation of this process forget this compiled model, as long as somebody holds it."""
    _IN_USE.add(compiled)


def graph_bypassed() -> bool:
    """Whether Inductor kept its graph out of the cache since it was last reset.

    It does so with weights in oneDNN's own layout, which it can't write: each load then makes the kernels' list anew,
    and only the compiled code is in the cache.
    """
    from torch._dynamo.utils import counters

    return bool(counters["inductor"]["fxgraph_cache_bypass"])


def breaks() -> tuple[str, ...]:
    """Graph breaks, and graphs beyond the first (recompilations), since this process last compiled anew."""
    from torch._dynamo.utils import counters

    graphs = counters["stats"]["unique_graphs"]
    again = (f"Dynamo compiled {graphs} graphs for one model",) if graphs > 1 else ()
    return (*(f"graph break: {reason}" for reason in counters["graph_break"]), *again)


def captured_graphs() -> int:
    """How many CUDA graphs Inductor has recorded in this process and still holds."""
    from torch._inductor import cudagraph_trees

    manager = cudagraph_trees.get_manager(0, create_if_none_exists=False)
    return _recorded(manager.roots) if manager else 0


def _recorded(nodes: Mapping[Any, Sequence[Any]]) -> int:
    """Of recordings by function, and of those that follow each: how many hold a graph."""
    every = [node for recordings in nodes.values() for node in recordings]
    return sum((node.graph is not None) + _recorded(node.children) for node in every)


def graph_parts() -> int:
    """Into how many parts Inductor cut the model that was compiled last, since not all of it can be in a CUDA graph."""
    from torch._dynamo.utils import counters

    return counters["inductor"]["cudagraph_partitions"] or 1


def outside_graphs(captured: int, since: int, parts: int) -> tuple[str, ...]:
    """What keeps a model from being one CUDA graph that is only replayed, one line each.

    Counted graphs are the proof, not Inductor's own count of what it skipped: that one misses cases (pytorch pull
    request 193044).

    Args:
        captured: CUDA graphs of this model when it was loaded.
        since: those that were captured later.
        parts: what `graph_parts` said while it was built.
    """
    from torch._dynamo.utils import counters

    skipped = counters["inductor"]["cudagraph_skips"]
    cut = (f"Inductor cut the model into {parts} parts and captured {captured} CUDA graphs",)
    left_out = (f"Inductor skipped {skipped} CUDA graphs: TORCH_LOGS=cudagraphs says why",)
    again = (f"Inductor captured {since} more CUDA graphs after it was loaded",)
    return (*(cut if (parts, captured) != (1, 1) else ()), *(left_out if skipped else ()), *(again if since else ()))
