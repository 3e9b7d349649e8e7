"""docs/adapters.md, written from what the sections `review` and `before` found: `python -m lab.review.page`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE, KEPT = ROOT / "docs" / "adapters.md", ROOT / "results" / "reference"
SOURCES = {"review": KEPT / "review.json", "before": KEPT / "before.json"}
HEADINGS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "Weights": (
        ("NumPy, ", "JAX, 16 layers"),
        "Matrices in PyTorch's order (out, in), as arguments, or laid out once (in, out).",
    ),
    "Inputs and outputs": (
        (" input of ", " output of "),
        "A model that picks one number of its input, or takes the sine of it: a whole call from Python.",
    ),
    "PyTorch": (("inference mode", "channels_last", "torch.compile"), "One option or habit at a time."),
    "INT4 and INT8 weights": (
        ("2048 x 2048",),
        "One product of 2048 by 2048, batch 1, through the adapters, beside FP32.",
    ),
}
"""By heading, words of which one is in each of its cases, and what they are."""
INTRODUCTION = """# What an adapter decides

How a backend is called can change its figures more than which backend it is. Here is what each choice is worth.
[A page per runtime](runtimes/README.md) tells what each adapter does and why. This page is written by
`python -m lab.review.page` from {files}.
"""
CASES = """A review of all adapters, at commit 809f14f, told what it had measured on a busy machine. Its cases again,
both ways by turns in one process, the interval between processes: time as it was ÷ as it is, so above 1 the new way is
faster. The last column tells whether the direction of the review's figure holds. Of {claims}: {counts}.
"""
BEFORE = """Each adapter of today beside the one of commit 3df7d2d, the last before the first of them changed: two
processes, the same libraries, models and inputs, by turns, each restart in fresh ones. Below 1 it is faster now, in
bold where that is a verdict. End to end; `compute` and all times are in the file. The decoder isn't there: models with
several outputs came later.
"""


def render(sections: Mapping[str, Mapping[str, Any]]) -> str:
    """The whole page.

    Args:
        sections: by name, the bench's document that holds the section; one that isn't there is left out.
    """
    names = [SOURCES[name].name for name in sections]
    files = " and ".join(f"[`{name}`](../results/reference/{name})" for name in names)
    parts = {"review": _review, "before": _before}
    told = [line for name, document in sections.items() for line in parts[name](document)]
    return "\n".join([INTRODUCTION.format(files=files), *told])


def kept() -> dict[str, Any]:
    """The documents that there are."""
    return {name: json.loads(path.read_text()) for name, path in SOURCES.items() if path.exists()}


def rows_of(document: Mapping[str, Any], section: str) -> list[dict[str, Any]]:
    """A section's rows, all its tables together."""
    return [row for rows in document["sections"][section]["tables"].values() for row in rows]


def _review(document: Mapping[str, Any]) -> Iterator[str]:
    rows = rows_of(document, "review")
    claimed = [row["holds"] for row in rows if row.get("holds")]
    counts = ", ".join(f"{claimed.count(word)} {word}" for word in ("reproduced", "refuted", "can't tell"))
    yield f"## A review's cases, on {_machine(document)}\n"
    yield CASES.format(claims=len(claimed), counts=counts)
    for heading, (words, told) in HEADINGS.items():
        chosen = [row for row in rows if row.get("was_us") and any(word in row["case"] for word in words)]
        yield f"### {heading}\n\n{told}\n"
        yield "| case | as it was | as it is, or might be | the review | here | holds |\n|---|---|---|---|---|---|"
        yield "\n".join(map(_case, chosen)) + "\n"
    for row in rows:
        if why := row.get("failed") or row.get("skipped"):
            yield f"`{row['case']}`: {why}\n"


def _case(row: Mapping[str, Any]) -> str:
    claim = "" if row["review"] is None else f"{row['review']:.2f}"
    was, now = f"{row['was']}: {_us(row['was_us'])}", f"{row['is']}: {_us(row['is_us'])}"
    return f"| {row['case']} | {was} | {now} | {claim} | {_ratio(row, 'ratio')} | {row['holds'] or ''} |"


def _before(document: Mapping[str, Any]) -> Iterator[str]:
    rows = rows_of(document, "before")
    models = list(dict.fromkeys(row["model"] for row in rows if row.get("model")))
    yield f"## Each adapter now ÷ before, on {_machine(document)}\n"
    yield BEFORE
    yield "| | " + " | ".join(models) + " |\n|---|" + "---|" * len(models)
    for arm in dict.fromkeys(row["arm"] for row in rows):
        cells = {row["model"]: row for row in rows if row["arm"] == arm and row.get("scope") == "end_to_end"}
        yield f"| {arm} | " + " | ".join(_cell(cells.get(model)) for model in models) + " |"
    yield ""
    for row in rows:
        if why := row.get("failed") or row.get("skipped"):
            yield f"`{row['arm']}`, {row.get('model') or 'all'}: {why}\n"


def _cell(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return ""
    told = _ratio(row, "now ÷ before")
    return f"**{told}**" if row["verdict"] in ("faster", "slower") else told


def _ratio(row: Mapping[str, Any], column: str) -> str:
    ends = ", ".join("?" if row[end] is None else f"{row[end]:.2f}" for end in ("low", "high"))
    return f"{row[column]:.2f} [{ends}]"


def _us(value: float) -> str:
    return f"{value / 1e3:.3g} ms" if value >= 1_000 else f"{value:.3g} us"


def _machine(document: Mapping[str, Any]) -> str:
    facts = document["environment"]
    return f"{facts['cpu']['model']}, {facts['cpu']['logical_cpus']} CPUs, {facts['date_utc'][:10]}"


def main() -> None:
    """Write the page."""
    PAGE.write_text(render(kept()))


if __name__ == "__main__":
    main()
