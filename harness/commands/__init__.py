"""One file per command: words in, an exit code out. Each reads as its flow.

In: parsed options. Out: what `shootout` prints, and its exit code.
Elsewhere: `show`, `decide`, `compare` and `merge` are in `read.py`, `explain` and `sensitivity` in `layers.py`,
`list` and `cache` in `catalog.py`, `ceilings` in `doctor.py`, `pack` in `apps/judge/compare/merged.py`, and what `--on`
does in `fleet.py`.
An option's text stands in `cli.py` or in the table that it names; `options.py` says how.
It puts apps together; no app imports it.
"""
