"""Any measured comparison: a study, its plan, the race, the journal, and how each pair of arms stands.

Begin with `run`, where a whole run is one function. Core imports itself only, and finds backends, scenarios, sources
and metrics by name (`plugins`). The other files here are the words that all parts share; `study`, `exported`, `build`,
`race` and `journal` are the steps of a run, in this order.
"""
