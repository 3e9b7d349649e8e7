"""Turn a model into an exported model on disk, in a child process; cached by the hash of all that it is made from.

In: an export request. Out: `ExportedModel`.
May use `quantize`, `models`, `exported`, `host` and the root; the child (`__main__`) alone imports frameworks.
"""
