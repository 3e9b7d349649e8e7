"""Runs → what holds of all of them: many machines in one document, or what one run says of another.

In: runs. Out: a `MergedDocument`, machines its columns; or a `ComparedDocument`. Pure: it measures nothing.
"""
