"""Both ends of the pipe between the harness and one arm's process.

In: a `Built` arm. Out: messages with readings. The child end imports NumPy and its backend only.
"""
