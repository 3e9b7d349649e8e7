"""Inductor's start, without three things that cost each process 1 s and change nothing of what is compiled.

It hashes all of torch's sources, for the keys of graphs in its cache: ours holds those of one build, whose own key
tells the versions. It parses the templates of all its GPU kernels, to use few of them or none. And behind each graph it
looks for garbage in all that was imported.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache, cached_property, partial
from typing import Any


class LaterTemplate:
    """A kernel's template that is parsed when it is first used."""

    def __init__(self, parse: Callable[[], Any]) -> None:
        self._parse = parse

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._template, name)

    @cached_property
    def _template(self) -> Any:
        return self._parse()


@cache
def import_inductor() -> None:
    """Import what `torch.compile` imports in its first call, if that wasn't done.

    All three are torch's own affairs: where a version has them otherwise, it starts as slowly as ever.
    """
    with suppress(ImportError, AttributeError):
        _parse_templates_later()

    with suppress(ImportError, AttributeError, TypeError, RuntimeError):  # it may have its key by now
        _set_key()
    with suppress(ImportError, AttributeError):
        from torch._dynamo import config

        config.run_gc_after_compile = False


def _parse_templates_later() -> None:
    from torch._inductor.codegen.common import KernelTemplate

    kernels: Any = KernelTemplate
    parse = kernels._template_from_string
    kernels._template_from_string = staticmethod(lambda source: LaterTemplate(partial(parse, source)))


def _set_key() -> None:
    import torch
    from torch._inductor import codecache

    key: Any = codecache.torch_key
    key.set(hashlib.sha256(f"{torch.__version__} {torch.version.git_version}".encode()).digest())
