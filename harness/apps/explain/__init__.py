"""Hold two targets of a run side by side, layer by layer: where the error comes from, and where the time goes.

In: a run folder and two of its targets. Out: an `Explanation`, its screen, page, JSON and node data. It builds through
`ship`, and looks inside runtimes in workers of their own.
"""
