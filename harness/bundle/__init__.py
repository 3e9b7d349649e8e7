"""A model on disk in every form that backends load, and how outputs are judged against its oracle.

In: a folder. Out: `ModelBundle`, `Fidelity`.
May use the root only.
"""
