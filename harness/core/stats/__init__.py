"""The statistics: evidence, verdicts, quantiles, warm-up. Pure functions of NumPy arrays.

In: numbers. Out: numbers. May use the root's constants only.
"""
