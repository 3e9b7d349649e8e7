"""Where one arm stops winning and another begins: brackets between verdicts, and which size to race next.

In: what groups of a sweep have shown. Out: brackets, and the groups that would narrow them.
May use `journal`, `study`, `stats` and the root.
"""
