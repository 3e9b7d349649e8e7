"""The constants of the scenarios' method, one value each (docs/design/measurement.md says why)."""

from __future__ import annotations

WINDOW_NS = 50_000_000
"""Several instances at once are read for at least so long, and `BLOCK_CALLS` calls each."""

SERVE_REQUESTS = 1_000
"""A p99 rests on at least so many requests, and on those of `SERVE_STEP_S` seconds."""
SERVE_STEP_S = 1.0
SERVE_LEAD_IN = 0.1
"""So many more requests, as a share of these, come first and only fill the queue."""
SERVE_ROUNDS = 9
"""Steps of the search in a restart: two or three to have the rate between two others, the rest to halve that."""
GIVEN_ROUNDS = 3
"""Steps at a given rate: nothing is narrowed down, and more restarts tell more than a longer one."""
SERVE_LIMIT_FACTOR = 5.0
"""The limit on p99 where none is given, in calls of the baseline without load."""

SUSTAINED_S = 1_800.0
"""Turns under sustained load share so much time if none is given."""
SUSTAINED_TURNS = 3
"""Turns of each arm: two are the fewest that show a spread, a third keeps one disturbed turn from being half of all."""
SUSTAINED_REST = 1 / 6
"""Share of an arm's time in which the machine rests before its turn: it cools down from the turn before."""
SUSTAINED_LEAST_S = 6.0
"""A shorter turn has no beginning and end to tell apart."""
BIN_S = 1.0
MOST_BINS = 200
"""A turn keeps its time per call in bins of `BIN_S`; in longer ones if these were more."""
FIRST_S = 60.0
"""The beginning of a turn, and its end; a third of a turn that is shorter than three of them."""
