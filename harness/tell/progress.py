"""The progress of a run on stderr: a bar and a line on a terminal, elsewhere a line now and then.

Nothing refreshes by itself: a thread that wakes up to draw would disturb the arms on their CPUs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import TracebackType

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from shootout.core import clock
from shootout.core.constants import COPY
from shootout.core.units import span

EVERY_S = 15.0
"""Off a terminal, a line is printed no more often than this."""
BAR_WIDTH = 20


class ProgressDisplay:
    """Shows what is going on. `with ProgressDisplay(console) as progress:` clears the live line at the end.

    Args:
        now_ns: the clock, nanoseconds.
    """

    def __init__(self, console: Console, now_ns: Callable[[], int] = clock.now_ns) -> None:
        self._console, self._now_ns = console, now_ns
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._headline = ""
        self._began_ns = now_ns()
        self._told_ns: int | None = None
        self._total_ns = 0.0

    def __enter__(self) -> ProgressDisplay:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def restart(
        self, group: str, played: int, expected: int, goal_s: float, limit_s: float = math.inf, standing: str = ""
    ) -> None:
        """Show that a restart begins.

        Args:
            goal_s: seconds until all is known that the whole run is for, as far as can be foreseen; 0: unknown.
            limit_s: seconds until it ends whatever is known; less than 0 if it is overdue.
            standing: the arm that leads so far, "" before there is one.
        """
        left_s = min(goal_s, limit_s)
        self._total_ns = self._now_ns() - self._began_ns + 1e9 * left_s if left_s > 0 else 0.0
        left = f"about {span(left_s)} left" if left_s > 0 else ""
        begins = f"{group}: restart {played + 1}{f' of {expected} or more' if expected > played + 1 else ''}"
        self._headline = ", ".join(filter(None, (begins, left, standing)))
        self.detail("")

    def stage(self, headline: str) -> None:
        """Show that something else that takes a while begins."""
        self._headline, self._total_ns = headline, 0.0
        if self._live is None:
            self._print_line(headline)
        self.detail("")

    def wait(self, reason: str, seconds: float) -> None:
        """Show that waiting for another process goes on, for so many seconds now; print a line for a new reason."""
        if reason != self._headline:
            self.stage(reason)
        if seconds:
            self.detail(span(seconds))

    def detail(self, text: str) -> None:
        """Show what happens right now; off a terminal only if nothing was printed for a while."""
        text = text.replace(COPY, " (the control)")
        if self._live:
            self._live.update(self._draw_line(text), refresh=True)
        elif self._told_ns is None or self._now_ns() - self._told_ns >= 1e9 * EVERY_S:
            self._print_line(": ".join(filter(None, (self._headline, text))))

    def _print_line(self, line: str) -> None:
        self._told_ns = self._now_ns()
        if line:
            self.say(line)

    def _draw_line(self, detail: str) -> RenderableType:
        """Draw the headline and what happens right now, behind a bar if the run's length is known.

        On a narrow terminal the headline is cut first, to a third of the line.
        """
        width = self._console.width - (BAR_WIDTH + 1 if self._total_ns else 0)
        headline, now = Text(self._headline), Text(detail)
        if detail:
            headline.truncate(max(width // 3, width - now.cell_len - 2), overflow="ellipsis")
        text = Text(": ").join(one for one in (headline, now) if one)
        text.no_wrap, text.overflow = True, "ellipsis"
        if not self._total_ns:
            return text
        share = min(1.0, (self._now_ns() - self._began_ns) / self._total_ns)
        grid = Table.grid(padding=(0, 1))
        grid.add_row(ProgressBar(total=1.0, completed=share, width=BAR_WIDTH), text)
        return grid
