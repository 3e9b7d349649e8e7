"""What people watch while a run goes on, on stderr: a live line on a terminal, plain lines elsewhere.

Nothing refreshes by itself: a thread that wakes up to draw would do so on the arms' CPUs.
"""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text


class Progress:
    """Says what is going on. `with Progress(console) as progress:` clears the live line at the end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._headline = ""

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str) -> None:
        """A line that stays."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def generation(self, group: str, played: int, expected: int, left_s: float) -> None:
        """A generation begins; `left_s` is what the whole run is sure to take yet, 0 where that isn't known."""
        left = f", about {left_s:.0f} s left" if left_s else ""
        self.stage(f"{group}: generation {played + 1} of {max(expected, played + 1)} or more{left}")

    def stage(self, headline: str) -> None:
        """Something that takes a while begins."""
        self._headline = headline
        if self._live is None:
            self.say(headline)
        self.detail("")

    def detail(self, text: str) -> None:
        """What happens right now, on a terminal only."""
        if self._live:
            self._live.update(Text(": ".join(filter(None, (self._headline, text)))), refresh=True)
