"""The statistics: the one interval of a pair, verdicts, leaders, quantiles, warm-up. Pure functions of NumPy arrays.

In: numbers. Out: numbers.
"""
