"""From a study to the groups of a plan.

In: a `Study`, from the words of a command line, a file or Python. Out: a `Plan`: groups of arms, and what can't run.
"""
