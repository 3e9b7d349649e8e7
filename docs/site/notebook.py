"""Write the notebook as a page: its cells with what they showed, as they are kept in the file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from docs.site.links import ROOT

NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


def write_notebook() -> str:
    """Write all cells in their order: text, calls, and the richest form of each output."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(part for cell in cells for part in _tell(cell)) + "\n"


def _tell(cell: Mapping[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    yield source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```"
    for output in cell.get("outputs", ()):
        shown = {kind: "".join(text) for kind, text in output.get("data", {"text/plain": output.get("text")}).items()}
        if drawn := shown.get("image/svg+xml"):
            yield f'<div class="picture" role="img" data-search-exclude>{drawn}</div>'
        elif page := shown.get("text/html"):
            yield f'<div class="screen" tabindex="0" data-search-exclude>{page}</div>'
        else:
            yield f"```\n{shown['text/plain'].rstrip()}\n```"
