"""A run's facts, line by line as they come to exist, and the raw samples beside them.

In: records. Out: a run folder that survives a crash; its history when it is read again.
"""
