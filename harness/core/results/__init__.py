"""From a run's journal to one document of figures and verdicts; pure, so it works where no backend is installed.

In: a run folder. Out: `Document`.
May use `journal`, `study`, `exported`, `ceilings`, `stats` and the root; imports no backend and no model.
"""
