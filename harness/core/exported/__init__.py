"""The exported model on disk: every form that backends load, how outputs are compared with its reference outputs, and
the work of one call. `request` finds the source that claims a model's word, `client` gets its export.

In: a `Request`. Out: `ExportedModel`, `Fidelity`, `Work`.
"""
