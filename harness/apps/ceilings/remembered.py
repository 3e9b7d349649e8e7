"""The most that this machine can do: peak rate by precision, bandwidth by memory level; measured once, then remembered.

They are kept for this machine, its versions and the number of threads. Every run's header holds them, so that its
shares of them can be shown on any machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shootout.core.host import environment
from shootout.core.host.store import read_facts, write_facts
from shootout.tell.ceilings import Ceilings, ceilings_of_run

_NAME = "ceilings.json"


def read_ceilings(facts: Mapping[str, Any]) -> dict[int, Ceilings]:
    """Return what was measured on this machine before, by thread count.

    Args:
        facts: the environment now (`environment.facts()`); other versions or another machine have ceilings of their
            own.
    """
    return ceilings_of_run({"ceilings": read_facts(_NAME).get(environment.fingerprint(facts))})


def write_ceilings(measured: Ceilings, facts: Mapping[str, Any]) -> None:
    """Store ceilings for this machine, beside those at other thread counts.

    Raises:
        UsageError: the cache can't be written.
    """
    everything = {**read_ceilings(facts), measured.threads: measured}
    write_facts(_NAME, {environment.fingerprint(facts): as_data(everything.values())})


def as_data(measured: Iterable[Ceilings]) -> dict[str, Any]:
    """Return ceilings by thread count as JSON values, as the header of a run holds them."""
    return {str(ceilings.threads): ceilings.model_dump(mode="json") for ceilings in measured}
