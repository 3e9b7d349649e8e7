"""Show two targets side by side in a terminal: the answer, a table by block, and on demand one by layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from shootout.apps.explain.measure import WORTH, Explanation, LayerPair, LayerSide, SideSummary, sum_block
from shootout.core.constants import USEFUL_BOUND
from shootout.core.contract import short
from shootout.core.schemes import write_floats
from shootout.core.units import counted, duration
from shootout.tell.columns import Cell, make_table
from shootout.tell.report import Command, Line, write_lines

SHOWN = 8
"""Blocks that are shown; `--full` shows the layers of all."""
LETTERS = "AB"


def render(explanation: Explanation, width: int, *, full: bool) -> RenderableType:
    """Render the answer and the table by block; `full`: by layer."""
    rows = [_tabulate_layer(layer) for layer in explanation.layers] if full else _tabulate_blocks(explanation)
    headers = [name for name in rows[0] if any(row.get(name) for row in rows)]
    what = "that of the layers" if full else "that of the block's last layer"
    remarks = [
        *(f"Note: {note}." for note in list_notes(explanation)),
        f"error: {what}, relative L2 against the float graph. own: against the same layer in float on the target's own "
        "inputs. !: beyond what the precision explains. Times are by each runtime's own profile.",
    ]
    left = ("block", "layer", "operator", "precision A", "precision B")
    table = make_table(headers, rows, left=left)
    return Group(*write_lines(tell_lines(explanation), width), Text(""), table, *map(Text, remarks))


def tell_lines(explanation: Explanation) -> Iterator[Line]:
    """Tell the answer's lines."""
    for number, line in enumerate(tell_answer(explanation)):
        yield Line("" if number else "Answer", [line])
    for letter, side in zip(LETTERS, explanation.sides, strict=True):
        yield Line(letter, list(tell_side(side, explanation)))
    if (more := len(explanation.blocks) - SHOWN) > 0:
        yield Line("Blocks", [f"{more} more with --full"])
    if explanation.next:
        race = f"race B with {counted(len(explanation.floats), 'layer')} in float:"
        yield Line("Next", [race], [Command(text=explanation.next)])


def tell_answer(explanation: Explanation) -> list[str]:
    """Tell the first layer whose error isn't explained, or that there is none, and where the time goes."""
    told = []
    for index in (1, 0):
        side = explanation.sides[index]
        if side.first_beyond is not None:
            told.append(_tell_beyond(explanation, index, explanation.layers[side.first_beyond]))
        elif side.is_fused_wrong:
            told.append(_tell_fused(side))
    is_beyond = bool(told)
    if explanation.rise is not None:
        layer = explanation.layers[explanation.rise]
        before = max((one.sides[1].error or 0.0 for one in explanation.layers[: layer.number]), default=0.0)
        after = "NaN or infinity" if (error := layer.sides[1].error) is None else f"{error:.2g}"
        rises = f"the error of {short(explanation.sides[1].arm)} rises at layer {layer.name}: {before:.2g} → {after}"
        told.append(f"{rises} ({write_floats([layer.number])} leaves it in float)")
    if not is_beyond:
        told.append(_tell_none(explanation))
        told += [
            f"the outputs of {short(side.arm)} err by {tell_error(side.output_error)} all the same, beyond their bound "
            f"of {tell_error(min(side.error_bound, USEFUL_BOUND))}: no layer alone errs beyond its own"
            for side in explanation.sides[::-1]
            if side.error_bound is not None
        ]
    return [*told, *_tell_slowest(explanation)]


def _tell_beyond(explanation: Explanation, index: int, layer: LayerPair) -> str:
    arm, found = short(explanation.sides[index].arm), layer.sides[index]
    told = f"layer {layer.name} is the first of {arm} whose error its precision doesn't explain: "
    own = f"it errs by {tell_error(found.own)} by itself"
    explained = f", up to {tell_error(found.explained)} is explained" if found.explained is not None else ""
    unread = 0
    while unread < layer.number and not explanation.layers[layer.number - 1 - unread].sides[index].value:
        unread += 1
    if unread:
        explained += f" (the {counted(unread, 'layer')} before it couldn't be read, and may be the cause)"
    return told + own + explained


def _tell_fused(side: SideSummary) -> str:
    told = (
        f"{short(side.arm)} errs by {tell_error(side.output_error)} as raced, by {tell_error(side.read_error)} with "
        "its tensors shown, and no layer that was read errs beyond what its precision explains: what the runtime fuses "
        "is wrong, no layer is; report that to the runtime"
    )
    return f"{told}, and try {side.fuses_less}" if side.fuses_less else told


def _tell_none(explanation: Explanation) -> str:
    index = 0 if explanation.sides[1].unread else 1
    arm, read = short(explanation.sides[index].arm), [one for one in explanation.layers if one.sides[index].value]
    if not read:
        return f"no layer of {arm} could be read"
    worst = max(read, key=lambda one: one.sides[index].own or 0.0)
    found = worst.sides[index]
    most = f"layer {worst.name} errs most by itself: {tell_error(found.own)}"
    if all(one.sides[index].explained is None for one in read):
        return f"of {arm}, {most}; what its precision explains couldn't be predicted, so none is named as wrong"
    explained = f", up to {tell_error(found.explained)} is explained" if found.explained is not None else ""
    none = f"no layer of {arm} errs beyond what its precision explains"
    if unread := len(explanation.layers) - len(read):
        none += f", of the {len(read)} that could be read ({unread} could not)"
    return f"{none}; {most}{explained}"


