"""The keys of a policy as options of the command line; imports nothing heavy."""

from __future__ import annotations

from typing import Annotated, TypedDict

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
    p99: Annotated[str, Flag(group=Group.STOP, word="TIME", help="Limit: 99 of 100 are answered within 5ms.")]
    min_accuracy: Annotated[str, Flag(group=Group.STOP, word="SHARE", help="Limit: of labelled rows, 95% are right.")]
    max_accuracy_drop: Annotated[
        str, Flag(group=Group.STOP, word="POINTS", help="Limit: it loses 0.5pp at most against plain FP32.")
    ]
    min_metric: Annotated[str, Flag(group=Group.STOP, word="NUMBER", help="Limit: your own score (run --metric).")]
    max_error: Annotated[
        str, Flag(group=Group.STOP, word="ERROR", help="Limit: the relative error against the FP64 oracle, 1e-3.")
    ]
    min_agreement: Annotated[
        str, Flag(group=Group.STOP, word="SHARE", help="Limit: of rows, 99% have the oracle's first class.")
    ]
    memory: Annotated[str, Flag(group=Group.STOP, word="SIZE", help="Limit: its processes take 500MB at most.")]
    size: Annotated[str, Flag(group=Group.STOP, word="SIZE", help="Limit: the artifact takes 50MB.")]
    install: Annotated[str, Flag(group=Group.STOP, word="SIZE", help="Limit: the runtime takes 250MB on disk.")]
    ready: Annotated[str, Flag(group=Group.STOP, word="TIME", help="Limit: load and first call take 2s at most.")]
    rate: Annotated[str, Flag(group=Group.STOP, word="N/s", help="Limit: it does 200/s at least.")]
    cost: Annotated[str, Flag(group=Group.STOP, word="PRICE", help="Limit: what the load costs, 0.50/h.")]
    machine: Annotated[
        list[str],
        Flag(
            group=Group.SCENARIO,
            word="MACHINE",
            several=True,
            read=read_machines,
            help=f"A machine's price: {MACHINE}.",
        ),
    ]
