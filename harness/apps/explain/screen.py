"""Show two targets side by side in a terminal: the answer, a table by block, and on demand one by layer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from shootout.apps.explain.explanation import (
    WORTH,
    BlockPair,
    BlockSide,
    Explanation,
    LayerPair,
    LayerSide,
    Rise,
    SideSummary,
)
from shootout.core.constants import FP32_BOUND_FLOOR, USEFUL_BOUND
from shootout.core.contract import short
from shootout.core.schemes import write_floats
from shootout.core.units import counted, duration
from shootout.tell.columns import Cell, make_table
from shootout.tell.report import Command, Line
from shootout.tell.screen import fold, write_lines

SHOWN = 8
"""So many blocks are shown; `--full` shows the layers of all."""
LETTERS = "AB"
_NOT_FINITE = "NaN or infinity"
TAIL = 3
"""So many operators of what follows the layers are named."""
NEARLY = 2.0
"""Two errors are told if one is so many times the other, else only the raced one."""


def render(explanation: Explanation, width: int, *, full: bool) -> RenderableType:
    """Render the answer and the table by block; `full`: by layer."""
    lines = write_lines(tell_lines(explanation), width)
    headers, rows, left = (tabulate_layers if full else tabulate_blocks)(explanation)
    return Group(*lines, Text(""), make_table(headers, rows, left=left), *_list_remarks(explanation, full=full))


def tell_lines(explanation: Explanation) -> Iterator[Line]:
    """Tell the answer's lines."""
    for number, line in enumerate(tell_answer(explanation)):
        yield Line("" if number else "Answer", [line])
    for letter, side in zip(LETTERS, explanation.sides, strict=True):
        yield Line(letter, list(tell_side(side, explanation)))
    if more := len(explanation.blocks) - len(choose_blocks(explanation)):
        yield Line("Blocks", [f"{more} more with --full or in the page (--out FILE.html)"])
    if explanation.next:
        yield Line("Next", list(tell_next(explanation)), [Command(text=explanation.next)])


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
    if rise := explanation.rise:
        told.append(_tell_rise(explanation, rise))
    if not is_beyond:
        told.append(_tell_none(explanation))
        told += [_tell_refused(side, explanation) for side in explanation.sides[::-1] if side.error_bound is not None]
    return [*told, *_tell_slowest(explanation)]


def tell_next(explanation: Explanation) -> list[str]:
    """Tell what the next command does; nothing if there is none."""
    if not explanation.next:
        return []
    if explanation.mix:
        return [f"race B with {counted(len(explanation.floats), 'layer')} in float:"]
    does = "search for" if explanation.next.startswith("shootout tune") else "rank"
    return [f"{does} the layers to leave in float:"]


def _tell_rise(explanation: Explanation, rise: Rise) -> str:
    after = _NOT_FINITE if rise.after is None else f"{rise.after:.2g}"
    layer = f"layer {explanation.layers[rise.layer].name} ({write_floats([rise.layer])})"
    return f"the error of {short(explanation.sides[1].arm)} rises at {layer}: {rise.before:.2g} → {after}"


def _tell_beyond(explanation: Explanation, index: int, layer: LayerPair) -> str:
    arm, found = short(explanation.sides[index].arm), layer.sides[index]
    told = f"layer {layer.name} is the first of {arm} whose error its precision doesn't explain: "
    own = f"it errs by {tell_error(found.own)} by itself"
    explained = f", up to {tell_error(found.explained)} is explained" if found.explained is not None else ""
    if skipped := _unread_before(explanation, index, layer):
        explained += f" ({skipped} before it couldn't be read, and may be the cause)"
    parts = [told + own + explained, _tell_between(explanation, layer), _tell_share(explanation.sides[index], found)]
    return "; ".join(filter(None, parts))


def _tell_between(explanation: Explanation, layer: LayerPair) -> str:
    """Tell what lies between a layer and the one before it, if that is one kind of operator."""
    found = {(before.layer, operator) for before in layer.before for operator in before.operators}
    if len(found) != 1:
        return ""
    ((number, operator),) = found
    return f"{operator} between {explanation.layers[number].name} and it may be the cause"


def _tell_fused(side: SideSummary) -> str:
    told = (
        f"{short(side.arm)} errs by {tell_error(side.output_error)} as raced, by {tell_error(side.read_error)} with "
        "its tensors shown, and no layer that was read errs beyond what its precision explains: what the runtime fuses "
        "is wrong, no layer is; report that to the runtime"
    )
    return f"{told}, and try {side.fuses_less}" if side.fuses_less else told


