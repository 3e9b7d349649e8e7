"""Crossovers in words: one line for each pair, both scopes."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from shootout.contract import Value
from shootout.crossover.brackets import Kind
from shootout.results.document import Crossover, Document

Key = tuple[str, str, tuple[tuple[str, Value], ...], str, str]


def lines(document: Document) -> list[Text]:
    """A title, then `batch: numpy wins up to 8, onnxruntime from 16 on (end to end); compute: …` for each pair."""
    if not document.crossovers:
        return []
    pairs: dict[Key, dict[str, list[Crossover]]] = {}
    for one in document.crossovers:
        key = (one.model, one.scenario, tuple(one.fixed.items()), one.a, one.b)
        pairs.setdefault(key, {}).setdefault(one.scope, []).append(one)
    several = len({key[:3] for key in pairs}) > 1
    return [Text("Crossovers", style="bold"), *(_line(key, scopes, several=several) for key, scopes in pairs.items())]


def _line(key: Key, scopes: dict[str, list[Crossover]], *, several: bool) -> Text:
    model, scenario, fixed, a, b = key
    where = f"{model} ({', '.join(f'{name}={value}' for name, value in fixed)}), {scenario}: " if several else ""
    axis = next(iter(scopes.values()))[0].axis
    told = {scope.replace("_", " "): says(found) for scope, found in scopes.items()}
    same = len(set(told.values())) == 1
    text = f"{next(iter(told.values()))} (both scopes)" if same else "; ".join(f"{s}: {t}" for s, t in told.items())
    return Text(f"  {where}{a} or {b}, by {axis}: {text}.")


def says(found: Sequence[Crossover]) -> str:
    """What one pair's crossings in one scope come to."""
    first = found[0]
    if first.outcome == Kind.BRACKET:
        times = f"they cross {len(found)} times: " if len(found) > 1 else ""
        return times + "; ".join(_bracket(one) for one in found)
    if first.outcome == Kind.NONE:
        return f"no crossover from {first.low} to {first.high}: {_runs(first)}"
    needed = [f"{size} needs about {count}" for size, count in first.generations_needed.items() if count]
    takes = f" (generations: {', '.join(needed)})" if needed else ""
    return f"can't tell: {first.reason}{takes}"


def _bracket(one: Crossover) -> str:
    inside = f" ({one.reason})" if one.reason else ""
    return f"{one.below} wins up to {one.low}, {one.above} from {one.high} on{inside}"


def _runs(one: Crossover) -> str:
    """`numpy wins`, or where who wins changes into "the same" on the way: each stretch."""
    winners = {"faster": one.a, "slower": one.b, "same": "same"}
    stretches: list[tuple[str, int]] = []
    for point in one.sizes:
        if not stretches or stretches[-1][0] != winners[point.verdict]:
            stretches.append((winners[point.verdict], point.size))
    if len(stretches) == 1:
        return _wins(stretches[0][0])
    return ", ".join(f"{_wins(winner)} from {size} on" for winner, size in stretches)


def _wins(winner: str) -> str:
    return "they are the same" if winner == "same" else f"{winner} wins"
