"""What is left out of Inductor's start is there all the same once it is used."""

from __future__ import annotations

from shootout.core.contract import Target
from shootout.testing.checks import warm_of
from shootout.testing.fresh import run_fresh

MOST_OF_IT = 100_000
"""Fewer objects than an import of Inductor leaves."""


def started() -> dict[str, object]:
    """What Inductor has after its start, in a process that went through it twice."""
    import gc
    import sys

    from torch._dynamo import config
    from torch._inductor.codecache import torch_key
    from torch._inductor.kernel.mm import mm_template

    from shootout.backends._torch.inductor import LaterTemplate, import_inductor

    gc.unfreeze()
    import_inductor.__wrapped__()  # where torch has its key already
    frozen = gc.get_freeze_count()
    later = mm_template.template
    parsed = "_parsed_template" in vars(later)
    later.render  # noqa: B018 - as Inductor does
    return {
        "later": isinstance(later, LaterTemplate) and not parsed,
        "parsed": type(later._parsed_template).__name__,
        "key": len(torch_key()),
        "collects": config.run_gc_after_compile,
        "scanned": frozen < MOST_OF_IT or "torch._inductor.compile_fx" not in sys.modules,
    }


def test_a_template_is_parsed_when_it_is_first_used_and_no_import_is_scanned():
    found = run_fresh(started, warm=warm_of(Target(backend="torch-compile")))
    assert found == {"later": True, "parsed": "Template", "key": 32, "collects": False, "scanned": False}
