"""From a named study or a TOML file to the cells of a plan.

In: words of a command line, a file or Python. Out: `Study`, then planned groups of arms.
May use `export` (which files a model needs), `backends` and `models` as data, `host` and the root.
"""
