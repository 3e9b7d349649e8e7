"""What is asked of a model while it is timed: one call after the other, several at once, requests, training steps.

Plug-ins: they import core, and core finds them by name.
"""
