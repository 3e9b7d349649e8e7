"""This machine: its CPUs and GPU, their load, which run holds them, and where we keep what we learn of it.

In: nothing. Out: facts, locks, placements and child processes.
May use the root only.
"""
