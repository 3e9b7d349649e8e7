"""One file per command: words in, an exit code out. Each reads as its flow.

In: parsed options. Out: what `shootout` prints, and its exit code.
Elsewhere: `compare` and `merge` are in `decide.py`, `ceilings` is in `doctor.py`,
`pack` in `apps/judge/compare/merged.py`, `run --on` in `fleet.py`, `doctor --on` and `ship --on` in `elsewhere.py`.
An option's text stands in `cli.py` or in the table that it names; `options.py` says how.
It puts apps together; no app imports it.
"""
