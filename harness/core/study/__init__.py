"""From a named study or a TOML file to the cells of a plan.

In: words of a command line, a file or Python. Out: `Study`, then planned groups of arms.
May use `export` (which files a model needs), `worker` (what is available), `backends` and `models` as data, `exported`,
`host` and the root.
"""
