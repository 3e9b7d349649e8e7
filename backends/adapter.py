"""What a backend writes: an adapter that builds an arm's artifact once, and loads it in every fresh process.

`Session`, which `load` returns, is in `shootout.session`, all other words in `shootout.contract`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from shootout.bundle.bundle import ModelBundle
from shootout.contract import Arm, Availability, Capabilities, Device
from shootout.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """An arm's artifact on disk: all that `load` needs, in any later process.

    Attributes:
        bundle: the model it was built from.
        folder: where `build` put its files; read-only from then on.
        facts: what `build` wants to tell `load` or the record (JSON values). `compute_nodes_by_precision` and
            `artifact_bytes`, where they are among them, go into the row of an arm that is built here but can't run.
    """

    arm: Arm
    bundle: ModelBundle
    folder: Path
    facts: Mapping[str, Any] = field(default_factory=dict)


class Adapter(Protocol):
    """One backend. Its module imports no framework at the top; the framework comes in with the first call."""

    name: str
    capabilities: Capabilities

    def probe(self, device: Device) -> Availability:
        """Build and run a tiny real session on `device`. Never raises; always explains."""

    def build(self, bundle: ModelBundle, arm: Arm, folder: Path) -> Built:
        """Quantize, compile, write the engine into `folder` (empty): once per arm, cached by content."""

    def load(self, built: Built) -> Session:
        """A ready session, in each generation's fresh process; affinity and thread variables are already set."""
