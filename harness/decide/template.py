"""A `deploy.toml` to start from: each key with a comment, all limits commented out."""

from __future__ import annotations

from collections.abc import Iterator

from shootout.decide.policy import UTILISATION, Objective
from shootout.decide.quantities import BARE, LIMITS

MACHINE = """\
# [[machine]]  # as rented; there are no built-in prices
# match = "EPYC"  # a part of its name, or its key
# price = 0.0893  # an hour
# currency = "USD"
# source = "the provider's price list"
# as-of = 2026-11-20"""
WIDTH = 32


def make_template(study: str) -> str:
    """The text of a policy that asks for the lowest latency and limits nothing.

    Args:
        study: the file of the study that it lies beside.
    """
    return "\n".join([*_lines(study), ""])


def _lines(study: str) -> Iterator[str]:
    yield "# What a deployment needs. Take the # from what matters, then:"
    yield f"#   shootout run {study} --policy deploy.toml"
    yield _line('objective = "latency"', f"of {', '.join(Objective)}: what is made best")
    yield _line('# indifferent = "5%"', "of two no further apart, either may be shipped")
    yield _line('# load = "200/s"', "p99, rate and cost under so many requests a second")
    yield _line(f'# utilisation = "{UTILISATION:.0%}"', "of a machine's measured rate, what is counted on")
    yield "\n[limits]"
    for limit, one in LIMITS.items():
        value = one.example if one.unit is BARE else f'"{one.example}"'
        yield _line(f"# {limit} = {value}", one.help)
    yield f"\n{MACHINE}"


def _line(text: str, comment: str) -> str:
    return f"{text:<{WIDTH}}# {comment}"
