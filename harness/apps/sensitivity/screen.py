"""Show what rounding each layer or block alone does to a model: the answer, a table, how to read it."""

from __future__ import annotations

import math

from rich.console import Group, RenderableType
from rich.text import Text

from shootout.apps.sensitivity.measure import LayerSensitivity, PrecisionSensitivity
from shootout.core.contract import Precision
from shootout.core.host.environment import SEVEN_BITS, saturates
from shootout.core.schemes import write_floats
from shootout.core.units import counted, size
from shootout.tell.columns import Cell, fit_table

SQNR = "SQNR"
FLOATS, OFFERING_FLOATS = "float-", (Precision.INT8, Precision.INT8_DYNAMIC, Precision.INT4)
"""The word of schemes that leave layers in float, and the precisions that have it."""
MOST_LINES = 20
"""The table has no more lines: JSON has all."""


def render(found: PrecisionSensitivity, name: str, columns: int) -> RenderableType:
    """Render the answer, a table with the worst part first, and how to read it.

    Args:
        name: of the model and its size, for people.
        columns: width of the console.
    """
    lines = [_tell_part(part, found) for part in found.parts[:MOST_LINES]]
    headers = [header for header in lines[0] if any(str(line[header]) for line in lines)]
    answer, notes = ([Text(line) for line in some] for some in (tell_answer(found), _tell_notes(found)))
    table = fit_table(headers, lines, columns, left=(found.by, "in float", "operator"))
    return Group(Text(name, style="bold"), *answer, Text(""), table, *notes)


def tell_answer(found: PrecisionSensitivity) -> list[str]:
    """Say what to leave in float first, and what that is worth."""
    worst, precision = found.parts[0], found.precision.upper()
    if found.whole.sqnr_db == math.inf:
        return [f"{precision} changes no output of this model: nothing has to stay in float for it."]
    told = f"All of it in {precision}: {SQNR} {_tell_decibels(found.whole.sqnr_db)}."
    if found.without_worst:
        told += f" With {found.by} {worst.name} in float: {SQNR} {_tell_decibels(found.without_worst.sqnr_db)}."
    if worst.sqnr_db == -math.inf:
        advice = f"Leave {_name(worst, found)} in float: in {precision} it gives NaN or infinity."
    elif found.unmeasured:
        total = counted(len(found.parts) + found.unmeasured, found.by)
        some = f"{len(found.parts)} of {total}"
        advice = f"Of the {some} that --max-time left time for, {_name(worst, found)} errs most."
    elif len(found.parts) == 1:
        advice = f"{worst.name} is the only {found.by} of this model."
    else:
        share = "" if worst.noise_share is None else f": it alone causes {worst.noise_share:.0%} of {precision}'s error"
        advice = f"Leave {_name(worst, found)} in float first{share}."
    return [advice, told]


def _name(part: LayerSensitivity, found: PrecisionSensitivity) -> str:
    """Name a part, and the scheme that leaves it in float if its precision has one: `layer 8 (int8/float-4)`."""
    scheme = f" ({found.precision}/{_floats_of(part)})" if found.precision in OFFERING_FLOATS else ""
    return f"{found.by} {part.name}{scheme}"


def _tell_decibels(sqnr_db: float) -> str:
    """Write a signal to noise ratio: `31.2 dB`, `exact` without noise, `NaN` if an output is no number."""
    return f"{sqnr_db:.1f} dB" if math.isfinite(sqnr_db) else "exact" if sqnr_db > 0 else "NaN"


def _floats_of(part: LayerSensitivity) -> str:
    return write_floats([layer.number for layer in part.layers])


def _tell_part(part: LayerSensitivity, found: PrecisionSensitivity) -> dict[str, Cell]:
    """Return the cells of a part's line, by header."""
    scheme, has_mixes = _floats_of(part), found.precision in OFFERING_FLOATS
    operators = dict.fromkeys(layer.operator for layer in part.layers)
    return {
        found.by: part.name,
        **({"in float": scheme} if has_mixes else {"number": scheme.removeprefix(FLOATS)}),
        "operator": ", ".join(operators),
        SQNR: _tell_decibels(part.sqnr_db),
        "weights alone": "" if part.weights_db is None else _tell_decibels(part.weights_db),
        "activations alone": "" if part.activations_db is None else _tell_decibels(part.activations_db),
        "error": "" if part.noise_share is None else f"{part.noise_share:.1%}",
        "weights": size(part.weight_bytes) if part.weight_bytes else "",
        "ops": f"{part.flops_share:.1%}",
    }


def _tell_notes(found: PrecisionSensitivity) -> list[str]:
    """Say how to read the table, and what is missing from it."""
    by, notes = found.by, []
    if more := found.parts[MOST_LINES:]:
        notes.append(f"{counted(len(more), f'more {by}')}: --json has all.")
    notes += [
        f"{SQNR}: signal to quantization noise of the model's outputs with that {by} alone rounded; more is better. "
        "Rounded in the float graph itself, without a runtime's optimizations.",
        f"error: the {by}'s noise among the sum of those of all {by}s.",
    ]
    if found.precision in OFFERING_FLOATS:
        notes.append(
            f"{by}: its name in the model's file. in float: the scheme that leaves it in float. N of {FLOATS}N counts "
            f"layers from 0 in the graph's order. A runtime may still round what that {by} reads: then leave the layer "
            f"before it in float, too, as in {FLOATS}1.2."
        )
    else:
        notes.append(f"{by}: its name in the model's file. number: counts layers from 0 in the graph's order.")
    if found.precision is Precision.INT8 and saturates():
        notes.append(SEVEN_BITS.format("weights"))
    return notes
