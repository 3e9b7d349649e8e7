"""The most that this machine can do: peak rate by precision, bandwidth by memory level.

In: a placement. Out: measured ceilings, remembered per machine.
"""
