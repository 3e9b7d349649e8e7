"""Say what a run is for beyond the goals of its groups: apps hand it to the run, and the races follow it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from shootout.core.contract import Arm, NotRun
from shootout.core.journal.journal import History
from shootout.core.journal.records import Played
from shootout.core.journal.run_folder import is_from_here
from shootout.core.race.race import Race
from shootout.core.stats.group_evidence import Pair
from shootout.core.study.plan import Plan


class Purpose:
    """What a run is for. As it stands here: the goals of its groups alone, so no arm leaves and none is waited for."""

    @property
    def barred_from(self) -> int | None:
        """Return after how many restarts arms may be barred; None: after as many as a verdict takes."""
        return None

    def begin(self, plan: Plan, history: History) -> None:
        """Begin a run, or go on with what its journal holds."""

    def find_obstacle(self, arm: Arm) -> NotRun | None:
        """Return why an arm that hasn't played yet is left out; None: it plays."""

    def note(self, arm: Arm, line: Played) -> None:
        """Note what an arm showed in a restart."""

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

    def find_wanted(self, race: Race) -> Sequence[Pair]:  # noqa: ARG002
        """Return the pairs of a race to play once more when all else is settled, as many as there is time for.

        It is called once more after those have played.
        """
        return ()

    def tell(self, race: Race, coming: int) -> str:  # noqa: ARG002
        """Return what people are told of a race after a restart; "" for nothing.

        Args:
            coming: how many of its targets have yet to be built.
        """
        return ""

    def tell_before_builds(self, race: Race, coming: int) -> str:  # noqa: ARG002
        """Return what people are told of a race before targets that were held back are built; as `tell`."""
        return ""

    def goes_on(self, out: Path, history: History) -> bool:
        """Tell whether a finished run is taken up again."""
        return bool(self.find_unsettled(out)) and is_from_here(history)