def _tell_slowest(explanation: Explanation) -> list[str]:
    """Tell the block in which the second target loses most time to the first, or gains least."""
    first, second = explanation.sides
    if first.call_ns is None or second.call_ns is None or len(explanation.blocks) < 2:
        return []
    times = {name: [sum_block(some, index) for index in (0, 1)] for name, some in explanation.blocks.items()}
    name = max(times, key=lambda one: (times[one][1].ns or 0.0) - (times[one][0].ns or 0.0))
    before_ns, after_ns = (side.ns or 0.0 for side in times[name])
    if after_ns <= before_ns:
        return []
    told = f"block {name} takes longer in B: {duration(after_ns)}, in A {duration(before_ns)}"
    conversions_ns = times[name][1].conversions_ns
    return [told + (f", of it {duration(conversions_ns)} conversions" if conversions_ns else "")]


def tell_side(side: SideSummary, explanation: Explanation) -> list[str]:
    """Tell a target, how much of it was read, its error and its time."""
    told = [short(side.arm) + (f" ({side.why})" if side.why else "")]
    if side.unread:
        return [*told, f"not read: {side.unread}"]
    told.append(f"error of the outputs {tell_error(side.output_error)}")
    told.append(f"{side.read} of {len(explanation.layers)} layers read")
    if not side.call_ns:
        return [*told, "its runtime tells no times"]
    named = {"conversions": side.conversions_ns, "unmatched": side.unmatched_ns}
    parts = [f"{name} {ns / side.call_ns:.0%}" for name, ns in named.items() if ns]
    return [*told, f"{duration(side.call_ns)} a call by its own profile" + (f": {', '.join(parts)}" if parts else "")]


def list_notes(explanation: Explanation) -> list[str]:
    """List what has to be known of how the targets were read, each note once."""
    notes = [note for side in explanation.sides for note in side.notes]
    for letter, side in zip(LETTERS, explanation.sides, strict=True):
        if not side.unread and (side.instrumented is None or side.instrumented > WORTH):
            notes.append(
                f"{letter} was read from a graph that it fuses otherwise: that one's outputs differ from the raced "
                f"one's by {tell_error(side.instrumented)}"
            )
    return list(dict.fromkeys(notes))


def _tabulate_blocks(explanation: Explanation) -> list[dict[str, Cell]]:
    """Tabulate the blocks to show: those that err beyond what is explained, then those that take longest in B."""
    blocks = explanation.blocks

    def rank(name: str) -> tuple[int, float]:
        return sum(side.is_beyond for layer in blocks[name] for side in layer.sides), sum_block(blocks[name], 1).ns or 0

    shown = {*sorted(blocks, key=rank, reverse=True)[:SHOWN]}
    lines = [_tabulate_block(name, layers) for name, layers in blocks.items() if name in shown]
    first, second = (side.unmatched_ns for side in explanation.sides)
    unmatched: list[dict[str, Cell]] = [{"block": "unmatched", "time A": tell_time(first), "time B": tell_time(second)}]
    return lines + (unmatched if first or second else [])


def _tabulate_block(name: str, layers: Sequence[LayerPair]) -> dict[str, Cell]:
    first, second = (sum_block(layers, index) for index in (0, 1))
    beyond = [any(layer.sides[index].is_beyond for layer in layers) for index in (0, 1)]
    return {
        "block": name if len(layers) == 1 else f"{name} ({len(layers)} layers)",
        "error A": _mark(first.error, beyond[0]),
        "error B": _mark(second.error, beyond[1]),
        "own B": tell_error(second.own) if second.own is not None else "",
        "time A": tell_time(first.ns),
        "time B": tell_time(second.ns),
        "conversions B": tell_time(second.conversions_ns) if second.conversions_ns else "",
        "precision A": tell_precisions(first),
        "precision B": tell_precisions(second),
    }


def _tabulate_layer(layer: LayerPair) -> dict[str, Cell]:
    line: dict[str, Cell] = {"layer": layer.name, "operator": layer.operator}
    for letter, side in zip(LETTERS, layer.sides, strict=True):
        line[f"error {letter}"] = _mark(side.error, side.is_beyond) if side.value else ""
        line[f"own {letter}"] = tell_error(side.own) if side.value else "not read"
    explained = layer.sides[1].explained
    line["explained B"] = tell_error(explained) if explained is not None else ""
    for letter, side in zip(LETTERS, layer.sides, strict=True):
        line[f"time {letter}"] = tell_time(side.ns)
    for letter, side in zip(LETTERS, layer.sides, strict=True):
        line[f"precision {letter}"] = tell_precisions(side)
    return line


def _mark(error: float | None, is_beyond: bool) -> Cell:
    told = "" if error is None and not is_beyond else tell_error(error)
    return Text(f"{told} !", style="red") if is_beyond else told


def tell_error(error: float | None) -> str:
    """Tell a relative error in two digits."""
    return "NaN or infinity" if error is None else f"{error:.1e}" if error else "0"


def tell_time(ns: float | None) -> str:
    """Tell a time; "" if it isn't known."""
    return "" if ns is None else duration(ns)


def tell_precisions(side: LayerSide) -> str:
    """Tell in what the products ran, by count."""
    counts = sorted(side.precisions.items(), key=lambda one: -one[1])
    return ", ".join(name if len(counts) == 1 else f"{name} {count}" for name, count in counts)
