"""Judge a question about outputs: which releases err by more than their precision explains.

A wrong answer mostly repeats: the same inputs get the same one in every process. So if each release's error is the same
in two restarts, these two tell. If an error differs between restarts, a release errs at random, and pairs of restarts
in which only one of two releases errs tell like a coin: by the odds of any bias against a fair one, which may be looked
at after each restart (Ville's inequality).
"""

from __future__ import annotations

import math

from shootout.apps.bisect.search import Logs, Question, Side

LEAST_RESTARTS = 2
RIGHT_RESTARTS = 10
"""The ends are the same once neither erred in so many restarts: an error at random needs more than two to show."""
SAME_ERROR = 1e-3
"""Errors that differ by less than this share are one error."""


def judge_errors(question: Question, logs: Logs) -> Side:
    """Judge a question about outputs; `OPEN` as long as no two releases are told apart that must be.

    Args:
        logs: by release, the good end among them, the log of its error ÷ its bound in each restart: above 0 is wrong.
    """
    restarts = min((len(logs.get(release, ())) for release in question.releases), default=0)
    if restarts < LEAST_RESTARTS:
        return Side.OPEN
    wrong = {release: [x > 0 for x in logs[release][:restarts]] for release in question.releases}
    repeats = all(max(x) - min(x) < SAME_ERROR for x in (logs[release][:restarts] for release in question.releases))

    def differ(one: str, other: str) -> bool:
        if repeats:
            return wrong[one] != wrong[other]
        pairs = [first for first, second in zip(wrong[one], wrong[other], strict=True) if first != second]
        odds = 2.0 ** len(pairs) / ((len(pairs) + 1) * math.comb(len(pairs), sum(pairs)))
        return odds >= 1 / question.chance

    good, *suspects, bad = question.releases
    if not suspects:
        is_same = not differ(good, bad) and restarts >= RIGHT_RESTARTS
        return Side.BAD if differ(good, bad) else Side.GOOD if is_same else Side.OPEN
    if len(suspects) == 2:
        return Side.BAD if differ(*suspects) else Side.OPEN
    told = [side for side, end in ((Side.BAD, good), (Side.GOOD, bad)) if differ(suspects[0], end)]
    return told[0] if len(told) == 1 else Side.OPEN
