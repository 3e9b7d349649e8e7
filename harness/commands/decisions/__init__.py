"""Commands that make something of runs: a decision, and what follows from one.

In: run folders and parsed options. Out: what is printed or written, and an exit code.
May use every package that `commands` may; none of them measures but by `commands.run`.
"""
