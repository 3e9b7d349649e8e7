"""Hold two targets of a run side by side, layer by layer: where the error comes from, and where the time goes.

In: a run folder and two of its targets. Out: an `Explanation`, its screen and JSON. It looks inside runtimes in workers
of their own.
"""
