"""Export every model and build every arm, once, on CPUs of their own.

In: planned groups. Out: `Built` arms, or why there is none.
"""
