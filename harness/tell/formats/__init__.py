"""A run as files for other programs: a table, a continuous-benchmarking service, a CI's list of tests.

In: a document. Out: bytes, by the end of a file's name; docs/report.md describes each. It needs nothing but the core.
"""
