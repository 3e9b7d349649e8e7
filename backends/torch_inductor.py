"""Inductor's own state: its configuration and cache for one compilation, and what it then says of the graph."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SETTINGS: dict[str, Any] = {"cpp_cache_precompile_headers": False, "compile_threads": 1}
"""Precompiled headers lie outside the cache that we keep: each load would compile them again, 6 s. More than one thread
would mean helper processes that live on beside the timed calls.
"""
CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


@contextmanager
def inductor_with(cache: Path, config: dict[str, Any]) -> Iterator[None]:
    """Inductor with this configuration, its cache in `cache`, and nothing left from an earlier compilation."""
    import torch._dynamo.utils
    import torch._inductor.config as config_of

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
