"""May this candidate take the place of what is shipped? Exact evidence first, then a race toward a limit.

In: a run folder or a shipped folder, a candidate, limits. Out: pass, fail or undecided, with what proves it.
"""
