"""Screens for people, files for programs, and the words of options: answers, tables, notes, pages, progress, formats.

In: a document, or a plan. Out: renderables for a terminal, or bytes. It never measures.
"""
