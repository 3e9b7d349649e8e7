"""This machine: its CPUs and GPU, their load, who holds them, and where we keep what we learn of it.

In: nothing. Out: facts, locks and placements.
May use the root only.
"""
