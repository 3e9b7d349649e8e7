"""A program of the user's that calls several models: one hidden backend, `joint`, which `shootout run --parts` races.

A call is the user's function on each of some pages. `parts` opens what the function calls, `record` calls it in a
process of its own to see what it does. There is no `account` and no `quantize`: each part's own run has these.
"""

from __future__ import annotations

from shootout.core.adapter import Entry

FACTS = Entry(
    path="shootout.backends._joint.backend:JointAdapter",
    installs={"": ("numpy",)},
    movable=False,
    ready_s=3.0,
    build_s=0.3,
    copies=0.0,
)
