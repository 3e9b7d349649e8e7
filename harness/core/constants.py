"""The constants of the method, one value each (docs/design/measurement.md says why)."""

from __future__ import annotations

ALPHA = 0.05
"""Error probability for a whole group of comparisons."""
BIAS_FLOOR = 0.005
"""A ratio within ±0.5 % of 1 could be the harness's own bias; `selftest` measures this machine's."""
SAME_WITHIN = 0.01
"""An interval wholly inside ±1 % means `same`."""
INDIFFERENT = 0.05
"""The difference, ±5 %, within which either of two arms may be shipped."""
CONTROL_WITHIN = 0.10
"""A control has passed if its own 95 % interval lies within ±10 %: a wider one shows nothing of the harness."""

LEAST_CALLS, LEAST_LONG_CALLS, LEAST_SLOW_CALLS = 75, 9, 7
"""About so many calls an arm makes at least in a restart whose time is short: a few to warm up, and the fewest rounds.
The last two are of calls longer than `LONG_CALL_NS` and `SLOW_CALL_NS`.
"""
AIMED_RESTARTS = 4
"""Into so many the time of a race is parted. By then one of nine arms that is a tenth slower is mostly known to be, if
restarts spread by 2 %."""
CONTENDING = 1.6
"""In a race for the best, arms within so many times the best of their class in its first restart play on first."""

ROUNDS = 12
MIN_ROUNDS = 4
"""A restart whose time was over before so many does not count: it would weigh as much as a whole one."""
COMPUTE_ROUNDS = MIN_ROUNDS
"""`compute` is read in so many rounds, the first: no race waits for it."""
ROUNDS_BUDGET_NS = 40_000_000_000
"""Rounds of one restart last about this long at most; long calls get fewer rounds instead: it is restarts that
are replicates, so the time is better spent on more of those.
"""
MAX_RESTARTS = 20
MAX_RESTARTS_IN_TIME = 60
"""The most restarts of a race that ends by its own time, or at a closeness that was asked for."""
MAX_CALL_S = 5.0
"""Cells whose call would take longer are left out, unless a study says otherwise."""

LEAD_IN_CALLS = 3
LEAD_IN_NS = 2_000_000
GPU_LEAD_IN_NS = 50_000_000
"""On a GPU a turn begins with calls for so long: its clock falls while others play, and takes tens of ms to rise."""
BLOCK_NS = 10_000_000
BLOCK_CALLS = 5
LONG_CALL_NS = 200_000_000
"""Calls longer than this make blocks of one call, which holds as much time as twenty blocks of short calls. They need
no long warm-up, since those that verified the arm came before.
"""
LONG_ROUNDS, LONG_COMPUTE_ROUNDS, LONG_WARM_UP_CALLS = 2, 1, 1
"""In place of `MIN_ROUNDS`, `COMPUTE_ROUNDS` and of a warm-up's fewest calls, for such calls. The replicates are
restarts, so fewer readings in each make its figure noisier, and the intervals wider, but no verdict wrong.
"""
SLOW_CALL_NS = 1_000_000_000
"""Calls longer than this need no lead-in: to fill a cache of 32 MB anew takes half a percent of one. Of shorter ones
that are long, the first block of a turn has one, and leaves the caches filled for the next.
"""
SHORT_CALL_NS = 20_000
"""Calls shorter than this are read k at a time."""
SINGLE_LEAD_IN, SINGLE_CALLS = 100, 1_000
"""The calls of such an arm that are read one by one in each restart, after a lead-in: the mean of k calls has no tail.
"""
TAIL_S = 5.0
"""Rounds of long calls bring fewer: where a limit asks for their tail, an arm's others may take so long."""

RECHECK_SHARE = 0.1
"""The share of an arm's timed seconds that may go into asking it again, see `worker.rechecks`."""

TOO_BUSY = 0.25
"""If a larger share of a group's rounds was disturbed, what its arms failed at tells nothing of them."""

WARM_UP_CALLS = 60
WARM_UP_POINTS = 1_000
CHANGE_PENALTY = 15.0
CHANGE_JUMP = 5

STEAL_SHARE = 0.01
FOREIGN_SHARE = 0.02
"""Other programs that take more than this of the arms' CPUs flag a round."""
SM_CLOCK_SHARE = 0.75
"""Below so much of the highest clock that a GPU arm had, its round is flagged."""

INPUT_BUFFERS = 8
MIN_INPUT_BUFFERS = 2
BUFFERS_BYTES = 64 << 20
"""All input buffers together stay below this where fewer of them do: eight of a large input show no more than two, and
every arm holds them all.
"""
FIDELITY_MARGIN = 4.0
FP32_BOUND_FLOOR = 1e-5
USEFUL_BOUND = 0.5
"""Half the way to an answer of zeros: an error bound above this holds nothing on drawn inputs, and lets no larger error
pass on real ones. Above this share of what the inputs move, half the way to an answer that ignores them, it holds, but
proves little.
"""
WIDE_BOUND = 1e-3
"""About what rounding one product's operands to BF16 costs: an FP32 error bound above it proves little, and no
conversion.
"""

RACING_S = 90.0
"""The longest race for the best target of one group, if no `--max-time` is given."""
BUILD_SHARE, LAST_BUILD_SHARE = 0.5, 0.75
"""Builds must end in these parts of the time left, so that what is ready can be raced: the second where they begin when
all else is settled, so that two restarts of theirs have time.
"""
LOAD_TIMEOUT_S = 300.0
BUILD_TIMEOUT_S = 1_800.0
BLOCK_TIMEOUT_FACTOR = 20.0
BLOCK_TIMEOUT_S = 60.0
LAST_WORDS_LINES = 3

BATCH = "batch"
"""The size of axis 0, as a size of the model among others."""
MAX_CELLS = 100_000
"""More cells of a grid than this take weeks: it is a mistake."""
EMPTY = "a size of 0 can't be measured, since its tensor holds no values: give 1 or more (1 for an empty past)"
"""The end of a sentence that refuses a size."""
COPY = "#control"
"""The end of the label of the baseline's hidden copy."""
USUAL_SCENARIO = "latency"
"""The scenario unless a study names another."""
SHIPPED = "shipped"
"""In a backend's place in a target: what follows is a shipped folder."""
CONVERTED = "trees-"
"""The folder of a tree model's converted file begins so, in the cache of the machine that converted it."""
LEAST_RUNS = 5.0
"""The least number of runs of each input buffer. They give the reference outputs, FP32's error (two runs, with what
rounding costs), and half a run checks that the same inputs give the same outputs.
"""
