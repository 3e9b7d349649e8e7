"""Show where the time of a call goes: its steps, and what each backend's own profiler tells."""
