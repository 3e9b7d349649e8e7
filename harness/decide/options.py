"""The keys of a policy as options of the command line; imports nothing heavy."""

from __future__ import annotations

from typing import Annotated, TypedDict

from shootout.decide.quantities import LIMITS, Limit
from shootout.errors import UsageError
from shootout.study.options import Flag, Group

MACHINE = "match=TEXT,price=N,currency=USD,source=TEXT,as-of=DATE"


def read_machines(flag: str, texts: list[str]) -> tuple[dict[str, object], ...]:
    """`match=…,price=0.09,…` texts → machines as a policy file has them.

    Raises:
        UsageError: one has another form, or its price is no number.
    """
    return tuple(_machine(flag, text) for text in texts)


def _machine(flag: str, text: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals:
            raise UsageError(f"{flag} {text!r} is not of the form {MACHINE}")
        found[key.strip()] = value.strip()
    try:
        return found | ({"price": float(str(found["price"]))} if "price" in found else {})
    except ValueError:
        raise UsageError(f"{flag} {text!r}: the price {found['price']!r} is no number") from None


def _flag(limit: Limit) -> Flag:
    """The option of a limit."""
    quantity = LIMITS[limit]
    return Flag(group=Group.LIMITS, word=quantity.example, help=f"Limit, at {quantity.side}. {quantity.help}")


class PolicyOptions(TypedDict, total=False):
    """The keys of a policy, each as in its file."""

    objective: Annotated[
        str,
        Flag(group=Group.WHAT, word="NAME", help="What is made best: latency (default), rate, cost, size, install."),
    ]
    indifferent: Annotated[
        str, Flag(group=Group.WHAT, word="SHARE", help="Of two no further apart, either may be shipped. Default: 5%.")
    ]
    load: Annotated[
        str,
        Flag(group=Group.WHAT, word="N/s", help="Requests a second to serve: p99 and cost are at that rate or more."),
    ]
    utilisation: Annotated[
        str,
        Flag(group=Group.WHAT, word="SHARE", help="Of a machine's measured rate, what is counted on. Default: 70%."),
    ]
    p99: Annotated[str, _flag(Limit.P99)]
    min_accuracy: Annotated[str, _flag(Limit.ACCURACY)]
    max_accuracy_drop: Annotated[str, _flag(Limit.DROP)]
    min_metric: Annotated[str, _flag(Limit.METRIC)]
    max_error: Annotated[str, _flag(Limit.ERROR)]
    min_agreement: Annotated[str, _flag(Limit.AGREEMENT)]
    memory: Annotated[str, _flag(Limit.MEMORY)]
    size: Annotated[str, _flag(Limit.SIZE)]
    install: Annotated[str, _flag(Limit.INSTALL)]
    ready: Annotated[str, _flag(Limit.READY)]
    rate: Annotated[str, _flag(Limit.RATE)]
    cost: Annotated[str, _flag(Limit.COST)]
    machine: Annotated[
        list[str],
        Flag(
            group=Group.WHAT,
            word="MACHINE",
            several=True,
            read=read_machines,
            help=f"A machine's price: {MACHINE}.",
        ),
    ]
