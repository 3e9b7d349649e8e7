"""Say what a run is for beyond the goals of its groups: apps hand it to the run, and the races follow it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from shootout.core.contract import NotRun
from shootout.core.journal.journal import History
from shootout.core.journal.records import Played
from shootout.core.journal.run_folder import is_from_here


class Purpose:
    """What a run is for. As it stands here: the goals of its groups alone, so no arm leaves and none is waited for.

    Attributes:
        barred_from: arms may be barred after so many restarts; None: after as many as a verdict takes.
    """

    barred_from: int | None = None

    def find_breach(self, line: Played, install_bytes: int | None) -> NotRun | None:
        """Return why an arm need play no more, by what one restart shows; None: it goes on.

        Args:
            install_bytes: what the arm's runtime takes on disk, if that is known.
        """

    def find_barred(self, out: Path) -> Mapping[str, Collection[str]]:  # noqa: ARG002
        """Return by group the arms that need no verdict against the others, by all that a run folder holds so far.

        It is called whenever a group has played twice as long.
        """
        return {}

    def find_unsettled(self, out: Path) -> Mapping[str, Collection[str]]:  # noqa: ARG002
        """Return by group the arms that need further restarts though every verdict is in, when the race would end."""
        return {}

    def goes_on(self, out: Path, history: History) -> bool:
        """Tell whether a finished run is taken up again."""
        return bool(self.find_unsettled(out)) and is_from_here(history)
