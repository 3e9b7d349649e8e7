"""Screens for people: answers, decisions, comparisons, tables, notes, progress and the dry run.

In: a document, or a plan. Out: renderables for a terminal.
May use `results` and what is below it; never measures.
"""
