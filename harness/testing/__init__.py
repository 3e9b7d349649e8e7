"""Test the conformance of every adapter, `pytest --pyargs shootout.testing --backend NAME`, and a whole GPU machine.

In: the name of a backend that the registry finds. Out: a test per check and target, each run in a fresh process.
May use every package; nothing of the package uses this one, and nothing else imports pytest.
"""
