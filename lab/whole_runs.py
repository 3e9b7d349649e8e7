"""Repeat whole runs, typed as people type them, quiet or beside a busy loop: their answers, when, and whether two
agree.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

from lab.common import Bench, Table
from shootout.apps.judge.analysis import analyse
from shootout.core.clock import Stopwatch
from shootout.core.journal import journal
from shootout.core.journal.journal import History
from shootout.core.results.group import Group, group_of, withheld
from shootout.core.stats.verdicts import Verdict
from shootout.tell.answer import tell_answer
from shootout.tell.document import Document, Ratio, Row, ratio_of
from shootout.tell.report import write_lines

COMMAND = "from shootout.cli import main; main()"
LOOP = "import os\nbegan = os.getppid()\nwhile os.getppid() == began: [None for _ in range(100_000)]"
"""Ends with the process that started it."""
WIDTH = 1_000
LETTERS = {Verdict.FASTER: "F", Verdict.SLOWER: "S", Verdict.SAME: "=", Verdict.CANT_TELL: "?"}
"""A verdict in a table of many; `.` where there is none."""
Pair = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Run:
    """One that has ended.

    Attributes:
        beside: what ran meanwhile.
        wall_s: of the whole command.
        code: its exit code.
    """

    folder: Path
    beside: str
    wall_s: float
    code: int

    @cached_property
    def document(self) -> Document:
        """Return what the run measured."""
        return analyse(self.folder)

    @cached_property
    def history(self) -> History:
        """Return its journal."""
        return journal.read(self.folder)

    @cached_property
    def group(self) -> Group:
        """Return its only group, as the journal has it."""
        return group_of(self.history, self.history.groups[0])

    @property
    def measured(self) -> list[Row]:
        """Return the rows with a time."""
        return [row for row in self.document.rows if row.end_to_end]

    @property
    def ship(self) -> str | None:
        """Return the arm of the run's answer; None if that is no more than the fastest so far."""
        return shipped(self.document)

    @property
    def sure(self) -> str:
        """Return the confidence that the answer states."""
        answer = self.document.answer[0]
        lines = map(str, write_lines(tell_answer(answer, self.document.rows, self.document), WIDTH))
        return next((line.removeprefix("Sure?").strip() for line in lines if line.startswith("Sure?")), "")

    @cached_property
    def pairs(self) -> dict[Pair, Ratio]:
        """Return the first one's time ÷ the second's, of each two arms in the order of their names; none that is
        withheld.
        """
        group = self.group
        evidence = group.evidence("end_to_end")
        if withheld(group, "", None):
            return {}
        found = {
            (one, other): evidence.compare_rivals(one, other)
            for one, other in combinations(sorted(row.arm for row in self.measured), 2)
            if not withheld(group, one, other)
        }
        return {pair: ratio_of(one) for pair, one in found.items() if one}

    def answers(self) -> list[tuple[float, str | None]]:
        """Return for each restart the seconds of racing so far, and the arm that would have been shipped."""
        lines = (self.folder / journal.NAME).read_bytes().splitlines(keepends=True)
        found, racing_s = [], 0.0
        with tempfile.TemporaryDirectory() as folder:
            part = Path(folder)
            (part / "samples").symlink_to(self.folder.absolute() / "samples")
            for count, line in enumerate(lines, start=1):
                if (record := json.loads(line))["kind"] == "rounds":
                    racing_s += record["wall_s"]
                    (part / journal.NAME).write_bytes(b"".join(lines[:count]))
                    found.append((racing_s, shipped(analyse(part))))
        return found


def settled_s(answers: Sequence[tuple[float, str | None]]) -> float | None:
    """Return the seconds of racing until the last answer came that didn't change again; None if there is none."""
    if not answers or answers[-1][1] is None:
        return None
    since = len(answers)
    while since and answers[since - 1][1] == answers[-1][1]:
        since -= 1
    return answers[since][0]


