"""Use runs: decide, gate, compare, ship, tune, explain. Each imports core, the plug-ins' registries and
`tell`, and no other app.
"""
