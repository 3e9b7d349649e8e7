"""Any measured comparison: a study, its plan, the race, the journal, rows and verdicts. Imports nothing but itself."""
