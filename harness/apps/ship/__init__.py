"""An arm of a run → a folder that others mount: the model as it was raced, how to load it, and how to check it.

In: a run folder and an arm. Out: a shipped folder; or several, in one that chooses where it lands.
`load.txt` and `check.txt` become a shipped folder's own two programs, an adapter's `load.txt` the middle of one.
`landing_load.txt` and `choose.txt` become those of the folder around several.
"""