def _tell_refused(side: SideSummary, explanation: Explanation) -> str:
    """Tell that outputs err beyond their bound though no layer does, and whether what follows the layers is why."""
    bound = min(USEFUL_BOUND if one is None else one for one in (side.error_bound, USEFUL_BOUND))
    told = (
        f"the outputs of {short(side.arm)} err by {tell_error(side.output_error)} all the same, beyond their bound of "
        f"{tell_error(bound)}"
    )
    grown = side.read_error if side.read_error is not None else side.output_error
    is_tail = side.tail_error is None or grown is None or NEARLY * side.tail_error >= grown
    if side.tail_operators and is_tail:
        after = "the layers" if side.read == len(explanation.layers) else "the layers that were read"
        operators = ", ".join(fold(side.tail_operators, TAIL))
        return f"{told}: what follows {after} ({operators}) is no layer, and errs by {tell_error(side.tail_error)}"
    return f"{told}: no layer alone errs beyond its own"


def _unread_before(explanation: Explanation, index: int, layer: LayerPair) -> str:
    """Name the layers right before this one whose tensors the runtime doesn't show."""
    names: list[str] = []
    for before in reversed(explanation.layers[: layer.number]):
        if before.sides[index].value:
            break
        names.insert(0, before.name)
    return "" if not names else names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def _tell_share(side: SideSummary, layer: LayerSide) -> str:
    if not side.call_ns or layer.ns is None:
        return ""
    told = f"it takes {layer.ns / side.call_ns:.0%} of the time"
    return told + (f", conversions in it {layer.conversions_ns / side.call_ns:.0%}" if layer.conversions_ns else "")


def _tell_none(explanation: Explanation) -> str:
    index = 0 if explanation.sides[1].unread else 1
    side, read = explanation.sides[index], [one for one in explanation.layers if one.sides[index].value]
    if not read:
        return f"no layer of {short(side.arm)} could be read"
    worst = max(read, key=lambda one: one.sides[index].own or 0.0)
    found = worst.sides[index]
    if all(one.sides[index].explained is None for one in read):
        errs = f"layer {worst.name} of {short(side.arm)} errs most by itself: {tell_error(found.own)}"
        return f"{errs}; what its precision explains couldn't be predicted, so none is named as wrong"
    explained = f" of {tell_error(found.explained)} explained" if found.explained is not None else ""
    none = f"no layer of {short(side.arm)} errs beyond what its precision explains"
    if unread := len(explanation.layers) - len(read):
        none += f", of the {len(read)} that could be read ({unread} could not)"
    return f"{none}; layer {worst.name} errs most by itself: {tell_error(found.own)}{explained}"


def _tell_slowest(explanation: Explanation) -> list[str]:
    """Tell the block in which the second target loses most time to the first, or gains least."""
    first, second = explanation.sides
    if first.call_ns is None or second.call_ns is None or len(explanation.blocks) < 2:
        return []
    block = max(explanation.blocks, key=lambda one: (one.sides[1].ns or 0.0) - (one.sides[0].ns or 0.0))
    times = [side.ns or 0.0 for side in block.sides]
    if times[1] <= times[0]:
        return []
    told = f"block {block.name} takes longer in B: {duration(times[1])}, in A {duration(times[0])}"
    conversions = block.sides[1].conversions_ns
    return [told + (f", of it {duration(conversions)} conversions" if conversions else "")]


def tell_side(side: SideSummary, explanation: Explanation) -> list[str]:
    """Tell a target, how much of it was read, its error and its time."""
    told = [short(side.arm) + (f" ({side.why})" if side.why else "")]
    if side.unread:
        return [*told, f"not read: {side.unread}"]
    if side.output_error is not None or side.unequal is None:
        told.append(f"error of the outputs {tell_error(side.output_error)}{_tell_read_error(side)}")
    if side.unequal is not None:
        whole = "of the outputs' whole numbers"
        told.append(f"{100 * side.unequal:.2g} % {whole} differ" if side.unequal else f"all {whole} are equal")
    told.append(f"{side.read} of {len(explanation.layers)} layers read")
    if side.call_ns:
        parts = [f"{name} {ns / side.call_ns:.0%}" for name, ns in _parts(side) if ns]
        told.append(f"{duration(side.call_ns)} a call by its own profile" + (f": {', '.join(parts)}" if parts else ""))
    else:
        told.append("its runtime tells no times")
    return told


def _tell_read_error(side: SideSummary) -> str:
    """Tell the error of the calls that were read, if it isn't nearly that of the run."""
    if side.output_error == side.read_error:
        return ""
    if side.output_error is not None and side.read_error is not None:
        low, high = sorted([side.output_error, side.read_error])
        if high < max(NEARLY * low, FP32_BOUND_FLOOR):
            return ""
    return f" as raced, {tell_error(side.read_error)} in the calls that were read"


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


def _parts(side: SideSummary) -> list[tuple[str, float]]:
    return [("conversions", side.conversions_ns or 0.0), ("unmatched", side.unmatched_ns or 0.0)]


