"""Test the conformance of every adapter, `pytest --pyargs shootout.testing --backend NAME`, and a whole GPU machine.

In: the name of a backend that the registry finds. Out: a test per check and target, each run in a fresh process.
Nothing else of the package imports pytest.
"""
