"""This machine: its CPUs and GPU, their load, its folders, and child processes.

In: nothing. Out: facts, locks, placements and child processes.
"""