def choose_blocks(explanation: Explanation) -> Sequence[BlockPair]:
    """Choose the blocks to show: those that err beyond what is explained, then the largest errors and times."""
    if len(explanation.blocks) <= SHOWN:
        return explanation.blocks
    totals = [side.call_ns or math.inf for side in explanation.sides]

    def rank(block: BlockPair) -> tuple[int, float]:
        shares = [(side.ns or 0.0) / total for side, total in zip(block.sides, totals, strict=True)]
        worst = max((side.own or 0.0) for side in block.sides)
        most = max((one.own or 0.0) for pair in explanation.blocks for one in pair.sides) or 1.0
        return sum(side.beyond for side in block.sides), max(*shares, worst / most)

    chosen = sorted(explanation.blocks, key=rank, reverse=True)[:SHOWN]
    return [block for block in explanation.blocks if block in chosen]


Table = tuple[Sequence[str], list[dict[str, Cell]], tuple[str, ...]]
BY_BLOCK = ("block", "error A", "error B", "own B", "time A", "time B", "conversions B", "precision A", "precision B")
BY_LAYER = (
    "layer",
    "operator",
    "error A",
    "own A",
    "error B",
    "own B",
    "explained B",
    "time A",
    "time B",
    "ran A",
    "ran B",
)
TEXTS = ("block", "layer", "operator", "precision A", "precision B", "ran A", "ran B")


def tabulate_blocks(explanation: Explanation) -> Table:
    """Tabulate the blocks to show: headers, lines by header, and the headers of texts."""
    lines = []
    for block in choose_blocks(explanation):
        first, second = block.sides
        name = block.name if block.layers == 1 else f"{block.name} ({block.layers} layers)"
        cells = (
            name,
            _mark(first.error, bool(first.beyond)),
            _mark(second.error, bool(second.beyond)),
            tell_error(second.own) if second.own is not None else "",
            tell_time(first.ns),
            tell_time(second.ns),
            tell_time(second.conversions_ns) if second.conversions_ns else "",
            tell_precisions(first),
            tell_precisions(second),
        )
        lines.append(dict(zip(BY_BLOCK, cells, strict=True)))
    return _without_empty(BY_BLOCK, [*lines, *_unmatched_line(explanation, BY_BLOCK)])


def tabulate_layers(explanation: Explanation) -> Table:
    """Tabulate all layers: headers, lines by header, and the headers of texts."""
    lines = []
    for layer in explanation.layers:
        first, second = layer.sides
        cells = (
            layer.name,
            layer.operator,
            *_tell_errors(first),
            *_tell_errors(second),
            tell_error(second.explained) if second.explained is not None else "",
            tell_time(first.ns),
            tell_time(second.ns),
            tell_kernels(first),
            tell_kernels(second),
        )
        lines.append(dict(zip(BY_LAYER, cells, strict=True)))
    return _without_empty(BY_LAYER, [*lines, *_unmatched_line(explanation, BY_LAYER)])


def _without_empty(headers: Sequence[str], lines: list[dict[str, Cell]]) -> Table:
    return [name for name in headers if any(line[name] for line in lines)], lines, TEXTS


def _unmatched_line(explanation: Explanation, headers: Sequence[str]) -> list[dict[str, Cell]]:
    first, second = (side.unmatched_ns for side in explanation.sides)
    if not (first or second):
        return []
    told = {"time A": tell_time(first), "time B": tell_time(second)}
    return [{name: told.get(name, "unmatched" if name == headers[0] else "") for name in headers}]


def _tell_errors(side: LayerSide) -> tuple[Cell, Cell]:
    if not side.value:
        return "", "not read"
    return _mark(side.error, side.is_beyond), tell_error(side.own)


def _mark(error: float | None, is_beyond: bool) -> Cell:
    told = "" if error is None and not is_beyond else tell_error(error)
    return Text(f"{told} !", style="red") if is_beyond else told


def tell_error(error: float | None) -> str:
    """Tell a relative error in two digits."""
    return _NOT_FINITE if error is None else f"{error:.1e}" if error else "0"


def tell_time(ns: float | None) -> str:
    """Tell a time; "" if it isn't known."""
    return "" if ns is None else duration(ns)


def tell_precisions(side: BlockSide | LayerSide) -> str:
    """Tell in what the products ran, by count."""
    counts = sorted(side.precisions.items(), key=lambda one: -one[1])
    return ", ".join(name if len(counts) == 1 else f"{name} {count}" for name, count in counts)


def tell_kernels(side: LayerSide) -> str:
    """Tell the kernels of a layer's product, and their precision."""
    return " ".join(filter(None, (", ".join(side.kernels), tell_precisions(side))))


def _list_remarks(explanation: Explanation, *, full: bool) -> Iterator[Text]:
    """Yield the notes, and what the table's words mean."""
    for note in list_notes(explanation):
        yield Text(f"Note: {note}.")
    what = "that of the layers" if full else "that of the block's last layer"
    yield Text(
        f"error: {what}, relative L2 against the float graph. own: against the same layer in float on the target's own "
        "inputs. !: beyond what the precision explains. Times are by each runtime's own profile."
    )
