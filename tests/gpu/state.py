"""How far a campaign has come: one file in its folder, written after every step, so that the next call goes on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from .steps import STEPS, Step

NAME = "campaign.json"
SCHEMA = 1


class Status(StrEnum):
    """How a step stands. A step that is skipped or failed is tried again by the next call, after all others."""

    WAITING = "waiting"
    UNFINISHED = "unfinished"
    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One step's.

    Attributes:
        wall_s: seconds spent on it, over all calls.
        words: why it isn't done.
    """

    status: Status = Status.WAITING
    wall_s: float = 0.0
    words: str = ""


@dataclass
class State:
    """All steps' standings, kept in `folder`."""

    folder: Path
    standings: dict[str, Standing] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> State:
        """What the folder holds; everything waits in a new one.

        Raises:
            ValueError: the file there isn't ours, or a newer version's.
        """
        file = folder / NAME
        if not file.exists():
            return cls(folder, {step.name: Standing() for step in STEPS})
        try:
            data = json.loads(file.read_text())
            known = {name: Standing(**{**one, "status": Status(one["status"])}) for name, one in data["steps"].items()}
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file} can't be read ({error}): choose another OUT") from None
        if data.get("schema") != SCHEMA:
            raise ValueError(
                f"{file} is of schema {data.get('schema')}, this version reads {SCHEMA}: choose another OUT"
            )
        return cls(folder, {step.name: known.get(step.name, Standing()) for step in STEPS})

    def note(self, step: Step, status: Status, wall_s: float, words: str = "") -> None:
        """Enter what came of a step, and write it down."""
        before = self.standings[step.name]
        self.standings[step.name] = replace(before, status=status, wall_s=before.wall_s + wall_s, words=words)
        self.write()

    def write(self) -> None:
        """Put it on disk, whole or not at all."""
        data = {"schema": SCHEMA, "steps": {name: asdict(one) for name, one in self.standings.items()}}
        fresh = self.folder / f"{NAME}.new"
        fresh.write_text(json.dumps(data, indent=1) + "\n")
        fresh.replace(self.folder / NAME)

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do."""
        return all(one.status is Status.DONE for one in self.standings.values())

    def waiting(self) -> list[Step]:
        """The steps to do, in order; those that were tried in vain come last."""
        left = [step for step in STEPS if self.standings[step.name].status is not Status.DONE]
        vain = (Status.FAILED, Status.SKIPPED)
        return sorted(left, key=lambda step: self.standings[step.name].status in vain)
