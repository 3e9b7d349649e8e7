"""From a model to a bundle on disk, in a child process; cached by the hash of all that it is made from.

In: an export request. Out: `ModelBundle`.
May use `quantize`, `models`, `bundle`, `host` and the root; the child (`__main__`) alone imports frameworks.
"""
