"""A shipped folder → what a model server or a registry mounts, and what of its settings that can't carry.

Comes in: a shipped folder. Goes out: another folder, and lines on what was lost. What a server's own runtime is told is
each backend's to say (`serves` in its row). It may use all that `ship` may.
"""
