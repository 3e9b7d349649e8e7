"""Each target's best own settings: select among them by racing, then confirm in a race of their own.

In: a study and its targets. Out: settings with what they gain. A stage is a run, read and shown as any other.
"""
