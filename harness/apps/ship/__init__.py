"""An arm of a run → a folder that others mount: the model as it was raced, how to load it, and how to check it.

Comes in: a run folder and an arm's name. Goes out: a shipped folder (`backends.shipped`), or several in a folder
that chooses among them (`variants`). It may use decide, results and all below; `load.txt` and `check.txt` become the
folder's own two programs, an adapter's `load.txt` the middle of one.
"""
