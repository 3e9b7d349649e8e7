"""One file per command: words in, an exit code out. Each reads as its flow.

In: parsed options. Out: what `shootout` prints, and its exit code.
May use every package below; only `cli` and `api` stand above.
"""