def run(bench: Bench, name: str, *words: str, busy: bool) -> Run:
    """Run `shootout run` with these words; what it says goes where the bench's words go.

    Its folder is emptied here. `--fresh` would also try again which backends work, which users don't wait for.
    """
    folder = bench.folder / name
    shutil.rmtree(folder, ignore_errors=True)
    limit = ["--max-time", bench.max_time] if bench.max_time else []
    command = [sys.executable, "-c", COMMAND, "run", *words, *limit, "--out", str(folder)]
    with _keep_cpu_busy() if busy else _stay_quiet(), Stopwatch() as wall:
        code = subprocess.run(command, env=os.environ, stdout=sys.stderr, check=False).returncode
    if not journal.begun(folder):
        raise RuntimeError(f"{name}: exit code {code}, and no journal")
    return Run(folder=folder, beside="a busy loop" if busy else "nothing", wall_s=wall.seconds, code=code)


@contextmanager
def _stay_quiet() -> Iterator[None]:
    yield


@contextmanager
def _keep_cpu_busy() -> Iterator[None]:
    """Run a process that takes a whole CPU, whichever the system gives it."""
    process = subprocess.Popen([sys.executable, "-c", LOOP], start_new_session=True)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def shipped(document: Document) -> str | None:
    """Return the arm that a verdict supports; the fastest so far is no answer."""
    answer = document.answer[0]
    return answer.ship.arm if answer.ship and not answer.reason else None


def by_pair(runs: Sequence[Run]) -> Table:
    """Return for each pair a letter and a ratio for each run: F faster, S slower, = same within 5 %, ? can't tell."""
    pairs = sorted({pair for one in runs for pair in one.pairs})
    return [{"pair": " ÷ ".join(pair), **_verdicts_row([one.pairs.get(pair) for one in runs])} for pair in pairs]


def by_arm(runs: Sequence[Run]) -> Table:
    """Compare each arm with its baseline as `by_pair` does, with `=` within 1 %; add its median time in
    microseconds.
    """
    arms = dict.fromkeys(row.arm for one in runs for row in one.document.rows if row.device == "cpu")
    found = []
    for arm in arms:
        timed = [next((row.end_to_end for row in one.measured if row.arm == arm), None) for one in runs]
        medians = " ".join(f"{one.median_ns / 1e3:.3g}" if one else "–" for one in timed)
        found.append({"arm": arm, **_verdicts_row([one.ratio if one else None for one in timed]), "median_us": medians})
    return found


def _verdicts_row(ratios: Sequence[Ratio | None]) -> dict[str, Any]:
    verdicts = [_shown_verdict(ratio) for ratio in ratios]
    return {
        "verdicts": "".join(LETTERS[one] if one else "." for one in verdicts),
        "ratios": " ".join(f"{ratio.value:.3g}" if ratio else "–" for ratio in ratios),
        "agree": not {Verdict.FASTER, Verdict.SLOWER} <= set(verdicts),
    }


def _shown_verdict(ratio: Ratio | None) -> Verdict | None:
    return ratio.verdict if ratio and not ratio.reason else None


def shipped_slower(runs: Sequence[Run]) -> list[str]:
    """Return the arms that one run ships and another run found slower than what it ships itself."""
    return [
        f"{one.ship} shipped by {one.folder.name}, slower than {other.ship} in {other.folder.name}"
        for one in runs
        for other in runs
        if one.ship and other.ship and _is_slower(other.pairs, one.ship, other.ship)
    ]


def _is_slower(pairs: Mapping[Pair, Ratio], arm: str, other: str) -> bool:
    """Return whether a verdict says that `arm` is slower than `other`, in either order of the pair."""
    there, back = _shown_verdict(pairs.get((arm, other))), _shown_verdict(pairs.get((other, arm)))
    return there is Verdict.SLOWER or back is Verdict.FASTER
