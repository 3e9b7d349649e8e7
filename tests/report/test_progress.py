"""What a run says on the way."""

from __future__ import annotations

import io

from rich.console import Console

from shootout.report.progress import Progress


def test_the_time_left_is_shown_as_it_was_told():
    text = io.StringIO()
    progress = Progress(Console(file=text, width=200))
    progress.generation("g", 0, 5, 0.0)
    progress.generation("g", 1, 5, 40.0)
    assert text.getvalue().splitlines() == [
        "g: generation 1 of 5 or more",
        "g: generation 2 of 5 or more, about 40 s left",
    ]
