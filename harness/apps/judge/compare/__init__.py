"""Runs → what holds of all of them: many machines in one document, or what one run says of another.

In: runs as `results` reads them. Out: a `MergedDocument`, machines its columns; or a `ComparedDocument`.
May use `results` and what lies below it; pure, as `results` is: it measures nothing and imports no backend.
"""
