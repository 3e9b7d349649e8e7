"""Commands about this machine and this tool: what there is, what works, what is kept, whether the harness tells true.

In: parsed options. Out: what is printed, and an exit code.
May use every package that `commands` may.
"""
